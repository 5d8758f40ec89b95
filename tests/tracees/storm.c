/* A timer that goes off COUNT times, HERTZ times a second, and longer while WORK rounds are done, and CHILDREN children,
   at most 50 at a time, each with a status to be seen: prints the sums. storm COUNT HERTZ CHILDREN WORK; exits 5. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t ticks;
static void on_tick(int number) { ticks += number == SIGRTMIN + 1; }

int main(int count, char **words) {
    long wanted = count > 1 ? atol(words[1]) : 1000, hertz = count > 2 ? atol(words[2]) : 1000;
    long children = count > 3 ? atol(words[3]) : 0, work = count > 4 ? atol(words[4]) : 0, live = 0, statuses = 0, ended = 0;
    unsigned *numbers = malloc(4 << 16), mixed = 0;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 1};
    struct itimerspec interval = {{0, 1000000000 / hertz}, {0, 1000000000 / hertz}};
    timer_t timer;
    signal(SIGRTMIN + 1, on_tick);
    for (unsigned i = 0; i < 1 << 16; i++) numbers[i] = i * 2654435761u;
    if (wanted && (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &interval, 0))) return 99;
    for (long round = 0; ticks < wanted || round < work; round++)
        for (unsigned i = 0; i < 1 << 12; i++) mixed += numbers[(numbers[i] + mixed) & 0xffff];
    if (wanted) timer_delete(timer);
    for (long i = 0; i < children || live; ) {
        int status;
        if (i < children && live < 50) {
            pid_t child = fork();
            if (child < 0) return 98;
            if (!child) _exit((int)(numbers[i & 0xffff] % 7));
            i++, live++;
            continue;
        }
        if (wait(&status) < 0) return 97;
        statuses += WEXITSTATUS(status), ended++, live--;
    }
    printf("%d %ld %ld\n", ticks >= wanted, ended, statuses);
    return 5;
}
