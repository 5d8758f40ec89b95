/* Works in two threads and sleeps in every way in others, checking each result: none may ever see an
   interrupted call. server SECONDS (or until SIGUSR1); prints "bad N" (0: nothing noticed) and whether its timer ran. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define WORDS (1u << 18)
static volatile int bad;
static volatile long ticks;
static volatile sig_atomic_t asked;
static int ends[2];
static atomic_int at_work;

static void on_alarm(int number) { ticks += number == SIGALRM; }

static void on_usr1(int number) { asked = number == SIGUSR1; }

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

static void *sleeper(void *unused) {
    struct timespec time = {0, 3000000};
    for (;;)
        if (clock_nanosleep(CLOCK_MONOTONIC, 0, &time, 0)) bad = 1;
    return unused;
}

static void *poller(void *unused) {
    struct epoll_event event;
    int set = epoll_create1(0);
    for (;;)
        if (epoll_wait(set, &event, 1, 20)) bad = 2;
    return unused;
}

static void *reader(void *unused) {
    char byte;
    for (;;)
        if (read(ends[0], &byte, 1) != 1) bad = 3;
    return unused;
}

static void *worker(void *unused) {
    unsigned *words = malloc(WORDS * sizeof *words), sum = 0;
    for (unsigned i = 0; i < WORDS; i++) words[i] = i * 2654435761u;
    atomic_fetch_add(&at_work, 1);
    for (;;) {
        unsigned check = 0;
        char byte = 1;
        for (unsigned i = 0; i < WORDS; i++) sum += words[(words[i] + sum) & (WORDS - 1)];
        for (unsigned i = 0; i < WORDS; i++) check += words[i];
        if (check != (unsigned)((unsigned long)WORDS * (WORDS - 1) / 2 * 2654435761u)) bad = 4;
        if (write(ends[1], &byte, 1) != 1) bad = 5;
    }
    return unused;
}

int main(int count, char **words) {
    double until = now() + (count > 1 ? atof(words[1]) : 5);
    void *(*const threads[])(void *) = {sleeper, poller, reader, worker, worker};
    struct itimerval interval = {{0, 10000}, {0, 10000}};
    sigset_t of_main;
    if (pipe(ends)) return 99;
    sigemptyset(&of_main);
    sigaddset(&of_main, SIGALRM);
    sigaddset(&of_main, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &of_main, 0);
    for (int i = 0; i < 5; i++) {
        pthread_t thread;
        if (pthread_create(&thread, 0, threads[i], 0)) return 98;
    }
    signal(SIGALRM, on_alarm);
    signal(SIGUSR1, on_usr1);
    pthread_sigmask(SIG_UNBLOCK, &of_main, 0);
    setitimer(ITIMER_REAL, &interval, 0);
    /* No mapping is made behind this. */
    while (at_work < 2) usleep(1000);
    puts("ready");
    fflush(stdout);
    while (!asked && now() < until) pause();
    printf("bad %d, timer %s\n", bad, ticks > 20 ? "ran" : "stood still");
    return bad;
}
