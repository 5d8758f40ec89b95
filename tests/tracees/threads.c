/* Threads that work, and threads that come and go: prints a sum that must not change, exits 7.
   threads WORKERS BRIEF ROUNDS [stay]: with `stay` the workers go on after their rounds, which alone count,
   until the end of standard input. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS (1u << 18)
static unsigned long sums[16];
static long rounds;
static volatile int stay;

static void *work(void *argument) {
    long id = (long)argument;
    unsigned *words = malloc(WORDS * sizeof *words);
    unsigned long sum = 0;
    for (unsigned i = 0; i < WORDS; i++) words[i] = i * 2654435761u;
    for (long round = 0; round < rounds; round++)
        for (unsigned i = 0; i < WORDS; i++) sum += words[(words[i] ^ round) & (WORDS - 1)];
    sums[id] = sum;
    while (stay)
        for (unsigned i = 0; i < WORDS; i++) sum += ((volatile unsigned *)words)[words[i] & (WORDS - 1)];
    free(words);
    return 0;
}

static void *brief(void *argument) {
    volatile char bytes[4096];
    memset((void *)bytes, 1, sizeof bytes);
    return (void *)(long)(bytes[5] + (long)argument - (long)argument);
}

int main(int count, char **words) {
    long workers = count > 1 ? atol(words[1]) : 2, brief_ones = count > 2 ? atol(words[2]) : 100;
    unsigned long sum = 0;
    pthread_t threads[16], *many = calloc(brief_ones, sizeof *many);
    rounds = count > 3 ? atol(words[3]) : 30;
    stay = count > 4;
    for (long i = 0; i < workers; i++)
        if (pthread_create(threads + i, 0, work, (void *)i)) return 99;
    /* Some one after the other, the rest at once. */
    for (long i = 0; i < brief_ones; i++) {
        void *result = 0;
        if (pthread_create(many + i, 0, brief, 0)) return 98;
        if (i % 2) continue;
        pthread_join(many[i], &result);
        sum += (long)result;
    }
    for (long i = 1; i < brief_ones; i += 2) {
        void *result = 0;
        pthread_join(many[i], &result);
        sum += (long)result;
    }
    while (stay && getchar() != EOF) {}
    stay = 0;
    for (long i = 0; i < workers; i++) {
        pthread_join(threads[i], 0);
        sum += sums[i];
    }
    printf("%lu\n", sum);
    return 7;
}
