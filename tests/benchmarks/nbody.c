/* Softened gravity among all pairs and its adjoint, written by hand: what a good compiler for kernels could reach.

   A step, for each body i, with d = x_j - x_i and r2 = d.d + soft:
     a_i = sum_j m_j r2^(-3/2) d,   v' = v + dt a,   x' = x + dt v'
   Its adjoint, from gx, gv = d x', d v', starts with h = gv + dt gx, which is d v, and f = dt h, which is d a. The pair term is
   antisymmetric and its matrix J = r2^(-3/2) (1 - 3 d d^T / r2) symmetric, so each body gathers what it is owed by both
   ends of its pairs, and is its own only writer:
     d x_i += sum_j J (m_i f_j - m_j f_i),   d m_i += -sum_j r2^(-3/2) d.f_j
   Body i itself adds exactly 0 to both.

   Vectors are kept as three rows of n numbers, so that the loop over j reads whole vector registers. `n` need be no
   multiple of anything. Nobody reads a velocity again: of `v` only the present one is kept. */

#include <math.h>
#include <stddef.h>

typedef REAL real;

#define SQRT(a) (sizeof(real) == sizeof(float) ? (real)sqrtf((float)(a)) : (real)sqrt((double)(a)))
#define BODIES _Pragma("omp for schedule(static)") for (ptrdiff_t i = 0; i < n; i++)

typedef struct {
  const real *m;
  real dt, soft;
  ptrdiff_t n;
} World;

/* x and xn are fields of the history (3, n); v holds v and, afterwards, v'. */
static void step_body(const World *w, const real *x, real *v, real *xn, ptrdiff_t i) {
  const ptrdiff_t n = w->n;
  const real soft = w->soft, dt = w->dt;
  const real *restrict m = w->m, *restrict x0 = x, *restrict x1 = x + n, *restrict x2 = x + 2 * n;
  const real p0 = x0[i], p1 = x1[i], p2 = x2[i];
  real a0 = 0, a1 = 0, a2 = 0;
#pragma omp simd reduction(+ : a0, a1, a2)
  for (ptrdiff_t j = 0; j < n; j++) {
    real d0 = x0[j] - p0, d1 = x1[j] - p1, d2 = x2[j] - p2;
    real r2 = d0 * d0 + d1 * d1 + d2 * d2 + soft;
    real s = m[j] / (r2 * SQRT(r2));
    a0 += s * d0;
    a1 += s * d1;
    a2 += s * d2;
  }
  const real v0 = v[i] + dt * a0, v1 = v[n + i] + dt * a1, v2 = v[2 * n + i] + dt * a2;
  v[i] = v0, v[n + i] = v1, v[2 * n + i] = v2;
  xn[i] = p0 + dt * v0, xn[n + i] = p1 + dt * v1, xn[2 * n + i] = p2 + dt * v2;
}

/* f = d a, of all bodies, is there. Adds to gx and gm. */
static void gather_body(const World *w, const real *x, const real *f, real *gx, real *gm, ptrdiff_t i) {
  const ptrdiff_t n = w->n;
  const real soft = w->soft;
  const real *restrict m = w->m, *restrict x0 = x, *restrict x1 = x + n, *restrict x2 = x + 2 * n;
  const real *restrict f0 = f, *restrict f1 = f + n, *restrict f2 = f + 2 * n;
  const real p0 = x0[i], p1 = x1[i], p2 = x2[i], q0 = f0[i], q1 = f1[i], q2 = f2[i], mass = m[i];
  real b0 = 0, b1 = 0, b2 = 0, b = 0;
#pragma omp simd reduction(+ : b0, b1, b2, b)
  for (ptrdiff_t j = 0; j < n; j++) {
    real d0 = x0[j] - p0, d1 = x1[j] - p1, d2 = x2[j] - p2;
    real e0 = mass * f0[j] - m[j] * q0, e1 = mass * f1[j] - m[j] * q1, e2 = mass * f2[j] - m[j] * q2;
    real r2 = d0 * d0 + d1 * d1 + d2 * d2 + soft;
    real root = 1 / SQRT(r2), square = root * root, s = square * root;
    real along = 3 * square * (d0 * e0 + d1 * e1 + d2 * e2);
    b0 += s * (e0 - along * d0);
    b1 += s * (e1 - along * d1);
    b2 += s * (e2 - along * d2);
    b -= s * (d0 * f0[j] + d1 * f1[j] + d2 * f2[j]);
  }
  gx[i] += b0, gx[n + i] += b1, gx[2 * n + i] += b2;
  gm[i] += b;
}

/* `history`: (steps + 1, 3, n), of which the first holds x0. Returns the mean squared distance to the target. */
double nbody_forward(real *history, const real *v0, real *v, const real *m, const real *target, real dt, real soft, ptrdiff_t n,
                     int steps, int threads) {
  const World w = {.m = m, .dt = dt, .soft = soft, .n = n};
  const real *last = history + (ptrdiff_t)steps * 3 * n;
  double loss = 0;
#pragma omp parallel num_threads(threads)
  {
    BODIES for (ptrdiff_t k = i; k < 3 * n; k += n) v[k] = v0[k];
    for (int t = 0; t < steps; t++) {
      real *x = history + (ptrdiff_t)t * 3 * n;
      BODIES step_body(&w, x, v, x + 3 * n, i);
    }
#pragma omp for schedule(static) reduction(+ : loss)
    for (ptrdiff_t k = 0; k < 3 * n; k++) loss += (double)((last[k] - target[k]) * (last[k] - target[k]));
  }
  return loss / (double)n;
}

/* gx, gv, gm: the gradients of x0, v0 and m, which also are what the pass works in. f: room for (3, n). */
void nbody_backward(const real *history, const real *m, const real *target, real *f, real *gx, real *gv, real *gm, real dt,
                    real soft, ptrdiff_t n, int steps, int threads) {
  const World w = {.m = m, .dt = dt, .soft = soft, .n = n};
  const real *last = history + (ptrdiff_t)steps * 3 * n;
  const real scale = (real)(2.0 / (double)n);
#pragma omp parallel num_threads(threads)
  {
    BODIES {
      gm[i] = 0;
      for (ptrdiff_t k = i; k < 3 * n; k += n) gx[k] = scale * (last[k] - target[k]), gv[k] = 0;
    }
    for (int t = steps - 1; t >= 0; t--) {
      BODIES for (ptrdiff_t k = i; k < 3 * n; k += n) {
        gv[k] += dt * gx[k];
        f[k] = dt * gv[k];
      }
      BODIES gather_body(&w, history + (ptrdiff_t)t * 3 * n, f, gx, gm, i);
    }
  }
}
