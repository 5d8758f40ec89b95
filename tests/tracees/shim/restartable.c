/* The kernel comes to write to a watched page by itself (rseq(2)), and a control block to lie on another: watches there end, the program goes on. */
#include "shim.h"
#define SIGNATURE 0x53053053
static long direct(long number, long a, long b, long c, long d) {
    long value;
    register long fourth asm("r10") = d;
    asm volatile("syscall" : "=a"(value) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth) : "rcx", "r11", "memory");
    return value;
}
int main(int argc, char **argv) {
    /* A thread registers one area: not the library's here. */
    if (!getenv("GLIBC_TUNABLES")) {
        setenv("GLIBC_TUNABLES", "glibc.pthread.rseq=0", 1);
        execv("/proc/self/exe", argv);
    }
    uint8_t *p = fresh(4 * 4096);
    unsigned long fs = 0;
    must(argc == 1 && direct(SYS_arch_prctl, 0x1003, (long)&fs, 0, 0) == 0, "base of fs");
    arm(p + 128, 64, 1, KEEP);
    arm(p + 3 * 4096 + 128, 64, 2, KEEP);
    unsigned sum = load(p + 128) + load(p + 3 * 4096 + 128);
    must(direct(SYS_rseq, (long)(p + 1024), 32, 0, SIGNATURE) == 0, "rseq");
    /* It writes whenever the thread has been away. */
    struct timespec moment = {0, 1000000};
    for (int i = 0; i < 20; i++) direct(SYS_nanosleep, (long)&moment, 0, 0, 0);
    sum += load(p + 128);
    must(direct(SYS_arch_prctl, 0x1002, (long)(p + 3 * 4096), 0, 0) == 0 && direct(SYS_arch_prctl, 0x1002, (long)fs, 0, 0) == 0, "fs");
    sum += load(p + 3 * 4096 + 128);
    disarm();
    must(direct(SYS_rseq, (long)(p + 1024), 32, 1, SIGNATURE) == 0, "rseq no more");
    printf("sum %u\n", sum);
    return done("1:1 2:1");
}
