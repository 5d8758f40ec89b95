/* Robust mutexes on a watched page, whose owners end: by the end of a thread, of the process by exit, by a signal. */
#include "shim.h"
static uint8_t *p;
static pthread_mutex_t *mutex(int n) { return (pthread_mutex_t *)(p + 256 * n); }
static void *owner(void *unused) { pthread_mutex_lock(mutex(0)); (void)unused; return 0; }
int main(int argc, char **argv) {
    int fds[2];
    (void)argv;
    must(pipe(fds) == 0, "pipe");
    p = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    for (int n = 0; n < 4; n++) pthread_mutex_init(mutex(n), &attr);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(fds[1]);
        while (read(fds[0], &byte, 1) > 0) {}
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 3;
        int a = pthread_mutex_timedlock(mutex(1), &until), b = pthread_mutex_timedlock(mutex(2), &until);
        printf("child sees %d %d\n", a == EOWNERDEAD, b == EOWNERDEAD);
        fflush(stdout);
        _exit(0);
    }
    arm(p + 4032, 64, 1, KEEP);
    pthread_t id;
    pthread_create(&id, 0, owner, 0);
    pthread_join(id, 0);
    must(pthread_mutex_trylock(mutex(0)) == EOWNERDEAD, "owner dead");
    disarm();
    pthread_mutex_lock(mutex(1));
    arm(p + 4032, 64, 2, KEEP);
    pthread_mutex_lock(mutex(2));
    fflush(stdout);
    done("1:0");
    if (argc > 1) *(volatile char *)8 = 1;
    _exit(3);
}
