/* A thread that sweeps an array on its stack and one that it has for itself (thread-local), 400 times, and 40 times one of the heap, which
 * was mapped right before the stack: the kernel may make one mapping of the two. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static __thread char own[200000];

static char *heap;

static long sweep(volatile char *bytes, long size, int rounds) {
    long sum = 0;
    for (int round = 0; round < rounds; round++)
        for (long i = 0; i < size; i += 16) {
            bytes[i] = (char)round;
            sum += bytes[i];
        }
    return sum;
}

static void *work(void *sum) {
    volatile char stack[400000];
    *(long *)sum = sweep(stack, sizeof stack, 400) + sweep(own, sizeof own, 400) + sweep(heap, 1 << 20, 40);
    return NULL;
}

int main(void) {
    pthread_t thread;
    long sum = 0;
    heap = malloc(1 << 20);
    pthread_create(&thread, NULL, work, &sum);
    pthread_join(thread, NULL);
    printf("%ld\n", sum);
    return 0;
}
