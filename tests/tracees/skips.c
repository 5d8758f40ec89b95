/* Instructions that do not do what they usually do: those that its handler steps over as they fault without an operand in memory ("convert": a number that
   does not fit, "stamp": the time stamp is forbidden, "identify": cpuid is), one that does nothing ("shadow": there is no shadow stack), and a system call
   with prefixes ("prefixed"). skips WAY ROUNDS; says how often a register was not what it had been, and how many there were, or that it cannot be tried; exit status 3. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#include <xmmintrin.h>

static long numbers[4096];
static long length, faults, wrong;
static struct { long a, b, d; } wanted;

static void on_fault(int number, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    (void)number, (void)info;
    faults++;
    wrong += registers[REG_RAX] != wanted.a || registers[REG_RBX] != wanted.b || registers[REG_RDX] != wanted.d;
    registers[REG_RIP] += length;
}

/* A loop with accesses far from each other, so that something is looked at at its end: just before the instruction on both ways. */
#define ROUND(what) \
    asm volatile("jmp 2f\n 1: " what "\n 2: mov %%rax, (%[at])\n mov 64(%[at]), %%rdi\n mov 1024(%[at]), %%rdi\n mov 2048(%[at]), %%rdi\n dec %%rsi\n jnz 1b\n " what \
                 : "+a"(a), "+b"(b), "+d"(d), "+S"(times) : [at] "r"(numbers), "c"(0) : "rdi", "memory", "cc", "xmm5")

static const char *set_up(const char *way) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, 0);
    sigaction(SIGFPE, &action, 0);
    length = 2;
    if (!strcmp(way, "convert")) {
        length = 5;
        _mm_setcsr(_mm_getcsr() & ~_MM_MASK_INVALID);
    }
    if (!strcmp(way, "stamp") && prctl(PR_SET_TSC, PR_TSC_SIGSEGV)) return "the time stamp cannot be forbidden";
    if (!strcmp(way, "identify") && syscall(SYS_arch_prctl, 0x1012 /* ARCH_SET_CPUID */, 0)) return "cpuid cannot be forbidden";
    return 0;
}

int main(int count, char **words) {
    const char *way = words[1];
    long rounds = count > 2 ? atol(words[2]) : 1000, made = 0;
    const char *not = set_up(way);
    if (not) return printf("skip: %s\n", not), 3;
    for (long i = 0; i < rounds; i++) {
        long a = wanted.a = 0x1111 + i, b = wanted.b = 0x2222 + i, d = wanted.d = 0x3333 + i, times = 20, own = syscall(SYS_getpid);
        if (!strcmp(way, "convert")) {
            double nan = __builtin_nan("");
            asm volatile("movsd %0, %%xmm5" ::"m"(nan) : "xmm5");
            ROUND("cvttsd2si %%xmm5, %%rax");
        } else if (!strcmp(way, "stamp")) {
            ROUND("rdtsc");
        } else if (!strcmp(way, "identify")) {
            ROUND("cpuid");
        } else if (!strcmp(way, "shadow")) {
            ROUND("rdsspq %%rax");
        } else {
            long said[3];
            asm volatile(".byte 0x48, 0x0f, 0x05" : "=a"(said[0]) : "0"(SYS_getpid) : "rcx", "r11", "memory");
            asm volatile(".byte 0x66, 0x0f, 0x05" : "=a"(said[1]) : "0"(SYS_getpid) : "rcx", "r11", "memory");
            asm volatile(".byte 0xf3, 0x0f, 0x05" : "=a"(said[2]) : "0"(SYS_getpid) : "rcx", "r11", "memory");
            for (int k = 0; k < 3; k++) made += said[k] == own;
            for (int k = 0; k < 4096; k++) numbers[k] += i;
        }
        wrong += a != wanted.a || b != wanted.b || d != wanted.d;
    }
    printf("%s: wrong %ld, faults %ld, made %ld\n", way, wrong, faults, made);
    return 3;
}
