/* The wave step and its adjoint, written by hand: what a good compiler for kernels could reach on this machine.

   Forward, in the interior of an n x m grid:   out = 2 u - up + c lap(u);   the boundary of out is left alone.
   Adjoint by gathering, one writer a cell, from g = d out:
     du  = 2 g + c (g_north + g_south + g_west + g_east - 4 g)   with g taken as 0 on the boundary
     dup = -g
     g   = 0 in the interior (the store consumed it)
   `how` says what the caller knows: STORE_U, STORE_UP: that shadow holds nothing yet, so it is stored and not added to;
   KEEP_G: nobody reads g again, so it need not be cleared. Clearing is a second pass: neighbours still read the cells.

   A simulation starts from p0 twice (at rest), makes `steps` fields and ends in the mean squared distance of the last
   one to a target. Its gradient takes three planes, whatever the number of steps. `wave_fused` is the same gradient for
   who knows that the step is its own transpose: one pass a step writes each shadow once, which no reversal of single
   launches can do. One team of threads lives through all steps. */

#include <stddef.h>

typedef REAL real;

enum { STORE_U = 1, STORE_UP = 2, KEEP_G = 4 };

typedef struct {
  const real *u, *up;
  real *out, *du, *dup, *g;
  real c;
  ptrdiff_t n, m;
  int how;
} Wave;

#define ROWS(low, high) _Pragma("omp for schedule(static)") for (ptrdiff_t i = low; i < high; i++)

static void step_row(const Wave *w, ptrdiff_t i) {
  const ptrdiff_t m = w->m;
  const real c = w->c, two = 2, four = 4;
  const real *restrict u = w->u + i * m, *restrict up = w->up + i * m;
  real *restrict out = w->out + i * m;
  for (ptrdiff_t j = 1; j < m - 1; j++) {
    real lap = u[j - m] + u[j + m] + u[j - 1] + u[j + 1] - four * u[j];
    out[j] = two * u[j] - up[j] + c * lap;
  }
}

static inline real inside(const Wave *w, ptrdiff_t i, ptrdiff_t j) {
  return i > 0 && i < w->n - 1 && j > 0 && j < w->m - 1 ? w->g[i * w->m + j] : (real)0;
}

/* A cell at or beside the boundary, where some neighbour took no part. */
static void gather_cell(const Wave *w, ptrdiff_t i, ptrdiff_t j) {
  real g = inside(w, i, j);
  real around = inside(w, i - 1, j) + inside(w, i + 1, j) + inside(w, i, j - 1) + inside(w, i, j + 1);
  real du = 2 * g + w->c * (around - 4 * g);
  ptrdiff_t at = i * w->m + j;
  w->du[at] = (w->how & STORE_U ? 0 : w->du[at]) + du;
  w->dup[at] = (w->how & STORE_UP ? 0 : w->dup[at]) - g;
}

/* The middle of a row. The two flags are constants at every call, so each call becomes a loop of its own. */
static inline __attribute__((always_inline)) void gather_middle(real *restrict du, real *restrict dup, const real *restrict g,
                                                                real c, ptrdiff_t m, int store_u, int store_up) {
  for (ptrdiff_t j = 2; j < m - 2; j++) {
    real value = 2 * g[j] + c * (g[j - m] + g[j + m] + g[j - 1] + g[j + 1] - 4 * g[j]);
    du[j] = store_u ? value : du[j] + value;
    dup[j] = store_up ? -g[j] : dup[j] - g[j];
  }
}

static void gather_row(const Wave *w, ptrdiff_t i) {
  const ptrdiff_t n = w->n, m = w->m;
  if (i < 2 || i > n - 3 || m < 5) {
    for (ptrdiff_t j = 0; j < m; j++) gather_cell(w, i, j);
    return;
  }
  const real *restrict g = w->g + i * m;
  real *restrict du = w->du + i * m, *restrict dup = w->dup + i * m;
  gather_cell(w, i, 0);
  gather_cell(w, i, 1);
  if (w->how & STORE_U && w->how & STORE_UP) gather_middle(du, dup, g, w->c, m, 1, 1);
  else if (w->how & STORE_UP) gather_middle(du, dup, g, w->c, m, 0, 1);
  else if (w->how & STORE_U) gather_middle(du, dup, g, w->c, m, 1, 0);
  else gather_middle(du, dup, g, w->c, m, 0, 0);
  gather_cell(w, i, m - 2);
  gather_cell(w, i, m - 1);
}

static void clear_row(const Wave *w, ptrdiff_t i) {
  real *g = w->g + i * w->m;
  for (ptrdiff_t j = 1; j < w->m - 1; j++) g[j] = 0;
}

void wave_step(const real *u, const real *up, real *out, real c, ptrdiff_t n, ptrdiff_t m, int threads) {
  Wave w = {.u = u, .up = up, .out = out, .c = c, .n = n, .m = m};
#pragma omp parallel num_threads(threads)
  ROWS(1, n - 1) step_row(&w, i);
}

void wave_adjoint(real *du, real *dup, real *g, real c, ptrdiff_t n, ptrdiff_t m, int how, int threads) {
  Wave w = {.du = du, .dup = dup, .g = g, .c = c, .n = n, .m = m, .how = how};
#pragma omp parallel num_threads(threads)
  {
    ROWS(0, n) gather_row(&w, i);
    if (!(how & KEEP_G)) ROWS(1, n - 1) clear_row(&w, i);
  }
}

/* Field number t of a simulation: p0, p0, then what the steps made, in `history`. */
static const real *field(const real *p0, const real *history, ptrdiff_t cells, int t) {
  return t < 2 ? p0 : history + (t - 2) * cells;
}

double wave_forward(const real *p0, const real *target, real *history, real c, ptrdiff_t n, ptrdiff_t m, int steps,
                    int threads) {
  const ptrdiff_t cells = n * m;
  const real *last = field(p0, history, cells, steps + 1);
  double loss = 0;
#pragma omp parallel num_threads(threads)
  {
    for (int t = 0; t < steps; t++) {
      Wave w = {.u = field(p0, history, cells, t + 1), .up = field(p0, history, cells, t), .out = history + t * cells,
                .c = c, .n = n, .m = m};
      ROWS(1, n - 1) step_row(&w, i);
    }
#pragma omp for schedule(static) reduction(+ : loss)
    for (ptrdiff_t i = 0; i < n; i++) {
      real row = 0;
#pragma omp simd reduction(+ : row)
      for (ptrdiff_t j = i * m; j < (i + 1) * m; j++) row += (last[j] - target[j]) * (last[j] - target[j]);
      loss += (double)row;
    }
  }
  return loss / (double)cells;
}

/* The seed of the backward pass: the derivative of the loss by the last field. */
static void seed_row(const real *last, const real *target, real *g, real scale, ptrdiff_t m, ptrdiff_t i) {
  for (ptrdiff_t j = i * m; j < (i + 1) * m; j++) g[j] = scale * (last[j] - target[j]);
}

void wave_backward(const real *last, const real *target, real *planes, real *grad, real c, ptrdiff_t n, ptrdiff_t m,
                   int steps, int threads) {
  const ptrdiff_t cells = n * m;
  const real scale = (real)(2.0 / (double)cells);
#pragma omp parallel num_threads(threads)
  {
    ROWS(0, n) seed_row(last, target, planes + (steps + 1) % 3 * cells, scale, m, i);
    for (int t = steps - 1; t >= 0; t--) {
      Wave w = {.du = planes + (t + 1) % 3 * cells, .dup = planes + t % 3 * cells, .g = planes + (t + 2) % 3 * cells,
                .c = c, .n = n, .m = m, .how = STORE_UP | KEEP_G | (t == steps - 1 ? STORE_U : 0)};
      ROWS(0, n) gather_row(&w, i);
    }
    ROWS(0, n) for (ptrdiff_t j = i * m; j < (i + 1) * m; j++) grad[j] = planes[j] + planes[cells + j];
  }
}

/* Field 1 hears from step 0 through u and from step 1 through up, field 0 from step 0 through up; both fields are p0.
   g: of field 2, `later`: of field 3. */
static void first_row(const Wave *w, const real *later, real *grad, ptrdiff_t i) {
  const ptrdiff_t m = w->m;
  const int border = i == 0 || i == w->n - 1;
  for (ptrdiff_t j = 0; j < m; j += border ? 1 : m - 1) {
    real g = inside(w, i, j);
    real around = inside(w, i - 1, j) + inside(w, i + 1, j) + inside(w, i, j - 1) + inside(w, i, j + 1);
    grad[i * m + j] = g + w->c * (around - 4 * g);
  }
  if (border) return;
  const real *restrict g = w->g + i * m, *restrict minus = later + i * m;
  real *restrict sum = grad + i * m;
  for (ptrdiff_t j = 1; j < m - 1; j++)
    sum[j] = g[j] + w->c * (g[j - m] + g[j + m] + g[j - 1] + g[j + 1] - 4 * g[j]) - minus[j];
}

/* Planes hold 0 on their boundaries when this is called, and after it. */
void wave_fused(const real *last, const real *target, real *planes, real *grad, real c, ptrdiff_t n, ptrdiff_t m,
                int steps, int threads) {
  const ptrdiff_t cells = n * m;
  const real scale = (real)(2.0 / (double)cells);
  const int top = steps + 1;
#pragma omp parallel num_threads(threads)
  {
    ROWS(1, n - 1) {
      real *g = planes + top % 3 * cells, *beyond = planes + (top + 1) % 3 * cells;
      seed_row(last, target, g, scale, m, i);
      g[i * m] = g[i * m + m - 1] = 0;
      for (ptrdiff_t j = i * m; j < (i + 1) * m; j++) beyond[j] = 0;
    }
    for (int t = top - 1; t > 1; t--) {
      Wave w = {.u = planes + (t + 1) % 3 * cells, .up = planes + (t + 2) % 3 * cells, .out = planes + t % 3 * cells,
                .c = c, .n = n, .m = m};
      ROWS(1, n - 1) step_row(&w, i);
    }
    Wave w = {.g = planes + 2 * cells, .c = c, .n = n, .m = m};
    ROWS(0, n) first_row(&w, planes, grad, i);
  }
}
