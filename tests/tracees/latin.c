/* Names that are no UTF-8: its threads call themselves so, and halfway it maps a file of such a name.
   latin DIRECTORY; prints a sum. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { WORDS = 1 << 16, ROUNDS = 3000, THREADS = 2 };
static unsigned numbers[THREADS + 1][WORDS];

static unsigned walk(unsigned *of, int rounds) {
    unsigned mixed = 0;
    for (int round = 0; round < rounds; round++)
        for (unsigned i = 0; i < WORDS; i++) mixed += of[(of[i] + mixed) % WORDS]++;
    return mixed;
}

static void *work(void *of) { return (void *)(unsigned long)walk(of, ROUNDS); }

static unsigned map(const char *directory, const char *name) {
    char path[4096], byte = 7;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || write(file, &byte, 1) != 1) return 0;
    char *mapped = mmap(0, 1, PROT_READ, MAP_SHARED, file, 0);
    return mapped == MAP_FAILED ? 0 : *mapped;
}

int main(int count, char **words) {
    pthread_t threads[THREADS];
    unsigned sum = 0;
    if (count < 2 || prctl(PR_SET_NAME, "caf\xe9")) return 99;
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], 0, work, numbers[i])) return 98;
    sum += walk(numbers[THREADS], ROUNDS / 2);
    sum += map(words[1], "caf\xe9.db");
    sum += walk(numbers[THREADS], ROUNDS / 2);
    for (int i = 0; i < THREADS; i++) {
        void *its;
        pthread_join(threads[i], &its);
        sum += (unsigned long)its;
    }
    printf("%u\n", sum);
    return 5;
}
