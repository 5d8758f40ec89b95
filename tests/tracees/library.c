/* Built twice as a library, whose function WORK walks through memory of its own, and once as a program that loads the two by turns, each where the other
   one was: library FIRST SECOND TURNS. Says how often they lay at one address. */
#ifdef WORK
static unsigned numbers[1 << 20];

unsigned WORK(unsigned n) {
    unsigned sum = 0;
    for (unsigned i = 0; i < 1 << 20; i += 16) sum += numbers[i]++ + n;
    return sum;
}
#else
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words) {
    long turns = count > 3 ? atol(words[3]) : 1, same = 0;
    unsigned sum = 0;
    void *before = 0;
    for (long turn = 0; turn < 2 * turns; turn++) {
        void *library = dlopen(words[1 + turn % 2], RTLD_NOW);
        unsigned (*work)(unsigned) = library ? dlsym(library, turn % 2 ? "second" : "first") : 0;
        if (!work) return 99;
        same += before == (void *)work;
        before = (void *)work;
        for (unsigned pass = 0; pass < 8; pass++) sum += work(pass);
        dlclose(library);
    }
    printf("%u %ld\n", sum, same);
    return 0;
}
#endif
