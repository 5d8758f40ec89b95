/* Calls that take or give memory on watched pages, many kinds. */
#include "shim.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <sched.h>
#include <dirent.h>
#define N 12
static uint8_t *p;
static uint8_t *at(int page, int offset) { return p + 4096 * page + offset; }
int main(void) {
    p = fresh(4096 * N);
    int fds[2], pair[2], back[2];
    must(pipe(fds) == 0 && pipe(back) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "pipes");
    for (int n = 0; n < N; n++) arm(at(n, 2048), 64, n, KEEP);
    /* Several watched pages in one call. */
    struct iovec *v = (void *)at(0, 0);
    for (int n = 0; n < 5; n++) v[n].iov_base = at(n + 1, 2000), v[n].iov_len = 200;
    char text[1000];
    for (int i = 0; i < 1000; i++) text[i] = 'a' + i % 26;
    must(write(fds[1], text, 1000) == 1000 && readv(fds[0], v, 5) == 1000, "readv");
    must(writev(fds[1], v, 5) == 1000 && read(fds[0], at(6, 2000), 1000) == 1000 && memcmp(at(6, 2000), text, 1000) == 0, "writev");
    struct msghdr *h = (void *)at(0, 1024);
    memset(h, 0, sizeof *h);
    h->msg_iov = v, h->msg_iovlen = 5;
    uint8_t *control = at(7, 1024);
    memset(control, 0, 64);
    h->msg_control = control, h->msg_controllen = CMSG_SPACE(sizeof(int));
    struct cmsghdr *c = CMSG_FIRSTHDR(h);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
    *(int *)CMSG_DATA(c) = fds[0];
    must(sendmsg(pair[0], h, 0) == 1000, "sendmsg");
    memset(control, 0, 64);
    must(recvmsg(pair[1], h, MSG_WAITALL) == 1000, "recvmsg");
    c = CMSG_FIRSTHDR(h);
    must(c && c->cmsg_type == SCM_RIGHTS, "descriptor passed");
    close(*(int *)CMSG_DATA(c));
    struct mmsghdr *mm = (void *)at(8, 0);
    memset(mm, 0, sizeof *mm * 2);
    mm[0].msg_hdr.msg_iov = v, mm[0].msg_hdr.msg_iovlen = 2, mm[1].msg_hdr.msg_iov = v + 2, mm[1].msg_hdr.msg_iovlen = 2;
    must(sendmmsg(pair[0], mm, 2, 0) == 2 && recvmmsg(pair[1], mm, 2, MSG_WAITFORONE, 0) >= 1, "mmsg");
    must(preadv2(open("/dev/zero", O_RDONLY), v, 2, -1, 0) == 400, "preadv2");
    /* vmsplice, tee, splice. */
    must(vmsplice(fds[1], v + 2, 2, 0) == 400 && tee(fds[0], back[1], 400, 0) == 400 && read(fds[0], text, 400) == 400, "vmsplice");
    must(read(back[0], at(9, 2000), 400) == 400 && memcmp(at(9, 2000), text, 400) == 0, "tee");
    /* One process's memory by itself. */
    struct iovec *local = (void *)at(8, 512), *remote = (void *)at(8, 640);
    local->iov_base = at(9, 1900), local->iov_len = 300, remote->iov_base = at(1, 1950), remote->iov_len = 300;
    must(process_vm_readv(getpid(), local, 1, remote, 1, 0) == 300 && memcmp(at(9, 1900), at(1, 1950), 300) == 0, "process_vm_readv");
    /* Waiting. */
    struct pollfd *polled = (void *)at(1, 2040);
    polled->fd = pair[0], polled->events = POLLOUT, polled->revents = 0;
    must(poll(polled, 1, 10) == 1 && polled->revents == POLLOUT, "poll");
    struct timespec *t = (void *)at(2, 2040);
    *t = (struct timespec){0, 1000000};
    sigset_t *set = (void *)at(3, 2040);
    sigemptyset(set);
    polled->revents = 0;
    must(ppoll(polled, 1, t, set) == 1, "ppoll");
    fd_set *reads = (void *)at(4, 2000), *writes = (void *)at(5, 2000);
    FD_ZERO(reads);
    FD_ZERO(writes);
    FD_SET(pair[0], writes);
    struct timeval *tv = (void *)at(6, 2040);
    *tv = (struct timeval){0, 1000};
    must(select(pair[0] + 1, reads, writes, 0, tv) == 1 && FD_ISSET(pair[0], writes), "select");
    *t = (struct timespec){0, 1000000};
    must(pselect(pair[0] + 1, reads, writes, 0, t, set) == 1, "pselect");
    int ep = epoll_create1(0);
    struct epoll_event *e = (void *)at(7, 2040);
    e->events = EPOLLOUT, e->data.u64 = 77;
    must(epoll_ctl(ep, EPOLL_CTL_ADD, pair[0], e) == 0, "epoll_ctl");
    memset(e, 0, sizeof *e);
    must(epoll_wait(ep, e, 3, 10) == 1 && e->data.u64 == 77 && epoll_pwait(ep, e, 3, 10, set) == 1, "epoll_wait");
    struct itimerspec *its = (void *)at(8, 2030);
    *its = (struct itimerspec){{0, 0}, {0, 1000000}};
    int tfd = timerfd_create(CLOCK_MONOTONIC, 0);
    must(timerfd_settime(tfd, 0, its, 0) == 0 && read(tfd, at(9, 2040), 8) == 8 && timerfd_gettime(tfd, its) == 0, "timerfd");
    sigaddset(set, SIGUSR1);
    must(sigprocmask(SIG_BLOCK, set, 0) == 0, "mask");
    int sfd = signalfd(-1, set, 0);
    raise(SIGUSR1);
    must(read(sfd, at(10, 2000), 128) == 128 && *(uint32_t *)at(10, 2000) == SIGUSR1, "signalfd");
    union sigval value = {.sival_int = 4711};
    sigqueue(getpid(), SIGUSR1, value);
    siginfo_t *info = (void *)at(11, 2000);
    must(sigwaitinfo(set, info) == SIGUSR1 && info->si_value.sival_int == 4711, "sigwaitinfo");
    raise(SIGUSR1);
    must(sigpending(set) == 0 && sigismember(set, SIGUSR1), "sigpending");
    *t = (struct timespec){1, 0};
    sigemptyset(set), sigaddset(set, SIGUSR1);
    must(sigtimedwait(set, info, t) == SIGUSR1, "sigtimedwait");
    /* Files and the system. */
    struct stat *st = (void *)at(1, 2000);
    strcpy((char *)at(2, 4090), "/dev/null");
    must(stat((char *)at(2, 4090), st) == 0 && S_ISCHR(st->st_mode) && fstat(0, st) == 0 && lstat((char *)at(2, 4090), st) == 0, "stat");
    struct statx *sx = (void *)at(3, 1950);
    must(syscall(SYS_statx, AT_FDCWD, at(2, 4090), 0, STATX_ALL, sx) == 0 && sx->stx_nlink == 1, "statx");
    struct statfs *sf = (void *)at(4, 2000);
    must(statfs((char *)at(2, 4090), sf) == 0 && fstatfs(0, sf) == 0, "statfs");
    must(readlink("/proc/self/fd/0", (char *)at(5, 2030), 100) > 0 && getcwd((char *)at(6, 2040), 500) != 0, "paths");
    must(uname((void *)at(7, 2000)) == 0 && sysinfo((void *)at(8, 2000)) == 0 && times((void *)at(9, 2040)) != -1, "uname");
    must(getrusage(RUSAGE_SELF, (void *)at(10, 2000)) == 0 && getrlimit(RLIMIT_CORE, (void *)at(11, 2040)) == 0, "rusage");
    must(sched_getaffinity(0, 128, (void *)at(1, 2000)) == 0 && sched_setaffinity(0, 128, (void *)at(1, 2000)) == 0, "affinity");
    must(syscall(SYS_getrandom, at(2, 2000), 200, 0) == 200, "getrandom");
    memset(at(2, 2000), 0, 200);
    int dir = open("/proc/self", O_RDONLY | O_DIRECTORY);
    must(syscall(SYS_getdents64, dir, at(3, 1000), 3000) > 100, "getdents64");
    must(ioctl(fds[0], FIONREAD, at(4, 2050)) == 0, "ioctl");
    struct flock *lock = (void *)at(5, 2040);
    *lock = (struct flock){.l_type = F_RDLCK};
    int file = syscall(SYS_memfd_create, strcpy((char *)at(6, 2040), "name"), 0);
    must(file >= 0 && fcntl(file, F_SETLK, lock) == 0 && fcntl(file, F_GETLK, lock) == 0, "flock");
    must(pwrite(file, at(1, 0), 8192, 0) == 8192 && pread(file, at(4, 0), 8192, 0) == 8192, "pread");
    loff_t *where = (void *)at(7, 2048);
    *where = 100;
    must(sendfile(fds[1], file, where, 500) == 500 && *where == 600, "sendfile");
    *where = 0;
    must(splice(file, where, back[1], 0, 300, 0) == 300 && *where == 300, "splice");
    loff_t *other = (void *)at(8, 2048);
    *where = 0, *other = 4096;
    must(copy_file_range(file, where, file, other, 100, 0) == 100 || errno == EXDEV || errno == EINVAL, "copy_file_range");
    int *option = (void *)at(9, 2048);
    socklen_t *length = (void *)at(9, 2100);
    *length = 4;
    must(getsockopt(pair[0], SOL_SOCKET, SO_TYPE, option, length) == 0 && *option == SOCK_STREAM && *length == 4, "getsockopt");
    *option = 1;
    must(setsockopt(pair[0], SOL_SOCKET, SO_KEEPALIVE, option, 4) == 0, "setsockopt");
    struct sockaddr_un *name = (void *)at(10, 1990);
    memset(name, 0, sizeof *name);
    name->sun_family = AF_UNIX;
    snprintf(name->sun_path + 1, 60, "shim-%d", getpid());
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
    *length = sizeof *name;
    must(bind(listener, (void *)name, sizeof *name) == 0 && listen(listener, 2) == 0 && connect(client, (void *)name, sizeof *name) == 0, "connect");
    int served = accept(listener, (void *)name, length);
    *length = sizeof *name;
    must(served >= 0 && getsockname(listener, (void *)name, length) == 0, "accept");
    *length = sizeof *name;
    must(send(client, at(1, 2000), 100, 0) == 100 && recvfrom(served, at(2, 2000), 100, 0, (void *)name, length) == 100, "recvfrom");
    pid_t child = fork();
    if (child == 0) _exit(9);
    int *status = (void *)at(3, 2052);
    must(wait4(child, status, 0, (void *)at(4, 2000)) == child && WEXITSTATUS(*status) == 9, "wait4");
    child = fork();
    if (child == 0) _exit(8);
    must(waitid(P_PID, child, (void *)at(5, 2000), WEXITED) == 0 && ((siginfo_t *)at(5, 2000))->si_status == 8, "waitid");
    must(pipe((int *)at(6, 2044)) == 0 && eventfd(0, 0) >= 0, "pipe");
    must(getgroups(0, 0) >= 0 && syscall(SYS_getcpu, at(7, 2044), at(7, 2060), 0) == 0, "getcpu");
    must(madvise(at(8, 0), 4096, MADV_WILLNEED) == 0 && msync(at(8, 0), 4096, MS_ASYNC) == 0, "msync");
    must(mincore(at(1, 0), 8192, at(9, 2048)) == 0 && (at(9, 2048)[0] & 1), "mincore");
    must(sched_setscheduler(0, SCHED_OTHER, memset(at(10, 2048), 0, 8)) == 0, "scheduler");
    must(syscall(SYS_sched_getattr, 0, at(10, 2000), 56, 0) == 0, "sched_getattr");
    /* What fails alone fails alike. */
    must(read(fds[0], (void *)8, 1) == -1 && errno == EFAULT, "bad address");
    must(mprotect(at(11, 0), 4096, PROT_READ) == 0 && read(fds[0], at(11, 2040), 100) == -1 && errno == EFAULT, "read-only");
    must(mprotect(at(11, 0), 4096, PROT_READ | PROT_WRITE) == 0 && read(fds[0], at(11, 2040), 100) == 100, "not lost");
    disarm();
    puts("all");
    return done("any");
}
