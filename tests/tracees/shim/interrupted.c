/* A read into a watched page, interrupted by signals: restarted with SA_RESTART, EINTR without; and left by longjmp. */
#include "shim.h"
static volatile int ticks, out = -1;
static sigjmp_buf away;
static int leaving;
static void tick(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info, (void)context;
    ticks++;
    if (ticks == 3 && out >= 0) must(write(out, "hello", 5) == 5, "write in handler");
    if (leaving) siglongjmp(away, 1);
}
static void alarms(int on) {
    struct itimerval timer = {{0, on * 3000}, {0, on * 3000}};
    setitimer(ITIMER_REAL, &timer, 0);
}
int main(void) {
    uint8_t *p = fresh(4096);
    int fds[2];
    must(pipe(fds) == 0, "pipe");
    handle(SIGALRM, tick, SA_RESTART);
    arm(p + 64, 64, 1, KEEP);
    out = fds[1];
    alarms(1);
    int got = read(fds[0], p + 60, 100);
    alarms(0);
    must(got == 5 && load(p + 60) == 'h' && load(p + 64) == 'o', "restarted");
    out = -1;
    handle(SIGALRM, tick, 0);
    alarms(1);
    errno = 0;
    got = read(fds[0], p + 60, 100);
    alarms(0);
    must(got == -1 && errno == EINTR, "interrupted");
    leaving = 1;
    if (sigsetjmp(away, 1) == 0) {
        alarms(1);
        got = read(fds[0], p + 60, 100);
        must(0, "left");
    }
    alarms(0);
    /* The page must be closed again. */
    store(p + 70, 1);
    /* Long, so that a busy machine does not let it end before the signal is seen; and again and again, as it may come before the call. */
    struct timespec nap = {2, 0}, rest;
    leaving = 0;
    alarms(1);
    must(nanosleep(&nap, &rest) == -1 && errno == EINTR && rest.tv_sec + rest.tv_nsec > 0, "sleep cut short");
    alarms(0);
    disarm();
    printf("read %c%c\n", p[60], p[64]);
    return done("1:2");
}
