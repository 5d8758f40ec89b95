/* A thread computes, and another waits for it: by leaving the processor again and again (`yields`), or asleep (`joins`).
   yields ROUNDS yields|joins; prints what was computed, and to standard error how often it was left. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS (1 << 14)
static long words[WORDS], rounds;
static atomic_int over;

static void *compute(void *unused) {
    for (long round = 0; round < rounds; round++)
        for (long i = 0; i < WORDS; i++) words[(i * 17 + round) % WORDS] += i ^ round;
    over = 1;
    return unused;
}

int main(int argc, char **argv) {
    rounds = argc > 1 ? atol(argv[1]) : 200;
    long times = 0;
    pthread_t computing;
    if (pthread_create(&computing, NULL, compute, NULL)) return 9;
    if (argc > 2 && strcmp(argv[2], "yields") == 0)
        for (; !over; times++) sched_yield();
    pthread_join(computing, NULL);
    long sum = 0;
    for (long i = 0; i < WORDS; i++) sum += words[i];
    printf("%ld\n", sum);
    fprintf(stderr, "%ld\n", times);
}
