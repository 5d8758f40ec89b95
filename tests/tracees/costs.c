/* Does one thing COUNT times, with a little work in between: what following costs each kind of program.
   costs calls|signals|faults|forks|threads|work COUNT; prints a sum that must not change. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile unsigned long sum;
static char *page;

static void on_signal(int number) { sum += number; }
static void on_fault(int number, siginfo_t *info, void *context) {
    sum += info->si_addr == page && context != 0;
    if (mprotect(page, 4096, PROT_READ | PROT_WRITE)) _exit(number);
}
static void *brief(void *argument) { return argument; }

int main(int count, char **words) {
    const char *kind = count > 1 ? words[1] : "work";
    long times = count > 2 ? atol(words[2]) : 1000;
    unsigned *numbers = malloc(4 << 14), mixed = 0;
    struct sigaction fault = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    for (unsigned i = 0; i < 1 << 14; i++) numbers[i] = i * 2654435761u;
    page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    signal(SIGUSR1, on_signal);
    sigaction(SIGSEGV, &fault, 0);
    for (long i = 0; i < times; i++) {
        for (int k = 0; k < 64; k++) mixed += numbers[(numbers[k] ^ mixed) & 0x3fff];
        if (!strcmp(kind, "calls")) sum += syscall(SYS_getppid) > 0;
        else if (!strcmp(kind, "signals")) raise(SIGUSR1);
        else if (!strcmp(kind, "faults")) {
            mprotect(page, 4096, PROT_READ);
            *(volatile char *)page = 1;
        } else if (!strcmp(kind, "forks")) {
            int status = 0;
            pid_t child = fork();
            if (!child) _exit(3);
            waitpid(child, &status, 0);
            sum += WEXITSTATUS(status);
        } else if (!strcmp(kind, "threads")) {
            pthread_t thread;
            void *result = 0;
            pthread_create(&thread, 0, brief, (void *)1);
            pthread_join(thread, &result);
            sum += (unsigned long)result;
        }
    }
    printf("%lu %u\n", sum, mixed);
    return 0;
}
