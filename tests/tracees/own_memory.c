/* A thread that sweeps an array on its stack and one that it has for itself (thread-local), many times; nothing else is touched much. */
#include <pthread.h>
#include <stdio.h>

static __thread char own[200000];

static long sweep(volatile char *bytes, long size) {
    long sum = 0;
    for (int round = 0; round < 400; round++)
        for (long i = 0; i < size; i += 16) {
            bytes[i] = (char)round;
            sum += bytes[i];
        }
    return sum;
}

static void *work(void *sum) {
    volatile char stack[400000];
    *(long *)sum = sweep(stack, sizeof stack) + sweep(own, sizeof own);
    return NULL;
}

int main(void) {
    pthread_t thread;
    long sum = 0;
    pthread_create(&thread, NULL, work, &sum);
    pthread_join(thread, NULL);
    printf("%ld\n", sum);
    return 0;
}
