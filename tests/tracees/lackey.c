/* A bit of everything compilers make of C, in its own code only: for counts that another tracer can check. The
 * argument (one digit) says how often. */
#include <stdio.h>
#include <string.h>

struct node {
    struct node *next;
    long key;
    double weight;
};

static struct node nodes[64];
static double grid[24][24], other[24][24];
static unsigned table[256];
static char text[256];

static int ackermann(int m, int n)
{
    if (m == 0)
        return n + 1;
    if (n == 0)
        return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}

static void sort(long *keys, int count)
{
    for (int i = 1; i < count; i++) {
        long key = keys[i];
        int j = i;
        for (; j > 0 && keys[j - 1] > key; j--)
            keys[j] = keys[j - 1];
        keys[j] = key;
    }
}

static unsigned round_once(unsigned seed)
{
    long keys[40];
    long double longest = 0;
    struct node *head = 0;
    for (int i = 0; i < 64; i++) {
        seed = seed * 1103515245 + 12345;
        nodes[i].key = seed >> 8;
        nodes[i].weight = seed * 0.5;
        nodes[i].next = head;
        head = &nodes[i];
        table[seed >> 24]++;
        text[i] = 'a' + (seed >> 20) % 26;
    }
    for (struct node *node = head; node; node = node->next)
        longest += node->weight;
    for (int i = 0; i < 40; i++)
        keys[i] = nodes[i].key;
    sort(keys, 40);
    for (int i = 1; i < 23; i++)
        for (int j = 1; j < 23; j++)
            other[i][j] = (grid[i - 1][j] + grid[i + 1][j] + grid[i][j - 1] + grid[i][j + 1]) * 0.25 + keys[i];
    __builtin_memcpy(grid, other, sizeof grid);
    for (int i = 0; i < 200; i++)
        text[i + 30] ^= text[i];
    return seed + (unsigned)longest + (unsigned)keys[20] + ackermann(2, 3);
}

int main(int argc, char **argv)
{
    unsigned seed = 1;
    int rounds = argc > 1 ? argv[1][0] - '0' : 1;
    for (int i = 0; i < rounds; i++)
        seed = round_once(seed);
    printf("%010u\n", seed);
    return 0;
}
