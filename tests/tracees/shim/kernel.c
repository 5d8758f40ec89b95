/* System calls on a watched page: nothing fails, nothing is lost, and what the kernel does is no hit. */
#include "shim.h"
static long direct(long number, long a, long b, long c) {
    long value;
    asm volatile("syscall" : "=a"(value) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return value;
}
int main(void) {
    uint8_t *p = fresh(8192);
    int fds[2], pair[2];
    must(pipe(fds) == 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0, "pipes");
    arm(p + 128, 64, 1, KEEP);
    arm(p + 4096, 64, 2, KEEP);
    char text[300];
    for (int i = 0; i < 300; i++) text[i] = 'a' + i % 26;
    must(write(fds[1], text, 300) == 300, "write");
    must(read(fds[0], p + 100, 300) == 300 , "read");
    /* From the watched page to the watched page. */
    must(write(fds[1], p + 100, 300) == 300, "write from it");
    struct iovec parts[2] = {{p + 3900, 100}, {p + 4090, 200}};
    must(readv(fds[0], parts, 2) == 300, "readv");
    must(direct(SYS_write, fds[1], (long)(p + 4090), 200) == 200, "direct write");
    must(direct(SYS_read, fds[0], (long)(p + 120), 200) == 200, "direct read");
    for (int n = 0; n < 3; n++) {
        /* The header itself lies on a watched page. */
        struct msghdr *header = (struct msghdr *)(p + 1024);
        struct iovec *vector = (struct iovec *)(p + 2048);
        must(send(pair[0], text + n, 250, 0) == 250, "send");
        memset(header, 0, sizeof *header);
        vector->iov_base = p + 4000, vector->iov_len = 300;
        header->msg_iov = vector, header->msg_iovlen = 1;
        must(recvmsg(pair[1], header, 0) == 250, "recvmsg");
    }
    struct timespec *now = (struct timespec *)(p + 136);
    must(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, now) == 0, "clock_gettime");
    memset(text, 0, sizeof text);
    strcpy((char *)p + 3000, "/dev/null");
    int null = open((char *)p + 3000, O_RDWR);
    must(null >= 0 && write(null, p, 8192) == 8192, "path and data");
    int bad = direct(SYS_read, null, 8, 1);
    unsigned sum = bad + load(p + 4096) + load(p + 4097);
    disarm();
    memset(p + 136, 0, 16);
    for (int i = 0; i < 8192; i++) sum = sum * 31 + (i >= 1024 && i < 2200 ? 0 : p[i]);
    printf("sum %u\n", sum);
    return done("1:0 2:2");
}
