/* Traces a child of its own to its end and counts its system calls; starts one that is no child to wait(2) without being asked for
   (clone(2) without a signal); and comes to children of its own that wait for it, stopped. Prints what came of all three. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile unsigned long words[1 << 12];
static char stack[1 << 16];

static int work(void *unused) {
    (void)unused;
    for (unsigned long i = 0; i < 20000000; i++) words[(i * 797) & 0xfff] += i;
    return 5;
}

int main(void) {
    int status, stops = 0;
    pid_t child = fork();
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0)) _exit(9);
        raise(SIGSTOP);
        work(0);
        _exit(getppid() > 0 ? 4 : 8);
    }
    while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
        stops++;
        if (ptrace(PTRACE_SYSCALL, child, 0, 0)) return 7;
    }
    /* The stop, two for getppid, one for exit_group, and what is left of raise. */
    printf("traced %s, status %d\n", stops >= 4 ? "yes" : "no", WEXITSTATUS(status));
    child = clone(work, stack + sizeof stack, 0, 0);
    if (waitpid(child, &status, __WALL) != child) return 6;
    printf("cloned, status %d\n", WEXITSTATUS(status));
    int refused = 0;
    for (int turn = 0; turn < 20; turn++) {
        child = fork();
        if (child == 0) {
            raise(SIGSTOP);
            _exit(0);
        }
        waitpid(child, &status, WUNTRACED);
        refused += ptrace(PTRACE_SEIZE, child, 0, 0) != 0;
        kill(child, SIGCONT);
        while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
            int event = status >> 16, signal = WSTOPSIG(status);
            ptrace(PTRACE_CONT, child, 0, event ? 0 : signal);
        }
    }
    printf("%d refused\n", refused);
    return 3;
}
