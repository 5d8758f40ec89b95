/* Code of a file, mapped privately, that is called and then cut off by opening the file anew: what is no more must not be executed.
   truncates FILE TURNS; prints how often that was so. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, CALLS = 20000 };
static sigjmp_buf back;

static void caught(int signal) { siglongjmp(back, signal); }

int main(int count, char **words) {
    /* lea 1(%rdi), %eax; ret */
    static const unsigned char code[] = {0x8d, 0x47, 0x01, 0xc3};
    unsigned char page[PAGE] = {0};
    long turns = count > 2 ? atol(words[2]) : 1, gone = 0;
    unsigned sum = 0;
    memcpy(page, code, sizeof code);
    signal(SIGBUS, caught);
    for (long turn = 0; turn < turns; turn++) {
        int file = open(words[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
        if (file < 0 || write(file, page, PAGE) != PAGE) return 99;
        int (*next)(int) = mmap(0, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
        if (next == MAP_FAILED) return 98;
        close(file);
        for (int i = 0; i < CALLS; i++) sum += next(i);
        close(open(words[1], O_WRONLY | O_TRUNC));
        if (sigsetjmp(back, 1)) gone++;
        else sum += next(1);
        munmap((void *)next, PAGE);
    }
    printf("%u, gone %ld of %ld\n", sum, gone, turns);
    return 0;
}
