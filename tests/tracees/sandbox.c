/* Executes a program under filters of system calls: sandbox container|service|strict PROGRAM...
   container: calls of unknown numbers, and some others, fail, as most containers have it.
   service: they end the process, and memory that can be written is not executed, as services have it.
   strict: so do the calls a profiler needs. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KNOWN 500
#define LOAD(what) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, what))
#define RETURN(what) BPF_STMT(BPF_RET | BPF_K, what)
#define IS(what, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, what, yes, no)

static int install(struct sock_filter *filter, size_t bytes) {
    struct sock_fprog program = {bytes / sizeof *filter, filter};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    int lenient = strcmp(arguments[1], "container") == 0;
    unsigned refuse = lenient ? SECCOMP_RET_ERRNO | EPERM : SECCOMP_RET_KILL_PROCESS;
    struct sock_filter numbers[] = {
        LOAD(arch),
        IS(AUDIT_ARCH_X86_64, 1, 0),
        RETURN(SECCOMP_RET_KILL_PROCESS),
        LOAD(nr),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, KNOWN, 4, 0),
        IS(SYS_bpf, 3, 0),
        IS(SYS_kexec_load, 2, 0),
        IS(strcmp(arguments[1], "strict") == 0 ? SYS_memfd_create : SYS_swapon, 1, 0),
        RETURN(SECCOMP_RET_ALLOW),
        RETURN(refuse),
    };
    struct sock_filter protections[] = {
        LOAD(nr),
        IS(SYS_mmap, 1, 0),
        IS(SYS_mprotect, 0, 3),
        LOAD(args[2]),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, PROT_WRITE | PROT_EXEC),
        IS(PROT_WRITE | PROT_EXEC, 1, 0),
        RETURN(SECCOMP_RET_ALLOW),
        RETURN(SECCOMP_RET_ERRNO | EPERM),
    };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || install(protections, sizeof protections) || install(numbers, sizeof numbers)) {
        perror("seccomp");
        return 2;
    }
    execvp(arguments[2], arguments + 2);
    perror(arguments[2]);
    return 3;
}
