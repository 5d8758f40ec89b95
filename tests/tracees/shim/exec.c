/* exec while armed: one that fails, then one that works; mask and ignored signals pass, and the shim starts anew. */
#include "shim.h"
int main(int argc, char **argv) {
    uint8_t *p = fresh(4096);
    if (argc > 1) {
        sigset_t mask;
        struct sigaction act;
        sigprocmask(SIG_BLOCK, 0, &mask);
        sigaction(SIGFPE, 0, &act);
        printf("second %s usr2 %d segv %d ignored %d\n", argv[1], sigismember(&mask, SIGUSR2), sigismember(&mask, SIGSEGV),
               act.sa_handler == SIG_IGN);
        arm(p + 64, 64, 2, KEEP);
        store(p + 64, 1);
        disarm();
        return done("1:3 2:1");
    }
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    sigaddset(&mask, SIGSEGV);
    sigprocmask(SIG_BLOCK, &mask, 0);
    signal(SIGFPE, SIG_IGN);
    arm(p + 64, 64, 1, KEEP);
    store(p + 64, 1);
    execl("/nowhere/at/all", "x", (char *)0);
    must(errno == ENOENT, "no such file");
    store(p + 64, 1);
    sigset_t now;
    sigprocmask(SIG_BLOCK, 0, &now);
    must(sigismember(&now, SIGSEGV) == 1 && sigismember(&now, SIGTRAP) == 0, "mask after failure");
    store(p + 64, 1);
    strcpy((char *)p + 200, "argument");
    fflush(stdout);
    execl("/proc/self/exe", argv[0], (char *)p + 200, (char *)0);
    must(0, "exec");
}
