/* A heap of blocks that are told apart by who allocated them; also in threads and a child. Prints a sum and what of the shim there is in its
   environment. Argument: `plain`, `child` (all in a child of fork), `exec` (all in a program that it executes), `threads`. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define NODES 20000
#define ROUNDS 12
#define APART __attribute__((noinline, noclone))

struct node { struct node *next; long value[5]; };

/* Allocates for others: no site. */
APART static void *xmalloc(size_t bytes) {
    void *block = malloc(bytes);
    if (!block) abort();
    return block;
}

APART static struct node *list(void) {
    struct node *first = 0;
    for (long n = 0; n < NODES; n++) {
        struct node *one = xmalloc(sizeof *one);
        one->next = first;
        one->value[0] = n;
        first = one;
    }
    return first;
}

APART static long *table(void) { return calloc(8 * NODES, sizeof(long)); }

APART static long *grown(void) {
    long *all = 0;
    for (long n = 1; n <= 8; n++) {
        all = realloc(all, n * NODES * sizeof(long));
        for (long i = (n - 1) * NODES; i < n * NODES; i++) all[i] = i;
    }
    return all;
}

APART static long *mapped(void) {
    size_t bytes = 8 * NODES * sizeof(long);
    return mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* What is freed and allocated again is of who has it now. */
APART static void freed(void) {
    static void *blocks[NODES];
    for (long n = 0; n < NODES; n++) blocks[n] = malloc(sizeof(struct node));
    for (long n = 0; n < NODES; n++) free(blocks[n]);
}

APART static long walk(struct node *node) {
    long sum = 0;
    for (; node; node = node->next) sum += node->value[0];
    return sum;
}

APART static long add(const long *all) {
    long sum = 0;
    for (long i = 0; i < 8 * NODES; i++) sum += all[i];
    return sum;
}

static long work(void) {
    freed();
    struct node *nodes = list();
    long *zeros = table(), *numbers = grown(), *pages = mapped();
    long sum = 0;
    for (int n = 0; n < ROUNDS; n++) sum += walk(nodes) + add(zeros) + add(numbers) + add(pages);
    return sum;
}

/* Blocks of all sizes that come and go, each with its own bytes in it. */
static void *churn(void *seed) {
    enum { HELD = 256 };
    static const size_t ALIGNMENTS[] = {16, 64, 4096};
    unsigned char *held[HELD] = {0};
    size_t bytes[HELD] = {0};
    uint64_t random = (uintptr_t)seed * 2654435761u + 1;
    long bad = 0;
    for (long n = 0; n < 20000; n++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        size_t at = random >> 40 & (HELD - 1), size = 1 + (random >> 20 & 1023);
        if ((random >> 50 & 255) == 0) size *= 300;
        for (size_t i = 0; i < bytes[at]; i += 97) bad += held[at][i] != (unsigned char)(at + i);
        switch (random >> 60 & 3) {
        case 0: {
            unsigned char *moved = realloc(held[at], size);
            for (size_t i = 0; i < size && i < bytes[at]; i += 97) bad += moved[i] != (unsigned char)(at + i);
            held[at] = moved;
            break;
        }
        case 1: {
            size_t alignment = ALIGNMENTS[random >> 33 & 1];
            free(held[at]);
            if (posix_memalign((void **)&held[at], alignment, size)) return (void *)1;
            bad += (uintptr_t)held[at] % alignment != 0;
            break;
        }
        case 2:
            free(held[at]);
            held[at] = calloc(size, 1);
            for (size_t i = 0; i < size; i += 97) bad += held[at][i] != 0;
            break;
        default:
            free(held[at]);
            held[at] = malloc(size);
        }
        bytes[at] = size;
        for (size_t i = 0; i < size; i += 97) held[at][i] = (unsigned char)(at + i);
    }
    for (int n = 0; n < HELD; n++) free(held[n]);
    return (void *)bad;
}

static long threads(void) {
    enum { THREADS = 8 };
    pthread_t all[THREADS];
    long bad = 0;
    for (uintptr_t n = 0; n < THREADS; n++)
        if (pthread_create(&all[n], 0, churn, (void *)(n + 1))) abort();
    for (int n = 0; n < THREADS; n++) {
        void *one;
        pthread_join(all[n], &one);
        bad += (long)one;
    }
    volatile size_t most = PTRDIFF_MAX;
    /* What the allocator promises beside. */
    bad += malloc(most) != 0;
    bad += calloc(most, 4) != 0;
    free(0);
    char *empty = malloc(0), *text = strdup("kept");
    bad += empty == 0 || strcmp(text = realloc(text, 100000), "kept") != 0;
    bad += realloc(text, most) != 0 || strcmp(text, "kept") != 0;
    /* Refused, and nothing is lost by it. */
    void *page = (void *)((uintptr_t)text & ~(uintptr_t)4095);
    bad += munmap(page, most) == 0 || munmap(page, 0) == 0 || munmap(text, 4096) == 0 || strcmp(text, "kept") != 0;
    free(text);
    free(empty);
    return bad;
}

int main(int count, char **words) {
    const char *how = count > 1 ? words[1] : "plain";
    int status = 0;
    if (!strcmp(how, "exec")) execl("/proc/self/exe", words[0], "plain", (char *)0);
    if (!strcmp(how, "child") && fork()) {
        wait(&status);
        return WEXITSTATUS(status);
    }
    const char *preload = getenv("LD_PRELOAD");
    printf("%ld %s\n", !strcmp(how, "threads") ? threads() : work(), preload ? preload : "nothing");
    return 0;
}
