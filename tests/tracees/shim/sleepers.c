/* Threads asleep in system calls when the first watch is armed and when the last goes: none is cut short or loses data. */
#include "shim.h"
static uint8_t *p;
static int fds[2];
static atomic_int ready, reader_tid;
static long result[4];
static void *reader(void *unused) {
    atomic_store(&reader_tid, (int)syscall(SYS_gettid));
    atomic_fetch_add(&ready, 1);
    result[0] = read(fds[0], p + 64, 100);
    (void)unused;
    return 0;
}
static void *poller(void *unused) {
    struct pollfd wait = {fds[0], 0, 0};
    atomic_fetch_add(&ready, 1);
    result[1] = poll(&wait, 1, 300);
    (void)unused;
    return 0;
}
static void *sleeper(void *unused) {
    struct timespec nap = {0, 200000000};
    atomic_fetch_add(&ready, 1);
    result[2] = nanosleep(&nap, 0);
    (void)unused;
    return 0;
}
static void *spinner(void *unused) {
    atomic_fetch_add(&ready, 1);
    while (atomic_load(&ready) < 5) result[3]++;
    result[3] = 1;
    (void)unused;
    return 0;
}
/* Whether the thread waits in read(2): proc(5), its number is 0. */
static int reads(int tid) {
    char path[64], text[2] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", tid);
    int file = open(path, O_RDONLY);
    must(file >= 0 && read(file, text, 2) == 2 && close(file) == 0, "its call");
    return text[0] == '0' && text[1] == ' ';
}
int main(void) {
    p = fresh(8192);
    must(pipe(fds) == 0, "pipe");
    pthread_t ids[4];
    void *(*bodies[4])(void *) = {reader, poller, sleeper, spinner};
    for (int n = 0; n < 4; n++) must(pthread_create(&ids[n], 0, bodies[n], 0) == 0, "thread");
    while (atomic_load(&ready) < 4) usleep(1000);
    while (!reads(atomic_load(&reader_tid))) usleep(1000);
    usleep(20000);
    /* The page the reader waits for is refused, another one is not. */
    int refused = armed_as(p + 64, 64, 1, KEEP);
    must(refused == (statcache_shim_call ? -4 : 0), "in use");
    arm(p + 4096, 64, 2, KEEP);
    store(p + 4096, 1);
    disarm();
    arm(p + 4096, 64, 3, KEEP);
    store(p + 4096, 1);
    must(write(fds[1], "abc", 3) == 3, "write");
    atomic_fetch_add(&ready, 1);
    for (int n = 0; n < 4; n++) pthread_join(ids[n], 0);
    disarm();
    printf("read %ld %c poll %ld sleep %ld spin %ld\n", result[0], p[64], result[1], result[2], result[3]);
    return done("2:1 3:1");
}
