/* One static object, one inlined call, one call through the PLT, at known lines. */
#include <stdlib.h>

static long table[512];
long counter = 7;

static inline __attribute__((always_inline)) long load(long i)
{
    return table[i & 511]; /* line 9 */
}

__attribute__((noinline)) long walk(long n)
{
    long s = 0;
    for (long i = 0; i < n; i++)
        s += load(i * 37); /* line 16 */
    return s;
}

int main(int argc, char **argv)
{
    table[argc] = atol(argc > 1 ? argv[1] : "100");
    counter += walk(table[argc]);
    return counter == 0;
}
