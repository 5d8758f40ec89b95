// Looks at a file of a server of its own (FUSE) that takes its time, and answers who is interrupted that it was; another thread
// computes. Prints how many calls failed.
// Source: linux/fuse.h, fuse(4).
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { DELAY_MS = 20, REQUESTS = 64, ROOT = 1, FILE_INODE = 2 };

struct request {
    unsigned long unique, node;
    unsigned opcode;
    double due;
};

static int device;
static volatile int done;
static volatile long sum;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void reply(unsigned long unique, int error, const void *data, size_t length) {
    char bytes[256];
    struct fuse_out_header head = {.len = sizeof head + length, .error = error, .unique = unique};
    memcpy(bytes, &head, sizeof head);
    memcpy(bytes + sizeof head, data, length);
    // What was given up meanwhile is not there any more.
    if (write(device, bytes, head.len) < 0 && errno != ENOENT) exit(3);
}

static struct fuse_attr attributes(unsigned long node) {
    return (struct fuse_attr){.ino = node, .mode = node == ROOT ? S_IFDIR | 0755 : S_IFREG | 0644, .nlink = 1, .size = 4096};
}

static void answer(const struct request *of) {
    if (of->opcode == FUSE_LOOKUP) {
        struct fuse_entry_out entry = {.nodeid = FILE_INODE, .attr = attributes(FILE_INODE)};
        reply(of->unique, 0, &entry, sizeof entry);
    } else if (of->opcode == FUSE_GETATTR) {
        struct fuse_attr_out found = {.attr = attributes(of->node)};
        reply(of->unique, 0, &found, sizeof found);
    } else {
        struct fuse_open_out opened = {.fh = 1};
        reply(of->unique, 0, &opened, sizeof opened);
    }
}

static void serve(void) {
    static char bytes[1 << 21];
    struct request waiting[REQUESTS];
    int count = 0;
    for (;;) {
        for (int i = 0; i < count; i++) {
            if (waiting[i].due > now()) continue;
            answer(&waiting[i]);
            waiting[i--] = waiting[--count];
        }
        struct pollfd ready = {.fd = device, .events = POLLIN};
        if (poll(&ready, 1, 2) <= 0) continue;
        if (read(device, bytes, sizeof bytes) < 0) {
            if (errno == ENODEV) exit(0);
            continue;
        }
        struct fuse_in_header *head = (void *)bytes;
        switch (head->opcode) {
        case FUSE_INIT: {
            struct fuse_init_out out = {.major = 7, .minor = 31, .max_write = 4096};
            reply(head->unique, 0, &out, sizeof out);
            break;
        }
        case FUSE_INTERRUPT:
            for (int i = 0; i < count; i++) {
                if (waiting[i].unique != ((struct fuse_interrupt_in *)(head + 1))->unique) continue;
                reply(waiting[i].unique, -EINTR, "", 0);
                waiting[i--] = waiting[--count];
            }
            break;
        case FUSE_LOOKUP:
        case FUSE_GETATTR:
        case FUSE_OPEN:
            if (count == REQUESTS) exit(4);
            waiting[count++] = (struct request){head->unique, head->nodeid, head->opcode, now() + DELAY_MS * 1e-3};
            break;
        case FUSE_FORGET:
        case FUSE_BATCH_FORGET:
            break;
        case FUSE_RELEASE:
        case FUSE_FLUSH:
            reply(head->unique, 0, "", 0);
            break;
        default:
            reply(head->unique, -ENOSYS, "", 0);
        }
    }
}

static void *compute(void *unused) {
    while (!done)
        for (int i = 0; i < 10000; i++) sum += i;
    return unused;
}

static int skip(const char *what) {
    printf("skip: %s: %s\n", what, strerror(errno));
    return 0;
}

int main(int argc, char **argv) {
    int calls = argc > 2 ? atoi(argv[2]) : 0, failed = 0;
    char options[128], file[512];
    device = open("/dev/fuse", O_RDWR);
    if (calls == 0 || device < 0) return skip("/dev/fuse");
    mkdir(argv[1], 0700);
    if (unshare(CLONE_NEWNS) || mount("", "/", 0, MS_REC | MS_PRIVATE, 0)) return skip("unshare");
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
    if (mount("served", argv[1], "fuse", 0, options)) return skip("mount");
    snprintf(file, sizeof file, "%s/f", argv[1]);
    pid_t server = fork();
    if (server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve();
    }
    // Where the server ends, calls fail.
    close(device);
    pthread_t thread;
    pthread_create(&thread, 0, compute, 0);
    for (int i = 0; i < calls; i++) {
        struct stat found;
        failed += stat(file, &found) != 0;
        int opened = open(file, O_RDONLY);
        failed += opened < 0;
        if (opened >= 0) close(opened);
    }
    done = 1;
    pthread_join(thread, 0);
    umount2(argv[1], MNT_DETACH);
    kill(server, 9);
    waitpid(server, 0, 0);
    printf("failed %d\n", failed);
    return 0;
}
