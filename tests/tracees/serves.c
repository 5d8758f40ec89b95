/* Serves the page faults of one of its threads by another (userfaultfd(2)): in its own code, and in a call of its. Prints what it found, and
   "not allowed" where it may not. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096ul
#define PAGES 300ul
#define ROUNDS 3

static int faults;

/* Never that of /dev/zero. */
static char content(unsigned long address) { return 64 | (address / PAGE & 63); }

static void *serve(void *unused) {
    char page[PAGE];
    struct uffd_msg message;
    (void)unused;
    while (read(faults, &message, sizeof message) == sizeof message) {
        if (message.event != UFFD_EVENT_PAGEFAULT) continue;
        unsigned long at = message.arg.pagefault.address & ~(PAGE - 1);
        memset(page, content(at), PAGE);
        struct uffdio_copy copy = {at, (unsigned long)page, PAGE, 0, 0};
        ioctl(faults, UFFDIO_COPY, &copy);
    }
    return 0;
}

int main(void) {
    faults = syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {UFFD_API, 0, 0};
    if (faults < 0 || ioctl(faults, UFFDIO_API, &api)) return puts("not allowed"), 0;
    char *pages = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_register served = {{(unsigned long)pages, PAGES * PAGE}, UFFDIO_REGISTER_MODE_MISSING, 0};
    pthread_t server;
    int zero = open("/dev/zero", O_RDONLY);
    if (ioctl(faults, UFFDIO_REGISTER, &served) || pthread_create(&server, 0, serve, 0)) return 2;
    unsigned long right = 0, got = 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (unsigned long i = 0; i < PAGES * PAGE; i += 512) right += pages[i] == content((unsigned long)pages + i);
        madvise(pages, PAGES * PAGE, MADV_DONTNEED);
        got += read(zero, pages + 5 * PAGE, 3 * PAGE);
        for (volatile int i = 0; i < 10000000; i++);
    }
    printf("%lu right, %lu got\n", right, got);
    return 0;
}
