/* Moves much in one call, while it works in windows: no call may come back with less than it would alone, and none that waits may
   be interrupted. transfers ROUNDS; prints the first call that came back with less, and how many did; exits 3. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define MUCH (1 << 20)
#define WORDS (1u << 16)
static int way[2], pair[2];
static volatile int over;
static atomic_int cut;

static void whole(const char *what, long got, long wanted) {
    if (got == wanted) return;
    if (!cut++) printf("%s: %ld of %ld, errno %d\n", what, got, wanted, got < 0 ? errno : 0);
}

/* Sleeps with a pipe's length written, until the others are done. */
static void *writer(void *bytes) {
    whole("write", write(way[1], bytes, MUCH), MUCH);
    close(way[1]);
    return 0;
}

/* Sleeps with a byte received. */
static void *receiver(void *unused) {
    static char bytes[MUCH];
    whole("recv", recv(pair[0], bytes, MUCH, MSG_WAITALL), MUCH);
    close(pair[0]);
    return unused;
}

/* Sleeps for 10 ms again and again, in a call that a stop interrupts. */
static void *caller(void *unused) {
    struct sockaddr_un address = {AF_UNIX};
    struct timeval patience = {0, 10000};
    socklen_t length = sizeof address;
    int listening = socket(AF_UNIX, SOCK_STREAM, 0), first = socket(AF_UNIX, SOCK_STREAM, 0);
    bind(listening, (void *)&address, sizeof address.sun_family);
    getsockname(listening, (void *)&address, &length);
    listen(listening, 0);
    if (connect(first, (void *)&address, length)) whole("first connect", -1, 0);
    while (!over) {
        int next = socket(AF_UNIX, SOCK_STREAM, 0);
        setsockopt(next, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        if (!connect(next, (void *)&address, length) || errno != EAGAIN) whole("connect", -1, 0);
        close(next);
    }
    return unused;
}

int main(int count, char **words) {
    unsigned *numbers = malloc(WORDS * sizeof *numbers), mixed = 0;
    char *bytes = calloc(1, MUCH), *more = malloc(8 * MUCH), byte = 1;
    int rounds = count > 1 ? atoi(words[1]) : 100, zero = open("/dev/zero", O_RDONLY), random = open("/dev/urandom", O_RDONLY), filled = 0;
    pthread_t threads[3];
    signal(SIGPIPE, SIG_IGN);
    if (pipe(way) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || write(pair[1], &byte, 1) != 1) return 99;
    pthread_create(&threads[0], 0, writer, bytes);
    pthread_create(&threads[1], 0, receiver, 0);
    pthread_create(&threads[2], 0, caller, 0);
    while (filled < 65536 && !ioctl(way[0], FIONREAD, &filled)) usleep(1000);
    usleep(20000);
    for (unsigned i = 0; i < WORDS; i++) numbers[i] = i * 2654435761u;
    for (int round = 0; round < rounds; round++) {
        for (unsigned i = 0; i < WORDS; i++) mixed += numbers[(numbers[i] + mixed) & (WORDS - 1)];
        whole("zeros", read(zero, more, 8 * MUCH), 8 * MUCH);
        whole("random bytes", read(random, more, MUCH), MUCH);
        whole("getrandom", getrandom(more, MUCH, 0), MUCH);
    }
    over = 1;
    for (long got = 0, n = 0; got < MUCH; got += n)
        if ((n = read(way[0], more, MUCH)) <= 0) break;
    for (long sent = 1, n = 0; sent < MUCH; sent += n)
        if ((n = write(pair[1], bytes, MUCH - sent)) <= 0) break;
    for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
    printf("%d cut%s\n", cut, mixed == 1 ? "." : "");
    return 3;
}
