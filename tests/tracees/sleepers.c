// Sleeps in calls that tell of a stop in what they return, or leave in memory, beside a thread that is busy.
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

static volatile int over;
static unsigned long words[1 << 16];

static void *busy(void *unused) {
    for (unsigned long i = 0; !over; i++)
        words[i * 7919 % (1 << 16)] += i;
    return unused;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

// What is left of a sleep is written by who is interrupted by a signal, and there is none.
static void sleeps(void) {
    int kept = 0;
    for (int i = 0; i < 20; i++) {
        struct timespec wanted = {0, 50000000}, left = {42, 42};
        int failed = i % 2 ? nanosleep(&wanted, &left) : clock_nanosleep(CLOCK_MONOTONIC, 0, &wanted, &left);
        kept += !failed && left.tv_sec == 42 && left.tv_nsec == 42;
    }
    printf("%d sleeps\n", kept);
}

static int leader, terminal;

static void raw(int least, int tenths) {
    struct termios how;
    tcgetattr(terminal, &how);
    cfmakeraw(&how);
    how.c_cc[VMIN] = least;
    how.c_cc[VTIME] = tenths;
    tcsetattr(terminal, TCSANOW, &how);
}

static void *types(void *unused) {
    for (int i = 0; i < 32; i++) {
        usleep(20000);
        if (write(leader, "x", 1) != 1)
            abort();
    }
    return unused;
}

// A terminal that is read for so long, or until there are so many bytes.
static void reads(void) {
    char bytes[16];
    leader = posix_openpt(O_RDWR | O_NOCTTY);
    if (leader < 0 || grantpt(leader) || unlockpt(leader) || (terminal = open(ptsname(leader), O_RDWR | O_NOCTTY)) < 0) {
        puts("no terminal");
        return;
    }
    raw(0, 10);
    double begun = now();
    int found = read(terminal, bytes, sizeof bytes);
    printf("%d bytes %s\n", found, now() - begun < 6 ? "in time" : "late");
    raw(8, 0);
    pthread_t thread;
    pthread_create(&thread, 0, types, 0);
    int whole = 0;
    for (int i = 0; i < 4; i++)
        whole += read(terminal, bytes, 8) == 8;
    pthread_join(thread, 0);
    printf("%d whole\n", whole);
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, busy, 0);
    sleeps();
    reads();
    over = 1;
    pthread_join(thread, 0);
    return 0;
}
