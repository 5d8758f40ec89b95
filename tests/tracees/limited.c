/* Maps as much as the limit of its address space allows: how many blocks of 10 MB that are, which is printed.
   limited KIB: sets the limit itself, by now; limited 0: it has one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

static volatile unsigned words[1 << 16];

static void work(void) {
    for (unsigned round = 0; round < 1200; round++)
        for (unsigned i = 0; i < 1 << 16; i++) words[(i * 7919u) & 0xffff] += i;
}

int main(int count, char **arguments) {
    const size_t block = 10 << 20;
    unsigned long limit = count > 1 ? strtoul(arguments[1], 0, 10) << 10 : 0, blocks = 0;
    work();
    if (limit) {
        struct rlimit both = {limit, limit};
        if (setrlimit(RLIMIT_AS, &both)) return 2;
    }
    for (;; blocks++) {
        char *memory = mmap(0, block, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) break;
        memset(memory, 1, 4096);
    }
    work();
    printf("%lu blocks\n", blocks);
    return 3;
}
