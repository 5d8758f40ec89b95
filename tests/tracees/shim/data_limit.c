/* All the data the limit allows: pages that were watched must come back. */
#include "shim.h"
#include <sys/resource.h>
int main(void) {
    uint8_t *p = fresh(4096 * 16);
    unsigned sum = 0;
    for (int n = 0; n < 8; n++) arm(p + 8192 * n + 64, 64, n, KEEP);
    struct rlimit limit = {32 << 20, 32 << 20};
    must(setrlimit(RLIMIT_DATA, &limit) == 0, "setrlimit");
    int got = 0;
    while (mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED && got < 100000) got++;
    for (int n = 0; n < 8; n++) store(p + 8192 * n + 64, n), sum += load(p + 8192 * n + 100);
    must(read(open("/dev/zero", O_RDONLY), p + 64, 8192 * 5) == 8192 * 5, "read");
    disarm();
    for (int i = 0; i < 4096 * 16; i++) sum += p[i], p[i] = i;
    printf("sum %u %d\n", sum, got > 100);
    return done("0:2 1:2 2:2 3:2 4:2 5:2 6:2 7:2");
}
