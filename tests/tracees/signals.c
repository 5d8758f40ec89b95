/* Queues real-time signals to the first thread while that works, and counts those it gets: none may be
   lost. signals COUNT; prints the count, exits 5. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define WORDS (1u << 16)
static volatile long got, sum;
static long wanted;
static pthread_t first;

static void on_signal(int number, siginfo_t *info, void *context) {
    got += number == SIGRTMIN && context != 0;
    sum += info->si_value.sival_int;
}

static void *sender(void *unused) {
    for (long i = 0; i < wanted; i++) {
        union sigval value = {.sival_int = (int)(i % 7)};
        while (pthread_sigqueue(first, SIGRTMIN, value) == EAGAIN) sched_yield();
        for (volatile int wait = 0; wait < 2000; wait++) {}
    }
    return unused;
}

int main(int count, char **words) {
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    unsigned *numbers = malloc(WORDS * sizeof *numbers), mixed = 0;
    sigset_t set;
    pthread_t thread;
    wanted = count > 1 ? atol(words[1]) : 1000;
    /* Where one is lost it would wait for ever. */
    alarm(600);
    first = pthread_self();
    sigaction(SIGRTMIN, &action, 0);
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    for (unsigned i = 0; i < WORDS; i++) numbers[i] = i * 2654435761u;
    if (pthread_create(&thread, 0, sender, 0)) return 99;
    while (got < wanted)
        for (unsigned i = 0; i < WORDS; i++) mixed += numbers[(numbers[i] + mixed) & (WORDS - 1)];
    pthread_join(thread, 0);
    printf("%ld %ld %s\n", got, sum, mixed == 1 ? "" : "done");
    return 5;
}
