/* The fake driver by HIP's names: libamdhip64.so as far as Lamina asks for it.

   What a device does is fake_cuda.c's, and calls are counted and made to fail by CUDA's names.  Told apart is
   what AMD documents otherwise: every thread has a device from the start, a stream that is destroyed loses what
   is not done, no dimension of a launch has 2^32 threads or more, a block's memory takes no asking, and kernels
   are described by a code object's metadata.  Of what a kernel's memory fault does to a process (the real
   library ends it) nothing is shown: it is an error here. */

#define VERSION 60342134
#define LIBRARY "HIP"
#include "fake_cuda.c"

enum { INVALID_CONFIGURATION = 9, INVALID_DEVICE_POINTER = 17, NO_BINARY = 209, LDS = 64 << 10 };

/* Every call but the first ones: a thread that chose no device is on the first. */
static void on_a_device(void) {
    if (!current && initialised) current = &contexts[0];
}

#define SAME(name, parameters, call) \
    PUBLIC Result name parameters { \
        on_a_device(); \
        return call; \
    }

SAME(hipInit, (unsigned flags), cuInit(flags))
SAME(hipDriverGetVersion, (int *out), cuDriverGetVersion(out))
SAME(hipGetDeviceCount, (int *out), cuDeviceGetCount(out))
SAME(hipDeviceGet, (int *out, int ordinal), cuDeviceGet(out, ordinal))
SAME(hipDeviceGetName, (char *out, int size, int device), cuDeviceGetName(out, size, device))
SAME(hipDeviceTotalMem, (size_t *out, int device), cuDeviceTotalMem(out, device))
SAME(hipDeviceSynchronize, (void), cuCtxSynchronize())
SAME(hipMemGetInfo, (size_t *unused, size_t *total), cuMemGetInfo(unused, total))
SAME(hipHostFree, (void *start), cuMemFreeHost(start))
SAME(hipMemcpyHtoDAsync, (Address to, const void *from, size_t size, Stream *s), cuMemcpyHtoDAsync(to, from, size, s))
SAME(hipMemcpyDtoHAsync, (void *to, Address from, size_t size, Stream *s), cuMemcpyDtoHAsync(to, from, size, s))
SAME(hipMemcpyDtoDAsync, (Address to, Address from, size_t size, Stream *s), cuMemcpyDtoDAsync(to, from, size, s))
SAME(hipMemsetD8Async, (Address to, unsigned char word, size_t count, Stream *s), cuMemsetD8Async(to, word, count, s))
SAME(hipMemsetD16Async, (Address to, unsigned short word, size_t count, Stream *s), cuMemsetD16Async(to, word, count, s))
SAME(hipMemsetD32Async, (Address to, int word, size_t count, Stream *s), cuMemsetD32Async(to, (unsigned)word, count, s))
SAME(hipStreamCreateWithFlags, (Stream **out, unsigned flags), cuStreamCreate(out, flags))
SAME(hipStreamSynchronize, (Stream *s), cuStreamSynchronize(s))
SAME(hipStreamQuery, (Stream *s), cuStreamQuery(s))
SAME(hipPointerGetAttribute, (void *out, unsigned attribute, Address address), cuPointerGetAttribute(out, (int)attribute, address))
SAME(hipStreamWaitEvent, (Stream *s, Event *e, unsigned flags), cuStreamWaitEvent(s, e, flags))
SAME(hipEventCreateWithFlags, (Event **out, unsigned flags), cuEventCreate(out, flags))
SAME(hipEventDestroy, (Event *e), cuEventDestroy(e))
SAME(hipEventRecord, (Event *e, Stream *s), cuEventRecord(e, s))
SAME(hipEventQuery, (Event *e), cuEventQuery(e))
SAME(hipEventSynchronize, (Event *e), cuEventSynchronize(e))
SAME(hipEventElapsedTime, (float *out, Event *begin, Event *end), cuEventElapsedTime(out, begin, end))
SAME(hipModuleUnload, (Module *m), cuModuleUnload(m))
SAME(hipModuleGetFunction, (Function **out, Module *m, const char *name), cuModuleGetFunction(out, m, name))
SAME(hipStreamBeginCapture, (Stream *s, int mode), cuStreamBeginCapture(s, mode))
SAME(hipStreamEndCapture, (Stream *s, void **graph), cuStreamEndCapture(s, graph))
SAME(hipGraphInstantiateWithFlags, (Graph **out, Graph *graph, unsigned long long flags), cuGraphInstantiateWithFlags(out, graph, flags))
SAME(hipGraphLaunch, (Graph *exec, Stream *s), cuGraphLaunch(exec, s))
SAME(hipGraphDestroy, (Graph *graph), cuGraphDestroy(graph))
SAME(hipGraphExecDestroy, (Graph *exec), cuGraphExecDestroy(exec))

static const char *architecture(void) {
    const char *text = getenv("FAKE_CUDA_ARCHITECTURE");
    return text ? text : "gfx942";
}

/* Of gfx942 the ninth generation and 4, of gfx1100 the eleventh and 0: the last two digits are one each. */
static int generation(int minor) {
    const char *text = architecture() + 3, *last = text + strlen(text) - 2;
    int major = 0;
    while (text < last) major = 10 * major + (*text++ - '0');
    return minor ? *last - '0' : major;
}

static int lanes(void) { return generation(0) == 9 ? 64 : 32; }

PUBLIC Result hipDeviceGetAttribute(int *out, int attribute, int device) {
    Result r = cuDeviceGetAttribute(out, 0, device);
    switch (attribute) {
    case 23: *out = generation(0); break;
    case 61: *out = generation(1); break;
    case 63: *out = 4; break;    /* multiprocessors */
    case 74: *out = LDS; break;
    case 87: *out = lanes(); break;
    }
    return r;
}

PUBLIC Result hipGetDevicePropertiesR0600(unsigned char *out, int device) {  /* of them the name of the architecture */
    if (device < 0 || device >= devices) return INVALID_DEVICE;
    memset(out, 0, 1472);
    snprintf((char *)out + 1160, 256, "%s:sramecc+:xnack-", architecture());
    return SUCCESS;
}

PUBLIC Result hipGetDevice(int *out) {
    on_a_device();
    Context *found = NULL;
    Result r = cuCtxGetCurrent(&found);
    *out = found ? found->index : 0;
    return r;
}

PUBLIC Result hipSetDevice(int device) {
    if (device < 0 || device >= devices) return INVALID_DEVICE;
    return cuCtxSetCurrent(&contexts[device]);
}

PUBLIC Result hipMalloc(void **out, size_t size) {
    on_a_device();
    *out = NULL;
    return size ? cuMemAlloc((Address *)out, size) : SUCCESS;
}

PUBLIC Result hipFree(void *start) {
    on_a_device();
    Result r = cuMemFree((Address)start);
    return r == INVALID_VALUE ? INVALID_DEVICE_POINTER : r;
}

PUBLIC Result hipHostMalloc(void **out, size_t size, unsigned flags) {
    on_a_device();
    return flags == 1 ? cuMemHostAlloc(out, size, flags) : INVALID_VALUE;
}

/* "The queue may be destroyed while some commands are still inflight": the worst is that they are lost. */
PUBLIC Result hipStreamDestroy(Stream *s) {
    on_a_device();
    Result r = cuStreamDestroy(s);
    if (r) return r;
    pthread_mutex_lock(&lock);
    if (s->head) fprintf(stderr, "fake HIP: a stream was destroyed before its work was done\n");
    drop(s->head);
    s->head = s->tail = NULL;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

/* -- code objects: what a note says of kernels, in MessagePack -- */

typedef struct {
    const unsigned char *at, *end;
} Bytes;

static int big(Bytes *b, int size, unsigned long long *out) {
    if (b->end - b->at < size) return 0;
    for (*out = 0; size--; b->at++) *out = *out << 8 | *b->at;
    return 1;
}

/* The head of the next value: 'i' a number, 's' a text (which is skipped, and begins at `text`), 'm' and 'l' a map
   and a list, whose count it is; 'n' nothing, or a truth; 0 for what is none of that. */
static int head_of(Bytes *b, unsigned long long *number, const char **text) {
    if (b->at >= b->end) return 0;
    unsigned char first = *b->at++;
    int kind = 's', sized = 1;
    *number = first;
    if (first < 0x80 || first >= 0xE0) return 'i';
    if (first < 0x90) return *number = first & 15, 'm';
    if (first < 0xA0) return *number = first & 15, 'l';
    if (first < 0xC0) *number = first & 31;
    else if (first == 0xC0 || first == 0xC2 || first == 0xC3) return 'n';
    else if (first >= 0xCC && first <= 0xD3) return big(b, 1 << (first & 3), number) ? 'i' : 0;
    else if (first >= 0xD9 && first <= 0xDB) sized = big(b, 1 << (first - 0xD9), number);
    else if (first >= 0xDC && first <= 0xDF) return big(b, first & 1 ? 4 : 2, number) ? first < 0xDE ? 'l' : 'm' : 0;
    else return 0;
    if (!sized || (unsigned long long)(b->end - b->at) < *number) return 0;
    *text = (const char *)b->at;
    b->at += *number;
    return kind;
}

static int skip(Bytes *b) {
    unsigned long long count;
    const char *text;
    int kind = head_of(b, &count, &text);
    if (kind == 'm') count *= 2;
    if (kind == 'm' || kind == 'l')
        while (count--)
            if (!skip(b)) return 0;
    return kind;
}

/* The value of a name in a map, or nothing that can be read. */
static Bytes under(Bytes map, const char *name) {
    unsigned long long count, length;
    const char *text = NULL;
    if (head_of(&map, &count, &text) == 'm')
        while (count--) {
            if (head_of(&map, &length, &text) == 's' && length == strlen(name) && !memcmp(text, name, length)) return map;
            if (!skip(&map)) break;
        }
    return (Bytes){NULL, NULL};
}

static long number_under(Bytes map, const char *name) {
    Bytes found = under(map, name);
    unsigned long long number;
    const char *text;
    return head_of(&found, &number, &text) == 'i' ? (long)number : -1;
}

static int read_kernel(Module *m, Bytes kernel) {
    Function *f = calloc(1, sizeof *f);
    Bytes name = under(kernel, ".name"), arguments = under(kernel, ".args");
    unsigned long long length, count = 0;
    const char *text;
    if (head_of(&name, &length, &text) != 's' || length >= sizeof f->name) return 0;
    memcpy(f->name, text, length);
    f->magic = FUNCTION, f->device = current->index, f->loaded = 1;
    f->opted_in = LDS - (int)number_under(kernel, ".group_segment_fixed_size");
    f->threads = (int)number_under(kernel, ".max_flat_workgroup_size");
    f->next = m->functions, m->functions = f;
    if (number_under(kernel, ".wavefront_size") != lanes()) return 0;
    if (arguments.at && head_of(&arguments, &count, &text) != 'l') return 0;
    for (; count--; skip(&arguments)) {
        Bytes kind = under(arguments, ".value_kind");
        long offset = number_under(arguments, ".offset"), size = number_under(arguments, ".size");
        if (head_of(&kind, &length, &text) != 's' || offset < 0 || size < 0 || offset + size > PARAMETER_BYTES) return 0;
        if (length > 7 && !memcmp(text, "hidden_", 7)) continue;
        if (f->count == MAX_PARAMETERS) return 0;
        f->parameters[f->count++] = (Parameter){(int)offset, (int)size};
        if (offset + size > f->nbytes) f->nbytes = (int)(offset + size);
    }
    return 1;
}

static int is_for_this_device(const Elf64_Ehdr *head) {
    static const struct { unsigned number; const char *name; } gpus[] = {
        {0x3F, "gfx90a"}, {0x41, "gfx1100"}, {0x4C, "gfx942"}, {0x4F, "gfx950"},
    };
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++)
        if (gpus[i].number == (head->e_flags & 0xFF)) return !strcmp(gpus[i].name, architecture());
    return 0;
}

static Result read_code_object(Module *m, const unsigned char *image) {
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)image;
    if (memcmp(image, ELFMAG, SELFMAG) || head->e_ident[EI_CLASS] != ELFCLASS64 || head->e_machine != 224) return INVALID_IMAGE;
    if (!is_for_this_device(head)) return NO_BINARY;
    for (int i = 0; i < head->e_phnum; i++) {
        const Elf64_Phdr *segment = (const Elf64_Phdr *)(image + head->e_phoff) + i;
        if (segment->p_type != PT_NOTE) continue;
        const unsigned char *at = image + segment->p_offset, *end = at + segment->p_filesz;
        while (end - at >= (long)sizeof(Elf64_Nhdr)) {
            const Elf64_Nhdr *note = (const Elf64_Nhdr *)at;
            const unsigned char *content = at + sizeof *note + (note->n_namesz + 3) / 4 * 4;
            at = content + (note->n_descsz + 3) / 4 * 4;
            if (note->n_type != 32 || memcmp(note + 1, "AMDGPU", 7)) continue;
            Bytes kernels = under((Bytes){content, content + note->n_descsz}, "amdhsa.kernels");
            unsigned long long count;
            const char *text;
            if (head_of(&kernels, &count, &text) != 'l') return INVALID_IMAGE;
            for (; count--; skip(&kernels))
                if (!read_kernel(m, kernels)) return INVALID_IMAGE;
            return SUCCESS;
        }
    }
    return INVALID_IMAGE;
}

PUBLIC Result hipModuleLoadData(Module **out, const void *image) {
    on_a_device();
    return load_module(out, image, read_code_object);
}

PUBLIC Result hipModuleLaunchKernel(Function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                    unsigned bz, unsigned shared, Stream *s, void **parameters, void **extra) {
    on_a_device();
    unsigned long long threads = (unsigned long long)bx * by * bz;
    if ((unsigned long long)gx * bx >> 32 || (unsigned long long)gy * by >> 32 || (unsigned long long)gz * bz >> 32)
        return INVALID_CONFIGURATION;
    if (f && f->magic == FUNCTION && threads > (unsigned long long)f->threads) return INVALID_CONFIGURATION;
    return cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, s, parameters, extra);
}

/* -- errors: most have CUDA's numbers -- */

static const struct {
    Result code;
    const char *name, *text;
} hip_errors[] = {
    {SUCCESS, "hipSuccess", "no error"},
    {INVALID_VALUE, "hipErrorInvalidValue", "invalid argument"},
    {OUT_OF_MEMORY, "hipErrorOutOfMemory", "out of memory"},
    {NOT_INITIALIZED, "hipErrorNotInitialized", "initialization error"},
    {INVALID_CONFIGURATION, "hipErrorInvalidConfiguration", "invalid configuration argument"},
    {INVALID_DEVICE_POINTER, "hipErrorInvalidDevicePointer", "invalid device pointer"},
    {NO_DEVICE, "hipErrorNoDevice", "no ROCm-capable device is detected"},
    {INVALID_DEVICE, "hipErrorInvalidDevice", "invalid device ordinal"},
    {INVALID_IMAGE, "hipErrorInvalidImage", "device kernel image is invalid"},
    {INVALID_CONTEXT, "hipErrorInvalidContext", "invalid device context"},
    {NO_BINARY, "hipErrorNoBinaryForGpu", "no kernel image is available for execution on the device"},
    {ECC_UNCORRECTABLE, "hipErrorECCNotCorrectable", "uncorrectable ECC error encountered"},
    {INVALID_HANDLE, "hipErrorInvalidHandle", "invalid resource handle"},
    {NOT_FOUND, "hipErrorNotFound", "named symbol not found"},
    {NOT_READY, "hipErrorNotReady", "device not ready"},
    {ILLEGAL_ADDRESS, "hipErrorIllegalAddress", "an illegal memory access was encountered"},
    {LAUNCH_TIMEOUT, "hipErrorLaunchTimeOut", "the launch timed out and was terminated"},
    {CONTEXT_IS_DESTROYED, "hipErrorContextIsDestroyed", "context is destroyed"},
    {ASSERT, "hipErrorAssert", "device-side assert triggered"},
    {LAUNCH_FAILED, "hipErrorLaunchFailure", "unspecified launch failure"},
    {CAPTURE_UNSUPPORTED, "hipErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {CAPTURE_INVALIDATED, "hipErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"},
};

static const char *hip_text(Result code, int name) {
    for (size_t i = 0; i < sizeof hip_errors / sizeof *hip_errors; i++)
        if (hip_errors[i].code == code) return name ? hip_errors[i].name : hip_errors[i].text;
    return name ? "hipErrorUnknown" : "unknown error";
}

PUBLIC const char *hipGetErrorName(Result code) { return hip_text(code, 1); }

PUBLIC const char *hipGetErrorString(Result code) { return hip_text(code, 0); }
