/* The thread pool of passes/llvm/pool.py on a machine that has no Python here: exits with 0 if every unit of
   every launch was done once, workers took part, slept, were woken, and ended when they were told to, and the
   pool's clock ticks two to four times in a nanosecond. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 3, UNITS = 100, ROUNDS = 200, SECONDS = 20 };

void *lamina_pool_worker(void *pool);
void lamina_pool_launch(void *pool, void *entry, void *args, int64_t units, int64_t nanoseconds, int64_t most);
void lamina_pool_resize(void *pool, int32_t limit);
void lamina_pool_enlist(void *pool);
void lamina_pool_fork_join(void *pool, void *counter, int64_t times);
int64_t ticks(void);

static char pool[SIZE] __attribute__((aligned(64)));
static int64_t done[UNITS], helped;
static pthread_t caller;

static void note(void *args, int64_t lo, int64_t hi) {
    (void)args;
    for (volatile int k = 0; k < 2000; ++k) {
    }
    for (int64_t n = lo; n < hi; ++n) ++done[n];
    if (!pthread_equal(pthread_self(), caller)) __atomic_fetch_add(&helped, hi - lo, __ATOMIC_RELAXED);
}

static void need(int fine, const char *what) {
    if (fine) return;
    fprintf(stderr, "not so: %s\n", what);
    exit(1);
}

static int32_t alive(void) { return __atomic_load_n((int32_t *)(pool + ALIVE), __ATOMIC_SEQ_CST); }
static int32_t asleep(void) { return __atomic_load_n((int32_t *)(pool + SLEEPERS), __ATOMIC_SEQ_CST); }

static int64_t nanoseconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* While the workers sleep: the process uses a small part of one core, and the clock goes on. */
static void rest(void) {
    int64_t used = nanoseconds(CLOCK_PROCESS_CPUTIME_ID), before = ticks(), begun = nanoseconds(CLOCK_MONOTONIC);
    usleep(50000);
    double passed = nanoseconds(CLOCK_MONOTONIC) - begun, rate = (ticks() - before) / passed;
    need(nanoseconds(CLOCK_PROCESS_CPUTIME_ID) - used < passed / 4, "workers that sleep take no time");
    need(rate > 1.5 && rate < 4.5, "the clock ticks two to four times in a nanosecond");
}

int main(void) {
    pthread_t workers[THREADS - 1];
    int64_t counter[16] __attribute__((aligned(64)));
    time_t end = time(NULL) + SECONDS;
    caller = pthread_self();
    *(int32_t *)(pool + LIMIT) = 1;
    *(int64_t *)(pool + SPIN) = 100;
    *(int64_t *)(pool + GRAIN) = 1000;
    lamina_pool_resize(pool, THREADS);
    for (int k = 0; k < THREADS - 1; ++k) {
        need(!pthread_create(&workers[k], NULL, lamina_pool_worker, pool), "a thread began");
        lamina_pool_enlist(pool);
    }
    int64_t round = 0, before = 0, woken = 0;
    while (round < ROUNDS || !woken) {
        need(time(NULL) < end, "workers that slept took part in time");
        int slept = round % 20 == 0;
        while (slept && !asleep() && time(NULL) < end) usleep(1000);
        if (round == 20) rest();
        before = __atomic_load_n(&helped, __ATOMIC_RELAXED);
        lamina_pool_launch(pool, note, NULL, UNITS, INT64_C(1) << 40, INT64_C(1) << 30);
        ++round;
        for (int n = 0; n < UNITS; ++n) need(done[n] == round, "each unit is done once in each launch");
        if (slept) woken += __atomic_load_n(&helped, __ATOMIC_RELAXED) - before;
    }
    lamina_pool_fork_join(pool, counter, 20);
    lamina_pool_resize(pool, 1);
    for (int k = 0; k < THREADS - 1; ++k) pthread_join(workers[k], NULL);
    need(alive() == 0, "workers beyond the limit end");
    return 0;
}
