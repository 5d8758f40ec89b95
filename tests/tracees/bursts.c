/* Turns of a walk that waits for memory at each step and of a sweep through 1 MiB that does not. bursts TURNS STEPS LOADS: so many of either in all.
   Prints the walk's end and a sum; the sweep makes most of the accesses in little of the time, so that few windows fall into it by chance. */
#include <stdio.h>
#include <stdlib.h>

enum { LINES = 1 << 19, NUMBERS = 1 << 17 };
struct { unsigned next; char rest[60]; } lines[LINES];
long numbers[NUMBERS];

__attribute__((noinline)) static unsigned walk(unsigned at, long steps) {
    for (long i = 0; i < steps; i++)
        at = lines[at].next;
    return at;
}

__attribute__((noinline)) static long sweep(long loads) {
    long sum = 0;
    for (long i = 0; i < loads; i++) {
        sum += numbers[i & (NUMBERS - 1)];
        __asm__ volatile("" : "+r"(sum));
    }
    return sum;
}

int main(int count, char **words) {
    long turns = count > 1 ? atol(words[1]) : 1, steps = count > 2 ? atol(words[2]) : 0, loads = count > 3 ? atol(words[3]) : 0, sum = 0;
    unsigned at = 0;
    for (unsigned i = 0; i < LINES; i++)
        lines[i].next = (i * 1664525u + 1013904223u) & (LINES - 1);
    for (long turn = 0; turn < turns; turn++) {
        at = walk(at, steps / turns);
        sum += sweep(loads / turns);
    }
    printf("%u %ld\n", at, sum);
    return 0;
}
