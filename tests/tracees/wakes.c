/* Computes for long without a system call beside a thread that the clock wakes up and one that reads what it writes at times: each must get on, and
   nothing be lost or cut. wakes ROUNDS; says so, and exits 6. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define WORDS (1 << 16)
#define STEPS 2000000
#define MUCH 200000
static int way[2];
static atomic_int over;
static atomic_long ticks, got;
static long words[WORDS];
static char block[MUCH];

static void *tick(void *unused) {
    while (!over) {
        struct timespec short_while = {0, 300000};
        nanosleep(&short_while, NULL);
        ticks++;
    }
    return unused;
}

static void *take(void *unused) {
    static char piece[5000];
    long length;
    while ((length = read(way[0], piece, sizeof piece)) > 0) got += length;
    return unused;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 60, sum = 0, cut = 0, sent = 0, without = 0;
    pthread_t ticking, taking;
    if (pipe(way) || pthread_create(&ticking, NULL, tick, NULL) || pthread_create(&taking, NULL, take, NULL)) return 9;
    for (long round = 0; round < rounds; round++) {
        long before = ticks;
        for (long i = 0; i < STEPS; i++) sum += words[(i * 17 + round) % WORDS]++;
        without += ticks == before;
        long length = write(way[1], block, MUCH);
        cut += length != MUCH;
        sent += length > 0 ? length : 0;
    }
    close(way[1]);
    pthread_join(taking, NULL);
    over = 1;
    pthread_join(ticking, NULL);
    printf("%ld, %ld cut, %ld lost, clock %s\n", sum, cut, sent - got, 2 * without < rounds ? "goes" : "stands");
    return 6;
}
