/* To be preloaded beside the shim into programs nobody here wrote: a thread that keeps arming lines of their memory at random. */
#include "shim.h"

static uint64_t state = 88172645463325252u;
static uint64_t next_random(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static void *keep_arming(void *unused) {
    char line[512];
    uint32_t id = 0;
    for (;;) {
        FILE *maps = fopen("/proc/self/maps", "re");
        uint64_t places[64], low, high;
        int count = 0;
        while (maps && count < 64 && fgets(line, sizeof line, maps)) {
            char rights[5];
            if (sscanf(line, "%lx-%lx %4s", &low, &high, rights) == 3 && rights[0] == 'r' && rights[1] == 'w' && !strstr(line, "[v"))
                places[count++] = low + next_random() % ((high - low) / 64) * 64;
        }
        if (maps) fclose(maps);
        /* Refused as busy (-4): another time. */
        for (int n = 0; n < count; n++)
            if (armed_as((void *)places[n], 64, id++, next_random() % 4 == 0) == -4) break;
        /* Not for long: a watched page in constant use makes a program a thousand times slower. */
        struct timespec nap = {0, 1000000};
        nanosleep(&nap, 0);
        disarm();
        nap.tv_nsec = 20000000;
        nanosleep(&nap, 0);
    }
    (void)unused;
    return 0;
}

__attribute__((constructor)) static void begin(void) {
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_create(&thread, 0, keep_arming, 0);
    pthread_sigmask(SIG_SETMASK, &before, 0);
}
