/* Filters its own system calls while it works: those of unknown numbers fail (filtered fail) or end it (filtered kill). Goes on working, in code that
   it has not executed before, and then executes echo. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define KNOWN 500

int main(int count, char **arguments) {
    int kill = count > 1 && strcmp(arguments[1], "kill") == 0;
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, KNOWN, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, kill ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    char text[64];
    unsigned long sum = 0;
    for (unsigned long i = 0; i < 3000000; i++) sum = sum * 31 + i;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 2;
    for (unsigned long i = 0; i < 3000000; i++) sum = sum * 37 + i;
    snprintf(text, sizeof text, "%lu %.3f", sum, strtod("2.5e3", 0));
    execlp("echo", "echo", text, (char *)0);
    perror("echo");
    return 3;
}
