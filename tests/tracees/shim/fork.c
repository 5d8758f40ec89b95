/* fork, vfork, posix_spawn and threads while armed; the child sees its memory and none of ours. */
#include "shim.h"
extern char **environ;
static uint8_t *p;
static void *thread(void *unused) {
    static __thread int local;
    local++;
    for (int i = 0; i < 3; i++) store(p + 64, i);
    (void)unused;
    return (void *)(long)local;
}
int main(void) {
    p = fresh(8192);
    int status, fds[2];
    must(pipe(fds) == 0, "pipe");
    arm(p + 64, 64, 1, KEEP);
    for (int n = 0; n < 3; n++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            for (int i = 0; i < 100; i++) store(p + 64, load(p + 64) + 1);
            struct sigaction act;
            sigaction(SIGSEGV, 0, &act);
            must(act.sa_handler == SIG_DFL, "child's own disposition");
            must(read(-1, p + 64, 1) == -1 && errno == EBADF, "child's calls");
            must(write(fds[1], p + 60, 10) == 10, "child's calls on the page");
            if (n == 2) {
                /* The child may be watched no more than any other program: its faults are its own. */
                signal(SIGSEGV, SIG_DFL);
                *(volatile char *)8 = 1;
            }
            _exit(p[64] & 0x7f);
        }
        must(child > 0 && waitpid(child, &status, 0) == child, "fork");
        printf("child %d %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
        must(read(fds[0], p + 4096, 10) == 10, "from the child");
        store(p + 64, p[64]);
    }
    pid_t child = vfork();
    if (child == 0) {
        store(p + 65, 3);
        execl("/bin/true", "true", (char *)0);
        _exit(9);
    }
    must(waitpid(child, &status, 0) == child && status == 0, "vfork");
    /* Arguments on the watched page. */
    char **argv = (char **)(p + 512);
    strcpy((char *)p + 1024, "/bin/sh"), strcpy((char *)p + 1100, "-c"), strcpy((char *)p + 1200, "exit 5");
    argv[0] = (char *)p + 1024, argv[1] = (char *)p + 1100, argv[2] = (char *)p + 1200, argv[3] = 0;
    must(posix_spawn(&child, argv[0], 0, 0, argv, environ) == 0, "posix_spawn");
    must(waitpid(child, &status, 0) == child, "waitpid");
    printf("spawned %d\n", WEXITSTATUS(status));
    long sum = 0;
    for (int n = 0; n < 4; n++) {
        pthread_t id;
        void *value;
        must(pthread_create(&id, 0, thread, 0) == 0 && pthread_join(id, &value) == 0, "thread");
        sum += (long)value;
    }
    disarm();
    printf("sum %ld value %d\n", sum, p[64]);
    return done("1:18");
}
