/* The program changes the protection of a watched page: what it may do there is up to it alone. */
#include "shim.h"
static uint8_t *p;
static volatile int refused;
static void on(int signal, siginfo_t *info, void *context) {
    must((uint8_t *)info->si_addr >= p && info->si_code == SEGV_ACCERR, "siginfo");
    refused++;
    must(mprotect(p, 8192, PROT_READ | PROT_WRITE) == 0, "mprotect in handler");
    (void)signal, (void)context;
}
int main(void) {
    p = fresh(16384);
    handle(SIGSEGV, on, 0);
    arm(p + 64, 64, 1, KEEP);
    unsigned sum = 0;
    must(mprotect(p, 4096, PROT_READ) == 0, "read only");
    sum += load(p + 64) + load(p);
    store(p + 64, 5);
    store(p + 65, 6);
    must(mprotect(p, 8192, PROT_NONE) == 0, "none");
    store(p + 4096, 5);
    must(mprotect(p, 4096, PROT_NONE) == 0, "none");
    sum += load(p + 66);
    must(mprotect(p, 4096, PROT_READ | PROT_WRITE) == 0, "all");
    store(p + 70, 8);
    /* Half of it is not mapped: fails as ever, and the watch may end. */
    must(munmap(p + 12288, 4096) == 0, "munmap");
    must(mprotect(p, 16384, PROT_READ | PROT_WRITE) == -1 && errno == ENOMEM, "beyond");
    sum += load(p + 4096);
    disarm();
    printf("sum %u refused %d\n", sum, refused);
    return done("1:5");
}
