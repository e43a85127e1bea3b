/* A CUDA driver library without a GPU, for tests: libcuda.so.1 as far as Lamina and cuda-bindings ask for it.

   Device memory is host memory in an arena of its own.  Streams are queues: nothing runs until something waits,
   and then a seed picks among the streams that could go on.  It does the worst that the real library's
   documentation allows: memory is poisoned when it is allocated and when it is freed, freeing does not wait,
   and an address that is not in a live allocation is an illegal address, after which every call fails.  Copies
   of pageable memory happen when the stream comes to them; a kernel is loaded at its first launch, which waits
   for the device, unless it was before; while a stream is captured, what may wait or allocate is refused.

   It knows what comes before what: a stream's work in its order, what an event says, what the host has waited
   for.  An access to memory that another stream wrote, or a write of what it read, without such an order between
   is an error, in whichever order they happened to run.

   Where a real driver may wait or not, the fake does not; where a program is right only by luck, some seed
   shows it.  It is no measure of time, and it says nothing about a GPU. */

#define _GNU_SOURCE
#include <elf.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int Result;
typedef unsigned long long Address;

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    ECC_UNCORRECTABLE = 214,
    NVLINK_UNCORRECTABLE = 220,
    CONTAINED = 226,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_TIMEOUT = 702,
    CONTEXT_IS_DESTROYED = 709,
    ASSERT = 710,
    MISALIGNED_ADDRESS = 716,
    LAUNCH_FAILED = 719,
    TENSOR_MEMORY_LEAK = 721,
    NOT_PERMITTED = 800,
    MPS_CLIENT_TERMINATED = 810,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    EXTERNAL_DEVICE = 911,
    UNKNOWN = 999,
};

#define FRESH 0xFF  /* a NaN in every floating type: memory that nobody filled */
#define FREED 0xFB  /* large and finite: memory that somebody gave back */
#define UNIT 512    /* allocations begin on it, and that much is left free between two */
#define MAX_DEVICES 8
#define MAX_PARAMETERS 1024
#define PARAMETER_BYTES 32764

/* ---- what is alive ------------------------------------------------------------------------------------ */

typedef struct Block {  /* of device or of host memory; kept, dead, after it is freed */
    struct Block *next;
    Address start;
    size_t size;
    int device;
} Block;

typedef struct {
    int magic, index, retained;
} Context;

#define TRACKED 64  /* streams whose order is known; later ones are not looked at */

typedef struct {  /* of each stream the number of the last work that something comes after */
    long of[TRACKED];
} Clock;

typedef struct Event {
    int magic, timed, device;
    Clock clock;
    long recorded, reached;  /* numbers of the last record asked for and of the last one run */
    double time;             /* of the last record run, in milliseconds of the fake's own clock */
} Event;

typedef struct {
    int offset, size;
} Parameter;

typedef struct Function {
    struct Function *next;
    int magic, count, nbytes, opted_in, non_portable, device, loaded, threads;
    uint32_t block[3];  /* that it must be launched in; zeros where the cubin does not say */
    char name[512];
    Parameter parameters[MAX_PARAMETERS];
} Function;

typedef struct {
    int magic;
    unsigned char *image;
    Function *functions;
} Module;

typedef struct {  /* what the callback is told; tests/gpu/fake_cuda.py has the same structure */
    const char *name;
    unsigned grid[3], block[3], shared, cluster;
    unsigned long long stream;
    const unsigned char *bytes;
    int nbytes;
} Launch;

typedef Result (*Callback)(const Launch *);

typedef enum { COPY_IN, COPY_OUT, COPY, FILL, LAUNCH, RECORD, WAIT } Kind;

typedef struct Op {
    struct Op *next;
    Kind kind;
    Address target, source;
    unsigned char *snapshot;  /* a launch's parameters */
    int device, gone;         /* the stream's; whether the host's memory was freed meanwhile */
    size_t size;
    unsigned word, width;
    Function *function;
    Launch launch;
    Event *event;
    long number;
    long serial;
    int slot;                 /* the stream's place in clocks, -1 if it has none */
    Clock *known;             /* what it comes after */
} Op;

typedef struct Stream {
    struct Stream *next;
    int magic, number, device, slot;
    Clock clock;
    int capture, broken;  /* 1 + the mode while it is captured; whether that failed */
    pthread_t capturing;
    Op *head, *tail;
    Op *taken, *last;     /* what it was given while it is captured */
} Stream;

typedef struct Graph {    /* and what runs it again, which has a copy */
    int magic, device;
    Op *head;
} Graph;

enum { GRAPH = 0x6611, EXEC = 0x7722, CONTEXT = 0x11CC, EVENT = 0x22EE, FUNCTION = 0x33FF, MODULE = 0x4400, STREAM = 0x5555, DEAD = 0xDEAD };

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static __thread Context *current;

#ifndef VERSION  /* fake_hip.c has another */
#define VERSION 13000
#define LIBRARY "CUDA"
#endif

static int initialised, devices = 1, version = VERSION, capability = 90, running;
static pid_t owner;
static size_t capacity = 64 << 20;
static unsigned char *arena;
static size_t arena_size, next_place;
static size_t used[MAX_DEVICES];
static Context contexts[MAX_DEVICES];
static Block *device_blocks, *host_blocks;
static Stream *streams;
static Result fault;
static unsigned long long seed;
static int patience;
static double now;
__attribute__((visibility("default"))) long fake_serials;  /* read by the tests, too */
static Callback callback;
static Clock host;       /* what the host has waited for */
static Op *current_op;   /* the one that runs */
static int forgiving;    /* whether what has no order is counted alone */
static long races;
static char race[256];   /* the first of them */
static long live_streams, live_events, live_modules, live_host, live_device;

/* ---- calls: counted, and made to fail ------------------------------------------------------------------- */

#define FUNCTIONS(X) \
    X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuGetErrorString) X(cuDeviceGetCount) X(cuDeviceGet) \
    X(cuDeviceGetName) X(cuDeviceTotalMem) X(cuDeviceGetAttribute) X(cuDevicePrimaryCtxRetain) \
    X(cuDevicePrimaryCtxRelease) X(cuCtxGetCurrent) X(cuCtxSetCurrent) X(cuCtxSynchronize) X(cuMemAlloc) \
    X(cuMemFree) X(cuMemGetInfo) X(cuMemHostAlloc) X(cuMemFreeHost) X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync) \
    X(cuMemcpyDtoDAsync) X(cuMemsetD8Async) X(cuMemsetD16Async) X(cuMemsetD32Async) X(cuStreamCreate) \
    X(cuStreamDestroy) X(cuStreamSynchronize) X(cuStreamQuery) X(cuStreamWaitEvent) X(cuEventCreate) \
    X(cuEventDestroy) X(cuEventRecord) X(cuEventQuery) X(cuEventSynchronize) X(cuEventElapsedTime) \
    X(cuModuleLoadData) X(cuModuleUnload) X(cuModuleGetFunction) X(cuFuncGetAttribute) X(cuFuncSetAttribute) \
    X(cuFuncSetCacheConfig) X(cuLaunchKernel) X(cuLaunchKernelEx) X(cuFuncLoad) \
    X(cuStreamBeginCapture) X(cuStreamEndCapture) X(cuStreamIsCapturing) X(cuGraphInstantiateWithFlags) X(cuGraphLaunch) \
    X(cuGraphDestroy) X(cuGraphExecDestroy) X(cuPointerGetAttribute)

#define NAMED(f) CALL_##f,
enum { FUNCTIONS(NAMED) CALLS };
#define TEXT(f) #f,
static const char *const names[] = {FUNCTIONS(TEXT)};
static long called[CALLS], fail_at[CALLS];
static Result fail_with[CALLS];

static int sticky(Result r) {
    static const Result all[] = {
        ECC_UNCORRECTABLE, NVLINK_UNCORRECTABLE, CONTAINED, ILLEGAL_ADDRESS, LAUNCH_TIMEOUT, CONTEXT_IS_DESTROYED,
        ASSERT, 714, 715, MISALIGNED_ADDRESS, 717, 718, LAUNCH_FAILED, TENSOR_MEMORY_LEAK, MPS_CLIENT_TERMINATED,
        EXTERNAL_DEVICE,
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (r == all[i]) return 1;
    return 0;
}

static void unlock(int *held) {
    (void)held;
    pthread_mutex_unlock(&lock);
}

/* Every call: one at a time, counted, and failing where a test asked for it.  A child of a fork must not come
   here at all: the real library may hang or crash, so the fake ends the process. */
static Result entered(int call) {
    if (owner && owner != getpid()) {
        fprintf(stderr, "fake " LIBRARY ": %s in a child forked after cuInit\n", names[call]);
        abort();
    }
    called[call]++;
    if (fail_at[call] && called[call] == fail_at[call]) {
        if (sticky(fail_with[call])) fault = fail_with[call];
        return fail_with[call];
    }
    return SUCCESS;
}

#define ENTER(f) \
    pthread_mutex_lock(&lock); \
    __attribute__((cleanup(unlock))) int held_ = 0; \
    (void)held_; \
    Result entered_ = entered(CALL_##f); \
    if (entered_) return entered_

#define NEEDS_INIT \
    if (!initialised) return NOT_INITIALIZED

#define NEEDS_CONTEXT \
    NEEDS_INIT; \
    if (!current) return INVALID_CONTEXT; \
    if (fault) return fault

static void sow(unsigned long long s) { seed = s * 0x9E3779B97F4A7C15ull; }

static unsigned pick(unsigned n) {  /* xorshift: the same choices for the same seed */
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (unsigned)((seed >> 11) % n);
}

static int is_inside(Block *blocks, Address start, size_t size) {
    for (Block *b = blocks; b; b = b->next)
        if (start >= b->start && start < b->start + b->size) return size <= b->start + b->size - start;
    return 0;
}

static int is_on(int device, Address start, size_t size) {  /* within one allocation of that device */
    for (Block *b = device_blocks; b; b = b->next)
        if (start >= b->start && start < b->start + b->size)
            return b->device == device && size <= b->start + b->size - start;
    return 0;
}

static int is_arena(Address a) { return a >= (Address)arena && a < (Address)arena + arena_size; }

/* ---- the queues ----------------------------------------------------------------------------------------- */

static void merge(Clock *into, const Clock *from) {
    for (int i = 0; i < TRACKED; i++)
        if (from->of[i] > into->of[i]) into->of[i] = from->of[i];
}

static Op *append_this(Stream *s, Op *op) {
    op->device = s->device;
    op->serial = ++fake_serials;
    op->slot = s->slot;
    merge(&s->clock, &host);
    if (s->slot >= 0) s->clock.of[s->slot] = op->serial;
    if (!op->known) op->known = malloc(sizeof *op->known);
    *op->known = s->clock;
    if (s->capture) {  /* it is not to run but by a graph */
        *(s->last ? &s->last->next : &s->taken) = op;
        s->last = op;
        return op;
    }
    *(s->tail ? &s->tail->next : &s->head) = op;
    s->tail = op;
    patience = 0;
    return op;
}

static Op *append(Stream *s, Kind kind) {
    Op *op = calloc(1, sizeof *op);
    op->kind = kind;
    return append_this(s, op);
}

static Op *copy_of(const Op *op) {
    Op *made = malloc(sizeof *made);
    *made = *op;
    made->next = NULL;
    made->known = NULL;
    if (op->snapshot) {
        size_t size = (size_t)op->function->nbytes + 1;
        made->snapshot = memcpy(malloc(size), op->snapshot, size);
        made->launch.bytes = made->snapshot;
    }
    return made;
}

static Op *copies_of(const Op *op) {
    Op *head = NULL, **last = &head;
    for (; op; op = op->next, last = &(*last)->next) *last = copy_of(op);
    return head;
}

static void drop(Op *op) {
    while (op) {
        Op *next = op->next;
        free(op->snapshot);
        free(op->known);
        free(op);
        op = next;
    }
}

/* -- who touched which word of memory last, and whether that comes before -- */

typedef struct {  /* slots count from 1; of reads since the last write those of two streams are kept */
    unsigned writer, written, reader[2], read[2];
} Cell;

static Cell *cells;

static int comes_before(unsigned slot, unsigned serial, const Op *op) {
    return !slot || (int)slot - 1 == op->slot || op->known->of[slot - 1] >= (long)serial;
}

static Result raced(const Op *op, Address at, const char *does, const char *did, unsigned slot) {
    char text[sizeof race];
    snprintf(text, sizeof text, "%.60s on the stream of slot %d %s %#llx, which that of slot %d %s, without a wait between",
             op->kind == LAUNCH ? op->function->name : "a copy or filling", op->slot, does, at, (int)slot - 1, did);
    if (!races++) memcpy(race, text, sizeof race);
    return forgiving ? SUCCESS : LAUNCH_FAILED;
}

static Result touched(const Op *op, Address start, size_t size, int writes) {
    if (op->slot < 0 || !size || !is_arena(start)) return SUCCESS;
    unsigned mine = (unsigned)op->slot + 1, now_ = (unsigned)op->serial;
    for (size_t i = (start - (Address)arena) / 4; i <= (start + size - 1 - (Address)arena) / 4; i++) {
        Cell *c = &cells[i];
        if (!comes_before(c->writer, c->written, op))
            return raced(op, (Address)arena + 4 * i, writes ? "writes" : "reads", "writes", c->writer);
        for (int k = 0; k < 2 && writes; k++)
            if (!comes_before(c->reader[k], c->read[k], op))
                return raced(op, (Address)arena + 4 * i, "writes", "reads", c->reader[k]);
        if (writes) {
            *c = (Cell){mine, now_, {0, 0}, {0, 0}};
        } else {
            int k = c->reader[0] == mine || comes_before(c->reader[0], c->read[0], op) ? 0 : 1;
            c->reader[k] = mine, c->read[k] = now_;
        }
    }
    return SUCCESS;
}

static int is_runnable(Stream *s) {
    return s->head && !(s->head->kind == WAIT && s->head->event->reached < s->head->number);
}

static Result fill(Op *op) {
    if (!is_on(op->device, op->target, op->size)) return ILLEGAL_ADDRESS;
    for (size_t i = 0; i < op->size; i += op->width) memcpy((char *)op->target + i, &op->word, op->width);
    return touched(op, op->target, op->size, 1);
}

/* What the machine code of a kernel takes for granted of its parameters: multiples of so many bytes.  The cubin
   does not say it, so the tests do. */
typedef struct Alignment {
    struct Alignment *next;
    char name[512];
    int count, bytes[MAX_PARAMETERS];
} Alignment;

static Alignment *alignments;

static Alignment *alignment_of(const char *name) {
    Alignment *found = alignments;
    while (found && strcmp(found->name, name)) found = found->next;
    return found;
}

/* An 8-byte parameter that lies in the arena is an address, and must be one of live memory when the kernel runs,
   and as well aligned as the kernel was compiled for. */
static Result run_launch(Op *op) {
    if (op->function->magic != FUNCTION) return LAUNCH_FAILED;  /* its module was unloaded meanwhile */
    Alignment *aligned = alignment_of(op->function->name);
    for (int i = 0; i < op->function->count; i++) {
        Address value;
        if (op->function->parameters[i].size != 8) continue;
        memcpy(&value, op->snapshot + op->function->parameters[i].offset, 8);
        if (is_arena(value) && !is_on(op->device, value, 1)) return ILLEGAL_ADDRESS;
        if (is_arena(value) && aligned && i < aligned->count && value % (Address)aligned->bytes[i])
            return MISALIGNED_ADDRESS;
    }
    long before = races;
    current_op = op;
    Result r = callback ? callback(&op->launch) : SUCCESS;
    current_op = NULL;
    if (!r && races > before && !forgiving) r = LAUNCH_FAILED;
    return !r || sticky(r) ? r : LAUNCH_FAILED;
}

static int is_host_gone(Op *op, Address host) {
    if (op->gone) fprintf(stderr, "fake CUDA: pageable memory was freed before the stream came to its copy\n");
    return op->width ? !is_inside(host_blocks, host, op->size) : op->gone;
}

static Result run_op(Op *op) {
    switch (op->kind) {
    case COPY_IN:  /* `width` is 1 where the host's memory is pinned */
        if (!is_on(op->device, op->target, op->size) || is_host_gone(op, op->source)) return ILLEGAL_ADDRESS;
        memcpy((void *)op->target, (void *)op->source, op->size);
        return touched(op, op->target, op->size, 1);
    case COPY_OUT:
        if (!is_on(op->device, op->source, op->size) || is_host_gone(op, op->target)) return ILLEGAL_ADDRESS;
        memcpy((void *)op->target, (void *)op->source, op->size);
        return touched(op, op->source, op->size, 0);
    case COPY:
        if (!is_on(op->device, op->target, op->size)) return ILLEGAL_ADDRESS;
        if (!is_on(op->device, op->source, op->size)) return ILLEGAL_ADDRESS;
        memmove((void *)op->target, (void *)op->source, op->size);
        Result r = touched(op, op->source, op->size, 0);
        return r ? r : touched(op, op->target, op->size, 1);
    case FILL: return fill(op);
    case LAUNCH: return run_launch(op);
    case RECORD:
        if (op->event->reached < op->number) op->event->reached = op->number;
        op->event->time = now;
        return SUCCESS;
    case WAIT: return SUCCESS;
    }
    return UNKNOWN;
}

/* Take one op from a stream and run it.  The callback may come back into the library (an object that Python
   drops there is destroyed), so nothing is kept across it but the op itself. */
static void step(Stream *s) {
    Op *op = s->head;
    s->head = op->next;
    if (!s->head) s->tail = NULL;
    now += 0.001 + (double)op->size * 1e-9;
    running = 1;
    Result r = run_op(op);
    running = 0;
    if (r && !fault) fault = r;
    free(op->snapshot);
    free(op->known);
    free(op);
}

static Stream *runnable(unsigned wanted) {  /* that one, counting from 0; NULL where there are fewer */
    for (Stream *s = streams; s; s = s->next)
        if (is_runnable(s) && wanted-- == 0) return s;
    return NULL;
}

static unsigned count_runnable(void) {
    unsigned n = 0;
    for (Stream *s = streams; s; s = s->next) n += is_runnable(s);
    return n;
}

static void step_any(void) {
    unsigned n = count_runnable();
    if (n) step(runnable(pick(n)));
}

/* Run until a stream has passed the op of that serial number.  Of the other streams, only what it waits for
   has to run; a seed other than 0 lets some of the rest run as well, before or between. */
static Stream *blocker(Stream *s);

static Result run_until(Stream *s, long serial) {
    if (running) return NOT_PERMITTED;  /* from within the callback */
    while (!fault && s->head && s->head->serial <= serial) {
        if (seed && pick(2)) {
            step_any();
            continue;
        }
        Stream *next = blocker(s);
        if (!next) {
            fprintf(stderr, "fake CUDA: streams wait for each other\n");
            return UNKNOWN;
        }
        step(next);
    }
    return fault;
}

/* The stream to advance so that `s` can go on: itself, or the one that has yet to record what it waits for. */
static Stream *blocker(Stream *s) {
    for (int depth = 0; s && depth < 10000; depth++) {
        if (is_runnable(s)) return s;
        if (!s->head) return NULL;
        Event *event = s->head->event;
        long number = s->head->number;
        Stream *found = NULL;
        for (Stream *o = streams; o && !found; o = o->next)
            for (Op *op = o->head; op && !found; op = op->next)
                if (op->kind == RECORD && op->event == event && op->number >= number) found = o;
        s = found;
    }
    return NULL;
}

static Result drain(void) {
    if (running) return NOT_PERMITTED;
    while (!fault && count_runnable()) step_any();
    return fault;
}

/* A question lets the device go on a little, or a program that asks until the answer is yes would never end;
   under seed 0 only after many questions. */
static void asked(void) {
    if (running || fault) return;
    if (seed ? pick(2) : ++patience > 200) step_any();
}

/* While a stream is captured, other calls that may wait or allocate are refused, and spoil the capture: on every
   thread in the global mode (0), on the capturing one in that of the thread (1), nowhere in the relaxed one (2). */
static Result refused_in_capture(void) {
    Result r = SUCCESS;
    for (Stream *s = streams; s; s = s->next) {
        int mode = s->capture - 1;
        if (mode == 0 || (mode == 1 && pthread_equal(s->capturing, pthread_self())))
            s->broken = 1, r = CAPTURE_UNSUPPORTED;
    }
    return r;
}

#define UNSAFE \
    do { \
        Result unsafe_ = refused_in_capture(); \
        if (unsafe_) return unsafe_; \
    } while (0)

/* Nobody may ask or wait for a stream that is captured, in whichever mode. */
#define NOT_CAPTURED(s) \
    if ((s)->capture) return (s)->broken = 1, CAPTURE_UNSUPPORTED

/* What is made in the current context belongs with what is of the same one. */
#define SAME_DEVICE(one, two) \
    if ((one)->device != (two)->device) return INVALID_HANDLE

#define VALID(handle, kind) \
    if (!(handle) || (handle)->magic != (kind)) return INVALID_HANDLE

/* ---- the library's functions ------------------------------------------------------------------------------ */

static long setting(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

static Result cuInit(unsigned flags) {
    ENTER(cuInit);
    if (flags) return INVALID_VALUE;
    devices = (int)setting("FAKE_CUDA_DEVICES", devices);
    version = (int)setting("FAKE_CUDA_VERSION", version);
    capability = (int)setting("FAKE_CUDA_CAPABILITY", capability);
    capacity = (size_t)setting("FAKE_CUDA_CAPACITY", (long)capacity);
    sow((unsigned long long)setting("FAKE_CUDA_SEED", 0));
    if (!devices) return NO_DEVICE;
    if (!arena) {  /* more room than capacity, so that a freed address is used again only late */
        arena_size = 16 * capacity * (size_t)devices;
        int flags_ = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        arena = mmap(NULL, arena_size, PROT_READ | PROT_WRITE, flags_, -1, 0);
        if (arena == MAP_FAILED) return UNKNOWN;
        cells = mmap(NULL, arena_size / 4 * sizeof *cells, PROT_READ | PROT_WRITE, flags_, -1, 0);
        if (cells == MAP_FAILED) return UNKNOWN;
    }
    for (int i = 0; i < devices; i++) contexts[i] = (Context){CONTEXT, i, contexts[i].retained};
    initialised = 1;
    owner = getpid();
    return SUCCESS;
}

static Result cuDriverGetVersion(int *out) {
    ENTER(cuDriverGetVersion);
    *out = (int)setting("FAKE_CUDA_VERSION", version);
    return SUCCESS;
}

static const struct {
    Result code;
    const char *name, *text;
} errors[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {ECC_UNCORRECTABLE, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {LAUNCH_TIMEOUT, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {ASSERT, "CUDA_ERROR_ASSERT", "device-side assert triggered"},
    {MISALIGNED_ADDRESS, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {NVLINK_UNCORRECTABLE, "CUDA_ERROR_NVLINK_UNCORRECTABLE", "uncorrectable NVLink error detected during the execution"},
    {CONTAINED, "CUDA_ERROR_CONTAINED", "Invalid access of peer GPU memory over nvlink or a hardware error"},
    {CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {TENSOR_MEMORY_LEAK, "CUDA_ERROR_TENSOR_MEMORY_LEAK", "tensor memory not completely freed"},
    {MPS_CLIENT_TERMINATED, "CUDA_ERROR_MPS_CLIENT_TERMINATED", "MPS client terminated"},
    {EXTERNAL_DEVICE, "CUDA_ERROR_EXTERNAL_DEVICE", "async error from an external device"},
    {CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static Result text_of(Result code, const char **out, int name) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) {
            *out = name ? errors[i].name : errors[i].text;
            return SUCCESS;
        }
    *out = NULL;
    return INVALID_VALUE;
}

static Result cuGetErrorName(Result code, const char **out) {
    ENTER(cuGetErrorName);
    return text_of(code, out, 1);
}

static Result cuGetErrorString(Result code, const char **out) {
    ENTER(cuGetErrorString);
    return text_of(code, out, 0);
}

static Result cuDeviceGetCount(int *out) {
    ENTER(cuDeviceGetCount);
    NEEDS_INIT;
    *out = devices;
    return SUCCESS;
}

static Result cuDeviceGet(int *out, int ordinal) {
    ENTER(cuDeviceGet);
    NEEDS_INIT;
    if (ordinal < 0 || ordinal >= devices) return INVALID_DEVICE;
    *out = ordinal;
    return SUCCESS;
}

static Result cuDeviceGetName(char *out, int size, int device) {
    ENTER(cuDeviceGetName);
    NEEDS_INIT;
    snprintf(out, (size_t)size, "Fake device %d", device);
    return SUCCESS;
}

static Result cuDeviceTotalMem(size_t *out, int device) {
    ENTER(cuDeviceTotalMem);
    (void)device;
    NEEDS_INIT;
    *out = capacity;
    return SUCCESS;
}

static Result cuDeviceGetAttribute(int *out, int attribute, int device) {
    ENTER(cuDeviceGetAttribute);
    (void)device;
    NEEDS_INIT;
    switch (attribute) {
    case 10: *out = 32; break;       /* warp size */
    case 16: *out = 4; break;        /* multiprocessors */
    case 75: *out = capability / 10; break;
    case 76: *out = capability % 10; break;
    case 97: *out = 232448; break;   /* shared memory of a block, opted in */
    default: *out = 0;
    }
    return SUCCESS;
}

static Result cuDevicePrimaryCtxRetain(Context **out, int device) {
    ENTER(cuDevicePrimaryCtxRetain);
    NEEDS_INIT;
    contexts[device].retained++;
    *out = &contexts[device];
    return SUCCESS;
}

static Result cuDevicePrimaryCtxRelease(int device) {
    ENTER(cuDevicePrimaryCtxRelease);
    NEEDS_INIT;
    contexts[device].retained--;
    return SUCCESS;
}

static Result cuCtxGetCurrent(Context **out) {
    ENTER(cuCtxGetCurrent);
    NEEDS_INIT;
    *out = current;
    return SUCCESS;
}

static Result cuCtxSetCurrent(Context *context) {
    ENTER(cuCtxSetCurrent);
    NEEDS_INIT;
    if (context && context->magic != CONTEXT) return INVALID_CONTEXT;
    current = context;
    return SUCCESS;
}

static Result cuCtxSynchronize(void) {
    ENTER(cuCtxSynchronize);
    NEEDS_CONTEXT;
    UNSAFE;
    Result r = drain();
    for (Stream *s = streams; s && !r; s = s->next) merge(&host, &s->clock);
    return r;
}

/* Which device memory is of: of none, where nobody allocated it. */
static Result cuPointerGetAttribute(void *out, int attribute, Address address) {
    ENTER(cuPointerGetAttribute);
    NEEDS_CONTEXT;
    if (attribute != 9) return INVALID_VALUE;  /* the device's number is all that is asked for */
    for (Block *b = device_blocks; b; b = b->next)
        if (address >= b->start && address < b->start + b->size) {
            memcpy(out, &b->device, sizeof b->device);
            return SUCCESS;
        }
    return INVALID_VALUE;
}

/* -- memory -- */

static Result cuMemAlloc(Address *out, size_t size) {
    ENTER(cuMemAlloc);
    NEEDS_CONTEXT;
    UNSAFE;
    if (!size) return INVALID_VALUE;
    size_t whole = (size + UNIT - 1) / UNIT * UNIT;
    if (whole > capacity - used[current->index]) return OUT_OF_MEMORY;
    for (int lap = 0; lap < 2; lap++, next_place = 0)
        while (next_place + whole + UNIT <= arena_size) {
            Address start = (Address)arena + next_place;
            Block *hit = device_blocks;
            while (hit && (start + whole + UNIT <= hit->start || hit->start + hit->size + UNIT <= start)) hit = hit->next;
            if (hit) {
                next_place = (size_t)(hit->start + hit->size - (Address)arena + 2 * UNIT - 1) / UNIT * UNIT;
                continue;
            }
            Block *b = malloc(sizeof *b);
            *b = (Block){device_blocks, start, size, current->index};
            device_blocks = b;
            used[current->index] += whole;
            next_place += whole + UNIT;
            live_device++;
            memset((void *)start, FRESH, whole);
            memset(&cells[(start - (Address)arena) / 4], 0, whole / 4 * sizeof *cells);
            *out = start;
            return SUCCESS;
        }
    return OUT_OF_MEMORY;
}

static Result take(Block **blocks, Address start, Block *out) {
    for (Block **b = blocks; *b; b = &(*b)->next)
        if ((*b)->start == start) {
            Block *gone = *b;
            *out = *gone;
            *b = gone->next;
            free(gone);
            return SUCCESS;
        }
    return INVALID_VALUE;
}

static Result cuMemFree(Address start) {
    ENTER(cuMemFree);
    NEEDS_CONTEXT;
    UNSAFE;
    if (!start) return SUCCESS;
    Block gone;
    Result r = take(&device_blocks, start, &gone);
    if (r) return r;
    memset((void *)gone.start, FREED, gone.size);
    used[gone.device] -= (gone.size + UNIT - 1) / UNIT * UNIT;
    live_device--;
    return SUCCESS;
}

static Result cuMemGetInfo(size_t *unused, size_t *total) {
    ENTER(cuMemGetInfo);
    NEEDS_CONTEXT;
    *unused = capacity - used[current->index];
    *total = capacity;
    return SUCCESS;
}

static Result cuMemHostAlloc(void **out, size_t size, unsigned flags) {
    ENTER(cuMemHostAlloc);
    (void)flags;
    NEEDS_CONTEXT;
    UNSAFE;
    if (!size) return INVALID_VALUE;
    if (posix_memalign(out, 4096, size)) return OUT_OF_MEMORY;
    memset(*out, FRESH, size);
    Block *b = malloc(sizeof *b);
    *b = (Block){host_blocks, (Address)*out, size, 0};
    host_blocks = b;
    live_host++;
    return SUCCESS;
}

static Result cuMemFreeHost(void *start) {
    ENTER(cuMemFreeHost);
    NEEDS_CONTEXT;
    UNSAFE;
    Block gone;
    Result r = take(&host_blocks, (Address)start, &gone);
    if (r) return r;
    memset(start, FREED, gone.size);
    free(start);
    live_host--;
    return SUCCESS;
}

/* Pageable memory: the call comes back when the copy is made, or long before; under seed 0 always before. */
static Result maybe_now(Stream *s, Op *op) { return seed && !running && pick(2) ? run_until(s, op->serial) : SUCCESS; }

static Result cuMemcpyHtoDAsync(Address target, const void *source, size_t size, Stream *s) {
    ENTER(cuMemcpyHtoDAsync);
    NEEDS_CONTEXT;
    VALID(s, STREAM);
    int pinned = is_inside(host_blocks, (Address)source, 1);
    if (!pinned) NOT_CAPTURED(s);
    Op *op = append(s, COPY_IN);
    op->target = target, op->source = (Address)source, op->size = size, op->width = (unsigned)pinned;
    return pinned ? SUCCESS : maybe_now(s, op);
}

static Result cuMemcpyDtoHAsync(void *target, Address source, size_t size, Stream *s) {
    ENTER(cuMemcpyDtoHAsync);
    NEEDS_CONTEXT;
    VALID(s, STREAM);
    int pinned = is_inside(host_blocks, (Address)target, 1);
    if (!pinned) NOT_CAPTURED(s);
    Op *op = append(s, COPY_OUT);
    op->target = (Address)target, op->source = source, op->size = size, op->width = (unsigned)pinned;
    return pinned ? SUCCESS : maybe_now(s, op);
}

static Result cuMemcpyDtoDAsync(Address target, Address source, size_t size, Stream *s) {
    ENTER(cuMemcpyDtoDAsync);
    NEEDS_CONTEXT;
    VALID(s, STREAM);
    Op *op = append(s, COPY);
    op->target = target, op->source = source, op->size = size;
    return SUCCESS;
}

static Result fill_later(Address target, unsigned word, unsigned width, size_t count, Stream *s) {
    VALID(s, STREAM);
    if (target % width) return INVALID_VALUE;
    Op *op = append(s, FILL);
    op->target = target, op->word = word, op->width = width, op->size = count * width;
    return SUCCESS;
}

static Result cuMemsetD8Async(Address target, unsigned char word, size_t count, Stream *s) {
    ENTER(cuMemsetD8Async);
    NEEDS_CONTEXT;
    return fill_later(target, word, 1, count, s);
}

static Result cuMemsetD16Async(Address target, unsigned short word, size_t count, Stream *s) {
    ENTER(cuMemsetD16Async);
    NEEDS_CONTEXT;
    return fill_later(target, word, 2, count, s);
}

static Result cuMemsetD32Async(Address target, unsigned word, size_t count, Stream *s) {
    ENTER(cuMemsetD32Async);
    NEEDS_CONTEXT;
    return fill_later(target, word, 4, count, s);
}

/* -- streams and events; a destroyed one stays in memory, so that using it is found and what it holds still runs -- */

static Stream *new_stream(void) {
    static int number;
    Stream *s = calloc(1, sizeof *s);
    s->magic = STREAM;
    s->device = current->index;
    s->slot = number < TRACKED ? number : -1;
    s->number = ++number;
    Stream **last = &streams;
    while (*last) last = &(*last)->next;
    *last = s;
    return s;
}

static Result cuStreamCreate(Stream **out, unsigned flags) {
    ENTER(cuStreamCreate);
    NEEDS_CONTEXT;
    if (flags != 1) return INVALID_VALUE;  /* a stream that waits for the default one is allowed, and never wanted */
    *out = new_stream();
    live_streams++;
    return SUCCESS;
}

/* The numbers 0 to 2 are no addresses: the default stream of a device, twice, and that of each thread. */
static Stream *of_handle(Stream *s) {
    static Stream *made[MAX_DEVICES][2];
    if ((uintptr_t)s > 2) return s;
    Stream **found = &made[current->index][(uintptr_t)s / 2];
    if (!*found) *found = new_stream();
    return *found;
}

static Result cuStreamDestroy(Stream *s) {
    ENTER(cuStreamDestroy);
    NEEDS_CONTEXT;
    VALID(s, STREAM);
    s->magic = DEAD;
    live_streams--;
    return SUCCESS;
}

static Result cuStreamSynchronize(Stream *s) {
    ENTER(cuStreamSynchronize);
    NEEDS_CONTEXT;
    VALID(s, STREAM);
    NOT_CAPTURED(s);
    UNSAFE;
    Result r = s->tail ? run_until(s, s->tail->serial) : SUCCESS;
    if (!r) merge(&host, &s->clock);
    return r;
}

static Result cuStreamQuery(Stream *s) {
    ENTER(cuStreamQuery);
    NEEDS_CONTEXT;
    VALID(s, STREAM);
    NOT_CAPTURED(s);
    UNSAFE;
    if (s->head) asked();
    if (!fault && !s->head) merge(&host, &s->clock);
    return fault ? fault : s->head ? NOT_READY : SUCCESS;
}

static Result cuStreamWaitEvent(Stream *s, Event *e, unsigned flags) {
    ENTER(cuStreamWaitEvent);
    (void)flags;
    NEEDS_CONTEXT;
    s = of_handle(s);
    VALID(s, STREAM);
    VALID(e, EVENT);
    merge(&s->clock, &e->clock);
    if (e->reached == e->recorded) return SUCCESS;
    Op *op = append(s, WAIT);
    op->event = e, op->number = e->recorded;
    return SUCCESS;
}

static Result cuEventCreate(Event **out, unsigned flags) {
    ENTER(cuEventCreate);
    NEEDS_CONTEXT;
    Event *e = calloc(1, sizeof *e);
    e->magic = EVENT;
    e->timed = !(flags & 2);
    e->device = current->index;
    live_events++;
    *out = e;
    return SUCCESS;
}

static Result cuEventDestroy(Event *e) {
    ENTER(cuEventDestroy);
    NEEDS_CONTEXT;
    VALID(e, EVENT);
    e->magic = DEAD;
    live_events--;
    return SUCCESS;
}

static Result cuEventRecord(Event *e, Stream *s) {
    ENTER(cuEventRecord);
    NEEDS_CONTEXT;
    s = of_handle(s);
    VALID(s, STREAM);
    VALID(e, EVENT);
    SAME_DEVICE(s, e);
    Op *op = append(s, RECORD);
    if (s->capture) return SUCCESS;
    op->event = e, op->number = ++e->recorded;
    e->clock = *op->known;
    return SUCCESS;
}

static Result cuEventQuery(Event *e) {
    ENTER(cuEventQuery);
    NEEDS_CONTEXT;
    VALID(e, EVENT);
    UNSAFE;
    if (e->reached < e->recorded) asked();
    if (!fault && e->reached == e->recorded) merge(&host, &e->clock);
    return fault ? fault : e->reached < e->recorded ? NOT_READY : SUCCESS;
}

static Result cuEventSynchronize(Event *e) {
    ENTER(cuEventSynchronize);
    NEEDS_CONTEXT;
    VALID(e, EVENT);
    UNSAFE;
    for (Stream *s = streams; s; s = s->next)
        for (Op *op = s->head; op; op = op->next)
            if (op->kind == RECORD && op->event == e && op->number == e->recorded) {
                Result r = run_until(s, op->serial);
                if (!r) merge(&host, &e->clock);
                return r;
            }
    merge(&host, &e->clock);
    return fault;
}

static Result cuEventElapsedTime(float *out, Event *begin, Event *end) {
    ENTER(cuEventElapsedTime);
    NEEDS_CONTEXT;
    VALID(begin, EVENT);
    VALID(end, EVENT);
    if (!begin->timed || !end->timed || !begin->recorded || !end->recorded) return INVALID_HANDLE;
    if (begin->reached < begin->recorded || end->reached < end->recorded) return NOT_READY;
    *out = (float)(end->time - begin->time);
    return SUCCESS;
}

/* -- modules: the parameters of a kernel are read from the cubin's own table -- */

/* A table is a row of entries: a byte of form, a byte of kind, then two bytes, which for form 4 are the length
   of what follows.  Kind 0x17 describes one parameter, 0x10 is the block that is required. */
static int read_parameters(Function *f, const unsigned char *p, const unsigned char *end) {
    while (end - p >= 4) {
        uint16_t length;
        memcpy(&length, p + 2, 2);
        const unsigned char *value = p + 4;
        if (p[0] != 4) length = 0;
        if (end - value < length) return 0;
        if (p[0] == 4 && p[1] == 0x17 && length >= 12) {
            uint16_t ordinal, offset;
            uint32_t flags;
            memcpy(&ordinal, value + 4, 2), memcpy(&offset, value + 6, 2), memcpy(&flags, value + 8, 4);
            int size = (int)(flags >> 18);
            if (ordinal >= MAX_PARAMETERS || offset + size > PARAMETER_BYTES) return 0;
            f->parameters[ordinal] = (Parameter){offset, size};
            if (ordinal >= f->count) f->count = ordinal + 1;
            if (offset + size > f->nbytes) f->nbytes = offset + size;
        }
        if (p[0] == 4 && p[1] == 0x10 && length >= 12) memcpy(f->block, value, 12);
        p = value + length;
    }
    return p == end;
}

/* The major version of the CUDA whose assembler made an image, from the note that says so. */
static int release_of(const unsigned char *text, size_t size) {
    const char *found = memmem(text, size, "release ", 8);
    return found ? atoi(found + 8) : 0;
}

/* Code runs on later devices of its major version, from 9.0 on (where Triton uses what one has) on none but its own. */
static int is_for_device(const Elf64_Ehdr *head) {
    int made_for = head->e_ident[EI_ABIVERSION] >= 8 ? head->e_flags >> 8 & 0xFF : head->e_flags & 0xFF;
    if (made_for / 10 != capability / 10) return 0;
    return made_for >= 90 ? made_for == capability : made_for <= capability;
}

static Result read_image(Module *m, const unsigned char *image) {
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)image;
    if (memcmp(image, ELFMAG, SELFMAG) || head->e_ident[EI_CLASS] != ELFCLASS64) return INVALID_IMAGE;
    if (head->e_machine != 190 || head->e_shentsize != sizeof(Elf64_Shdr)) return INVALID_IMAGE;
    if (!is_for_device(head)) return NO_BINARY_FOR_GPU;
    size_t size = head->e_shoff + (size_t)head->e_shnum * sizeof(Elf64_Shdr);  /* the call is told no length */
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(image + head->e_shoff);
    for (int i = 0; i < head->e_shnum; i++) {
        size_t end = sections[i].sh_type == SHT_NOBITS ? 0 : sections[i].sh_offset + sections[i].sh_size;
        if (end > size) size = end;
    }
    m->image = malloc(size);
    memcpy(m->image, image, size);
    for (int i = 0; i < head->e_shnum; i++) {
        const char *name = (const char *)image + sections[head->e_shstrndx].sh_offset + sections[i].sh_name;
        if (!strcmp(name, ".note.nv.tkinfo") &&
            release_of(image + sections[i].sh_offset, sections[i].sh_size) > version / 1000)
            return INVALID_IMAGE;
        if (strncmp(name, ".nv.info.", 9)) continue;
        Function *f = calloc(1, sizeof *f);
        f->magic = FUNCTION;
        f->device = current->index;
        snprintf(f->name, sizeof f->name, "%s", name + 9);
        f->next = m->functions;
        m->functions = f;
        const unsigned char *begin = image + sections[i].sh_offset;
        if (!read_parameters(f, begin, begin + sections[i].sh_size)) return INVALID_IMAGE;
    }
    return SUCCESS;
}

static Result load_module(Module **out, const void *image, Result (*read)(Module *, const unsigned char *)) {
    ENTER(cuModuleLoadData);
    NEEDS_CONTEXT;
    UNSAFE;
    Module *m = calloc(1, sizeof *m);
    m->magic = MODULE;
    Result r = read(m, image);
    if (r) return r;
    live_modules++;
    *out = m;
    return SUCCESS;
}

static Result cuModuleLoadData(Module **out, const void *image) { return load_module(out, image, read_image); }

static Result cuModuleUnload(Module *m) {
    ENTER(cuModuleUnload);
    NEEDS_CONTEXT;
    UNSAFE;
    VALID(m, MODULE);
    m->magic = DEAD;
    for (Function *f = m->functions; f; f = f->next) f->magic = DEAD;  /* found by a launch that is still to run */
    live_modules--;
    return SUCCESS;
}

static Result cuModuleGetFunction(Function **out, Module *m, const char *name) {
    ENTER(cuModuleGetFunction);
    NEEDS_CONTEXT;
    VALID(m, MODULE);
    for (Function *f = m->functions; f; f = f->next)
        if (!strcmp(f->name, name)) {
            *out = f;
            return SUCCESS;
        }
    return NOT_FOUND;
}

static Result cuFuncGetAttribute(int *out, int attribute, Function *f) {
    ENTER(cuFuncGetAttribute);
    NEEDS_CONTEXT;
    VALID(f, FUNCTION);
    *out = attribute == 0 ? 1024 : attribute == 8 ? f->opted_in : 0;
    return SUCCESS;
}

static Result cuFuncSetAttribute(Function *f, int attribute, int value) {
    ENTER(cuFuncSetAttribute);
    NEEDS_CONTEXT;
    VALID(f, FUNCTION);
    if (attribute == 8) {
        if (value < 0 || value > 232448) return INVALID_VALUE;
        f->opted_in = value;
    } else if (attribute == 14) {
        f->non_portable = value;
    } else {
        return INVALID_VALUE;
    }
    return SUCCESS;
}

static Result cuFuncLoad(Function *f) {
    ENTER(cuFuncLoad);
    NEEDS_CONTEXT;
    VALID(f, FUNCTION);
    UNSAFE;
    f->loaded = 1;
    return SUCCESS;
}

/* -- a captured stream's work is a graph; a launch of it puts a copy of it all into a stream -- */

static Result cuStreamBeginCapture(Stream *s, int mode) {
    ENTER(cuStreamBeginCapture);
    NEEDS_CONTEXT;
    VALID(s, STREAM);
    NOT_CAPTURED(s);
    s->capture = 1 + mode, s->broken = 0, s->capturing = pthread_self();
    return SUCCESS;
}

static Result cuStreamEndCapture(Stream *s, void **graph) {
    ENTER(cuStreamEndCapture);
    NEEDS_CONTEXT;
    VALID(s, STREAM);
    if (!s->capture) return INVALID_VALUE;
    *graph = NULL;
    s->capture = 0;
    Op *taken = s->taken;
    s->taken = s->last = NULL;
    if (s->broken) return drop(taken), CAPTURE_INVALIDATED;
    Graph *made = calloc(1, sizeof *made);
    made->magic = GRAPH, made->device = s->device, made->head = taken;
    *graph = made;
    return SUCCESS;
}

static Result cuGraphInstantiateWithFlags(Graph **out, Graph *graph, unsigned long long flags) {
    ENTER(cuGraphInstantiateWithFlags);
    NEEDS_CONTEXT;
    VALID(graph, GRAPH);
    UNSAFE;
    if (flags) return INVALID_VALUE;
    Graph *made = calloc(1, sizeof *made);
    made->magic = EXEC, made->device = graph->device, made->head = copies_of(graph->head);
    *out = made;
    return SUCCESS;
}

static Result cuGraphLaunch(Graph *exec, Stream *s) {
    ENTER(cuGraphLaunch);
    NEEDS_CONTEXT;
    VALID(exec, EXEC);
    VALID(s, STREAM);
    SAME_DEVICE(exec, s);
    for (Op *op = exec->head; op; op = op->next) {
        Op *made = append_this(s, copy_of(op));
        made->launch.stream = (unsigned long long)s->number;
    }
    return SUCCESS;
}

static Result destroyed(Graph *graph, int kind) {
    NEEDS_CONTEXT;
    VALID(graph, kind);
    graph->magic = DEAD;
    drop(graph->head);
    graph->head = NULL;
    return SUCCESS;
}

static Result cuGraphDestroy(Graph *graph) {
    ENTER(cuGraphDestroy);
    return destroyed(graph, GRAPH);
}

static Result cuGraphExecDestroy(Graph *exec) {
    ENTER(cuGraphExecDestroy);
    return destroyed(exec, EXEC);
}

static Result cuStreamIsCapturing(Stream *s, int *status) {
    ENTER(cuStreamIsCapturing);
    NEEDS_CONTEXT;
    VALID(s, STREAM);
    *status = !s->capture ? 0 : s->broken ? 2 : 1;
    return SUCCESS;
}

static Result cuFuncSetCacheConfig(Function *f, int config) {
    ENTER(cuFuncSetCacheConfig);
    (void)config;
    NEEDS_CONTEXT;
    VALID(f, FUNCTION);
    return SUCCESS;
}

typedef struct {  /* CUlaunchAttribute */
    int id, padding;
    unsigned value[16];
} Attribute;

typedef struct {  /* CUlaunchConfig */
    unsigned grid[3], block[3], shared;
    Stream *stream;
    Attribute *attributes;
    unsigned count;
} Config;

static Result launch(const Config *c, Function *f, void **parameters) {
    VALID(c->stream, STREAM);
    VALID(f, FUNCTION);
    SAME_DEVICE(c->stream, f);
    if (!f->loaded) {  /* lazily, at its first launch */
        UNSAFE;
        if (!running) drain();
        f->loaded = 1;
    }
    unsigned cluster = 1;
    for (unsigned i = 0; i < c->count; i++)
        if (c->attributes[i].id == 4) cluster = c->attributes[i].value[0];
    for (int i = 0; i < 3; i++)
        if (!c->grid[i] || !c->block[i] || c->grid[i] > (i ? 65535u : 0x7FFFFFFFu)) return INVALID_VALUE;
    if ((size_t)c->block[0] * c->block[1] * c->block[2] > 1024 || c->grid[0] % cluster) return INVALID_VALUE;
    if (f->block[0] && memcmp(f->block, c->block, sizeof f->block)) return INVALID_VALUE;
    if (cluster > (f->non_portable ? 16u : 8u)) return INVALID_VALUE;
    if (c->shared > (unsigned)(f->opted_in ? f->opted_in : 48 << 10)) return INVALID_VALUE;
    Op *op = append(c->stream, LAUNCH);
    op->function = f;
    op->snapshot = calloc(1, (size_t)f->nbytes + 1);
    for (int i = 0; i < f->count; i++)
        memcpy(op->snapshot + f->parameters[i].offset, parameters[i], (size_t)f->parameters[i].size);
    op->launch = (Launch){.name = f->name, .shared = c->shared, .cluster = cluster, .bytes = op->snapshot};
    op->launch.nbytes = f->nbytes;
    op->launch.stream = (unsigned long long)c->stream->number;
    memcpy(op->launch.grid, c->grid, sizeof c->grid);
    memcpy(op->launch.block, c->block, sizeof c->block);
    return SUCCESS;
}

static Result cuLaunchKernelEx(const Config *c, Function *f, void **parameters, void **extra) {
    ENTER(cuLaunchKernelEx);
    (void)extra;
    NEEDS_CONTEXT;
    return launch(c, f, parameters);
}

static Result cuLaunchKernel(Function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                             unsigned bz, unsigned shared, Stream *s, void **parameters, void **extra) {
    ENTER(cuLaunchKernel);
    (void)extra;
    NEEDS_CONTEXT;
    Config c = {{gx, gy, gz}, {bx, by, bz}, shared, s, NULL, 0};
    return launch(&c, f, parameters);
}

/* ---- how the functions are found: the only names that the library shows, and the tests' own --------------- */

#define PUBLIC __attribute__((visibility("default")))
#define PLACE(f) (void *)f,

PUBLIC Result cuGetProcAddress_v2(const char *name, void **out, int wanted, unsigned long long flags, int *status) {
    static void *const places[] = {FUNCTIONS(PLACE)};
    (void)wanted, (void)flags;
    *out = NULL;
    if (!strcmp(name, "cuGetProcAddress")) *out = (void *)cuGetProcAddress_v2;
    for (int i = 0; i < CALLS && !*out; i++)
        if (!strcmp(name, names[i])) *out = places[i];
    if (status) *status = *out ? 0 : 1;
    return *out ? SUCCESS : NOT_FOUND;
}

static int call_named(const char *name) {
    for (int i = 0; i < CALLS; i++)
        if (!strcmp(name, names[i])) return i;
    fprintf(stderr, "fake CUDA: there is no function %s\n", name);
    abort();
}

#define LOCKED \
    pthread_mutex_lock(&lock); \
    __attribute__((cleanup(unlock))) int held_ = 0; \
    (void)held_

PUBLIC void fake_callback(Callback c) { callback = c; }

PUBLIC void fake_seed(unsigned long long s) {
    LOCKED;
    sow(s);
}

PUBLIC void fake_fail(const char *name, long nth, Result result) {  /* the nth call from now, counting from 1 */
    LOCKED;
    int call = call_named(name);
    fail_at[call] = called[call] + nth;
    fail_with[call] = result;
}

PUBLIC void fake_align(const char *name, const int *bytes, int count) {
    LOCKED;
    Alignment *a = alignment_of(name);
    if (!a) {
        a = calloc(1, sizeof *a);
        a->next = alignments, alignments = a;
        snprintf(a->name, sizeof a->name, "%s", name);
    }
    a->count = count < MAX_PARAMETERS ? count : MAX_PARAMETERS;
    for (int i = 0; i < a->count; i++) a->bytes[i] = bytes[i] > 1 ? bytes[i] : 1;
}

/* The host's memory there was given back.  It may be another array's by now, whose ops come after `last`. */
PUBLIC void fake_gone(Address start, size_t size, long last) {
    LOCKED;
    for (Stream *s = streams; s; s = s->next)
        for (Op *op = s->head; op; op = op->next) {
            Address host = op->kind == COPY_IN ? op->source : op->kind == COPY_OUT ? op->target : 0;
            if (op->serial > last || op->width) continue;
            if (host && host < start + size && start < host + op->size) op->gone = 1;
        }
}

PUBLIC long fake_calls(const char *name) {
    LOCKED;
    return called[call_named(name)];
}

PUBLIC void fake_live(long out[6]) {
    LOCKED;
    long held = 0;
    for (int i = 0; i < devices; i++) held += contexts[i].retained;
    long counts[6] = {live_device, live_host, live_streams, live_events, live_modules, held};
    memcpy(out, counts, sizeof counts);
}

/* Says what is still alive when the process ends, if the test asked for it. */
__attribute__((destructor)) static void at_exit(void) {
    if (setting("FAKE_CUDA_AT_EXIT", 0) && owner == getpid())
        fprintf(stderr, "alive: %ld streams, %ld events, %ld modules\n", live_streams, live_events, live_modules);
}

/* What a kernel that runs now reads or writes: elements of that size at these addresses. */
PUBLIC void fake_touched(const Address *at, long count, int size, int writes) {
    LOCKED;
    for (long i = 0; i < count && current_op; i++)
        if (touched(current_op, at[i], (size_t)size, writes)) return;
}

PUBLIC void fake_forgive(int yes) { forgiving = yes; }  /* count what has no order, and go on */

PUBLIC long fake_races(char *first) {  /* how many there were; room for 256 bytes of text */
    LOCKED;
    memcpy(first, race, sizeof race);
    return races;
}

/* Run what several streams have left, so that what nothing orders is seen. */
PUBLIC void fake_finish(void) {
    LOCKED;
    if (streams && streams->next && !fault) drain();
}

PUBLIC long fake_pending(void) {
    LOCKED;
    long n = 0;
    for (Stream *s = streams; s; s = s->next)
        for (Op *op = s->head; op; op = op->next) n++;
    return n;
}

PUBLIC unsigned long long fake_stream(const void *handle) {  /* its number, as launches tell it */
    LOCKED;
    for (Stream *s = streams; s; s = s->next)
        if (s == handle) return (unsigned long long)s->number;
    return 0;
}

PUBLIC int fake_is_device(Address start, size_t size) {
    LOCKED;
    return is_inside(device_blocks, start, size);
}

PUBLIC long fake_blocks(Address *out, long room) {  /* start and size of each live block of device memory */
    LOCKED;
    long n = 0;
    for (Block *b = device_blocks; b; b = b->next, n++)
        if (n < room) out[2 * n] = b->start, out[2 * n + 1] = b->size;
    return n;
}

PUBLIC void fake_peek(void *out, Address start, size_t size) { memcpy(out, (void *)start, size); }

/* ---- libraries over the driver: what they put into a stream runs in its turn, as a launch does (fake_solver.c) -- */

PUBLIC int fake_current(void) { return current ? current->index : -1; }

PUBLIC int fake_is_on(int device, Address start, size_t size) {
    LOCKED;
    return is_on(device, start, size);
}

/* A call with those values, of which none is a launch's; refused in a capture, since libraries may allocate and wait. */
PUBLIC Result fake_library(Stream *s, const char *name, const Address *values, int count) {
    static Function *called_functions;
    LOCKED;
    NEEDS_CONTEXT;
    VALID(s, STREAM);
    if (s->device != current->index) return INVALID_HANDLE;
    UNSAFE;
    Function *f = called_functions;
    while (f && strcmp(f->name, name)) f = f->next;
    if (!f) {
        f = calloc(1, sizeof *f);
        f->next = called_functions, called_functions = f;
        f->magic = FUNCTION, f->device = s->device, f->loaded = 1, f->count = count, f->nbytes = 8 * count;
        snprintf(f->name, sizeof f->name, "%s", name);
        for (int i = 0; i < count; i++) f->parameters[i] = (Parameter){8 * i, 8};
    }
    Op *op = append(s, LAUNCH);
    op->function = f;
    op->snapshot = calloc(1, (size_t)f->nbytes + 1);
    memcpy(op->snapshot, values, (size_t)f->nbytes);
    op->launch = (Launch){.name = f->name, .bytes = op->snapshot, .nbytes = f->nbytes};
    op->launch.stream = (unsigned long long)s->number;
    return SUCCESS;
}
