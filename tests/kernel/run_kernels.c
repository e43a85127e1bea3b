/* Runs the phases of kernels on arrays: a small program for machines that have no Python here, under emulation.

   It reads requests from its input and answers each, until the input ends.  All numbers are 64-bit words:

       request   length of a library's path, the path; ("" is this program: kernels that are linked with it)
                 number of arrays, of each its bytes, or -1 - n if it is the memory of the n-th; the contents;
                 bytes of scratch memory; number of symbols, the symbols;
                 number of phases, of each the length of its entry's name, the name, its units, 1 if they are serial
       answer    1 if memory around the arrays is as it was, else 0, or -1 if an entry is missing;
                 the contents of the arrays */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CANARY = 32768, MOST = 512, PARTS = 3 };

typedef void entry_point(void *args, int64_t lo, int64_t hi);

static void need(int fine) {
    if (!fine) exit(3);
}

static int64_t word(void) {
    int64_t value;
    if (fread(&value, sizeof value, 1, stdin) != 1) exit(0);
    return value;
}

static char *text(void) {
    int64_t length = word();
    char *made = calloc(length + 1, 1);
    need(fread(made, 1, length, stdin) == (size_t)length);
    return made;
}

/* Memory between two canaries, at a multiple of 64. */
static char *guarded(int64_t size) {
    char *whole = aligned_alloc(64, 2 * CANARY + (size + 63) / 64 * 64);
    need(whole != NULL);
    memset(whole, 0xFF, 2 * CANARY + size);
    return whole + CANARY;
}

static int untouched(const char *inner, int64_t size) {
    for (int64_t k = 1; k <= CANARY; ++k)
        if (inner[-k] != (char)0xFF || inner[size + k - 1] != (char)0xFF) return 0;
    return 1;
}

static void request(void) {
    char *path = text();
    void *library = *path ? dlopen(path, RTLD_NOW) : RTLD_DEFAULT;
    if (*path && !library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(4);
    }
    int64_t args[MOST], size[MOST], status = 1, arrays = word(), count;
    need(arrays + 1 < MOST);
    for (int64_t k = 0; k < arrays; ++k) size[k] = word();
    for (int64_t k = 0; k < arrays; ++k) {
        if (size[k] < 0) {
            args[k] = args[-1 - size[k]];
            continue;
        }
        char *memory = guarded(size[k]);
        need(fread(memory, 1, size[k], stdin) == (size_t)size[k]);
        args[k] = (int64_t)memory;
    }
    size[arrays] = word();
    args[arrays] = (int64_t)guarded(size[arrays]);
    count = word();
    need(arrays + 1 + count <= MOST);
    for (int64_t k = 0; k < count; ++k) args[arrays + 1 + k] = word();
    for (int64_t phases = word(); phases > 0; --phases) {
        char *name = text();
        int64_t units = word(), serial = word();
        entry_point *entry = (entry_point *)dlsym(library, name);
        free(name);
        if (!entry) {
            status = -1;
            continue;
        }
        for (int64_t n = 0; n < PARTS; ++n) { /* the last part first where units may run in any order */
            int64_t part = serial ? n : PARTS - 1 - n;
            entry(args, units * part / PARTS, units * (part + 1) / PARTS);
        }
    }
    for (int64_t k = 0; k <= arrays; ++k)
        if (status == 1 && size[k] >= 0 && !untouched((char *)args[k], size[k])) status = 0;
    fwrite(&status, sizeof status, 1, stdout);
    for (int64_t k = 0; k <= arrays; ++k) {
        if (size[k] < 0) continue;
        if (k < arrays) fwrite((char *)args[k], 1, size[k], stdout);
        free((char *)args[k] - CANARY);
    }
    fflush(stdout);
    if (*path) dlclose(library);
    free(path);
}

int main(void) {
    for (;;) request();
}
