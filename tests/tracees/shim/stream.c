/* A numbered stream through a pipe and datagrams through a socket, into and out of pages that come under watch and go, with
   signals all the time: nothing is lost, doubled or cut. */
#include "shim.h"
static uint32_t WORDS = 60000; /* or as the argument says */
static uint8_t *in, *out;
static int fds[2], pair[2];
static atomic_int over;
static void tick(int signal, siginfo_t *info, void *context) { (void)signal, (void)info, (void)context; }
static void *writer(void *unused) {
    uint32_t next = 0;
    while (next < WORDS) {
        uint32_t *words = (uint32_t *)(out + 4000);
        uint32_t n = 1 + next * 7 % 97, got = 0;
        if (n > WORDS - next) n = WORDS - next;
        for (uint32_t i = 0; i < n; i++) words[i] = next + i;
        while (got < 4 * n) {
            ssize_t w = write(fds[1], (uint8_t *)words + got, 4 * n - got);
            must(w > 0 || errno == EINTR, "write");
            if (w > 0) got += w;
        }
        next += n;
        if (next % 16 == 0) {
            ssize_t w;
            while ((w = send(pair[0], words, 40, 0)) < 0) must(errno == EINTR, "send");
        }
    }
    return unused;
}
static void *datagrams(void *unused) {
    uint32_t last = 0;
    for (;;) {
        uint32_t *words = (uint32_t *)(in + 16384 - 20);
        struct pollfd polled = {pair[1], POLLIN, 0};
        if (poll(&polled, 1, 50) <= 0) {
            if (atomic_load(&over)) return unused;
            continue;
        }
        ssize_t got = recv(pair[1], words, 40, 0);
        if (got < 0) { must(errno == EINTR, "recv"); continue; }
        must(got == 40 && (words[0] >= last || last == 0), "in order");
        last = words[0];
    }
}
static void *arming(void *unused) {
    sigset_t alarm;
    sigemptyset(&alarm), sigaddset(&alarm, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm, 0);
    for (uint32_t n = 0; atomic_load(&over) == 0; n++) {
        armed_as(in + 4096 * (n % 4) + 64 * (n % 64), 64, n, n % 2);
        armed_as(out + 4096 * (n % 2) + 64 * (n % 64), 64, n, n % 2);
        struct timespec nap = {0, 300000};
        nanosleep(&nap, 0);
        if (n % 64 == 63) disarm();
    }
    disarm();
    return unused;
}
int main(int count, char **words) {
    if (count > 1) WORDS = atol(words[1]);
    in = fresh(32768), out = fresh(32768);
    must(pipe(fds) == 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0, "pipes");
    handle(SIGALRM, tick, 0);
    for (uint32_t n = 0; n < 6; n++) arm((n < 4 ? in + 4096 * n : out + 4096 * (n - 4)) + 1024, 64, 1000 + n, KEEP);
    pthread_t id[3];
    pthread_create(&id[0], 0, writer, 0), pthread_create(&id[1], 0, arming, 0), pthread_create(&id[2], 0, datagrams, 0);
    struct itimerval timer = {{0, 1500}, {0, 1500}};
    setitimer(ITIMER_REAL, &timer, 0);
    uint32_t next = 0, held = 0;
    while (next < WORDS) {
        struct iovec parts[2] = {{in + 4090 + held, 600 - held}, {in + 8192 + 3000, 500}};
        ssize_t got = readv(fds[0], parts, 2);
        if (got < 0) { must(errno == EINTR, "readv"); continue; }
        uint8_t joined[1200];
        memcpy(joined, in + 4090, 600), memcpy(joined + 600, in + 8192 + 3000, 500);
        held += got;
        uint32_t at = 0, word;
        for (; at + 4 <= held; at += 4) {
            memcpy(&word, joined + at, 4);
            must(word == next++, "the next word");
        }
        memcpy(in + 4090, joined + at, held - at);
        held -= at;
    }
    pthread_join(id[0], 0);
    atomic_store(&over, 1);
    pthread_join(id[1], 0), pthread_join(id[2], 0);
    timer.it_interval.tv_usec = timer.it_value.tv_usec = 0;
    setitimer(ITIMER_REAL, &timer, 0);
    printf("words %u\n", next);
    return done("any");
}
