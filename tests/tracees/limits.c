/* Four threads wait a few times for what does not come, with a time limit, while one computes until they are through. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

enum { WAITS = 2, LIMIT_MS = 1500, DEADLINE_S = 15 };
static atomic_int through, waits;
static int semaphores;
static int words[1 << 18];

static int by_epoll(void) {
    static _Thread_local int epoll = -1;
    if (epoll < 0) epoll = epoll_create1(0);
    struct epoll_event event;
    return epoll_wait(epoll, &event, 1, LIMIT_MS) == 0;
}

static int by_semaphore(void) {
    struct sembuf take = {0, -1, 0};
    struct timespec limit = {LIMIT_MS / 1000, LIMIT_MS % 1000 * 1000000};
    return semtimedop(semaphores, &take, 1, &limit) < 0 && errno == EAGAIN;
}

static int by_signal(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    struct timespec limit = {LIMIT_MS / 1000, LIMIT_MS % 1000 * 1000000};
    return sigtimedwait(&set, 0, &limit) < 0 && errno == EAGAIN;
}

static int by_socket(void) {
    static _Thread_local int ends[2] = {-1, -1};
    struct timeval limit = {LIMIT_MS / 1000, LIMIT_MS % 1000 * 1000};
    if (ends[0] < 0 && (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) || setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit))) return 0;
    char byte;
    return recv(ends[0], &byte, 1, 0) < 0 && errno == EAGAIN;
}

static void *waits_by(void *how) {
    for (int n = 0; n < WAITS; n++)
        if (((int (*)(void))how)()) waits++;
    through++;
    return 0;
}

int main(void) {
    int (*ways[])(void) = {by_epoll, by_semaphore, by_signal, by_socket};
    pthread_t id[4];
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, 0);
    semaphores = semget(IPC_PRIVATE, 1, 0600);
    for (int n = 0; n < 4; n++) pthread_create(&id[n], 0, waits_by, (void *)ways[n]);
    time_t end = time(0) + DEADLINE_S;
    unsigned long at = 1;
    while (through < 4 && time(0) < end)
        for (int n = 0; n < 200000; n++) words[(at = at * 6364136223846793005ul + 1) >> 46]++;
    int late = through < 4;
    for (int n = 0; n < 4; n++) pthread_join(id[n], 0);
    semctl(semaphores, 0, IPC_RMID);
    printf("%d waits%s\n", waits, late ? ", starved" : "");
    return 0;
}
