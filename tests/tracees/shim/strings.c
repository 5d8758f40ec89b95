/* String instructions across a watched line, forwards and backwards, from it and onto it. */
#include "shim.h"
int main(void) {
    uint8_t *p = fresh(8192), *q = fresh(4096);
    for (int i = 0; i < 4096; i++) q[i] = i * 7;
    arm(p + 256, 64, 1, KEEP);
    void *from = q, *to = p + 200;
    uint64_t count = 200;
    asm volatile("rep movsb" : "+S"(from), "+D"(to), "+c"(count) : : "memory");
    must(count == 0 && from == q + 200 && to == p + 400, "registers");
    /* Both sides on the page: 8 words from 320 on to 240 on, of which words 2..7 reach the line. */
    from = p + 320, to = p + 240, count = 8;
    asm volatile("rep movsq" : "+S"(from), "+D"(to), "+c"(count) : : "memory");
    to = p + 330, count = 20;
    asm volatile("std; rep stosb; cld" : "+D"(to), "+c"(count) : "a"(0x55) : "memory");
    must(count == 0 && to == p + 310, "backwards");
    disarm();
    unsigned sum = 0;
    for (int i = 0; i < 8192; i++) sum = sum * 31 + p[i];
    printf("sum %u\n", sum);
    return done("1:79");
}
