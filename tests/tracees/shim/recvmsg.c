/* recvmsg(2) of datagrams: header, vector, address and data on watched pages. A datagram that failed would be gone. */
#include "shim.h"
int main(void) {
    uint8_t *p = fresh(3 * 4096);
    int pair[2];
    char text[300];
    must(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0, "socketpair");
    for (int i = 0; i < 300; i++) text[i] = 'a' + i % 26;
    struct msghdr *header = (struct msghdr *)(p + 64);
    struct iovec *vector = (struct iovec *)(p + 4096 + 64);
    memset(header, 0, sizeof *header);
    vector->iov_base = p + 8192 + 1000, vector->iov_len = 300;
    header->msg_iov = vector, header->msg_iovlen = 1;
    for (int n = 0; n < 3; n++) arm(p + 4096 * n + 1024, 64, n, KEEP);
    for (int n = 0; n < 30; n++) {
        must(send(pair[0], text, 100 + n, 0) == 100 + n && send(pair[0], text + 1, 250, 0) == 250, "send");
        must(recvmsg(pair[1], header, 0) == 100 + n && recvmsg(pair[1], header, 0) == 250, "recvmsg");
        load(p + 8192 + 1024);
    }
    must(recvmsg(pair[1], header, MSG_DONTWAIT) == -1 && errno == EAGAIN, "no more");
    must(sendmsg(pair[0], header, 0) == 300 && recv(pair[1], p + 8192 + 1000, 300, MSG_TRUNC) == 300, "sendmsg");
    disarm();
    must(memcmp(p + 8192 + 1000, text + 1, 250) == 0, "data");
    puts("all came");
    return done("0:0 1:0 2:30");
}
