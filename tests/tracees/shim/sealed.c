/* A thread that filters its own system calls, or all threads', while lines are watched: nothing of ours runs into the filter. */
#include "shim.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
static uint8_t *p;
static int fds[2];
static atomic_int over;
static void *busy(void *unused) {
    unsigned sum = 0;
    while (!atomic_load(&over)) sum += load(p + 64), store(p + 70, sum), sched_yield();
    return unused;
}
static void *asleep(void *unused) {
    char byte;
    must(read(fds[0], &byte, 1) == 1, "read");
    store(p + 64, byte);
    return unused;
}
#define ALLOW(n) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, n, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
static void *sandboxed(void *way) {
    struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), ALLOW(SYS_write), ALLOW(SYS_read), ALLOW(SYS_exit), ALLOW(SYS_exit_group),
        ALLOW(SYS_futex), ALLOW(SYS_madvise), ALLOW(SYS_munmap), ALLOW(SYS_rt_sigprocmask), ALLOW(SYS_sched_yield), ALLOW(SYS_rt_sigreturn),
        ALLOW(SYS_restart_syscall), ALLOW(SYS_newfstatat), ALLOW(SYS_brk), ALLOW(SYS_mmap), ALLOW(SYS_rseq), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no new privileges");
    must(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, way ? SECCOMP_FILTER_FLAG_TSYNC : 0, &program) == 0, "filter");
    unsigned sum = 0;
    for (int i = 0; i < 1000; i++) sum += load(p + 64), store(p + 70, sum), write(-1, p + 64, 1);
    return 0;
}
int main(int argc, char **argv) {
    int all = argc > 1 && argv[1][0] == '1';
    p = fresh(4096);
    must(pipe(fds) == 0, "pipe");
    pthread_t a, b, c;
    must(pthread_create(&a, 0, busy, 0) == 0 && pthread_create(&b, 0, asleep, 0) == 0, "threads");
    usleep(20000);
    arm(p + 64, 64, 1, KEEP);
    store(p + 64, 1);
    must(pthread_create(&c, 0, sandboxed, all ? (void *)1 : 0) == 0, "thread");
    pthread_join(c, 0);
    must(armed_as(p + 128, 64, 2, KEEP) == (arms() ? -7 : 0), "no watch any more");
    must(write(fds[1], "x", 1) == 1, "write");
    atomic_store(&over, 1);
    pthread_join(a, 0), pthread_join(b, 0);
    printf("value %c\n", p[64]);
    return done("any");
}
