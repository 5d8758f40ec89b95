/* A process at work that another one stops and lets go on again and again, while their parent waits for both: prints how it ended,
   exits 8. halted TIMES. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t caught;

static void note(int signal) {
    (void)signal;
    caught++;
}

int main(int count, char **words) {
    long times = count > 1 ? atol(words[1]) : 100;
    signal(SIGUSR1, note);
    pid_t halted = fork();
    if (!halted)
        for (volatile long n = 0;; n++) {}
    pid_t halting = fork();
    if (!halting) {
        for (long i = 0; i < times; i++) {
            kill(halted, SIGSTOP);
            /* Long enough for others to have their turn. */
            for (volatile long n = 0; n < 2000000; n++) {}
            if (i % 3 == 0) kill(halted, SIGUSR1);
            kill(halted, SIGCONT);
        }
        kill(halted, SIGTERM);
        _exit(0);
    }
    int status = 0;
    while (waitpid(halted, &status, WCONTINUED | WUNTRACED) == halted)
        if (!WIFSTOPPED(status) && !WIFCONTINUED(status)) break;
    int ended = 0;
    waitpid(halting, &ended, 0);
    printf("signal %d, status %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0, ended);
    return 8;
}
