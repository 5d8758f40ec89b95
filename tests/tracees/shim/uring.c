/* io_uring reads into a page when nobody is in a system call: no line is watched in such a process, made before or after. */
#include "shim.h"
#include <linux/io_uring.h>
int main(int argc, char **argv) {
    (void)argv;
    uint8_t *p = fresh(8192);
    struct io_uring_params params;
    if (argc > 1) arm(p + 64, 64, 9, KEEP);
    memset(&params, 0, sizeof params);
    int ring = syscall(SYS_io_uring_setup, 4, &params);
    if (ring < 0) { puts("no io_uring"); return done("1:0"); }
    uint8_t *sq = mmap(0, params.sq_off.array + 4 * params.sq_entries, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
    uint8_t *cq = mmap(0, params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_CQ_RING);
    struct io_uring_sqe *sqes = mmap(0, params.sq_entries * sizeof *sqes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES);
    int fds[2];
    must(pipe(fds) == 0, "pipe");
    armed_as(p + 64, 64, 1, KEEP);
    for (int n = 0; n < 3; n++) {
        unsigned *tail = (unsigned *)(sq + params.sq_off.tail), mask = *(unsigned *)(sq + params.sq_off.ring_mask);
        memset(&sqes[*tail & mask], 0, sizeof *sqes);
        sqes[*tail & mask] = (struct io_uring_sqe){.opcode = IORING_OP_READ, .fd = fds[0], .addr = (uint64_t)p + 32, .len = 100, .off = -1};
        if (n == 2) sqes[*tail & mask].flags = IOSQE_ASYNC;
        ((unsigned *)(sq + params.sq_off.array))[*tail & mask] = *tail & mask;
        __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
        must(syscall(SYS_io_uring_enter, ring, 1, 0, 0, 0, 0) == 1, "submit");
        usleep(20000);
        must(write(fds[1], "0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz", 72) == 72, "write");
        usleep(20000);
        if (n != 1) must(syscall(SYS_io_uring_enter, ring, 0, 1, IORING_ENTER_GETEVENTS, 0, 0) == 0, "wait");
        unsigned *head = (unsigned *)(cq + params.cq_off.head);
        while (*head == __atomic_load_n((unsigned *)(cq + params.cq_off.tail), __ATOMIC_ACQUIRE)) usleep(1000);
        struct io_uring_cqe *cqe = (struct io_uring_cqe *)(cq + params.cq_off.cqes) + (*head & *(unsigned *)(cq + params.cq_off.ring_mask));
        printf("result %d\n", cqe->res);
        __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
        armed_as(p + 128, 64, 2 + n, KEEP);
    }
    disarm();
    printf("%.60s\n", (char *)p + 32);
    return done("1:0");
}
