/* Two threads on one page: one beside the line, the other in it. A watch that is not kept reports exactly one hit. While the page is
   open for the one, the other is not seen: so it comes back to the line often, over a time longer than any opening. */
#include "shim.h"
static uint8_t *p;
static atomic_int armed, over;
static void pause_a_while(void) {
    for (volatile int i = 0; i < 3000; i++) {
    }
}
static void *beside(void *unused) {
    uint64_t sum = 0;
    while (!atomic_load(&over)) {
        store(p + 1000, load(p + 1000) + 1);
        sum++;
        pause_a_while();
    }
    (void)unused;
    return (void *)(uintptr_t)(sum > 0);
}
static void *within(void *unused) {
    for (int round = 1; round <= 20; round++) {
        while (atomic_load(&armed) < round) sched_yield();
        for (int i = 0; i < 2048; i++) {
            store(p + 256 + i % 64, i);
            if (i % 8 == 0) pause_a_while();
        }
        atomic_store(&over, round == 20);
        atomic_fetch_add(&armed, 1000);
        while (atomic_load(&armed) > 1000) sched_yield();
    }
    (void)unused;
    return 0;
}
int main(void) {
    pthread_t a, b;
    void *worked;
    p = fresh(4096);
    must(pthread_create(&a, 0, beside, 0) == 0 && pthread_create(&b, 0, within, 0) == 0, "threads");
    for (int round = 1; round <= 20; round++) {
        arm(p + 256, 64, round, 0);
        atomic_store(&armed, round);
        while (atomic_load(&armed) < 1000) sched_yield();
        atomic_fetch_sub(&armed, 1000);
    }
    pthread_join(a, &worked);
    pthread_join(b, 0);
    disarm();
    unsigned sum = worked != 0;
    for (int i = 0; i < 64; i++) sum += p[256 + i];
    printf("sum %u\n", sum);
    return done("1:1 2:1 3:1 4:1 5:1 6:1 7:1 8:1 9:1 10:1 11:1 12:1 13:1 14:1 15:1 16:1 17:1 18:1 19:1 20:1");
}
