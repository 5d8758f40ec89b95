/* Goes round 40 lines, or as many as the second argument says, 64 bytes from each other, or as many as the third says (8 MB at most), one access
   each, for as long as the first says (thousands of rounds): every line is reused after all others, each by the same load. */
#include <stdio.h>
#include <stdlib.h>
static unsigned char ring[1 << 23] __attribute__((aligned(4096)));
int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) * 1000 : 1000;
    int lines = argc > 2 ? atoi(argv[2]) : 40;
    long apart = argc > 3 ? atol(argv[3]) : 64;
    unsigned long sum = 0;
    for (int i = 0; i < lines; i++) ring[apart * i] = i;
    asm volatile(
        "1:\n\t"
        "movl %3, %%ecx\n\t"
        "mov %1, %%rdx\n\t"
        "2:\n\t"
        "movzbl (%%rdx), %%eax\n\t"
        "add %%rax, %0\n\t"
        "add %4, %%rdx\n\t"
        "dec %%ecx\n\t"
        "jnz 2b\n\t"
        "dec %2\n\t"
        "jnz 1b\n\t"
        : "+r"(sum)
        : "r"(ring), "r"(rounds), "r"(lines), "r"(apart)
        : "rax", "rcx", "rdx", "cc", "memory");
    printf("%lu\n", sum);
    return 7;
}
