/* Three threads, made when the first has been at work for a while, each busy in memory of its own; argument: thousands of rounds. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static long rounds;
static unsigned char memory[4][1 << 16];
static void *spin(void *of) {
    volatile unsigned char *own = of;
    unsigned long sum = 0;
    for (long n = 0; n < rounds; n++)
        for (long k = 0; k < 64; k++) sum += own[(n * 64 + k * 67) & 0xffff]++;
    return (void *)sum;
}
int main(int argc, char **argv) {
    pthread_t ids[3];
    unsigned long sum = 0;
    rounds = (argc > 1 ? atol(argv[1]) : 100) * 1000;
    sum += (unsigned long)spin(memory[3]);
    for (int n = 0; n < 3; n++) pthread_create(&ids[n], 0, spin, memory[n]);
    for (int n = 0; n < 3; n++) {
        void *value;
        pthread_join(ids[n], &value);
        sum += (unsigned long)value;
    }
    printf("%lu\n", sum);
    return 7;
}
