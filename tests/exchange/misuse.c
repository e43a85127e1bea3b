/* Every kind of misuse that can be told, and right calls between: under valgrind, and on other machines. */
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "digits.h"

enum { BATCH = 5 };
static float images[BATCH * 64];

static void *one(void *result) {
    return digits_call(images, (float *)result, BATCH) == DIGITS_OK ? NULL : result;
}

int main(int count, char **names) {
    int64_t sizes[1] = {BATCH}, wrong[1] = {0}, shape[4];
    float *scores = malloc(sizeof(float) * BATCH * 10), *others = malloc(sizeof(float) * BATCH * 10);
    const void *inputs[1] = {images};
    void *outputs[1] = {scores};
    pthread_t threads[2];
    void *failed;
    int64_t need;
    char *block, *room;
    int at;

    if (count > 1 && strcmp(names[1], "cpu") == 0) { /* none of the levels is there */
        printf("%s\n", digits_level() == NULL ? digits_error(digits_call(images, scores, BATCH)) : digits_level());
        free(scores);
        free(others);
        return 0;
    }
    for (at = 0; at < BATCH * 64; at++) images[at] = (float)(at % 17) / 16;
    assert(digits_run(inputs, outputs, sizes, NULL, 0) == DIGITS_OK);
    need = digits_workspace(sizes);
    assert(need >= 0);
    block = malloc((size_t)need + 64);
    room = block + (64 - (uintptr_t)block % 64);
    memcpy(others, scores, sizeof(float) * BATCH * 10);
    assert(digits_run(inputs, outputs, sizes, room, (size_t)need) == DIGITS_OK);
    assert(memcmp(others, scores, sizeof(float) * BATCH * 10) == 0);
    if (need > 0) assert(digits_run(inputs, outputs, sizes, room, (size_t)need - 1) == DIGITS_WORKSPACE);
    assert(digits_run(inputs, outputs, sizes, room + 1, (size_t)need) == DIGITS_MISALIGNED);
    assert(digits_run(inputs, outputs, wrong, NULL, 0) == DIGITS_SIZE);
    assert(digits_run(inputs, outputs, NULL, NULL, 0) == DIGITS_NULL);
    assert(digits_run(NULL, outputs, sizes, NULL, 0) == DIGITS_NULL);
    inputs[0] = NULL;
    assert(digits_run(inputs, outputs, sizes, NULL, 0) == DIGITS_NULL);
    inputs[0] = scores;
    assert(digits_run(inputs, outputs, sizes, NULL, 0) == DIGITS_OVERLAP);
    inputs[0] = (char *)images + 1;
    assert(digits_run(inputs, outputs, sizes, NULL, 0) == DIGITS_MISALIGNED);
    assert(digits_output_shape(0, sizes, shape) == DIGITS_OK && shape[0] == BATCH && shape[1] == 10);
    assert(digits_output_shape(1, sizes, shape) == DIGITS_ARGUMENT);
    assert(digits_input(0)->rank == 4 && digits_input(1) == NULL && digits_input(-1) == NULL);
    assert(strcmp(digits_size(0)->name, "batch") == 0);
    assert(digits_set_threads(0) == DIGITS_ARGUMENT);
    assert(digits_set_threads(3) == DIGITS_OK && digits_set_threads(2) == DIGITS_OK);
    for (at = 0; at < 2; at++) assert(pthread_create(&threads[at], NULL, one, at ? others : scores) == 0);
    for (at = 0; at < 2; at++) assert(pthread_join(threads[at], &failed) == 0 && failed == NULL);
    assert(memcmp(others, scores, sizeof(float) * BATCH * 10) == 0);
    assert(digits_set_threads(1) == DIGITS_OK);
    for (at = 0; at < BATCH * 10; at++) printf("%.4f ", scores[at]);
    printf("%s\n", digits_level());
    free(block);
    free(scores);
    free(others);
    return 0;
}
