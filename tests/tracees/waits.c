/* Its first thread waits for alarms in calls that each of them is to interrupt, while others compute. waits ALARMS [THREADS]; says how many
   interrupted none, how many handlers ran in another thread, and whether any was told of another sender than the kernel; exit status 5. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

static volatile int stop, elsewhere, forged;
static int numbers[4096];

static void on_alarm(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    elsewhere += syscall(SYS_gettid) != getpid();
    forged += info->si_code != SI_KERNEL;
}

static void *compute(void *unused) {
    volatile int sum = 0;
    while (!stop)
        for (int i = 0; i < 4096; i++) sum += numbers[i];
    return unused;
}

int main(int count, char **words) {
    struct sigaction action = {.sa_sigaction = on_alarm, .sa_flags = SA_SIGINFO};
    int alarms = count > 1 ? atoi(words[1]) : 20, threads = count > 2 ? atoi(words[2]) : 1, missed = 0;
    pthread_t others[8];
    sigaction(SIGALRM, &action, 0);
    for (int i = 0; i < threads; i++) pthread_create(&others[i], 0, compute, 0);
    for (int i = 0; i < alarms; i++) {
        struct itimerval once = {.it_value.tv_usec = 60000};
        setitimer(ITIMER_REAL, &once, 0);
        missed += poll(0, 0, 3000) != -1 || errno != EINTR;
    }
    stop = 1;
    for (int i = 0; i < threads; i++) pthread_join(others[i], 0);
    printf("missed %d, elsewhere %d, forged %d\n", missed, elsewhere, forged);
    return 5;
}
