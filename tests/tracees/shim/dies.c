/* A program that dies of its own fault while armed dies of it, and of nothing else. */
#include "shim.h"
int main(int argc, char **argv) {
    uint8_t *p = fresh(4096);
    int how = argc > 1 ? atoi(argv[1]) : 0;
    arm(p + 64, 64, 1, KEEP);
    store(p + 64, 1);
    done("1:1");
    if (how == 0) *(volatile char *)16 = 1;
    if (how == 1) asm volatile("ud2");
    if (how == 2) asm volatile("int3");
    if (how == 3) kill(getpid(), SIGSEGV);
    if (how == 4) abort();
    if (how == 5) {
        mprotect(p, 4096, PROT_READ);
        store(p + 64, 2);
    }
    if (how == 6) {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, 0);
        handle(SIGSEGV, (void *)1, 0);
        *(volatile char *)16 = 1;
    }
    return 0;
}
