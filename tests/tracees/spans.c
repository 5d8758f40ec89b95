/* Walks 1 MiB again and again by 16-byte loads that may lie in several lines, with loads of one word in between: OFFSET STEP WORDS ROUNDS. */
#include <stdio.h>
#include <stdlib.h>

#define BYTES (1 << 20)

static char walked[BYTES + 4096] __attribute__((aligned(4096)));
static long word __attribute__((aligned(4096)));

int main(int count, char **words) {
    if (count < 5) return 2;
    long offset = atol(words[1]), step = atol(words[2]), hot = atol(words[3]), rounds = atol(words[4]);
    for (long round = 0; round < rounds; round++) {
        for (long at = offset; at < BYTES; at += step) {
            asm volatile("movdqu (%0), %%xmm0" : : "r"(walked + at) : "xmm0", "memory");
            for (long n = 0; n < hot; n++) asm volatile("mov (%0), %%rax" : : "r"(&word) : "rax", "memory");
        }
    }
    puts("done");
    return 0;
}
