/* Calls whose arrays and workspace each end, or begin, at a page that may not be touched; from several threads. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "digits.h"

enum { MOST = 37, THREADS = 4 };

/* Memory of so many bytes between two such pages: against the one behind (at_end), or the one before. */
static void *fenced(size_t bytes, int at_end, size_t unit) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (bytes + page - 1) / page * page + page;
    char *at = mmap(NULL, room + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || mprotect(at + page, room - page, PROT_READ | PROT_WRITE)) abort();
    memset(at + page, 0x7f, room - page);
    return at_end ? at + room - (bytes + unit - 1) / unit * unit : at + page;
}

static void *work(void *seed) {
    int64_t sizes[1], way = (int64_t)(intptr_t)seed;
    float *plain = malloc(sizeof(float) * MOST * 10);
    for (sizes[0] = 1; sizes[0] <= MOST; sizes[0] += 1 + way) {
        size_t many = (size_t)sizes[0], at;
        int at_end;
        for (at_end = 0; at_end < 2; at_end++) {
            float *images = fenced(many * 64 * sizeof(float), at_end, sizeof(float));
            float *scores = fenced(many * 10 * sizeof(float), at_end, sizeof(float));
            int64_t need = digits_workspace(sizes);
            char *room = fenced((size_t)need, at_end, 64);
            const void *inputs[1];
            void *outputs[1];
            int code;
            inputs[0] = images;
            outputs[0] = scores;
            for (at = 0; at < many * 64; at++) images[at] = (float)((at + (size_t)way) % 17) / 16;
            code = digits_run(inputs, outputs, sizes, room, (size_t)need);
            if (code == DIGITS_OK) code = digits_call(images, plain, sizes[0]);
            if (code != DIGITS_OK) {
                fprintf(stderr, "%s\n", digits_error(code));
                exit(1);
            }
            if (memcmp(plain, scores, many * 10 * sizeof(float))) {
                fprintf(stderr, "another result at the fence: %d\n", (int)many);
                exit(1);
            }
        }
    }
    free(plain);
    return NULL;
}

int main(int count, char **names) {
    pthread_t threads[THREADS];
    intptr_t at;
    int given = count > 1 ? atoi(names[1]) : 1;
    if (given == 0) digits_level(); /* chosen once, in an atomic word that not every tool takes for one */
    else if (digits_set_threads(given)) return 2;
    for (at = 0; at < THREADS; at++) {
        if (pthread_create(&threads[at], NULL, work, (void *)at)) return 2;
    }
    for (at = 0; at < THREADS; at++) pthread_join(threads[at], NULL);
    if (digits_set_threads(1)) return 2;
    printf("%s\n", digits_level());
    return 0;
}
