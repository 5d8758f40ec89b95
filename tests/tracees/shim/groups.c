/* Calls that C libraries make on all threads by signals of their own: setuid, cancellation; and a timer with a thread. */
#include "shim.h"
static uint8_t *p;
static int fds[2];
static atomic_int cleaned, ticks;
static void cleanup(void *unused) { (void)unused; atomic_fetch_add(&cleaned, 1); }
static void *reader(void *unused) {
    pthread_cleanup_push(cleanup, 0);
    for (;;) {
        if (read(fds[0], p + 60, 10) < 0) break;
    }
    pthread_cleanup_pop(0);
    return unused;
}
static void *worker(void *unused) {
    for (;;) { store(p + 4396, load(p + 4396) + 1); pthread_testcancel(); }
    return unused;
}
static timer_t timer;
static const struct itimerspec soon = {{0, 0}, {0, 2000000}};
/* Set anew by each but a round's last: where making a thread takes longer than that, they would pile up. */
static void tick(union sigval v) {
    (void)v;
    store(p + 4496, 1);
    if ((atomic_load(&ticks) + 1) % 5) must(timer_settime(timer, 0, &soon, 0) == 0, "timer again");
    atomic_fetch_add(&ticks, 1);
}
int main(void) {
    p = fresh(8192);
    must(pipe(fds) == 0, "pipe");
    for (int round = 0; round < 3; round++) {
        pthread_t id[4];
        for (int n = 0; n < 4; n++) pthread_create(&id[n], 0, n < 2 ? reader : worker, 0);
        arm(p + 4096 + 64, 64, 1, KEEP);
        must(setuid(getuid()) == 0 && setgid(getgid()) == 0, "setuid");
        must(write(fds[1], "0123456789", 10) == 10, "write");
        struct sigevent event = {.sigev_notify = SIGEV_THREAD};
        event.sigev_notify_function = tick;
        must(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &soon, 0) == 0, "timer");
        while (atomic_load(&ticks) < 5 * (round + 1)) usleep(1000);
        timer_delete(timer);
        for (int n = 0; n < 4; n++) must(pthread_cancel(id[n]) == 0, "cancel");
        for (int n = 0; n < 4; n++) {
            void *value;
            pthread_join(id[n], &value);
            must(value == PTHREAD_CANCELED, "cancelled");
        }
        disarm();
    }
    printf("cleaned %d\n", cleaned);
    return done("any");
}
