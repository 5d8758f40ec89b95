/* Filters its own system calls while it works: those of unknown numbers and memfd_create(2) fail (filtered fail) or end it (filtered kill); with a
   number, after so many hundred thousand rounds of work. Goes on working, in code that it has not executed before, and then executes echo. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KNOWN 500

static unsigned char memory[1 << 24];

int main(int count, char **arguments) {
    int kill = count > 1 && strcmp(arguments[1], "kill") == 0;
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, KNOWN, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, kill ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    char text[64];
    unsigned long sum = 0;
    unsigned long rounds = count > 2 ? strtoul(arguments[2], 0, 10) : 30;
    for (unsigned long i = 0; i < rounds * 100000; i++) sum = sum * 31 + (memory[i * 5 % sizeof memory] += i);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 2;
    for (unsigned long i = 0; i < rounds * 100000; i++) sum = sum * 37 + (memory[i * 5 % sizeof memory] += i);
    snprintf(text, sizeof text, "%lu %.3f", sum, strtod("2.5e3", 0));
    execlp("echo", "echo", text, (char *)0);
    perror("echo");
    return 3;
}
