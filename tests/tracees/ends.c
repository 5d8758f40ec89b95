/* Children and threads that end. ends TIMES: says how many of so many children could not be waited for when their pidfds said that they had ended
   (pidfd_open(2)), and how many joined threads were still listed. */
#define _GNU_SOURCE
#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void *nothing(void *unused) { return unused; }

static int tasks(void) {
    int found = 0;
    DIR *directory = opendir("/proc/self/task");
    for (struct dirent *entry; directory && (entry = readdir(directory));) found += entry->d_name[0] != '.';
    if (directory) closedir(directory);
    return found;
}

int main(int count, char **words) {
    int times = count > 1 ? atoi(words[1]) : 1, early = 0, listed = 0;
    for (int time = 0; time < times; time++) {
        pid_t child = fork();
        if (child == 0) _exit(7);
        struct pollfd ended = {.fd = syscall(SYS_pidfd_open, child, 0), .events = POLLIN};
        siginfo_t found = {0};
        if (ended.fd < 0) return puts("skip") < 0;
        poll(&ended, 1, -1);
        waitid(P_PID, child, &found, WEXITED | WNOHANG);
        early += found.si_pid != child;
        if (found.si_pid != child) waitid(P_PID, child, &found, WEXITED);
        close(ended.fd);
        pthread_t thread;
        if (found.si_status != 7 || pthread_create(&thread, 0, nothing, 0)) return 99;
        pthread_join(thread, 0);
        listed += tasks() != 1;
    }
    printf("%d %d\n", early, listed);
    return 0;
}
