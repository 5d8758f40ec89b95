/* Watched lines on the stack in use: calls, pushes and the flags pushed there, a signal delivered onto it. */
#include "shim.h"
static int depth(volatile int *sum, int n) {
    volatile char pad[200];
    pad[0] = n;
    *sum += pad[0];
    return n == 0 ? 0 : 1 + depth(sum, n - 1);
}
static volatile int handled;
static void on(int signal, siginfo_t *info, void *context) {
    volatile char pad[600];
    memset((void *)pad, signal, sizeof pad);
    handled += pad[599] == signal;
    (void)info, (void)context;
}
int main(void) {
    uint8_t room[16384] __attribute__((aligned(4096)));
    memset(room, 1, sizeof room);
    uint8_t *line = room + 4096 + 512;
    volatile int sum = 0;
    handle(SIGUSR1, on, 0);
    /* The page of this very frame as well, at a line nothing else uses, and the pages below. */
    uint8_t own[256] __attribute__((aligned(64)));
    memset(own, 2, sizeof own);
    arm(line, 64, 1, KEEP);
    arm(own + 64, 64, 2, KEEP);
    for (int i = 0; i < 10; i++) store(line + i, i);
    for (int i = 0; i < 5; i++) sum += load(own + 64 + i);
    sum += depth(&sum, 5);
    uint64_t flags = 0;
    for (int i = 0; i < 3; i++) {
        asm volatile("subq $256, %%rsp; pushfq; popq %0; addq $256, %%rsp" : "=r"(flags) : : "memory", "cc");
        must((flags & 0x100) == 0, "no single-step flag to be seen");
    }
    for (int i = 0; i < 3; i++) raise(SIGUSR1);
    must(kill(getpid(), SIGUSR1) == 0, "kill");
    disarm();
    printf("sum %d handled %d\n", sum, handled);
    return done("1:10 2:5");
}
