/* Locks its memory, all that it maps from now on too, and works for a while. Says at the end how much memory is shared with others, which it
   maps none of: "little", or how many KiB. */
#include <stdio.h>
#include <sys/mman.h>

static volatile unsigned words[1 << 16];

int main(void) {
    char line[256];
    unsigned long kib = 0;
    puts(mlockall(MCL_CURRENT | MCL_FUTURE) ? "not allowed" : "locked");
    for (unsigned round = 0; round < 5000; round++)
        for (unsigned i = 0; i < 1 << 16; i++) words[(i * 7919u) & 0xffff] += i;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status)) sscanf(line, "RssShmem: %lu", &kib);
    if (kib < 200 << 10) puts("little");
    else printf("%lu KiB\n", kib);
    return 3;
}
