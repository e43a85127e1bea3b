/* NVIDIA's cuSOLVER and cuBLAS without a GPU, as far as Lamina calls them: libcusolver.so and libcublas.so for tests.

   A call is checked as the documentation lets the real libraries do: a handle of theirs, sizes and leading dimensions,
   pointers that are none, too small a workspace.  Refused is also what they would not see, and a device punish later:
   a handle's device that is not current, no stream, memory that is not its device's.  What is left is put into
   the stream of the fake driver (fake_cuda.c), which calls the tests when its turn comes: they compute it by LAPACK
   (fake_solver.py), and look at how far each array reaches.

   That these are the real functions' parameters is compared with NVIDIA's header, where that is installed. */

#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>

#define PUBLIC __attribute__((visibility("default")))
#define HANDLE 0x50175
#define MOST 24

typedef unsigned long long Address;
typedef struct {
    int magic, device;
    void *stream;
} Handle;

static int (*current_device)(void);
static int (*is_on)(int, Address, size_t);
static int (*queue)(void *, const char *, const Address *, int);

static int find_driver(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return 0;
    current_device = (int (*)(void))dlsym(driver, "fake_current");
    is_on = (int (*)(int, Address, size_t))dlsym(driver, "fake_is_on");
    queue = (int (*)(void *, const char *, const Address *, int))dlsym(driver, "fake_library");
    return current_device && is_on && queue;
}

enum { SUCCESS, NOT_INITIALIZED, SOLVER_INVALID = 3, SOLVER_FAILED = 6, BLAS_INVALID = 7, BLAS_FAILED = 13 };

static int create(Handle **out) {
    if (!find_driver() || current_device() < 0) return NOT_INITIALIZED;
    *out = calloc(1, sizeof **out);
    (*out)->magic = HANDLE, (*out)->device = current_device();
    return SUCCESS;
}

static int set_stream(Handle *h, void *stream, int invalid) {
    if (!h || h->magic != HANDLE) return NOT_INITIALIZED;
    if (h->device != current_device()) return invalid;
    h->stream = stream;
    return SUCCESS;
}

PUBLIC int cusolverDnCreate(Handle **out) { return create(out); }
PUBLIC int cusolverDnSetStream(Handle *h, void *stream) { return set_stream(h, stream, SOLVER_INVALID); }
PUBLIC int cublasCreate_v2(Handle **out) { return create(out); }
PUBLIC int cublasSetStream_v2(Handle *h, void *stream) { return set_stream(h, stream, BLAS_INVALID); }

/* ---- what is refused -- */
#define KNOWN(h) \
    if (!(h) || (h)->magic != HANDLE) return NOT_INITIALIZED; \
    if ((h)->device != current_device() || !(h)->stream) return SOLVER_INVALID

#define LEAST(n) ((n) > 1 ? (n) : 1)
#define NEEDS(condition) \
    if (!(condition)) return SOLVER_INVALID
#define THERE(p) NEEDS(is_on(h->device, (Address)(p), 1))

/* What the real sizes are is not documented; these are none that a program would guess. */
static int room_potrf(int n) { return 3 * n + 7; }
static int room_getrf(int m, int n) { return m + 2 * n + 5; }
static int room_geqrf(int m, int n) { return 32 * n + m; }
static int room_orgqr(int m, int n, int k) { return 16 * n + m + k; }
static int room_syevd(int n) { return 2 * n * n + 9; }
static int room_gesvd(int m, int n) { return 5 * m + n + 11; }

static int run(Handle *h, const char *name, const Address *values, int count) {
    return queue(h->stream, name, values, count) ? SOLVER_FAILED : SUCCESS;
}

#define COUNT(...) (int)(sizeof((Address[]){__VA_ARGS__}) / sizeof(Address))
#define RUN(name, ...) return run(h, name, (Address[]){__VA_ARGS__}, COUNT(__VA_ARGS__))
#define BLAS_KNOWN(h) \
    if (!(h) || (h)->magic != HANDLE) return NOT_INITIALIZED; \
    if ((h)->device != current_device() || !(h)->stream) return BLAS_INVALID
#define OFF(p) (!is_on(h->device, (Address)(p), 1))
#define BLAS_RUN(name, ...) return run(h, name, (Address[]){__VA_ARGS__}, COUNT(__VA_ARGS__)) ? BLAS_FAILED : SUCCESS
#define A(p) (Address)(p)
#define I(n) (Address)(long long)(n)

#define OF_TYPE(T, ORGQR, SYEVD) \
    PUBLIC int cusolverDn##T##potrf_bufferSize(Handle *h, int uplo, int n, void *a, int lda, int *out) { \
        KNOWN(h); \
        NEEDS((uplo == 0 || uplo == 1) && n >= 0 && lda >= LEAST(n) && out); \
        THERE(a); \
        *out = room_potrf(n); \
        return SUCCESS; \
    } \
    PUBLIC int cusolverDn##T##potrf(Handle *h, int uplo, int n, void *a, int lda, void *work, int room, int *info) { \
        KNOWN(h); \
        NEEDS((uplo == 0 || uplo == 1) && n >= 0 && lda >= LEAST(n) && room >= room_potrf(n)); \
        THERE(a); THERE(work); THERE(info); \
        RUN(#T "potrf", I(uplo), I(n), A(a), I(lda), A(work), I(room_potrf(n)), A(info)); \
    } \
    PUBLIC int cusolverDn##T##getrf_bufferSize(Handle *h, int m, int n, void *a, int lda, int *out) { \
        KNOWN(h); \
        NEEDS(m >= 0 && n >= 0 && lda >= LEAST(m) && out); \
        THERE(a); \
        *out = room_getrf(m, n); \
        return SUCCESS; \
    } \
    PUBLIC int cusolverDn##T##getrf(Handle *h, int m, int n, void *a, int lda, void *work, int *pivots, int *info) { \
        KNOWN(h); \
        NEEDS(m >= 0 && n >= 0 && lda >= LEAST(m)); \
        THERE(a); THERE(work); THERE(info); THERE(pivots); \
        RUN(#T "getrf", I(m), I(n), A(a), I(lda), A(work), I(room_getrf(m, n)), A(pivots), A(info)); \
    } \
    PUBLIC int cusolverDn##T##getrs(Handle *h, int how, int n, int k, const void *a, int lda, const int *pivots, \
                                    void *b, int ldb, int *info) { \
        KNOWN(h); \
        NEEDS(how >= 0 && how <= 2 && n >= 0 && k >= 0 && lda >= LEAST(n) && ldb >= LEAST(n)); \
        THERE(a); THERE(b); THERE(info); THERE(pivots); \
        RUN(#T "getrs", I(how), I(n), I(k), A(a), I(lda), A(pivots), A(b), I(ldb), A(info)); \
    } \
    PUBLIC int cusolverDn##T##geqrf_bufferSize(Handle *h, int m, int n, void *a, int lda, int *out) { \
        KNOWN(h); \
        NEEDS(m >= 0 && n >= 0 && lda >= LEAST(m) && out); \
        THERE(a); \
        *out = room_geqrf(m, n); \
        return SUCCESS; \
    } \
    PUBLIC int cusolverDn##T##geqrf(Handle *h, int m, int n, void *a, int lda, void *tau, void *work, int room, \
                                    int *info) { \
        KNOWN(h); \
        NEEDS(m >= 0 && n >= 0 && lda >= LEAST(m) && room >= room_geqrf(m, n)); \
        THERE(a); THERE(tau); THERE(work); THERE(info); \
        RUN(#T "geqrf", I(m), I(n), A(a), I(lda), A(tau), A(work), I(room_geqrf(m, n)), A(info)); \
    } \
    PUBLIC int cusolverDn##T##ORGQR##_bufferSize(Handle *h, int m, int n, int k, const void *a, int lda, \
                                                 const void *tau, int *out) { \
        KNOWN(h); \
        NEEDS(m >= n && n >= k && k >= 0 && lda >= LEAST(m) && out); \
        THERE(a); THERE(tau); \
        *out = room_orgqr(m, n, k); \
        return SUCCESS; \
    } \
    PUBLIC int cusolverDn##T##ORGQR(Handle *h, int m, int n, int k, void *a, int lda, const void *tau, void *work, \
                                    int room, int *info) { \
        KNOWN(h); \
        NEEDS(m >= n && n >= k && k >= 0 && lda >= LEAST(m) && room >= room_orgqr(m, n, k)); \
        THERE(a); THERE(tau); THERE(work); THERE(info); \
        RUN(#T "orgqr", I(m), I(n), I(k), A(a), I(lda), A(tau), A(work), I(room_orgqr(m, n, k)), A(info)); \
    } \
    PUBLIC int cusolverDn##T##SYEVD##_bufferSize(Handle *h, int job, int uplo, int n, const void *a, int lda, \
                                                 const void *w, int *out) { \
        KNOWN(h); \
        NEEDS(job == 1 && (uplo == 0 || uplo == 1) && n >= 0 && lda >= LEAST(n) && out); \
        THERE(a); THERE(w); \
        *out = room_syevd(n); \
        return SUCCESS; \
    } \
    PUBLIC int cusolverDn##T##SYEVD(Handle *h, int job, int uplo, int n, void *a, int lda, void *w, void *work, \
                                    int room, int *info) { \
        KNOWN(h); \
        NEEDS(job == 1 && (uplo == 0 || uplo == 1) && n >= 0 && lda >= LEAST(n) && room >= room_syevd(n)); \
        THERE(a); THERE(w); THERE(work); THERE(info); \
        RUN(#T "syevd", I(uplo), I(n), A(a), I(lda), A(w), A(work), I(room_syevd(n)), A(info)); \
    } \
    PUBLIC int cusolverDn##T##gesvd_bufferSize(Handle *h, int m, int n, int *out) { \
        KNOWN(h); \
        NEEDS(m >= n && n >= 0 && out); \
        *out = room_gesvd(m, n); \
        return SUCCESS; \
    } \
    PUBLIC int cusolverDn##T##gesvd(Handle *h, signed char jobu, signed char jobvt, int m, int n, void *a, int lda, \
                                    void *s, void *u, int ldu, void *vt, int ldvt, void *work, int room, void *rest, \
                                    int *info) { \
        KNOWN(h); \
        NEEDS(m >= n && n >= 0 && lda >= LEAST(m) && ldu >= LEAST(m) && ldvt >= LEAST(n) && room >= room_gesvd(m, n)); \
        NEEDS((jobu == 'A' || jobu == 'S') && jobu == jobvt); \
        THERE(a); THERE(s); THERE(u); THERE(vt); THERE(work); THERE(rest); THERE(info); \
        RUN(#T "gesvd", I(jobu), I(m), I(n), A(a), I(lda), A(s), A(u), I(ldu), A(vt), I(ldvt), A(work), \
            I(room_gesvd(m, n)), A(rest), A(info)); \
    } \
    PUBLIC int cusolverDn##T##potrfBatched(Handle *h, int uplo, int n, void **each, int lda, int *info, int count) { \
        KNOWN(h); \
        NEEDS((uplo == 0 || uplo == 1) && n >= 0 && lda >= LEAST(n) && count >= 0); \
        THERE(each); THERE(info); \
        RUN(#T "potrfBatched", I(uplo), I(n), A(each), I(lda), A(info), I(count)); \
    } \
    PUBLIC int cublas##T##getrfBatched(Handle *h, int n, void *const *each, int lda, int *pivots, int *info, int count) { \
        BLAS_KNOWN(h); \
        if (n < 0 || count < 0 || lda < LEAST(n) || OFF(each) || OFF(pivots) || OFF(info)) return BLAS_INVALID; \
        BLAS_RUN(#T "getrfBatched", I(n), A(each), I(lda), A(pivots), A(info), I(count)); \
    } \
    PUBLIC int cublas##T##getrsBatched(Handle *h, int how, int n, int k, const void *const *each, int lda, \
                                       const int *pivots, void *const *right, int ldb, int *info, int count) { \
        BLAS_KNOWN(h); \
        if (!info || !OFF(info)) return BLAS_INVALID;  /* it is the host's */ \
        *info = how < 0 || how > 2 ? -1 : n < 0 ? -2 : k < 0 ? -3 : OFF(each) ? -4 : lda < LEAST(n) ? -5 : OFF(right) ? -7 \
                : ldb < LEAST(n) ? -8 : count < 0 ? -10 : 0; \
        if (*info || OFF(pivots)) return BLAS_INVALID; \
        BLAS_RUN(#T "getrsBatched", I(how), I(n), I(k), A(each), I(lda), A(pivots), A(right), I(ldb), I(count)); \
    } \
    PUBLIC int cublas##T##trsmBatched(Handle *h, int side, int uplo, int how, int unit, int m, int n, const void *alpha, \
                                      const void *const *a, int lda, void *const *b, int ldb, int count) { \
        BLAS_KNOWN(h); \
        int ours = side == 0 ? m : n; \
        if (side < 0 || side > 1 || uplo < 0 || uplo > 1 || how < 0 || how > 2 || unit < 0 || unit > 1 || m < 0 || \
            n < 0 || lda < LEAST(ours) || ldb < LEAST(m) || !alpha || !OFF(alpha) || OFF(a) || OFF(b) || count < 0) \
            return BLAS_INVALID; \
        BLAS_RUN(#T "trsmBatched", I(side), I(uplo), I(how), I(unit), I(m), I(n), A(a), I(lda), A(b), I(ldb), I(count)); \
    } \
    PUBLIC int cublas##T##trsm_v2(Handle *h, int side, int uplo, int how, int unit, int m, int n, const void *alpha, \
                                  const void *a, int lda, void *b, int ldb) { \
        BLAS_KNOWN(h); \
        int ours = side == 0 ? m : n; \
        if (side < 0 || side > 1 || uplo < 0 || uplo > 1 || how < 0 || how > 2 || unit < 0 || unit > 1 || m < 0 || \
            n < 0 || lda < LEAST(ours) || ldb < LEAST(m) || !alpha || !OFF(alpha) || OFF(a) || OFF(b)) \
            return BLAS_INVALID; \
        BLAS_RUN(#T "trsm_v2", I(side), I(uplo), I(how), I(unit), I(m), I(n), A(a), I(lda), A(b), I(ldb)); \
    }

OF_TYPE(S, orgqr, syevd)
OF_TYPE(D, orgqr, syevd)
OF_TYPE(C, ungqr, heevd)
OF_TYPE(Z, ungqr, heevd)
