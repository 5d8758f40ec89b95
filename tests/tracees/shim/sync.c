/* Mutex, condition, semaphore and barrier on a watched page, three threads: nobody sleeps for ever and nothing is lost. */
#include "shim.h"
#include <semaphore.h>
struct shared { pthread_mutex_t mutex; pthread_cond_t cond; sem_t sem; pthread_barrier_t barrier; long count; int turn; };
static struct shared *s;
static void *work(void *k) {
    int me = (int)(long)k;
    for (int n = 0; n < 150; n++) {
        pthread_mutex_lock(&s->mutex);
        while (s->turn != me) pthread_cond_wait(&s->cond, &s->mutex);
        s->turn = (me + 1) % 3;
        s->count++;
        pthread_cond_broadcast(&s->cond);
        pthread_mutex_unlock(&s->mutex);
        if (n % 10 == 0) pthread_barrier_wait(&s->barrier);
        sem_post(&s->sem);
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 100;
        must(sem_timedwait(&s->sem, &until) == 0, "sem_timedwait");
    }
    return 0;
}
int main(void) {
    s = (struct shared *)fresh(4096);
    pthread_mutex_init(&s->mutex, 0), pthread_cond_init(&s->cond, 0), sem_init(&s->sem, 0, 0), pthread_barrier_init(&s->barrier, 0, 3);
    s->count = 0, s->turn = 0;
    arm((uint8_t *)s + 2048, 64, 1, KEEP);
    pthread_t id[3];
    for (long k = 0; k < 3; k++) pthread_create(&id[k], 0, work, (void *)k);
    for (int k = 0; k < 3; k++) pthread_join(id[k], 0);
    disarm();
    printf("count %ld\n", s->count);
    return done("1:0");
}
