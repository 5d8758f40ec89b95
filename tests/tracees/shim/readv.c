/* readv(2) into four watched pages at once, the vector on a fifth. */
#include "shim.h"
int main(void) {
    uint8_t *p = fresh(5 * 4096);
    struct iovec *v = (struct iovec *)(p + 4 * 4096);
    uint8_t text[3000];
    int fds[2];
    must(pipe(fds) == 0, "pipe");
    for (int i = 0; i < 3000; i++) text[i] = i * 7;
    for (int n = 0; n < 4; n++) v[n] = (struct iovec){p + 4096 * n + 1700, 750};
    for (int n = 0; n < 5; n++) arm(p + 4096 * n + 2048, 64, n, KEEP);
    for (int round = 0; round < 20; round++) {
        must(write(fds[1], text, 3000) == 3000 && readv(fds[0], v, 4) == 3000, "readv");
        must(writev(fds[1], v, 4) == 3000 && read(fds[0], text, 3000) == 3000, "writev");
        for (int n = 0; n < 4; n++) load(p + 4096 * n + 2048 + round);
    }
    disarm();
    unsigned sum = 0;
    for (int i = 0; i < 4 * 4096; i++) sum = sum * 31 + p[i];
    for (int i = 0; i < 3000; i++) must(text[i] == (uint8_t)(i * 7), "unchanged");
    printf("sum %u\n", sum);
    return done("0:20 1:20 2:20 3:20 4:0");
}
