/* The lowest mapped page of the stack is watched; then the stack grows below it. */
#include "shim.h"
#include <sys/resource.h>
static int depth(volatile unsigned *sum, int n) {
    volatile char pad[2000];
    pad[0] = n, pad[1999] = n;
    *sum += pad[0] + pad[1999];
    return n == 0 ? 0 : 1 + depth(sum, n - 1);
}
int main(void) {
    char line[512];
    unsigned long low = 0, high;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps))
        if (strstr(line, "[stack]")) sscanf(line, "%lx-%lx", &low, &high);
    fclose(maps);
    must(low != 0, "stack");
    volatile unsigned sum = 0;
    /* Refused, as the kernel grows a stack with the protection of its lowest page; the next one may be watched. */
    must(armed_as((void *)low, 64, 1, KEEP) == (arms() ? -2 : 0), "refused");
    sum += load((void *)low);
    arm((void *)(low + 4096), 64, 2, KEEP);
    sum += load((void *)(low + 4096));
    int n = depth(&sum, 1000);
    disarm();
    n += depth(&sum, 2000);
    printf("depth %d\n", n);
    return done("2:1");
}
