/* Executes a program from a thread that is not the first, while others work. execs PROGRAM ARGS */
#include <pthread.h>
#include <unistd.h>

static char **program;

static void *spin(void *unused) {
    for (volatile unsigned long n = 0;; n++) {}
    return unused;
}

static void *execute(void *unused) {
    usleep(30000);
    execvp(program[0], program);
    _exit(97);
    return unused;
}

int main(int count, char **words) {
    pthread_t thread;
    if (count < 2) return 96;
    program = words + 1;
    pthread_create(&thread, 0, spin, 0);
    pthread_create(&thread, 0, execute, 0);
    spin(0);
}
