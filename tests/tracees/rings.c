/* A process in which the kernel has a thread of its own, for an io_uring that it polls (io_uring(7)). Says `ready`, or `skip` where that may not be,
   and then works for ever. */
#include <linux/io_uring.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
    static unsigned numbers[1 << 16], mixed;
    struct io_uring_params how = {.flags = IORING_SETUP_SQPOLL, .sq_thread_idle = 100000};
    int ring = syscall(SYS_io_uring_setup, 8, &how);
    puts(ring < 0 ? "skip" : "ready");
    fflush(stdout);
    for (unsigned i = 0; ring >= 0; i++) mixed += numbers[(i * 2654435761u + mixed) >> 16]++;
    return 0;
}
