/* Threads whose end the kernel writes to a watched page (`CLONE_CHILD_CLEARTID`), as not only glibc's do. */
#include "shim.h"
#include <linux/futex.h>
#include <sched.h>
static uint8_t *p;
static int body(void *way) {
    store(p + 4096 + 8, 1);
    while (way && load(p + 8192) == 0) sched_yield();
    syscall(SYS_exit, 0);
    return 0;
}
int main(void) {
    p = fresh(12288);
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_CHILD_CLEARTID | CLONE_PARENT_SETTID;
    memset(p, 0, 12288);
    for (int n = 0; n < 6; n++) {
        uint8_t *stack = fresh(65536);
        _Atomic int *word = (_Atomic int *)(p + 128 + 4 * n);
        *word = 0;
        store(p + 8192, 0);
        if (n % 2 == 0) arm(p + 64, 64, n, KEEP);
        must(clone(body, stack + 65536, flags, (void *)(long)(n % 2), word, 0, word) > 0, "clone");
        if (n % 2 == 1) {
            arm(p + 64, 64, n, KEEP);
            store(p + 8192, 1);
        }
        /* As pthread_join does. */
        for (int now; (now = *word) != 0;) {
            if (n < 3) syscall(SYS_futex, word, FUTEX_WAIT, now, 0, 0, 0);
            else sched_yield();
        }
        disarm();
        munmap(stack, 65536);
    }
    puts("joined");
    return done("1:0");
}
