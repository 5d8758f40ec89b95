/* execve by a thread that is not the first, while others run, sleep and hold pages open. */
#include "shim.h"
static uint8_t *p;
static int fds[2];
static char **self;
static void *busy(void *unused) { for (;;) store(p + 70, load(p + 300) + 1); return unused; }
static void *asleep(void *unused) { read(fds[0], p + 60, 10); return unused; }
static void *executes(void *unused) {
    usleep(10000);
    strcpy((char *)p + 200, "again");
    execl("/proc/self/exe", self[0], (char *)p + 200, (char *)0);
    must(0, "exec");
    return unused;
}
int main(int argc, char **argv) {
    if (argc > 1) {
        struct sigaction act;
        sigaction(SIGSEGV, 0, &act);
        must(act.sa_handler == SIG_DFL, "its own dispositions");
        printf("%s %d\n", argv[1], (int)(getpid() == (pid_t)syscall(SYS_gettid)));
        return done("any");
    }
    self = argv;
    p = fresh(4096);
    must(pipe(fds) == 0, "pipe");
    arm(p + 64, 64, 1, KEEP);
    pthread_t id;
    pthread_create(&id, 0, busy, 0), pthread_create(&id, 0, asleep, 0), pthread_create(&id, 0, executes, 0);
    for (;;) pause();
}
