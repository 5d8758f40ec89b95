/* A process made to share the memory and nothing else, while armed: its calls on a watched page must not fail. */
#include "shim.h"
#include <sched.h>
static uint8_t *p;
static int body(void *fd) {
    for (int i = 0; i < 50; i++) {
        if (syscall(SYS_read, (int)(long)fd, p + 60, 64) != 64) return 3;
        store(p + 66, i);
        struct timespec nap = {0, 100000};
        syscall(SYS_nanosleep, &nap, 0);
    }
    return 7;
}
int main(void) {
    p = fresh(4096);
    int zero = open("/dev/zero", O_RDONLY), status;
    uint8_t *stack = fresh(65536);
    arm(p + 64, 64, 1, KEEP);
    pid_t child = clone(body, stack + 65536, CLONE_VM | SIGCHLD, (void *)(long)zero);
    must(child > 0, "clone");
    for (int i = 0; i < 50; i++) armed_as(p + 64, 64, 2, KEEP), store(p + 600, i), sched_yield();
    must(waitpid(child, &status, 0) == child, "wait");
    disarm();
    printf("child %d %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    return done("1:0");
}
