/* The same by the `syscall` instruction itself, from code that no C library knows of, and from a page made executable late. */
#include "shim.h"
static long direct(long number, long a, long b, long c) {
    long value;
    asm volatile("syscall" : "=a"(value) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return value;
}
int main(void) {
    uint8_t *p = fresh(8192);
    int fds[2];
    must(pipe(fds) == 0, "pipe");
    /* mov rax, rdi; mov rdi, rsi; mov rsi, rdx; mov rdx, rcx; syscall; ret */
    static const uint8_t code[] = {0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xca, 0x0f, 0x05, 0xc3};
    uint8_t *made = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(made, code, sizeof code);
    must(mprotect(made, 4096, PROT_READ | PROT_EXEC) == 0, "mprotect");
    long (*late)(long, long, long, long) = (long (*)(long, long, long, long))(uintptr_t)made;
    arm(p + 4096, 64, 1, KEEP);
    memset(p, 7, 4000);
    for (int n = 0; n < 20; n++) {
        must(direct(SYS_write, fds[1], (long)(p + 4000 - 100 * n), 200) == 200, "write");
        must(late(SYS_read, fds[0], (long)(p + 4000), 200) == 200, "read");
        must(late(SYS_write, fds[1], (long)(p + 4050), 100) == 100 && direct(SYS_read, fds[0], (long)(p + 4096), 100) == 100, "back");
        must(direct(SYS_read, fds[0], 8, 0) == 0 || errno, "nothing");
        load(p + 4096);
    }
    must(direct(SYS_write, fds[1], 8, 4) == -EFAULT, "its own bad address");
    disarm();
    unsigned sum = 0;
    for (int i = 0; i < 8192; i++) sum = sum * 31 + p[i];
    printf("sum %u\n", sum);
    return done("1:20");
}
