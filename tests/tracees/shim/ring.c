/* Goes round 40 lines, one access each, for as long as the argument says (thousands of rounds): every 64-byte line is reused after 39
   others, by one of 40 loads two instructions apart. */
#include <stdio.h>
#include <stdlib.h>
#define LINES 40
static unsigned char ring[64 * (LINES + 1)] __attribute__((aligned(4096)));
int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) * 1000 : 1000;
    unsigned long sum = 0;
    for (int i = 0; i < LINES; i++) ring[64 * i] = i;
    asm volatile(
        "1:\n\t"
        "movl $40, %%ecx\n\t"
        "mov %1, %%rdx\n\t"
        "2:\n\t"
        "movzbl (%%rdx), %%eax\n\t"
        "add %%rax, %0\n\t"
        "add $64, %%rdx\n\t"
        "dec %%ecx\n\t"
        "jnz 2b\n\t"
        "dec %2\n\t"
        "jnz 1b\n\t"
        : "+r"(sum)
        : "r"(ring), "r"(rounds)
        : "rax", "rcx", "rdx", "cc", "memory");
    printf("%lu\n", sum);
    return 7;
}
