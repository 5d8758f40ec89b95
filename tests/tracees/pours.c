/* Pours bytes through pipes and sockets to threads that take them, in calls that move much each, while it works in windows: none may come back
   with less than it was given, nor with other bytes. pours ROUNDS [signals | ignored]; prints the first that did, and how many; exits 5. With
   signals a clock cuts calls, which are made again for the rest; ignored ones cut none. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#define MUCH (1 << 19)
static int pipes[2], pair[2];
static atomic_int cut;
static long rounds;
static int signals;
static atomic_long ticks;
static unsigned char bytes[MUCH];

static void tick(int signal) { ticks += signal; }

static void whole(const char *what, long got, long wanted) {
    if (got != wanted && !signals && !cut++) printf("%s: %ld of %ld, errno %d\n", what, got, wanted, errno);
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
    while ((length = read(pipes[0], piece, wanted)) > 0 || (signals && length < 0 && errno == EINTR)) {
        if (length < 0) continue;
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
        long got = 0, length;
        do {
            length = recv(pair[0], all + got, MUCH - got, MSG_WAITALL);
            whole("recv", length, MUCH);
            got += length > 0 ? length : 0;
        } while (signals && got < MUCH && (length > 0 || errno == EINTR));
        taken = sum(taken, all, got);
    }
    (void)unused;
    return &taken;
}

/* One call, and with signals as many as it takes. */
static void pour(const char *what, int into, int flags) {
    long sent = 0, length;
    do {
        if (flags >= 0) length = send(into, bytes + sent, MUCH - sent, flags);
        else if (what[5] != 'v') length = write(into, bytes + sent, MUCH - sent);
        else {
            long first = (MUCH - sent) / 5;
            struct iovec parts[3] = {{bytes + sent, first}, {bytes + sent + first, first ? 7 : 0}, {0, 0}};
            long two = parts[0].iov_len + parts[1].iov_len;
            parts[2] = (struct iovec){bytes + sent + two, MUCH - sent - two};
            length = writev(into, parts, 3);
        }
        whole(what, length, MUCH);
        sent += length > 0 ? length : 0;
    } while (signals && sent < MUCH && (length > 0 || errno == EINTR));
}

int main(int count, char **words) {
    unsigned long sent = 0, poured = 0;
    void *drained, *gathered;
    pthread_t threads[2];
    rounds = count > 1 ? atol(words[1]) : 100;
    int ignored = count > 2 && words[2][0] == 'i';
    signals = count > 2 && !ignored;
    if (count > 2) {
        struct itimerval often = {{0, 700}, {0, 700}};
        struct sigaction action = {.sa_handler = ignored ? SIG_IGN : tick};
        sigaction(SIGALRM, &action, 0);
        setitimer(ITIMER_REAL, &often, 0);
    }
    sigset_t clock;
    sigemptyset(&clock);
    sigaddset(&clock, SIGALRM);
    /* A signal that is ignored but traced cuts the calls of whoever it wakes up; another thread may take it before, and nobody can tell. */
    if (ignored) pthread_sigmask(SIG_BLOCK, &clock, 0);
    if (pipe(pipes) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return 99;
    pthread_create(&threads[0], 0, drain, 0);
    pthread_create(&threads[1], 0, gather, 0);
    pthread_sigmask(SIG_UNBLOCK, &clock, 0);
    for (long round = 0; round < rounds; round++) {
        for (long i = 0; i < MUCH; i++) bytes[i] = (i * (round + 1)) >> 7;
        pour(round % 2 ? "write" : "writev", pipes[1], -1);
        poured = sum(poured, bytes, MUCH);
        if (round % 3) pour("send", pair[1], 0);
        else pour("write to a socket", pair[1], -1);
        sent = sum(sent, bytes, MUCH);
    }
    close(pipes[1]);
    pthread_join(threads[0], &drained);
    pthread_join(threads[1], &gathered);
    if (!signals) printf("%d cut, ", cut);
    else if (!ticks) printf("no signals, ");
    printf("pipe %s, socket %s\n", *(unsigned long *)drained == poured ? "whole" : "broken",
           *(unsigned long *)gathered == sent ? "whole" : "broken");
    return 5;
}
