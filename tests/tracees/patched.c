// Another process writes to code of this one, through its memory: what is written is executed, soon.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

__attribute__((noinline)) static int old_or_new(void) {
    int value;
    __asm__ volatile("mov $7, %0" : "=a"(value));
    return value;
}

static int patch(pid_t whose) {
    const unsigned char before[] = {0xb8, 7, 0, 0, 0};
    unsigned char bytes[32];
    char name[64];
    usleep(300000);
    snprintf(name, sizeof name, "/proc/%d/mem", (int)whose);
    int memory = open(name, O_RDWR);
    long at = (long)old_or_new;
    if (memory < 0 || pread(memory, bytes, sizeof bytes, at) != sizeof bytes) return 1;
    unsigned char *found = memmem(bytes, sizeof bytes, before, sizeof before);
    return !found || pwrite(memory, "\x09", 1, at + (found - bytes) + 1) != 1;
}

int main(void) {
    pid_t parent = getpid();
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    pid_t other = fork();
    if (other == 0) _exit(patch(parent));
    time_t end = time(0) + 20;
    volatile long sum = 0;
    while (old_or_new() == 7 && time(0) < end) {
        for (int i = 0; i < 20000; i++) sum += i;
        usleep(2000);
    }
    int status;
    waitpid(other, &status, 0);
    if (status != 0) {
        puts("skip: its memory may not be written");
        return 0;
    }
    puts(old_or_new() == 9 ? "new" : "old");
    return 0;
}
