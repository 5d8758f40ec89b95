/* Pours bytes through pipes and sockets to threads that take them, in calls that move much each, while it works in windows: none may come back
   with less than it was given, nor with other bytes. pours ROUNDS; prints the first that did, and how many; exits 5. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define MUCH (1 << 19)
static int pipes[2], pair[2];
static atomic_int cut;
static long rounds;
static unsigned char bytes[MUCH];

static void whole(const char *what, long got, long wanted) {
    if (got != wanted && !cut++) printf("%s: %ld of %ld, errno %d\n", what, got, wanted, errno);
}

static unsigned long sum(unsigned long before, const unsigned char *from, long length) {
    for (long i = 0; i < length; i++) before = before * 31 + from[i];
    return before;
}

/* Takes from the pipe in pieces of all lengths. */
static void *drain(void *unused) {
    static unsigned char piece[70001];
    static unsigned long taken;
    long length, wanted = 1;
    while ((length = read(pipes[0], piece, wanted)) > 0) {
        taken = sum(taken, piece, length);
        wanted = 1 + (wanted * 7919) % (sizeof piece - 1);
    }
    (void)unused;
    return &taken;
}

/* Takes from the socket all at once. */
static void *gather(void *unused) {
    static unsigned char all[MUCH];
    static unsigned long taken;
    for (long round = 0; round < rounds; round++) {
        long length = recv(pair[0], all, MUCH, MSG_WAITALL);
        whole("recv", length, MUCH);
        taken = sum(taken, all, length > 0 ? length : 0);
    }
    (void)unused;
    return &taken;
}

int main(int count, char **words) {
    unsigned long sent = 0, poured = 0;
    void *drained, *gathered;
    pthread_t threads[2];
    rounds = count > 1 ? atol(words[1]) : 100;
    if (pipe(pipes) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return 99;
    pthread_create(&threads[0], 0, drain, 0);
    pthread_create(&threads[1], 0, gather, 0);
    for (long round = 0; round < rounds; round++) {
        for (long i = 0; i < MUCH; i++) bytes[i] = (i * (round + 1)) >> 7;
        struct iovec parts[3] = {{bytes, 100000}, {bytes + 100000, 7}, {bytes + 100007, MUCH - 100007}};
        if (round % 2) whole("write", write(pipes[1], bytes, MUCH), MUCH);
        else whole("writev", writev(pipes[1], parts, 3), MUCH);
        poured = sum(poured, bytes, MUCH);
        if (round % 3) whole("send", send(pair[1], bytes, MUCH, 0), MUCH);
        else whole("write to a socket", write(pair[1], bytes, MUCH), MUCH);
        sent = sum(sent, bytes, MUCH);
    }
    close(pipes[1]);
    pthread_join(threads[0], &drained);
    pthread_join(threads[1], &gathered);
    printf("%d cut, pipe %s, socket %s\n", cut, *(unsigned long *)drained == poured ? "whole" : "broken",
           *(unsigned long *)gathered == sent ? "whole" : "broken");
    return 5;
}
