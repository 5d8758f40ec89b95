/* What threads do to each other's lines. sharing HOW ROUNDS, HOW one of
   counters  two threads count, 8 bytes apart
   padded    the same, 256 bytes apart
   handed    one writes what the other reads
   apart     each reads 24 KiB of its own, again and again
   Prints a sum that must not change. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Alignas(4096) volatile unsigned long counters[512];
static unsigned long rounds, sums[2];
static pthread_barrier_t start;

static void *count(void *at) {
    volatile unsigned long *mine = at;
    unsigned long unrelated[8] = {0};
    pthread_barrier_wait(&start);
    for (unsigned long i = 0; i < rounds; i++) {
        ++*mine;
        ((volatile unsigned long *)unrelated)[i & 7]++;
    }
    return 0;
}

static void *hand(void *unused) {
    pthread_barrier_wait(&start);
    for (unsigned long i = 0; i < rounds; i++) counters[i & 7] = i;
    return unused;
}

static void *take(void *sum) {
    unsigned long got = 0;
    pthread_barrier_wait(&start);
    for (unsigned long i = 0; i < rounds; i++) got |= counters[i & 7];
    *(unsigned long *)sum = got > 0;
    return 0;
}

static void *sweep(void *sum) {
    enum { WORDS = 24 * 1024 / 8 };
    unsigned long *words = aligned_alloc(4096, WORDS * sizeof *words), all = 0;
    memset(words, 1, WORDS * sizeof *words);
    pthread_barrier_wait(&start);
    for (unsigned long i = 0; i < rounds; i++) all += ((volatile unsigned long *)words)[i % WORDS];
    free(words);
    *(unsigned long *)sum = all;
    return 0;
}

int main(int count_, char **words) {
    if (count_ < 3) return 96;
    pthread_t threads[2];
    int apart = words[1][0] == 'p' ? 32 : 1;
    rounds = strtoul(words[2], 0, 10);
    pthread_barrier_init(&start, 0, 2);
    for (int i = 0; i < 2; i++) {
        switch (words[1][0]) {
        case 'h': pthread_create(&threads[i], 0, i ? take : hand, &sums[i]); break;
        case 'a': pthread_create(&threads[i], 0, sweep, &sums[i]); break;
        default: pthread_create(&threads[i], 0, count, (void *)&counters[i * apart]);
        }
    }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    printf("%lu\n", words[1][0] == 'h' ? 0 : sums[0] + sums[1] + counters[0] + counters[apart]);
    return 0;
}
