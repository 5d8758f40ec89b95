/* What the shim's mechanisms cost, in nanoseconds: medians of rounds. Prints `name value` lines.
   cc -O1 -pthread -o shim_cost benches/shim_cost.c
   LD_PRELOAD=libstatcache_shim.so ./shim_cost      (the object is in cargo's build directory of statcache, out/) */
#include "../tests/tracees/shim/shim.h"
#include <sched.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}
static int compare(const void *a, const void *b) {
    return (*(double *)a > *(double *)b) - (*(double *)a < *(double *)b);
}
#define MEDIAN(name, times, ...)                                    \
    do {                                                            \
        double rounds[15];                                          \
        for (int r = 0; r < 15; r++) {                              \
            double begin = now();                                   \
            for (int i = 0; i < (times); i++) { __VA_ARGS__; }      \
            rounds[r] = (now() - begin) / (times);                  \
        }                                                           \
        qsort(rounds, 15, sizeof(double), compare);                 \
        printf("%s %.0f\n", name, rounds[7]);                       \
    } while (0)

static void traced_call(int other) {
    int fds[2], status;
    must(pipe(fds) == 0, "pipe");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        double begin = now();
        for (int i = 0; i < 4000; i++) syscall(SYS_getppid);
        double each = (now() - begin) / 4000;
        must(write(fds[1], &each, sizeof each) == sizeof each, "write");
        _exit(0);
    }
    if (other && sysconf(_SC_NPROCESSORS_ONLN) > 1) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(1, &set);
        sched_setaffinity(child, sizeof set, &set);
    }
    waitpid(child, &status, 0);
    while (!WIFEXITED(status)) {
        ptrace(PTRACE_SYSCALL, child, 0, 0);
        waitpid(child, &status, 0);
    }
    double each;
    must(read(fds[0], &each, sizeof each) == sizeof each, "read");
    printf("call_stopped_at_by_ptrace_%s_cpu %.0f\n", other ? "other" : "same", each);
}

/* What each false hit costs a child that is traced and whose signals are passed on, as a profiler that keeps it does. */
static void traced_false_hits(int other) {
    int fds[2], status;
    must(pipe(fds) == 0, "pipe");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        uint8_t *p = fresh(4096);
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        arm(p + 64, 64, 1, KEEP);
        load(p + 1024);
        double begin = now();
        for (int i = 0; i < 1000; i++) load(p + 1024);
        double each = (now() - begin) / 1000;
        disarm();
        must(write(fds[1], &each, sizeof each) == sizeof each, "write");
        _exit(0);
    }
    if (other && sysconf(_SC_NPROCESSORS_ONLN) > 1) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(1, &set);
        sched_setaffinity(child, sizeof set, &set);
    }
    waitpid(child, &status, 0);
    int signal = 0;
    while (!WIFEXITED(status)) {
        ptrace(PTRACE_CONT, child, 0, signal);
        waitpid(child, &status, 0);
        signal = WIFSTOPPED(status) && WSTOPSIG(status) != SIGSTOP ? WSTOPSIG(status) : 0;
    }
    double each;
    must(read(fds[0], &each, sizeof each) == sizeof each, "read");
    printf("false_hit_traced_from_%s_cpu %.0f\n", other ? "other" : "same", each);
}

int main(void) {
    setvbuf(stdout, 0, _IOLBF, 0);
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    sched_setaffinity(0, sizeof set, &set);
    uint8_t *p = fresh(3 * 4096);
    int zero = open("/dev/zero", O_RDONLY);
    MEDIAN("call_native", 20000, syscall(SYS_getppid));
    MEDIAN("read_native", 20000, must(read(zero, p + 4096, 1) == 1, "read"));
    static char selector = 0;
    prctl(59, 1, 0, 0, &selector);
    MEDIAN("call_dispatch_on_selector_off", 20000, syscall(SYS_getppid));
    prctl(59, 0, 0, 0, 0);
    traced_call(0);
    traced_call(1);
    MEDIAN("arm_first_and_disarm_last", 200, arm(p + 64, 64, 1, KEEP); disarm());
    arm(p + 8192, 64, 3, KEEP);
    MEDIAN("arm_further_and_disarm", 200, arm(p + 64, 64, 1, KEEP); struct request one = {.op = 2, .id = 1}; statcache_shim_call(&one));
    arm(p + 64, 64, 1, KEEP);
    MEDIAN("call_dispatched", 2000, syscall(SYS_getppid));
    MEDIAN("read_dispatched_elsewhere", 2000, must(read(zero, p + 4096, 1) == 1, "read"));
    MEDIAN("read_dispatched_watched_page", 2000, must(read(zero, p + 1, 1) == 1, "read"));
    MEDIAN("false_hit", 2000, load(p + 1024));
    MEDIAN("hit", 50, load(p + 64));
    disarm();
    traced_false_hits(0);
    traced_false_hits(1);
    MEDIAN("call_after", 20000, syscall(SYS_getppid));
    return 0;
}
