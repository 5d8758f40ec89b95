/* What the tracees of the shim share. Run natively, `arm` and `disarm` do nothing, and all output must be the same. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <poll.h>
#include <spawn.h>
#include <time.h>
#include <unistd.h>

struct request {
    uint32_t op, flags;
    uint64_t address;
    uint32_t length, id;
    int32_t result;
    uint32_t reserved;
};
extern int statcache_shim_call(struct request *) __attribute__((weak));

#define KEEP 1

/* Whether this program arms watches: with a shim, and unless it is told to leave that to a monitor. */
static inline int arms(void) {
    static int known = -1;
    if (known < 0) known = statcache_shim_call && !getenv("TRACEE_UNARMED");
    return known;
}

static inline int armed_as(const volatile void *at, uint32_t length, uint32_t id, uint32_t flags) {
    struct request request = {1, flags, (uint64_t)at, length, id, 0, 0};
    return arms() ? statcache_shim_call(&request) : 0;
}

static inline void must(int holds, const char *what) {
    if (!holds) {
        printf("wrong: %s (errno %d)\n", what, errno);
        fflush(stdout);
        _exit(1);
    }
}

/* Busy is an answer at any time: a thread that no CPU was given to for 0.2 s could not be reached. One that stays so is an error. */
static inline void arm(const volatile void *at, uint32_t length, uint32_t id, uint32_t flags) {
    int result = armed_as(at, length, id, flags);
    for (int again = 0; result == -4 && again < 20; again++) result = armed_as(at, length, id, flags);
    if (result != 0) {
        printf("arm: %d\n", result);
        fflush(stdout);
        _exit(1);
    }
}

static inline void disarm(void) {
    struct request request = {.op = 3};
    if (arms() && statcache_shim_call(&request) != 0) {
        printf("disarm\n");
        _exit(1);
    }
}

/* Exactly one access each. */
static inline uint8_t load(const volatile void *at) {
    uint8_t value;
    asm volatile("movb (%1), %0" : "=q"(value) : "r"(at) : "memory");
    return value;
}
static inline void store(volatile void *at, uint8_t value) {
    asm volatile("movb %0, (%1)" : : "q"(value), "r"(at) : "memory");
}

/* With two pages on either side that are nobody's: next to a thread's control block, where the kernel writes at any time, nothing is
   watched. */
static inline uint8_t *fresh(size_t bytes) {
    const size_t beside = 8192;
    uint8_t *at = mmap(0, bytes + 2 * beside, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(at != MAP_FAILED, "mmap");
    at += beside;
    must(mprotect(at, bytes, PROT_READ | PROT_WRITE) == 0, "mprotect");
    memset((void *)at, 0x11, bytes);
    return at;
}

static inline void handle(int signal, void (*action)(int, siginfo_t *, void *), int flags) {
    struct sigaction act;
    memset(&act, 0, sizeof act);
    act.sa_sigaction = action;
    act.sa_flags = SA_SIGINFO | flags;
    must(sigaction(signal, &act, 0) == 0, "sigaction");
}

/* The last line: how often each watch was touched, as `id:times`. */
static inline int done(const char *hits) {
    printf("hits %s\n", hits);
    fflush(stdout);
    return 0;
}
