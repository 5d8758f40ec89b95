/* A program that lives on SIGSEGV: handlers set before and after, on an alternate stack, leaving by longjmp, by repair and by moving on. */
#include "shim.h"
static uint8_t *p, *forbidden;
static char *alternate;
static sigjmp_buf away;
static volatile int jumps, repairs, moves, on_alternate;
static void jump(int signal, siginfo_t *info, void *context) {
    char here;
    on_alternate += &here > alternate && &here < alternate + 65536;
    must(info->si_addr == forbidden + 5 && info->si_code == SEGV_ACCERR, "its own address");
    jumps++;
    (void)signal, (void)context;
    siglongjmp(away, 1);
}
static void repair(int signal, siginfo_t *info, void *context) {
    must(info->si_addr == forbidden + 7, "its own address");
    repairs++;
    must(mprotect(forbidden, 4096, PROT_READ | PROT_WRITE) == 0, "mprotect");
    (void)signal, (void)context;
}
static void move_on(int signal, siginfo_t *info, void *context) {
    ucontext_t *state = context;
    must((state->uc_mcontext.gregs[REG_EFL] & 0x100) == 0, "flags");
    state->uc_mcontext.gregs[REG_RIP] += 2;
    moves++;
    (void)signal, (void)info;
}
int main(void) {
    p = fresh(4096);
    forbidden = fresh(8192);
    alternate = (char *)fresh(65536);
    mprotect(forbidden, 4096, PROT_NONE);
    stack_t stack = {.ss_sp = alternate, .ss_size = 65536};
    sigaltstack(&stack, 0);
    handle(SIGSEGV, jump, SA_ONSTACK);
    arm(p + 128, 64, 1, KEEP);
    for (int i = 0; i < 20; i++) {
        store(p + 130, i);
        if (sigsetjmp(away, 1) == 0) {
            store(forbidden + 5, 1);
            must(0, "not reached");
        }
        store(p + 10, i);
    }
    for (int i = 0; i < 5; i++) {
        /* Without the mask put back: blocked would kill. */
        handle(SIGSEGV, jump, SA_NODEFER);
        if (sigsetjmp(away, 0) == 0) store(forbidden + 5, 1);
    }
    handle(SIGSEGV, repair, 0);
    store(forbidden + 7, 3);
    store(p + 131, forbidden[7]);
    mprotect(forbidden, 4096, PROT_NONE);
    handle(SIGSEGV, move_on, SA_ONSTACK);
    /* One operand on the watched page, the other forbidden: run once, and moved over. 2 bytes: movsq. */
    for (int i = 0; i < 3; i++) {
        void *from = p + 136, *to = forbidden;
        asm volatile("movsq" : "+S"(from), "+D"(to) : : "memory");
        must(from == p + 136 && to == forbidden, "not run");
    }
    /* Faults of other kinds, on the watched page. */
    handle(SIGFPE, move_on, 0);
    store(p + 140, 0);
    int a = 5, d = 0;
    asm volatile("divb (%2)" : "+a"(a), "+d"(d) : "r"(p + 140) : "cc");
    disarm();
    printf("jumps %d repairs %d moves %d alternate %d\n", jumps, repairs, moves, on_alternate);
    return done("1:22");
}
