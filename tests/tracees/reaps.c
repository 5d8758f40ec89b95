/* Processes one after the other, in each of which one thread computes and the first has children that end at once, so that signals come which do nothing.
   reaps PROCESSES CHILDREN; says how many had a descriptor at their end that they had not opened; exit status 8. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int stop;
static int numbers[4096];

static void *compute(void *unused) {
    volatile int sum = 0;
    while (!stop)
        for (int i = 0; i < 4096; i++) sum += numbers[i];
    return unused;
}

static int is_clean(int children, int first) {
    pthread_t other;
    pthread_create(&other, 0, compute, 0);
    for (int i = 0; i < children; i++) {
        pid_t child = fork();
        if (!child) _exit(0);
        waitpid(child, 0, 0);
    }
    stop = 1;
    pthread_join(other, 0);
    return fcntl(first, F_GETFD) == -1;
}

int main(int count, char **words) {
    int processes = count > 1 ? atoi(words[1]) : 4, children = count > 2 ? atoi(words[2]) : 300, left = 0;
    int first = dup(0);
    close(first);
    for (int i = 0; i < processes; i++) {
        int status = 1;
        pid_t child = fork();
        if (!child) _exit(!is_clean(children, first));
        waitpid(child, &status, 0);
        left += status != 0;
    }
    printf("left in %d\n", left);
    return 8;
}
