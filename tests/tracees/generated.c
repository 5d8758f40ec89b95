/* Executes code that it writes itself, in every way that just-in-time compilers do; prints sums that would be others if
   old code were executed once. generated ROUNDS [way]; ways: rewritten, protected, aliased, moved, patched, recovered, far, hurried, filed, renamed. Exit status 6.
   With PERF_MAP set, `rewritten` names its page `summed` in /tmp/perf-PID.map: at once, or at its end if it is `end`.
   The code: sum the first N of 512 longs, add I. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#define PAGE 4096
enum { READ = PROT_READ, WRITE = PROT_WRITE, EXEC = PROT_EXEC };
typedef long (*function)(const long *);
static long data[512];

static void *map(void *at, int protection, int flags, int file) {
    void *p = mmap(at, PAGE, protection, flags, file, 0);
    if (p == MAP_FAILED) exit(90);
    return p;
}

static void generate(unsigned char *to, int32_t n, int32_t add) {
    unsigned char code[] = {0x31, 0xc0,                   /* xor eax, eax */
                            0xb9, 0, 0, 0, 0,             /* mov ecx, n */
                            0x48, 0x03, 0x44, 0xcf, 0xf8, /* add rax, [rdi + rcx*8 - 8] */
                            0xff, 0xc9,                   /* dec ecx */
                            0x75, 0xf7,                   /* jnz to the add before */
                            0x48, 0x05, 0, 0, 0, 0,       /* add rax, add */
                            0xc3};
    memcpy(code + 3, &n, 4);
    memcpy(code + 18, &add, 4);
    memcpy(to, code, sizeof code);
}

static void named(const unsigned char *page) {
    char name[64];
    snprintf(name, sizeof name, "/tmp/perf-%d.map", (int)getpid());
    FILE *file = fopen(name, "w");
    if (!file || fprintf(file, "%lx %x summed\n", (unsigned long)page, PAGE) < 0 || fclose(file)) exit(96);
}

/* A page that may be written and executed, and different functions in it by turns. */
static long rewritten(long rounds) {
    unsigned char *page = map(0, READ | WRITE | EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    long sum = 0;
    const char *when = getenv("PERF_MAP");
    if (when && strcmp(when, "end")) named(page);
    for (long i = 0; i < rounds; i++) {
        generate(page, 1 + i * 37 % 500, i);
        for (int k = 0; k < 3; k++) sum += ((function)page)(data);
        /* Small changes too: the added number alone, one byte of it. */
        page[18] ^= 0x40;
        sum += ((function)page)(data);
    }
    if (when && !strcmp(when, "end")) named(page);
    return sum;
}

/* Writable or executable, never both. */
static long protected(long rounds) {
    unsigned char *page = map(0, READ | WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    long sum = 0;
    for (long i = 0; i < rounds; i++) {
        if (i % 8 == 0) {
            if (mprotect(page, PAGE, READ | WRITE)) exit(91);
            generate(page, 1 + i % 400, i);
            if (mprotect(page, PAGE, READ | EXEC)) exit(92);
        }
        sum += ((function)page)(data);
    }
    return sum;
}

/* Another thread changes a loop under way, through another mapping of it: it ends then. */
static volatile int running;

static void *patch(void *at) {
    unsigned char *jump = at;
    while (!running) usleep(100);
    usleep(300);
    *(volatile uint16_t *)(jump) = 0x9090;
    return 0;
}

static long aliased(long rounds) {
    long sum = 0;
    int file = memfd_create("code", 0);
    if (file < 0 || ftruncate(file, PAGE)) exit(93);
    unsigned char *write = map(0, READ | WRITE, MAP_SHARED, file);
    unsigned char *run = map(0, READ | EXEC, MAP_SHARED, file);
    /* mov dword [rsi], 1; round: mov rax, [rdi]; mov [rdi + 8], rax; jmp round; ret: the jump goes. */
    const unsigned char loop[] = {0xc7, 0x06, 1, 0, 0, 0, 0x48, 0x8b, 0x07, 0x48, 0x89, 0x47, 0x08, 0x90, 0xeb, 0xf6, 0xc3};
    for (long i = 0; i < rounds; i++) {
        pthread_t thread;
        memcpy(write, loop, sizeof loop);
        running = 0;
        data[0] = i;
        if (pthread_create(&thread, 0, patch, write + 14)) exit(94);
        ((void (*)(long *, volatile int *))run)(data, &running);
        pthread_join(thread, 0);
        sum += data[1];
    }
    data[0] = data[1] = 1;
    return sum;
}

/* One page after the other at the same address. */
static long moved(long rounds) {
    unsigned char *page = map(0, READ | WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    long sum = 0;
    for (long i = 0; i < rounds; i++) {
        munmap(page, PAGE);
        page = map(page, READ | WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1);
        generate(page, 3 + i % 7, 1000 * i);
        if (mprotect(page, PAGE, READ | EXEC)) exit(92);
        sum += ((function)page)(data);
    }
    munmap(page, PAGE);
    return sum;
}

/* The program's own text, patched now and then as by a library that hooks functions. */
long hooked(void);
__asm__(".pushsection .text.hooked,\"ax\",@progbits\n.balign 4096\nhooked: mov $1, %eax\nret\n.balign 4096\n.popsection");

static long patched(long rounds) {
    unsigned char *page = (unsigned char *)hooked;
    long sum = 0;
    for (int32_t i = 0; i < rounds; i++) {
        if (mprotect(page, PAGE, READ | WRITE)) exit(97);
        memcpy(page + 1, &i, 4);
        if (mprotect(page, PAGE, READ | EXEC)) exit(98);
        for (long k = 0; k < 20000; k++) sum += hooked() ^ data[k % 512];
    }
    return sum;
}

/* A null pointer met by generated code; the handler sees where, and goes on at its end. */
static unsigned char *guarded;
static volatile long faults;

static void on_fault(int number, siginfo_t *info, void *context) {
    ucontext_t *at = context;
    greg_t *ip = &at->uc_mcontext.gregs[REG_RIP];
    (void)number;
    /* In the first round the load is met with nothing summed. */
    if ((unsigned char *)*ip != guarded + 7 || at->uc_mcontext.gregs[REG_RAX] || (long)info->si_addr > PAGE) _exit(95);
    faults++;
    *ip = (greg_t)(guarded + 16);
}

static long recovered(long rounds) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    long sum = 0;
    guarded = map(0, READ | WRITE | EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    sigaction(SIGSEGV, &action, 0);
    generate(guarded, 5, 77);
    for (long i = 0; i < rounds; i++) sum += ((function)guarded)(i % 3 ? data : 0);
    return sum + faults;
}

/* Far apart, each page out of reach of code near the others, while a timer's signals come;
   one of which, seldom called, may be executed only. */
static volatile long ticks;

static void on_tick(int number) { ticks += number == SIGALRM; }

static long under_timer(long rounds, long period) {
    struct itimerval often = {{0, period}, {0, period}}, never = {{0, 0}, {0, 0}};
    unsigned char *pages[8];
    long sum = 0;
    signal(SIGALRM, on_tick);
    setitimer(ITIMER_REAL, &often, 0);
    for (long i = 0; i < 8; i++) {
        pages[i] = map((void *)((i + 9) << 36), READ | WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
        generate(pages[i], 300 + i, i);
        if (mprotect(pages[i], PAGE, i == 7 ? EXEC : READ | EXEC)) exit(99);
    }
    for (long i = 0; i < rounds; i++) sum += ((function)pages[i % 64 == 63 ? 7 : i % 7])(data);
    while (ticks < 5) ((function)pages[0])(data);
    setitimer(ITIMER_REAL, &never, 0);
    return sum;
}

static long far(long rounds) { return under_timer(rounds, 4000); }

/* Signals come before one has been followed, where stops are slow. */
static long hurried(long rounds) { return under_timer(rounds, 200); }

/* A file's, mapped privately and never written there: the file is, by a call, through another mapping, and by a call before it is mapped anew. */
static long written_to(int file, int second, long rounds) {
    unsigned char code[64] = {0}, *page = 0, *write = 0;
    long sum = 0;
    for (long i = 0; i < rounds; i++) {
        generate(code, 1 + i % 9, i);
        if (i % 3 != 1 && pwrite(second, code, sizeof code, 0) != sizeof code) exit(89);
        /* At times it may be written to before it was ever executed. */
        if (i % 20 == 7) {
            if (munmap(page, PAGE)) exit(87);
            page = 0;
        }
        if (!page || i % 3 == 2) page = map(page, READ | EXEC, MAP_PRIVATE | (page ? MAP_FIXED : 0), file);
        if (i % 3 == 1) {
            if (!write) {
                write = map(0, i % 2 ? READ : READ | WRITE, MAP_SHARED, file);
                if (i % 2 && mprotect(write, PAGE, READ | WRITE)) exit(86);
            }
            memcpy(write, code, sizeof code);
            if (i % 60 == 31) {
                if (munmap(write, PAGE)) exit(88);
                write = 0;
            }
        }
        for (int k = 0; k < 300; k++) sum += ((function)page)(data);
    }
    return sum;
}

static long filed(long rounds) {
    int file = memfd_create("code", 0);
    if (file < 0 || ftruncate(file, PAGE)) exit(93);
    return written_to(file, file, rounds);
}

/* The same, written to by another name of the file than it has where it is mapped, and the first name gone. */
static long renamed(long rounds) {
    char name[] = "/tmp/codeXXXXXX", other[32];
    int file = mkstemp(name), second;
    snprintf(other, sizeof other, "%s.2", name);
    if (file < 0 || ftruncate(file, PAGE) || link(name, other)) exit(93);
    second = open(other, O_RDWR);
    if (second < 0 || unlink(other) || unlink(name)) exit(92);
    return written_to(file, second, rounds);
}

int main(int count, char **words) {
    static const struct {
        const char *name;
        long (*run)(long);
    } ways[] = {{"rewritten", rewritten}, {"protected", protected}, {"aliased", aliased}, {"moved", moved}, {"patched", patched}, {"recovered", recovered}, {"far", far}, {"hurried", hurried}, {"filed", filed}, {"renamed", renamed}};
    long rounds = count > 1 ? atol(words[1]) : 100;
    for (int i = 0; i < 512; i++) data[i] = 3 * i + 1;
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++)
        if (count < 3 || !strcmp(words[2], ways[i].name)) printf("%s %ld\n", ways[i].name, ways[i].run(rounds));
    return 6;
}
