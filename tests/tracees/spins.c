/* Threads that loop without an access to memory: THREADS of them for ever, while the first one works for ROUNDS rounds and then ends all of
   them; with 0 rounds it loops so itself. spins THREADS ROUNDS; exits 6. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static void *spin(void *unused) {
    for (;;) __asm__ volatile("");
    return unused;
}

int main(int count, char **words) {
    long threads = count > 1 ? atol(words[1]) : 1, rounds = count > 2 ? atol(words[2]) : 0;
    unsigned *numbers = malloc(4 << 16), mixed = 0;
    pthread_t thread;
    for (unsigned i = 0; i < 1 << 16; i++) numbers[i] = i * 2654435761u;
    for (long i = 0; i < threads; i++)
        if (pthread_create(&thread, 0, spin, 0)) return 99;
    if (!rounds) spin(0);
    for (long round = 0; round < rounds; round++)
        for (unsigned i = 0; i < 1 << 12; i++) mixed += numbers[(numbers[i] + mixed) & 0xffff];
    printf("%u\n", mixed);
    return 6;
}
