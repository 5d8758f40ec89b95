/* Calls that sleep, with windows coming to a thread that does not: each ends as it would, and nobody finds a signal that the program
   has not sent, nor misses one that it has. */
#include "shim.h"
#include <linux/futex.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/signalfd.h>
static uint8_t *p;
static volatile int urgent, usual, stops;
static void on(int signal, siginfo_t *info, void *context) {
    (void)context;
    must(info->si_code == SI_TKILL && info->si_pid == getpid(), "whose it is");
    if (signal == SIGURG) urgent++;
    else usual++;
}
static void *spins(void *none) {
    for (unsigned n = 0; !stops; n++) store(p + n % 64 * 64, (uint8_t)n);
    return none;
}
static void *sends(void *main_thread) {
    pthread_t to = *(pthread_t *)main_thread;
    for (int n = 0; n < 20; n++) {
        pthread_kill(to, SIGURG);
        while (urgent == n) usleep(100);
    }
    for (int n = 0; n < 6; n++) {
        usleep(5000);
        pthread_kill(to, SIGUSR1);
        while (usual == n) usleep(100);
    }
    return 0;
}
/* Nothing is pending that was not sent. */
static void quiet(const sigset_t *one) {
    struct timespec none = {0, 0};
    sigset_t pending;
    must(sigpending(&pending) == 0 && !sigismember(&pending, SIGURG), "none pending");
    must(sigtimedwait(one, 0, &none) == -1 && errno == EAGAIN, "none to be had");
}
static void sleeps(const sigset_t *one, int epoll, int socket) {
    struct timespec nap = {0, 20000000}, at;
    static int word;
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, 0, &mask);
    fd_set none;
    FD_ZERO(&none);
    struct epoll_event event;
    char byte;
    must(nanosleep(&nap, 0) == 0, "nanosleep");
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += (at.tv_nsec += nap.tv_nsec) / 1000000000, at.tv_nsec %= 1000000000;
    must(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, 0) == 0, "clock_nanosleep");
    must(poll(0, 0, 20) == 0, "poll");
    must(ppoll(0, 0, &nap, &mask) == 0, "ppoll");
    must(pselect(0, &none, 0, 0, &nap, &mask) == 0, "pselect");
    must(epoll_wait(epoll, &event, 1, 20) == 0, "epoll_wait");
    must(epoll_pwait(epoll, &event, 1, 20, &mask) == 0, "epoll_pwait");
    must(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &nap, 0, 0) == -1 && errno == ETIMEDOUT, "futex");
    must(sigtimedwait(one, 0, &nap) == -1 && errno == EAGAIN, "sigtimedwait");
    must(recv(socket, &byte, 1, 0) == -1 && errno == EAGAIN, "recv");
    quiet(one);
}
int main(void) {
    p = fresh(4096);
    handle(SIGURG, on, 0), handle(SIGUSR1, on, 0);
    arm(p + 64, 64, 1, KEEP);
    sigset_t one, wait;
    sigemptyset(&one), sigaddset(&one, SIGURG);
    int epoll = epoll_create1(0), pair[2];
    struct timeval limit = {0, 20000};
    must(epoll >= 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0, "descriptors");
    must(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0, "setsockopt");
    pthread_t spinner, sender, me = pthread_self();
    pthread_create(&spinner, 0, spins, 0);
    sigprocmask(SIG_BLOCK, &one, &wait);
    for (int n = 0; n < 3; n++) sleeps(&one, epoll, pair[0]);
    /* One sent while it is blocked is there once, as it was sent, through a descriptor as well. */
    int sent = signalfd(-1, &one, SFD_NONBLOCK);
    struct signalfd_siginfo got;
    must(sent >= 0, "signalfd");
    for (int n = 0; n < 3; n++) {
        pthread_kill(me, SIGURG), pthread_kill(me, SIGURG);
        struct pollfd polled = {sent, POLLIN, 0};
        must(poll(&polled, 1, 30000) == 1, "poll for a signal");
        must(read(sent, &got, sizeof got) == sizeof got && got.ssi_signo == SIGURG && got.ssi_code == SI_TKILL, "read of a signal");
        must(read(sent, &got, sizeof got) == -1 && errno == EAGAIN, "read of no signal");
        quiet(&one);
    }
    int status;
    pid_t child = fork();
    if (child == 0) {
        quiet(&one);
        sleeps(&one, epoll, pair[0]);
        _exit(7);
    }
    must(waitpid(child, &status, 0) == child && status == 7 << 8, "child");
    sigprocmask(SIG_UNBLOCK, &one, 0);
    /* Each that is sent comes, none else does; and the other cuts short what it should. */
    sigset_t usr1;
    sigemptyset(&usr1), sigaddset(&usr1, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &usr1, 0);
    pthread_create(&sender, 0, sends, &me);
    while (urgent < 20) usleep(1000);
    struct timespec t = {30, 0};
    must(sigsuspend(&wait) == -1 && errno == EINTR && usual == 1, "sigsuspend");
    must(ppoll(0, 0, &t, &wait) == -1 && errno == EINTR && usual == 2, "ppoll cut");
    must(pselect(0, 0, 0, 0, &t, &wait) == -1 && errno == EINTR && usual == 3, "pselect cut");
    struct epoll_event event;
    must(epoll_pwait(epoll, &event, 1, 30000, &wait) == -1 && errno == EINTR && usual == 4, "epoll_pwait cut");
    must(sigsuspend(&wait) == -1 && errno == EINTR && usual == 5, "sigsuspend again");
    pthread_sigmask(SIG_UNBLOCK, &usr1, 0);
    while (usual < 6) usleep(1000);
    stops = 1;
    pthread_join(sender, 0), pthread_join(spinner, 0);
    disarm();
    printf("%d %d\n", urgent, usual);
    return done("any");
}
