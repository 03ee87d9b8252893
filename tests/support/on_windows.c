/* A program for Windows that loads the pool, a kernel and its adjoint as the package does, and runs them on many threads:
   values against a plain loop, gradients against central differences. `python -m tests.cross --wine` runs it. */
#include <windows.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef union { double *p; int64_t pad; } data;
typedef struct { int64_t dim[4]; data x; int64_t xs[1], xt[1]; data y; int64_t ys[1], yt[1];
    union { int32_t v; int64_t pad[1]; } turns; int64_t *status; void *scratch; int64_t bytes; } kernel_args;
typedef struct { int64_t dim[4]; data x; int64_t xs[1], xt[1]; data y; int64_t ys[1], yt[1];
    union { int32_t v; int64_t pad[1]; } turns; data dx; int64_t dxs[1], dxt[1]; data dy; int64_t dys[1], dyt[1];
    int64_t *status; void *scratch; int64_t bytes; } adjoint_args;
typedef void (*kernel)(const void *, int64_t, int64_t);
typedef struct { kernel run; const void *args; int64_t begin, end, team; } call;
enum { N = 20000, TURNS = 7 };
static double x[N], y[N], dx[N], dy[N], up[N], down[N];
static int64_t status[32];

static void *found(const char *library, const char *name) {
    HMODULE loaded = LoadLibraryA(library);
    void *address = loaded ? (void *)GetProcAddress(loaded, name) : 0;
    if (!address) { printf("%s: no %s\n", library, name); exit(1); }
    return address;
}

int main(void) {
    kernel run = (kernel)found("walk.dll", "walk"), adjoint = (kernel)found("walk_adjoint.dll", "walk_adjoint");
    void (*parallel)(kernel, const void *, int64_t, int64_t, int64_t) = found("pool.dll", "wb_parallel");
    void (*replay)(const call *, int64_t) = found("pool.dll", "wb_replay");
    *(int *)found("pool.dll", "wb_loss") = 0; /* share always */
    int64_t team = 3 | (int64_t)4 << 32;
    for (int i = 0; i < N; ++i) { x[i] = 0.2 + 0.6 * i / N; dy[i] = 1.0 + 0.001 * (i % 7); }
    kernel_args a = {{N}, {x}, {N}, {8}, {y}, {N}, {8}, {TURNS}, status, 0, 0};
    adjoint_args b = {{N}, {x}, {N}, {8}, {y}, {N}, {8}, {TURNS}, {dx}, {N}, {8}, {dy}, {N}, {8}, status, 0, 0};
    for (int turn = 0; turn < 500; ++turn) parallel(run, &a, 0, N, team);
    double values = 0, slopes = 0;
    for (int i = 0; i < N; ++i) {
        double s = x[i];
        for (int t = 0; t < TURNS; ++t) s = s * cos(s) + pow(s, 1.5) * 0.25;
        values = fmax(values, fabs(s - y[i]));
    }
    call both[2] = {{run, &a, 0, N, team}, {adjoint, &b, 0, N, team}};
    replay(both, 2);
    for (int h = 0; h < 2; ++h) {
        a.y.p = h ? down : up;
        for (int i = 0; i < N; ++i) x[i] += h ? -2e-6 : 1e-6;
        parallel(run, &a, 0, N, team);
    }
    for (int i = 0; i < N; ++i) slopes = fmax(slopes, fabs((up[i] - down[i]) / 2e-6 * (1.0 + 0.001 * (i % 7)) - dx[i]));
    printf("500 launches of %d cells by 3 threads: values %.0e apart; gradients %.0e from differences\n", N, values, slopes);
    return status[0] || values > 1e-14 || slopes > 1e-8;
}
