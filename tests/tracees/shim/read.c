/* read(2) into a watched page: short, whole and from its middle; what the kernel writes is there, and is no hit. */
#include "shim.h"
int main(void) {
    uint8_t *p = fresh(12288);
    int fds[2];
    must(pipe(fds) == 0, "pipe");
    uint8_t text[4096];
    for (int i = 0; i < 4096; i++) text[i] = 'a' + i % 26;
    arm(p + 4096 + 128, 64, 1, KEEP);
    unsigned sum = 0;
    for (int n = 1; n < 60; n++) {
        int begin = 4096 + n * 67 % 4000, asked = n * 71 % 4096 + 1, there = n % 3 ? asked : asked / 2 + 1;
        must(write(fds[1], text, there) == there, "write");
        must(read(fds[0], p + begin, asked) == there, "read");
        must(n % 10 || memcmp(p + begin, text, there) == 0, "data");
        sum += load(p + 4096 + 128);
    }
    disarm();
    for (int i = 0; i < 12288; i++) sum = sum * 31 + p[i];
    printf("sum %u\n", sum);
    /* Comparing touches the page at will, so that the line may be hit beyond the loads. */
    return done("1:some");
}
