/* Wants to be told by SIGTERM when its parent ends ("heir"; behind its work it waits for the end of its input), or leaves its work to a grandchild whose parent ends at once, as daemons do ("daemon"). orphan
   WAY ROUNDS; the work is ROUNDS walks through a megabyte. Says "finished"; exit status 2. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static volatile int numbers[1 << 18];

static void work(long rounds) {
    for (long i = 0; i < rounds; i++)
        for (int k = 0; k < 1 << 18; k++) numbers[k] += i;
}

int main(int count, char **words) {
    long rounds = count > 2 ? atol(words[2]) : 1000;
    char byte;
    int ends[2];
    if (!strcmp(words[1], "heir")) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        work(rounds);
        while (read(0, &byte, 1) > 0) {}
        return puts("finished"), 2;
    }
    if (pipe(ends)) return 90;
    if (!fork()) {
        if (fork()) _exit(0);
        close(ends[0]);
        work(rounds);
        _exit(write(ends[1], "", 1) != 1);
    }
    close(ends[1]);
    return read(ends[0], &byte, 1) == 1 ? puts("finished"), 2 : 91;
}
