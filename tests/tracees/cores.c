/* Ends by a signal that dumps core.
   cores HOW ROUNDS: `segv`, `abort` after so many rounds of work; `quit` while two threads work and the first one
   sleeps: from outside, once it has printed a line. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned table[1 << 14];
static volatile unsigned sum;

__attribute__((noinline)) static unsigned walk(unsigned at, long rounds) {
    for (long i = 0; i < rounds; i++) {
        at = table[at & 0x3fff] + i;
        table[(at >> 3) & 0x3fff] ^= at;
    }
    return at;
}

static void *work(void *argument) {
    unsigned at = (unsigned)(long)argument;
    for (;;) sum = at = walk(at, 1000);
    return 0;
}

int main(int count, char **words) {
    (void)count;
    pthread_t threads[2];
    for (unsigned i = 0; i < sizeof table / sizeof *table; i++) table[i] = i * 2654435761u;
    puts("here");
    fflush(stdout);
    if (!strcmp(words[1], "quit")) {
        for (long i = 0; i < 2; i++) pthread_create(threads + i, 0, work, (void *)i);
        pthread_join(threads[0], 0);
    }
    sum = walk(1, atol(words[2]));
    if (!strcmp(words[1], "abort")) abort();
    *(volatile int *)8 = 1;
    return 0;
}
