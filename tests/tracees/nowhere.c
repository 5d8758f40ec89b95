// Calls code at address 0, as programs do that have system calls replaced by calls of their numbers; who may not map that page skips.
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

int main(void) {
    unsigned char *page = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (page == MAP_FAILED) {
        puts("skip");
        return 0;
    }
    // Byte by byte: compilers take what is stored at address 0 for a mistake.
    static const unsigned char code[] = {0x48, 0x8d, 0x47, 0x01, 0xc3}; // lea rax, [rdi + 1]; ret
    unsigned char *volatile at = page;
    for (unsigned i = 0; i < sizeof code; i++)
        __asm__ volatile("movb %1, (%0)" ::"r"(at + i), "q"(code[i]) : "memory");
    mprotect(at, 4096, PROT_READ | PROT_EXEC);
    unsigned long sum = 0;
    for (unsigned i = 0; i < 3000000; i++) {
        unsigned long target = 0, result, argument = sum;
        __asm__ volatile("sub $128, %%rsp\n call *%2\n add $128, %%rsp" : "=a"(result), "+D"(argument) : "r"(target) : "memory", "cc");
        sum = result;
    }
    printf("%lu\n", sum);
    return 0;
}
