/* Atomic updates of a watched line by two threads: none is lost. What one does while the other is let through goes unseen. */
#include "shim.h"
#define TIMES 4000
static uint8_t *p;
static void *add(void *unused) {
    for (int i = 0; i < TIMES; i++) {
        asm volatile("lock incq (%0)" : : "r"(p + 128) : "memory", "cc");
        uint64_t one = 1;
        asm volatile("lock xaddq %0, (%1)" : "+r"(one) : "r"(p + 136) : "memory", "cc");
        uint64_t old = *(volatile uint64_t *)(p + 2048), new;
        do {
            new = old + 1;
            asm volatile("lock cmpxchgq %2, (%1)" : "+a"(old) : "r"(p + 144), "r"(old + 1) : "memory", "cc");
        } while (old + 1 != new);
    }
    (void)unused;
    return 0;
}
int main(void) {
    pthread_t a, b;
    p = fresh(4096);
    memset(p, 0, 4096);
    arm(p + 128, 64, 1, KEEP);
    must(pthread_create(&a, 0, add, 0) == 0 && pthread_create(&b, 0, add, 0) == 0, "threads");
    pthread_join(a, 0);
    pthread_join(b, 0);
    disarm();
    uint64_t *words = (uint64_t *)(p + 128);
    printf("sums %lu %lu %lu\n", words[0], words[1], words[2]);
    return done("1:some");
}
