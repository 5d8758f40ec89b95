/* A thread sleeps on when the last watch goes; then the program sets a handler that blocks every signal, and sends that thread its signal:
   what the handler does in system calls is nobody's business any more. Its ways out: return, and longjmp. */
#include "shim.h"
static uint8_t *p;
static int fds[2], told[2];
static sigjmp_buf away;
static volatile int leaves, handled;
static void on(int signal, siginfo_t *info, void *context) {
    char byte = 'h';
    must(write(told[1], &byte, 1) == 1 && getppid() > 0, "calls in the handler");
    handled++;
    if (leaves) siglongjmp(away, 1);
    (void)signal, (void)info, (void)context;
}
static void *sleeper(void *unused) {
    char byte;
    for (volatile int n = 0; n < 40; n++) {
        if (sigsetjmp(away, 1) == 0) {
            ssize_t got;
            while ((got = read(fds[0], &byte, 1)) < 0) must(errno == EINTR, "read");
            must(got == 1, "read one");
        } else {
            must(read(fds[0], &byte, 1) == 1, "read again");
        }
        store(p + 64, n);
        must(write(told[1], &byte, 1) == 1, "tell");
    }
    return unused;
}
static void wait_for_one(void) {
    char byte;
    must(read(told[0], &byte, 1) == 1, "told");
}
int main(void) {
    p = fresh(4096);
    must(pipe(fds) == 0 && pipe(told) == 0, "pipes");
    pthread_t id;
    pthread_create(&id, 0, sleeper, 0);
    for (int n = 0; n < 40; n++) {
        /* Time to fall asleep. */
        usleep(3000);
        while (armed_as(p + 64, 64, n, 0) == -4) usleep(1000);
        disarm();
        struct sigaction act = {.sa_sigaction = on, .sa_flags = SA_SIGINFO | (n % 3 ? SA_RESTART : 0)};
        sigfillset(&act.sa_mask);
        if (n % 4 < 3) {
            leaves = n % 8 == 1;
            sigaction(SIGUSR1, &act, 0);
            pthread_kill(id, SIGUSR1);
            wait_for_one();
        }
        must(write(fds[1], "x", 1) == 1, "wake");
        wait_for_one();
        signal(SIGUSR1, SIG_DFL);
    }
    pthread_join(id, 0);
    struct sigaction now;
    sigaction(SIGSEGV, 0, &now);
    must(now.sa_handler == SIG_DFL, "its own dispositions");
    printf("handled %d\n", handled);
    return done("any");
}
