/* Writes nonsense over what the profiler's log has in the address space, while it is being written. Argument: how many times.
 * Exits with 3. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile unsigned long sum;

static void compute(void)
{
    sum = 0;
    for (unsigned long i = 0; i < 3000000; i++)
        sum += i * i;
}

/* Without a call in between, so that what is written comes to be read. */
static void scribble(unsigned long *from, unsigned long words)
{
    for (unsigned long i = 0; i < words; i++)
        from[i] = 0x5a5a5a5a5a5a5a5aul + i;
    compute();
}

int main(int argc, char **argv)
{
    int times = argc > 1 ? atoi(argv[1]) : 1;
    for (int t = 0; t < times; t++) {
        unsigned long from = 0, to, found = 0;
        char line[512];
        FILE *maps = fopen("/proc/self/maps", "r");
        while (maps && fgets(line, sizeof line, maps))
            if (strstr(line, " rw-s ") && strstr(line, "memfd:statcache") && sscanf(line, "%lx-%lx", &from, &to) == 2)
                found = from;
        if (maps)
            fclose(maps);
        if (found)
            /* It is the first 16 MiB, written from somewhere in there up to its end. */
            scribble((unsigned long *)(found + (8ul << 20)), (8ul << 20) / sizeof(long));
        compute();
    }
    printf("computed %lu\n", sum);
    return 3;
}
