/* munmap, mmap over, mremap and madvise of watched pages. */
#include "shim.h"
int main(void) {
    uint8_t *p = fresh(65536);
    unsigned sum = 0;
    for (uint32_t n = 0; n < 6; n++) arm(p + 8192 * n + 64, 64, n, KEEP);
    must(munmap(p, 4096) == 0, "munmap");
    must(mmap(p, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p, "again");
    sum += load(p + 64);
    must(mmap(p + 8192, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p + 8192, "over");
    sum += load(p + 8192 + 64);
    uint8_t *moved = mremap(p + 16384, 4096, 8192, MREMAP_MAYMOVE);
    must(moved != MAP_FAILED, "mremap");
    sum += load(moved + 64);
    store(moved + 64, 3);
    must(madvise(p + 24576, 4096, MADV_DONTNEED) == 0, "madvise");
    sum += load(p + 24576 + 64);
    must(madvise(p + 32768, 4096, MADV_POPULATE_WRITE) == 0 || errno == EINVAL, "populate");
    sum += load(p + 32768 + 64);
    sum += load(p + 40960 + 64);
    /* The heap's end moves down over a watch. */
    uint8_t *top = sbrk(16384);
    uint8_t *page = (uint8_t *)(((uintptr_t)top + 4095) & ~4095ul);
    memset(page, 1, 4096);
    arm(page, 64, 9, KEEP);
    store(page, 1);
    must(sbrk(-16384) != (void *)-1, "sbrk");
    disarm();
    printf("sum %u\n", sum);
    return done("0:0 1:0 2:0 3:1 4:0 5:1 9:1");
}
