/* Its heap ends more than 2 GiB behind its code, which lies at a fixed low address: cc -no-pie. Nothing is left near the code. Computes with what lies
   beside the code and far from it. heap ROUNDS; prints what was computed. */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define WORDS (1 << 14)
static long near[WORDS], (*step)(long);

static long twice(long value) { return 2 * value + 1; }
static long half(long value) { return value / 2 - 3; }

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 200, sum = 0;
    /* As much as there is below 4 GiB; where it begins is random. */
    long much = 0xc0000000L - ((long)sbrk(0) & 0xfff) - (long)sbrk(0);
    long *far = much > 0 ? sbrk(much) : (void *)-1;
    if (far == (void *)-1) {
        puts("skip: no such heap");
        return 0;
    }
    far += much / 8 - WORDS;
    for (long round = 0; round < rounds; round++)
        for (long i = 0; i < WORDS; i++) {
            step = (i ^ round) & 1 ? twice : half;
            near[(i * 17 + round) % WORDS] += step(far[i]);
            far[i] += near[i] >> 3;
        }
    for (long i = 0; i < WORDS; i++) sum += near[i] ^ far[i];
    printf("%ld\n", sum);
    return 7;
}
