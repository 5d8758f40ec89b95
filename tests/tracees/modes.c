/* Goes to 32-bit code and back ("narrow"), or steps through a few instructions of its own by the trap flag ("steps"). To be built with -no-pie, for a far
   return to 32 bits of address. modes WAY ROUNDS; says what came of it; exit status 4. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static volatile long traps;

static void on_trap(int number) { traps += number == SIGTRAP; }

/* mov ecx, 500; round: inc eax; dec ecx; jnz round; retf: in 64-bit code inc and dec would be prefixes. */
static const unsigned char code[] = {0xb9, 0xf4, 0x01, 0, 0, 0x40, 0x49, 0x75, 0xfc, 0xcb};

static long narrow(long rounds) {
    static struct { uint32_t offset; uint16_t selector; } to = {0, 0x23};
    unsigned char *low = mmap(0, 1 << 16, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    unsigned char *stack = low + (1 << 16);
    long sum = 0;
    if (low == MAP_FAILED) exit(90);
    memcpy(low, code, sizeof code);
    to.offset = (uint32_t)(uintptr_t)low;
    for (long i = 0; i < rounds; i++) {
        uint32_t value = i;
        asm volatile("mov %%rsp, %%r12\n mov %[stack], %%rsp\n lcall *%[to]\n mov %%r12, %%rsp"
                     : "+a"(value)
                     : [stack] "r"(stack), [to] "m"(to)
                     : "rcx", "r12", "memory", "cc");
        sum += value;
    }
    return sum;
}

static long steps(long rounds) {
    signal(SIGTRAP, on_trap);
    for (long i = 0; i < rounds; i++)
        asm volatile("sub $128, %%rsp\n pushfq\n orq $0x100, (%%rsp)\n popfq\n nop\n nop\n pushfq\n andq $~0x100, (%%rsp)\n popfq\n add $128, %%rsp" ::: "memory", "cc");
    return traps;
}

int main(int argc, char **argv) {
    long rounds = argc > 2 ? atol(argv[2]) : 1000;
    printf("%ld\n", argc > 1 && !strcmp(argv[1], "steps") ? steps(rounds) : narrow(rounds));
    return 4;
}
