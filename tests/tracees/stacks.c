/* A stack of the program's own, entered by a return to a function that never ends and allocates: at the very end of its mapping (way 0), 16 bytes
   below it, which leaves it unaligned for a function too (16), or with the address of another function above (1). stacks WAY ROUNDS. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

void change(void **from, void *to);
__asm__(".globl change\nchange:\n"
        "push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
        "mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
        "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n");

static void *home, *inner;
static unsigned long sum;

__attribute__((noinline)) static void allocate(unsigned n) {
    unsigned char *block = malloc(10 + n % 500), *zeroed = calloc(1, n % 90 + 1);
    block[0] = n;
    sum += block[0] + zeroed[n % 90];
    free(zeroed);
    free(block);
}

static void work(void) {
    for (unsigned n = 0;; n++) {
        allocate(n);
        if (n % 4 == 3) change(&inner, home);
    }
}

__attribute__((noinline)) static void never(void) {
    puts("returned");
    exit(9);
}

int main(int count, char **words) {
    enum { BYTES = 1 << 16, PAGE = 4096 };
    long way = count > 1 ? atol(words[1]) : 0, rounds = count > 2 ? atol(words[2]) : 1;
    char *memory = mmap(0, BYTES + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory + BYTES, PAGE, PROT_NONE)) return 99;
    void **top = (void **)(memory + BYTES - (way == 16 ? 16 : 0));
    if (way == 1) *--top = (void *)never;
    *--top = (void *)work;
    for (int saved = 0; saved < 6; saved++) *--top = 0;
    inner = top;
    for (long round = 0; round < rounds; round++) change(&home, inner);
    printf("%lu\n", sum);
    return 0;
}
