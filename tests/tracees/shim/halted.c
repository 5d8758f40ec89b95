/* Stopped and continued by another process at any moment, with windows coming to several threads: nothing can block that. */
#include "shim.h"
static uint8_t *p;
static volatile int stops;
static atomic_int naps;
static void *spins(void *none) {
    for (unsigned n = 0; !stops; n++) store(p + n % 64 * 64, (uint8_t)n);
    return none;
}
static void *sleeps(void *none) {
    struct timespec nap = {0, 300000};
    while (!stops) must(nanosleep(&nap, 0) == 0, "nanosleep"), naps++;
    return none;
}
int main(void) {
    p = fresh(4096);
    arm(p + 64, 64, 1, KEEP);
    pthread_t id[4];
    for (int n = 0; n < 4; n++) pthread_create(&id[n], 0, n % 2 ? sleeps : spins, 0);
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        for (int n = 0; n < 400; n++) {
            kill(parent, SIGSTOP);
            usleep(n % 7 * 30);
            kill(parent, SIGCONT);
            usleep(n % 11 * 150);
        }
        _exit(7);
    }
    int status;
    while (waitpid(child, &status, 0) < 0) must(errno == EINTR, "waitpid");
    must(status == 7 << 8, "child");
    stops = 1;
    for (int n = 0; n < 4; n++) pthread_join(id[n], 0);
    must(naps > 0, "naps");
    disarm();
    return done("any");
}
