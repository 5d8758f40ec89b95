/* Turns of a loop that makes no access to memory and one of loads from 512 KiB. idles TURNS LOADS STEPS: so many of either in all. Prints sums;
   where the first loop has most of the time, windows must not take it for time of the other's. */
#include <stdio.h>
#include <stdlib.h>

long numbers[1 << 16];

__attribute__((noinline)) static double think(long steps) {
    double sum = 1;
    for (long i = 0; i < steps; i++) {
        sum = sum * 1.0000001 + 1e-9;
        __asm__ volatile("" : "+x"(sum));
    }
    return sum;
}

__attribute__((noinline)) static long load(long loads) {
    long sum = 0;
    for (long i = 0; i < loads; i++) {
        sum += numbers[i * 8 & 0xffff];
        __asm__ volatile("" : "+r"(sum));
    }
    return sum;
}

int main(int count, char **words) {
    long turns = count > 1 ? atol(words[1]) : 1, loads = count > 2 ? atol(words[2]) : 0, steps = count > 3 ? atol(words[3]) : 0, sum = 0;
    double thought = 0;
    for (long turn = 0; turn < turns; turn++) {
        thought += think(steps / turns);
        sum += load(loads / turns);
    }
    printf("%ld %g\n", sum, thought);
    return 0;
}
