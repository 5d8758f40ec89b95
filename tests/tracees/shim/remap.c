/* mremap of all kinds over watched pages. */
#include "shim.h"
int main(void) {
    uint8_t *p = fresh(4096 * 64);
    unsigned sum = 0;
    for (uint32_t n = 0; n < 8; n++) arm(p + 32768 * n + 64, 64, n, KEEP);
    for (int i = 0; i < 4096 * 64; i++) if (i % 32768 > 4096) p[i] = i * 7;
    uint8_t *q = mremap(p, 8192, 8192, MREMAP_MAYMOVE | 4, (void *)0);
    must(q != MAP_FAILED && q != p, "dontunmap");
    for (int i = 0; i < 8192; i++) sum = sum * 31 + q[i] + p[i];
    must(mremap(p + 32768, 4096 * 4, 4096, 0) == p + 32768, "shrink");
    must(mremap(p + 32768, 4096, 4096 * 4, 0) == p + 32768, "grow");
    uint8_t *target = fresh(65536);
    armed_as(target + 64, 64, 9, KEEP);
    must(mremap(p + 65536, 16384, 32768, MREMAP_MAYMOVE | MREMAP_FIXED, target) == target, "fixed");
    for (int i = 0; i < 32768; i++) sum = sum * 31 + target[i];
    /* Several mappings at once, as they look: one, as they are. */
    q = mremap(p + 98304, 98304, 98304 + 4096, MREMAP_MAYMOVE);
    must(q != MAP_FAILED, "several");
    for (int i = 0; i < 98304; i++) sum = sum * 31 + q[i];
    must(madvise(q, 98304, MADV_DONTNEED) == 0, "madvise");
    for (int i = 0; i < 98304; i++) sum = sum * 31 + q[i];
    uint8_t *s = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    s[100] = 5;
    arm(s + 64, 64, 10, KEEP);
    uint8_t *twin = mremap(s, 0, 8192, MREMAP_MAYMOVE);
    must(twin != MAP_FAILED && twin[100] == 5, "second view");
    store(s + 100, 6);
    must(twin[100] == 6, "same memory");
    must(madvise(p + 32768, 4096, MADV_FREE) == 0, "free");
    disarm();
    printf("sum %u\n", sum);
    return done("any");
}
