/* A server in a place that programs seldom are in, as the argument says: with rights given up ("dropped"), so that the kernel tells nobody but
   root what its threads do; with its memory another process's, too ("shared"). One thread works, one reads what it writes, one sleeps.
   Until SIGUSR1, or for five minutes. Says how often anything went wrong, and exits 5; 77 where it cannot get there. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORDS (1 << 16)
static volatile int bad, over;
static volatile long got, beside;
static int way[2];
static unsigned words[WORDS];
static char stack[1 << 16];

static volatile sig_atomic_t asked;

static void on_usr1(int number) { asked = number == SIGUSR1; }

static void *reader(void *unused) {
    char bytes[64];
    long length;
    while ((length = read(way[0], bytes, sizeof bytes)) > 0) got += length;
    bad += length < 0;
    return unused;
}

static void *sleeper(void *unused) {
    struct timespec time = {0, 3000000};
    while (!over) bad += nanosleep(&time, 0) != 0;
    return unused;
}

static int peer(void *unused) {
    (void)unused;
    while (!over) {
        for (int i = 0; i < WORDS; i += 16) beside += words[i];
        usleep(1000);
    }
    return 0;
}

int main(int count, char **arguments) {
    const double most = 300;
    sigset_t of_main;
    int shares = count > 1 && !strcmp(arguments[1], "shared");
    pthread_t threads[2];
    long sent = 0;
    struct timespec begun, now;
    pid_t child = 0;
    if (pipe(way)) return 99;
    if (shares) {
        child = clone(peer, stack + sizeof stack, CLONE_VM | SIGCHLD, 0);
        if (child < 0) return 77;
    } else if (setgid(65534) || setuid(65534)) return 77;
    sigemptyset(&of_main);
    sigaddset(&of_main, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &of_main, 0);
    if (pthread_create(&threads[0], 0, reader, 0) || pthread_create(&threads[1], 0, sleeper, 0)) return 98;
    signal(SIGUSR1, on_usr1);
    pthread_sigmask(SIG_UNBLOCK, &of_main, 0);
    clock_gettime(CLOCK_MONOTONIC, &begun);
    puts("ready");
    fflush(stdout);
    do {
        unsigned sum = 0;
        for (int i = 0; i < 4 * WORDS; i++) sum += words[(i * 17u + sum) % WORDS];
        bad += sum != 0;
        if (write(way[1], "x", 1) == 1) sent++;
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (!asked && now.tv_sec - begun.tv_sec < most);
    over = 1;
    close(way[1]);
    pthread_join(threads[0], 0);
    pthread_join(threads[1], 0);
    if (child && waitpid(child, 0, 0) != child) bad++;
    printf("bad %d, lost %ld\n", bad, sent - got);
    return 5;
}
