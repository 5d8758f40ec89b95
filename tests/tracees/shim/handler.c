/* A watched line touched by signal handlers that block every signal, on the normal and on an alternate stack. */
#include "shim.h"
static uint8_t *p;
static volatile int on_alternate;
static char *alternate;
static void on(int signal, siginfo_t *info, void *context) {
    char here;
    store(p + 64, load(p + 65) + signal);
    on_alternate += &here > alternate && &here < alternate + 65536;
    must(info->si_signo == signal, "siginfo");
    (void)context;
}
int main(void) {
    p = fresh(4096);
    alternate = (char *)fresh(65536);
    struct sigaction act = {.sa_sigaction = on, .sa_flags = SA_SIGINFO};
    sigfillset(&act.sa_mask);
    sigaction(SIGUSR1, &act, 0);
    arm(p + 64, 64, 1, KEEP);
    for (int i = 0; i < 5; i++) raise(SIGUSR1);
    stack_t stack = {.ss_sp = alternate, .ss_size = 65536}, seen;
    must(sigaltstack(&stack, 0) == 0 && sigaltstack(0, &seen) == 0, "sigaltstack");
    must(seen.ss_sp == alternate && seen.ss_size == 65536 && seen.ss_flags == 0, "its own stack");
    act.sa_flags |= SA_ONSTACK;
    sigaction(SIGUSR2, &act, 0);
    for (int i = 0; i < 4; i++) raise(SIGUSR2);
    /* Everything blocked, faults too; then one that was pending meanwhile. */
    sigset_t all, before;
    sigfillset(&all);
    must(sigprocmask(SIG_BLOCK, &all, &before) == 0 && sigismember(&before, SIGSEGV) == 0, "mask");
    store(p + 66, 9);
    raise(SIGUSR1);
    store(p + 67, 9);
    sigset_t now;
    sigprocmask(SIG_SETMASK, &before, &now);
    must(sigismember(&now, SIGSEGV) == 1 && sigismember(&now, SIGTRAP) == 1, "blocked as asked");
    disarm();
    must(sigaltstack(0, &seen) == 0 && seen.ss_sp == alternate, "its own stack after");
    raise(SIGUSR2);
    struct sigaction back;
    sigaction(SIGUSR1, 0, &back);
    must(back.sa_sigaction == on, "its own handler after");
    sigaction(SIGSEGV, 0, &back);
    must(back.sa_handler == SIG_DFL, "default after");
    printf("value %d alternate %d\n", p[64], on_alternate);
    return done("1:22");
}
