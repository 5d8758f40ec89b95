/* longjmp out of a SIGSEGV handler, with and without the mask, from a watched stack and to it, again and again. */
#include "shim.h"
static uint8_t *p, *forbidden;
static sigjmp_buf away;
static volatile int jumps;
static void jump(int signal, siginfo_t *info, void *context) {
    must(info->si_addr == forbidden, "its own address");
    store(p + 64, signal);
    jumps++;
    (void)context;
    siglongjmp(away, 1);
}
static void deep(int n) {
    volatile char pad[300];
    pad[0] = n;
    if (n > 0) deep(n - 1);
    else store(forbidden, 1);
    pad[1] = n;
}
int main(void) {
    uint8_t here[256] __attribute__((aligned(64)));
    p = fresh(4096), forbidden = fresh(4096);
    memset(here, 1, sizeof here);
    must(mprotect(forbidden, 4096, PROT_NONE) == 0, "mprotect");
    handle(SIGSEGV, jump, 0);
    arm(p + 64, 64, 1, KEEP);
    /* The page of this frame, at a line that nothing else uses. */
    arm(here + 64, 64, 2, KEEP);
    for (int i = 0; i < 30; i++) {
        if (i == 20) handle(SIGSEGV, jump, SA_NODEFER);
        if (sigsetjmp(away, i < 20) == 0) {
            deep(i % 7);
            must(0, "not reached");
        }
        store(here + 64 + i, i);
        store(p + 65, i);
    }
    sigset_t now;
    sigprocmask(SIG_BLOCK, 0, &now);
    must(sigismember(&now, SIGSEGV) == 0, "not blocked");
    disarm();
    printf("jumps %d\n", jumps);
    return done("1:60 2:30");
}
