/* Unmaps, now and then, all of its address space that it does not know: all but itself, its stack and the kernel's ("unmaps"), as loaders do that put
   another program in their place; or maps something of its own over it ("covers"). To be built with -static -nostdlib -nostartfiles and
   -fno-stack-protector, since no library would bear it. Says "done"; exit status 7. */
typedef unsigned long word;
enum { READ = 0, WRITE = 1, OPEN = 2, CLOSE = 3, MMAP = 9, MUNMAP = 11, EXIT_GROUP = 231 };

static char maps[1 << 16];
static int numbers[4096];

static long call(long number, long a, long b, long c, long d, long e, long f) {
    register long r10 asm("r10") = d, r8 asm("r8") = e, r9 asm("r9") = f;
    long result;
    asm volatile("syscall" : "=a"(result) : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    return result;
}

static void compute(int rounds) {
    for (int i = 0; i < rounds; i++)
        for (int k = 0; k < 4096; k++) numbers[k] += k ^ i;
}

static char *hexadecimal(char *at, word *number) {
    for (*number = 0;; at++) {
        int digit = *at >= '0' && *at <= '9' ? *at - '0' : *at >= 'a' && *at <= 'f' ? *at - 'a' + 10 : -1;
        if (digit < 0) return at;
        *number = *number * 16 + digit;
    }
}

/* Its own image lies within 16 MiB, as it is static. */
static int is_near(word start, word stop) { return start < (word)numbers + (1 << 24) && (word)numbers < stop + (1 << 24); }

static void sweep(int covers) {
    long file = call(OPEN, (long)"/proc/self/maps", 0, 0, 0, 0, 0), length = 0, got;
    while ((got = call(READ, file, (long)maps + length, sizeof maps - 1 - length, 0, 0, 0)) > 0) length += got;
    call(CLOSE, file, 0, 0, 0, 0, 0);
    for (char *line = maps, *end; line < maps + length; line = end + 1) {
        word start, stop;
        int bracket = 0, brackets = 0;
        hexadecimal(hexadecimal(line, &start) + 1, &stop);
        for (end = line; end < maps + length && *end != '\n'; end++) {
            /* [stack], [vdso], [vvar], [vsyscall] */
            bracket = brackets && (*end == 's' || *end == 'v') ? 1 : bracket;
            brackets = *end == '[';
        }
        if (bracket || is_near(start, stop)) continue;
        if (covers)
            call(MMAP, start, 4096, 3 /* read, write */, 0x32 /* private, anonymous, fixed */, -1, 0);
        else
            call(MUNMAP, start, stop - start, 0, 0, 0, 0);
    }
}

__attribute__((used)) static void run(word *stack) {
    int covers = stack[0] > 1 && ((char **)stack)[2][0] == 'c';
    compute(2000);
    for (int i = 0; i < 200; i++) {
        sweep(covers);
        compute(i % 10 ? 20 : 300);
    }
    call(WRITE, 1, (long)"done\n", 5, 0, 0, 0);
    call(EXIT_GROUP, 7, 0, 0, 0, 0, 0);
}

asm(".globl _start\n_start: mov %rsp, %rdi\n and $-16, %rsp\n call run\n hlt");
