/* Writes a mebibyte to its output in one call, which sleeps until somebody reads; says on its error output what the call has returned and
   whether a register or flag is not what it was. Exits 4. */
#include <stdio.h>
#include <sys/syscall.h>

#define MUCH (1 << 20)
static char bytes[MUCH];

int main(void) {
    for (long i = 0; i < MUCH; i++) bytes[i] = (char)(i * i >> 9);
    long to = 1, much = MUCH, got = SYS_write;
    char *from = bytes, carry = 0, expected = 0;
    register long r10 __asm__("r10") = 10, r8 __asm__("r8") = 8, r9 __asm__("r9") = 9;
    __asm__ volatile("stc\n syscall\n 1: setc %3\n lea 1b(%%rip), %%r12\n cmp %%r12, %%rcx\n sete %4\n"
                     : "+a"(got), "+D"(to), "+S"(from), "=&q"(carry), "=&q"(expected), "+d"(much), "+r"(r10), "+r"(r8), "+r"(r9)
                     : : "rcx", "r11", "r12", "memory", "cc");
    int same = to == 1 && from == bytes && much == MUCH && r10 == 10 && r8 == 8 && r9 == 9 && carry && expected;
    fprintf(stderr, "%ld, registers %s\n", got, same ? "same" : "changed");
    return 4;
}
