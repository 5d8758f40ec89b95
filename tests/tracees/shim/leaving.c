/* Threads that come and go, detached and joined, with watches on their stacks and pages being armed all the time. */
#include "shim.h"
static uint8_t *p;
static atomic_int done_threads;
static void *brief(void *k) {
    uint8_t room[512] __attribute__((aligned(64)));
    memset(room, (int)(long)k, sizeof room);
    armed_as(room + 64, 64, 100 + (long)k % 50, KEEP);
    unsigned sum = 0;
    for (int i = 0; i < 512; i++) sum += load(room + i);
    store(p + 64 * ((long)k % 32), sum);
    atomic_fetch_add(&done_threads, sum == 512u * (uint8_t)(long)k);
    return 0;
}
int main(void) {
    p = fresh(8192);
    for (long k = 0; k < 60; k++) {
        armed_as(p + 64 * (k % 64), 64, k, k % 2);
        pthread_t id;
        pthread_attr_t attr;
        pthread_attr_init(&attr);
        if (k % 3 == 0) pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
        must(pthread_create(&id, &attr, brief, (void *)k) == 0, "create");
        if (k % 3) pthread_join(id, 0);
        if (k % 7 == 0) disarm();
    }
    while (atomic_load(&done_threads) < 60) usleep(1000);
    disarm();
    printf("threads %d\n", done_threads);
    return done("any");
}
