/* A process in which the kernel has a thread of its own, which reads from a pipe for an io_uring (io_uring(7)). Says `ready`, or `skip` where
   that may not be, and then works for ever. */
#include <linux/io_uring.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static int reads_asleep(void) {
    static char byte;
    struct io_uring_params how = {0};
    int ring = syscall(SYS_io_uring_setup, 1, &how), ends[2];
    if (ring < 0 || pipe(ends)) return 0;
    char *queue = mmap(0, how.sq_off.array + how.sq_entries * sizeof(unsigned), PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    struct io_uring_sqe *call = mmap(0, sizeof *call, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
    if (queue == MAP_FAILED || call == MAP_FAILED) return 0;
    *call = (struct io_uring_sqe){.opcode = IORING_OP_READ, .flags = IOSQE_ASYNC, .fd = ends[0], .addr = (unsigned long)&byte, .len = 1};
    *(unsigned *)(queue + how.sq_off.array) = 0;
    __atomic_store_n((unsigned *)(queue + how.sq_off.tail), 1, __ATOMIC_RELEASE);
    return syscall(SYS_io_uring_enter, ring, 1, 0, 0, 0, 0) == 1;
}

int main(void) {
    static unsigned numbers[1 << 16], mixed;
    int asleep = reads_asleep();
    puts(asleep ? "ready" : "skip");
    fflush(stdout);
    for (unsigned i = 0; asleep; i++) mixed += numbers[(i * 2654435761u + mixed) >> 16]++;
    return 0;
}
