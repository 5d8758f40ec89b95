/* Turns its system calls into signals (prctl(2), PR_SET_SYSCALL_USER_DISPATCH) again and again, and makes
   some through them: prints how many, exits 4. dispatch ROUNDS */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

static volatile char selector;
static volatile long wanted, strange;

static void on_call(int number, siginfo_t *info, void *raw) {
    ucontext_t *context = raw;
    selector = 0;
    if (number == SIGSYS && context->uc_mcontext.gregs[REG_RAX] == 0x777) {
        wanted++;
        context->uc_mcontext.gregs[REG_RAX] = info->si_syscall;
    } else strange++;
}

int main(int count, char **words) {
    long rounds = count > 1 ? atol(words[1]) : 100;
    unsigned *numbers = malloc(4 << 14), mixed = 0;
    struct sigaction action = {.sa_sigaction = on_call, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &action, 0);
    for (unsigned i = 0; i < 1 << 14; i++) numbers[i] = i * 2654435761u;
    for (long round = 0; round < rounds; round++) {
        long got = 0;
        if (prctl(59, 1, 0, 0, &selector)) { puts("skip dispatch"); return 4; }
        selector = 1;
        for (unsigned i = 0; i < 1 << 14; i++) mixed += numbers[(numbers[i] + mixed) & ((1 << 14) - 1)];
        __asm__ volatile("syscall" : "=a"(got) : "a"(0x777) : "rcx", "r11", "memory");
        if (got != 0x777) strange++;
        selector = 0;
        prctl(59, 0, 0, 0, 0);
        for (unsigned i = 0; i < 1 << 14; i++) mixed += numbers[(numbers[i] ^ mixed) & ((1 << 14) - 1)];
    }
    printf("%ld calls, %ld strange, %u\n", wanted, strange, mixed);
    return 4;
}
