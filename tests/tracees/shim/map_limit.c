/* As many mappings as a process may have, then watches come and go. */
#include "shim.h"
int main(void) {
    uint8_t *p = fresh(4096 * 64);
    const size_t count = 70000;
    uint8_t *q = mmap(0, count * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    must(q != MAP_FAILED, "mmap");
    unsigned sum = 0;
    for (uint32_t n = 0; n < 4; n++) arm(p + 16384 * n + 64, 64, n, KEEP);
    size_t n = 0;
    while (n < count && mprotect(q + 4096 * n, 4096, PROT_READ) == 0) n += 2;
    must(n < count && errno == ENOMEM, "limit");
    for (int k = 0; k < 4; k++) store(p + 16384 * k + 64, 5), sum += load(p + 16384 * k + 64), store(p + 16384 * k, 5);
    for (int k = 4; k < 8; k++) armed_as(p + 16384 * k + 64, 64, k, KEEP);
    for (int k = 0; k < 8; k++) store(p + 16384 * k + 2064, 5), sum += load(p + 16384 * k + 70);
    must(read(open("/dev/zero", O_RDONLY), p, 4096 * 20) == 4096 * 20, "read");
    disarm();
    for (int i = 0; i < 4096 * 64; i++) sum += p[i];
    munmap(q, count * 4096);
    printf("sum %u\n", sum);
    return done("0:3");
}
