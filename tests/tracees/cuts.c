/* Copies and fills megabytes by one instruction each, which signals and faults cut: at each of them its registers must say how far it has come.
   Some faults are mended, of others it is left for good. Says "done", or what was wrong. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

enum { BYTES = 3 << 20, HOLE = (1 << 20) + 5 * 4096, TAIL = 4096 };

static unsigned char *from, *to;
static volatile sig_atomic_t cuts, holes, leaves;
static sigjmp_buf away;
/* What the instruction was begun with, and of how many bytes each of its steps is. */
static struct { volatile uintptr_t rsi, rdi, rcx; volatile long step; } begun;
extern const char copy_at[], fill_at[], down_at[];

static void wrong(const char *what, ucontext_t *at) {
    char text[200];
    greg_t *regs = at->uc_mcontext.gregs;
    int n = snprintf(text, sizeof text, "wrong %s: rcx %llx of %lx, rdi %llx from %lx\n", what, regs[REG_RCX], begun.rcx, regs[REG_RDI], begun.rdi);
    if (write(1, text, n)) _exit(3);
    _exit(3);
}

/* Whether one of them was cut, and whether all of its registers tell the same. */
static int is_cut(ucontext_t *at) {
    greg_t *regs = at->uc_mcontext.gregs;
    const char *rip = (const char *)regs[REG_RIP];
    if (rip != copy_at && rip != fill_at && rip != down_at) return 0;
    long done = (long)(begun.rcx - (uintptr_t)regs[REG_RCX]) * begun.step;
    if ((uintptr_t)regs[REG_RCX] > begun.rcx) wrong("counter", at);
    if ((uintptr_t)regs[REG_RDI] != begun.rdi + done) wrong("place", at);
    if (rip != fill_at && (uintptr_t)regs[REG_RSI] != begun.rsi + done) wrong("source", at);
    return regs[REG_RCX] != 0 && done != 0;
}

static void tick(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    cuts += is_cut(context);
}

static void fault(int signal, siginfo_t *info, void *context) {
    (void)signal;
    ucontext_t *at = context;
    unsigned char *page = (unsigned char *)((uintptr_t)info->si_addr & -4096);
    if (!is_cut(at)) wrong("instruction", at);
    if ((unsigned char *)at->uc_mcontext.gregs[REG_RDI] != info->si_addr) wrong("address", at);
    if (leaves) siglongjmp(away, 1);
    holes++;
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

static void note(const void *rsi, const void *rdi, size_t rcx, long step) {
    begun.rsi = (uintptr_t)rsi, begun.rdi = (uintptr_t)rdi, begun.rcx = rcx, begun.step = step;
}

static void __attribute__((noinline)) copy(void *rdi, const void *rsi, size_t rcx) {
    note(rsi, rdi, rcx, 1);
    asm volatile(".globl copy_at\ncopy_at: rep movsb" : "+D"(rdi), "+S"(rsi), "+c"(rcx) : : "memory");
    if (rcx) puts("wrong: copy not at its end");
}

static void __attribute__((noinline)) fill(void *rdi, unsigned long rax, size_t rcx) {
    note(0, rdi, rcx, 8);
    asm volatile(".globl fill_at\nfill_at: rep stosq" : "+D"(rdi), "+c"(rcx) : "a"(rax) : "memory");
    if (rcx) puts("wrong: fill not at its end");
}

static void __attribute__((noinline)) down(void *rdi, const void *rsi, size_t rcx) {
    note(rsi, rdi, rcx, -1);
    asm volatile("std\n.globl down_at\ndown_at: rep movsb\ncld" : "+D"(rdi), "+S"(rsi), "+c"(rcx) : : "memory");
    if (rcx) puts("wrong: copy downwards not at its end");
}

int main(int count, char **words) {
    int rounds = count > 1 ? atoi(words[1]) : 200;
    from = malloc(BYTES);
    to = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < BYTES; i++) from[i] = i * 7 + (i >> 11);
    struct sigaction ticks = {.sa_sigaction = tick, .sa_flags = SA_RESTART | SA_SIGINFO};
    struct sigaction faults = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    struct itimerval often = {{0, 700}, {0, 700}};
    sigaction(SIGALRM, &ticks, 0);
    sigaction(SIGSEGV, &faults, 0);
    setitimer(ITIMER_REAL, &often, 0);
    for (int round = 0; round < rounds; round++) {
        mprotect(to + HOLE, 4096, PROT_NONE);
        leaves = round % 3 == 1;
        if (!sigsetjmp(away, 1)) {
            copy(to, from, BYTES);
            if (memcmp(to, from, BYTES)) return puts("wrong copy"), 1;
        } else {
            leaves = 0;
            if (memcmp(to, from, HOLE)) return puts("wrong part of a copy"), 1;
        }
        mprotect(to + HOLE, 4096, PROT_READ | PROT_WRITE);
        fill(to, round * 0x0101010101010101ul, BYTES / 8);
        for (int i = 0; i < BYTES; i += 4093)
            if (to[i] != (unsigned char)round) return puts("wrong fill"), 1;
        down(to + BYTES - TAIL - 1, from + BYTES - 1, BYTES - TAIL);
        if (memcmp(to, from + TAIL, BYTES - TAIL)) return puts("wrong copy downwards"), 1;
    }
    if (count > 2) printf("%d cut, %d holes\n", (int)cuts, (int)holes);
    if (!cuts || !holes) return puts("never cut"), 1;
    puts("done");
    return 0;
}
