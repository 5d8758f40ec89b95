/* Pushes and pops its flags all the time while a timer interrupts it: with "calls" it makes system calls in between. Says "done". */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static volatile sig_atomic_t ticks;
static void tick(int signal) { (void)signal; ticks++; }

int main(int count, char **words) {
    int calls = count > 1 && !strcmp(words[1], "calls");
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 3000}, {0, 3000}};
    sigaction(SIGALRM, &action, 0);
    setitimer(ITIMER_REAL, &often, 0);
    while (ticks < 300) {
        for (int i = 0; i < 20000; i++)
            asm volatile("sub $128, %%rsp; pushfq; popfq; pushfq; popfq; pushfq; popfq; add $128, %%rsp" : : : "memory", "cc");
        if (calls) getppid();
    }
    memset(&often, 0, sizeof often);
    setitimer(ITIMER_REAL, &often, 0);
    puts("done");
    return 0;
}
