/* Its first thread waits for alarms in calls that each of them is to interrupt, while others compute and one sleeps in a call that none is to. waits ALARMS
   [THREADS]; says how many interrupted none, how many handlers ran in another thread, whether any was told of another sender than the kernel, how
   often the sleep was cut, and how many ends of children came to another thread than the one that had forked them; exit status 5. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int stop, elsewhere, forged, cut, forker, stray;
static int numbers[4096];

static void on_alarm(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    elsewhere += syscall(SYS_gettid) != getpid();
    forged += info->si_code != SI_KERNEL;
}

static void on_child(int number) {
    (void)number;
    stray += syscall(SYS_gettid) != forker;
}

/* One child after the other, each of which ends while it sleeps. */
static void *fork_on(void *unused) {
    forker = syscall(SYS_gettid);
    for (int i = 0; i < 10; i++) {
        pid_t child = fork();
        if (!child) {
            usleep(20000);
            _exit(0);
        }
        usleep(900000);
        waitpid(child, 0, 0);
    }
    return unused;
}

static void *compute(void *unused) {
    volatile int sum = 0;
    while (!stop)
        for (int i = 0; i < 4096; i++) sum += numbers[i];
    return unused;
}

static void *sleep_on(void *ends) {
    int set = epoll_create1(0), got;
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(set, EPOLL_CTL_ADD, *(int *)ends, &event);
    while ((got = epoll_wait(set, &event, 1, 20000)) != 1) cut += got == -1 && errno == EINTR;
    return ends;
}

int main(int count, char **words) {
    struct sigaction action = {.sa_sigaction = on_alarm, .sa_flags = SA_SIGINFO};
    int alarms = count > 1 ? atoi(words[1]) : 20, threads = count > 2 ? atoi(words[2]) : 1, missed = 0;
    pthread_t others[8], sleeper, forks;
    int ends[2];
    if (pipe(ends)) return 90;
    signal(SIGCHLD, on_child);
    pthread_create(&sleeper, 0, sleep_on, ends);
    pthread_create(&forks, 0, fork_on, 0);
    sigaction(SIGALRM, &action, 0);
    for (int i = 0; i < threads; i++) pthread_create(&others[i], 0, compute, 0);
    for (int i = 0; i < alarms; i++) {
        struct itimerval once = {.it_value.tv_usec = 60000};
        setitimer(ITIMER_REAL, &once, 0);
        missed += poll(0, 0, 3000) != -1 || errno != EINTR;
    }
    pthread_join(forks, 0);
    stop = 1;
    for (int i = 0; i < threads; i++) pthread_join(others[i], 0);
    if (write(ends[1], "", 1) != 1) return 91;
    pthread_join(sleeper, 0);
    printf("missed %d, elsewhere %d, forged %d, cut %d, stray %d\n", missed, elsewhere, forged, cut, stray);
    return 5;
}
