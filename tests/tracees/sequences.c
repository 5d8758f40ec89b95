/* Counters of each processor, in restartable sequences (rseq(2)): none is lost unless a thread that was interrupted in one goes on in it. The word
   that begins one is stored to by a pointer ("pointer"), or from fs with a register beside ("register"). sequences THREADS ROUNDS WAY; exit status 3. */
#include <stdio.h>
#if __has_include(<sys/rseq.h>)
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/rseq.h>

static struct { volatile long count; char apart[56]; } counters[1024];
static long rounds;
static int by_pointer;

/* Description, sequence and where it is broken off; `store` stores what rax holds. */
#define SEQUENCE(store)                                                                                   \
    asm volatile goto(".pushsection __rseq_cs, \"aw\"\n.balign 32\n3: .long 0, 0\n.quad 1f, 2f - 1f, 4f\n.popsection\n" \
                      "lea 3b(%%rip), %%rax\n" store "\n1:\n"                                             \
                      "cmpl %[cpu], 4(%[area])\njnz 4f\nmov (%[at]), %%rcx\nmov $20, %%edx\n"             \
                      "5: dec %%edx\njnz 5b\ninc %%rcx\nmov %%rcx, (%[at])\n2:\n"                         \
                      ".pushsection __rseq_failure, \"ax\"\n.byte 0x0f, 0xb9, 0x3d\n.long 0x53053053\n"   \
                      "4: jmp %l[again]\n.popsection\n"                                                   \
                      :                                                                                   \
                      : [area] "r"(area), [offset] "r"(__rseq_offset), [cpu] "r"(cpu), [at] "r"(at)       \
                      : "rax", "rcx", "rdx", "memory", "cc"                                               \
                      : again)

static void count(struct rseq *area) {
    unsigned cpu;
    volatile long *at;
again:
    cpu = *(volatile unsigned *)&area->cpu_id_start;
    at = &counters[cpu % 1024].count;
    if (by_pointer)
        SEQUENCE("mov %%rax, 8(%[area])");
    else
        SEQUENCE("mov %%rax, %%fs:8(%[offset])");
}

static void *work(void *unused) {
    char *thread;
    asm("mov %%fs:0, %0" : "=r"(thread));
    struct rseq *area = (struct rseq *)(thread + __rseq_offset);
    for (long i = 0; i < rounds; i++) count(area);
    return unused;
}

int main(int argc, char **argv) {
    pthread_t threads[64];
    int many = argc > 1 ? atoi(argv[1]) : 4;
    rounds = argc > 2 ? atol(argv[2]) : 100000;
    by_pointer = argc > 3 && !strcmp(argv[3], "pointer");
    if (!__rseq_size) {
        puts("skip: no area is registered");
        return 3;
    }
    for (int i = 0; i < many; i++)
        if (pthread_create(threads + i, 0, work, 0)) return 90;
    for (int i = 0; i < many; i++) pthread_join(threads[i], 0);
    long sum = 0;
    for (int i = 0; i < 1024; i++) sum += counters[i].count;
    printf("lost %ld\n", many * rounds - sum);
    return 3;
}
#else
int main(void) {
    puts("skip: the C library registers no area");
    return 3;
}
#endif
