// Two threads side by side, one of which goes through a small array and one, several times more slowly, at random through a large one. Prints what
// share of the accesses are the second one's, while both run.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { SMALL = 1 << 10, LARGE = 4 << 20 };
static unsigned long small[SMALL], *large;
static volatile int over;
static unsigned long done;

static void *hits(void *unused) {
    unsigned long sum = 0, n = 0;
    while (!over)
        for (unsigned i = 0; i < SMALL; i += 8, n += 8) {
            volatile unsigned long *at = small + i;
            for (int k = 0; k < 8; k++)
                sum = sum * 6364136223846793005 + at[k];
        }
    done = n;
    small[0] = sum;
    return unused;
}

int main(int argc, char **argv) {
    unsigned long misses = argc > 1 ? strtoul(argv[1], 0, 10) : 100000000, sum = 0, x = 88172645463325252;
    large = calloc(LARGE, sizeof *large);
    for (unsigned i = 0; i < LARGE; i += 512)
        large[i] = 1;
    pthread_t thread;
    pthread_create(&thread, 0, hits, 0);
    for (unsigned long i = 0; i < misses; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        sum += *(volatile unsigned long *)(large + x % LARGE);
    }
    over = 1;
    pthread_join(thread, 0);
    printf("%.4f\n", (double)misses / (misses + done));
    return sum == 1;
}
