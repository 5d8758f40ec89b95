/* One thread fills blocks of a ring, another takes two accesses to a word of them to its one. queue BLOCKS prints a sum that must not change, and at
   how many blocks of a hundred the ring was about half full: as one of the two is slower, at few. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { SLOTS = 8, WORDS = 8192, TABLE = 1 << 12 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t emptier = PTHREAD_COND_INITIALIZER, fuller = PTHREAD_COND_INITIALIZER;
static uint64_t ring[SLOTS][WORDS], table[TABLE];
static long blocks, head, tail, between;

static void *fill(void *unused) {
    uint64_t next = 1;
    for (long block = 0; block < blocks; block++) {
        pthread_mutex_lock(&lock);
        while (head - tail == SLOTS) pthread_cond_wait(&emptier, &lock);
        between += head - tail >= SLOTS / 2 - 1 && head - tail <= SLOTS / 2 + 1;
        pthread_mutex_unlock(&lock);
        uint64_t *words = ring[block % SLOTS];
        for (long i = 0; i < WORDS; i++) words[i] = next = next * 6364136223846793005u + 1;
        pthread_mutex_lock(&lock);
        head++;
        pthread_cond_signal(&fuller);
        pthread_mutex_unlock(&lock);
    }
    return unused;
}

static void *empty(void *unused) {
    for (long block = 0; block < blocks; block++) {
        pthread_mutex_lock(&lock);
        while (head == tail) pthread_cond_wait(&fuller, &lock);
        pthread_mutex_unlock(&lock);
        uint64_t *words = ring[block % SLOTS];
        for (long i = 0; i < WORDS; i++) table[words[i] >> 52] += words[i];
        pthread_mutex_lock(&lock);
        tail++;
        pthread_cond_signal(&emptier);
        pthread_mutex_unlock(&lock);
    }
    return unused;
}

int main(int count, char **words) {
    blocks = count > 1 ? atol(words[1]) : 1000;
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, fill, NULL);
    pthread_create(&threads[1], NULL, empty, NULL);
    uint64_t sum = 0;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < TABLE; i++) sum += table[i];
    printf("%lu\n%ld\n", (unsigned long)sum, 100 * between / blocks);
    return 0;
}
