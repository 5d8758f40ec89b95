/* Line sizes, several watches on a page, an access that begins before a line and reaches into it, one that only comes near. */
#include "shim.h"
int main(void) {
    uint8_t *p = fresh(8192);
    arm(p + 16, 16, 1, KEEP);
    arm(p + 64, 64, 2, KEEP);
    arm(p + 256, 256, 3, 0);
    arm(p + 4096 + 128, 128, 4, KEEP);
    unsigned sum = 0;
    for (int i = 0; i < 512; i++) sum += load(p + i);
    for (int i = 0; i < 512; i++) store(p + 4096 + i, i);
    uint64_t word;
    asm volatile("movq (%1), %0" : "=r"(word) : "r"(p + 60) : "memory");
    sum += word >> 56;
    asm volatile("movq (%1), %0" : "=r"(word) : "r"(p + 56) : "memory");
    sum += word >> 56;
    /* Two pages in one access. */
    *(volatile uint8_t *)(p + 4095) = 7;
    asm volatile("movq (%1), %0" : "=r"(word) : "r"(p + 4092) : "memory");
    sum += word >> 24 & 0xff;
    disarm();
    for (int i = 0; i < 8192; i++) sum += p[i];
    printf("sum %u\n", sum);
    return done("1:16 2:65 3:1 4:128");
}
