/* A program that closes the door behind itself while lines of it are watched: seccomp, strict or by a filter. */
#include "shim.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
int main(int argc, char **argv) {
    uint8_t *p = fresh(4096);
    unsigned sum = 0;
    arm(p + 64, 64, 1, KEEP);
    store(p + 64, 1);
    int way = argc > 1 ? atoi(argv[1]) : 0;
    if (way == 0) {
        must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0, "strict");
    } else {
        must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no new privileges");
#define ALLOW(n) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, n, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
        struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), ALLOW(SYS_write), ALLOW(SYS_read), ALLOW(SYS_exit_group), ALLOW(SYS_exit),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};
        struct sock_fprog program = {sizeof code / sizeof *code, code};
        if (way == 1) must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "filter");
        else must(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0, "filter");
    }
    for (int i = 0; i < 100; i++) sum += load(p + i), store(p + i, i);
    write(1, "alive\n", 6);
    syscall(SYS_exit, sum & 15);
}
