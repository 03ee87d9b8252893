/* MLS-MPM and its adjoint, written by hand. The mathematics is that of kernels_mpm.py; mpm.py says what it solves.

   A particle's state is 12 numbers side by side, a grid cell 4 (momentum or velocity, mass, padding). Each thread owns
   a run of particles and scatters them to a grid of its own, of which it clears and fills only the rows they touch;
   whoever reads a cell adds the threads' grids. So nothing is atomic and nothing is sorted, and particles that are in
   order anyway make the rows of the threads almost disjoint. Reverse, p2g is a gather and g2p the scatter.
   Mass and volume of a particle are 1. */

#include <stddef.h>
#include <string.h>
#include <tgmath.h>

typedef REAL real;
typedef struct { real x[2], v[2], c[2][2], f[2][2]; } Particle;
typedef struct { real v[2], m, pad; } Cell;
typedef struct { ptrdiff_t low, high; } Rows;

/* Made by Python (Hand in mpm.py) and passed by pointer: same fields, same order. */
typedef struct {
  Particle *state;      /* [steps + 1][particles]: the history; the first is given */
  Cell *grid;           /* [steps][n][n]: velocity and mass, in the rows that particles touch */
  Cell *own;            /* [threads][n][n]: scratch */
  Cell *back;           /* [n][n]: scratch, the adjoint of momentum and mass */
  Rows *rows;           /* [threads]: scratch */
  Particle *adjoint;    /* [particles]: of the state that the reverse walk stands at */
  const real *stiffness; /* [particles] */
  real *d_stiffness;    /* [particles] */
  double loss;
  double target[2];
  double dt;
  ptrdiff_t particles, n, steps, threads;
} Mpm;

enum { BORDER = 3 }; /* cells at a wall, where everything sticks */
static const real EPSILON = (real)1e-10, GRAVITY = (real)9.8, HALF = (real)0.5, ELASTIC = 75;

/* The nine nodes around a particle: the first one's indices, the offset from it in cells, weights and their slopes. */
typedef struct { ptrdiff_t i, j; real fx[2], w[2][3], dw[2][3]; } Stencil;

static inline void weigh(real t, real *restrict w, real *restrict dw) {
  real left = (real)1.5 - t, middle = t - 1, right = t - HALF;
  w[0] = HALF * left * left;
  w[1] = (real)0.75 - middle * middle;
  w[2] = HALF * right * right;
  dw[0] = -left;
  dw[1] = -2 * middle;
  dw[2] = right;
}

static inline Stencil around(const real *x, real cells) {
  Stencil s;
  real at[2] = {x[0] * cells, x[1] * cells};
  s.i = (ptrdiff_t)(int)(at[0] - HALF);
  s.j = (ptrdiff_t)(int)(at[1] - HALF);
  s.fx[0] = at[0] - (real)(int)s.i;
  s.fx[1] = at[1] - (real)(int)s.j;
  weigh(s.fx[0], s.w[0], s.dw[0]);
  weigh(s.fx[1], s.w[1], s.dw[1]);
  return s;
}

/* Fixed corotated Kirchhoff stress, Poisson's ratio 1/3, for a modulus of 100: ELASTIC ((F - R) F^T + J (J - 1) I). */
typedef struct { real tau[2][2], rest[2][2], c, s, r, j; } Stress;

static inline Stress strain(const real f[2][2]) {
  Stress k;
  real a = f[0][0] + f[1][1], b = f[1][0] - f[0][1];
  k.r = sqrt(a * a + b * b);
  k.c = a / k.r;
  k.s = b / k.r;
  k.rest[0][0] = f[0][0] - k.c;
  k.rest[0][1] = f[0][1] + k.s;
  k.rest[1][0] = f[1][0] - k.s;
  k.rest[1][1] = f[1][1] - k.c;
  k.j = f[0][0] * f[1][1] - f[0][1] * f[1][0];
  real pressure = k.j * (k.j - 1);
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 2; j++)
      k.tau[i][j] = ELASTIC * (k.rest[i][0] * f[j][0] + k.rest[i][1] * f[j][1] + (i == j ? pressure : 0));
  return k;
}

/* Adds to `df` what the adjoint `g` of the stress (modulus included) makes of it. */
static inline void strain_back(const real f[2][2], const Stress *k, const real g[2][2], real df[2][2]) {
  real turn[2][2]; /* the adjoint of F - R */
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 2; j++) {
      turn[i][j] = ELASTIC * (g[i][0] * f[0][j] + g[i][1] * f[1][j]);
      df[i][j] += turn[i][j] + ELASTIC * (g[0][i] * k->rest[0][j] + g[1][i] * k->rest[1][j]);
    }
  real squeeze = ELASTIC * (2 * k->j - 1) * (g[0][0] + g[1][1]);
  real dc = -(turn[0][0] + turn[1][1]), ds = turn[0][1] - turn[1][0];
  real angle = (k->c * ds - k->s * dc) / k->r;
  df[0][0] += squeeze * f[1][1] - k->s * angle;
  df[1][1] += squeeze * f[0][0] - k->s * angle;
  df[0][1] += -squeeze * f[1][0] - k->c * angle;
  df[1][0] += -squeeze * f[0][1] + k->c * angle;
}

static inline ptrdiff_t part(ptrdiff_t count, ptrdiff_t id, ptrdiff_t of) { return count * id / of; }

/* Finds and clears the rows of its own grid that a thread's particles touch. */
static void clear_own(const Mpm *m, const Particle *state, ptrdiff_t id) {
  ptrdiff_t low = m->n, high = 0;
  for (ptrdiff_t p = part(m->particles, id, m->threads); p < part(m->particles, id + 1, m->threads); p++) {
    ptrdiff_t i = (ptrdiff_t)(int)(state[p].x[0] * (real)m->n - HALF);
    low = i < low ? i : low;
    high = i + 3 > high ? i + 3 : high;
  }
  m->rows[id] = (Rows){low, high};
  if (low < high) memset(m->own + (id * m->n + low) * m->n, 0, (size_t)((high - low) * m->n) * sizeof(Cell));
}

/* One row of the sum of the threads' grids; 0 where no particle touches it. */
static int sum_row(const Mpm *m, ptrdiff_t i, Cell *restrict out) {
  int touched = 0;
  for (ptrdiff_t id = 0; id < m->threads; id++) {
    if (i < m->rows[id].low || i >= m->rows[id].high) continue;
    const real *restrict own = (const real *)(m->own + (id * m->n + i) * m->n);
    real *restrict sum = (real *)out;
    if (!touched) memcpy(sum, own, (size_t)m->n * sizeof(Cell));
    else
      for (ptrdiff_t j = 0; j < 4 * m->n; j++) sum[j] += own[j];
    touched = 1;
  }
  return touched;
}

static void p2g(const Mpm *m, const Particle *state, ptrdiff_t id) {
  const real cells = (real)m->n, dx = 1 / cells, scale = 4 * (real)m->dt * cells * cells;
  Cell *own = m->own + id * m->n * m->n;
  clear_own(m, state, id);
  for (ptrdiff_t p = part(m->particles, id, m->threads); p < part(m->particles, id + 1, m->threads); p++) {
    const Particle at = state[p];
    Stencil s = around(at.x, cells);
    Stress k = strain(at.f);
    real pull = scale * m->stiffness[p], a[2][2];
    for (int i = 0; i < 2; i++)
      for (int j = 0; j < 2; j++) a[i][j] = (at.c[i][j] - pull * k.tau[i][j]) * dx;
    for (int i = 0; i < 3; i++) {
      Cell *restrict row = own + (s.i + i) * m->n + s.j;
      for (int j = 0; j < 3; j++) {
        real w = s.w[0][i] * s.w[1][j], ox = (real)i - s.fx[0], oy = (real)j - s.fx[1];
        row[j].v[0] += w * (at.v[0] + a[0][0] * ox + a[0][1] * oy);
        row[j].v[1] += w * (at.v[1] + a[1][0] * ox + a[1][1] * oy);
        row[j].m += w;
      }
    }
  }
}

static void grid_op(const Mpm *m, Cell *grid, ptrdiff_t id) {
  const ptrdiff_t n = m->n;
  const real fall = GRAVITY * (real)m->dt;
  for (ptrdiff_t i = part(n, id, m->threads); i < part(n, id + 1, m->threads); i++) {
    Cell *restrict row = grid + i * n;
    if (!sum_row(m, i, row)) continue;
    for (ptrdiff_t j = 0; j < n; j++) {
      int inside = i >= BORDER && i < n - BORDER && j >= BORDER && j < n - BORDER;
      real per_mass = 1 / (row[j].m + EPSILON);
      row[j].v[0] = inside ? row[j].v[0] * per_mass : 0;
      row[j].v[1] = inside ? row[j].v[1] * per_mass - fall : 0;
    }
  }
}

static void g2p(const Mpm *m, const Particle *state, const Cell *grid, Particle *next, ptrdiff_t id) {
  const real cells = (real)m->n, dt = (real)m->dt;
  for (ptrdiff_t p = part(m->particles, id, m->threads); p < part(m->particles, id + 1, m->threads); p++) {
    const Particle at = state[p];
    Stencil s = around(at.x, cells);
    real v[2] = {0, 0}, b[2][2] = {{0, 0}, {0, 0}};
    for (int i = 0; i < 3; i++) {
      const Cell *row = grid + (s.i + i) * m->n + s.j;
      for (int j = 0; j < 3; j++) {
        real w = s.w[0][i] * s.w[1][j], ox = (real)i - s.fx[0], oy = (real)j - s.fx[1];
        real gx = w * row[j].v[0], gy = w * row[j].v[1];
        v[0] += gx;
        v[1] += gy;
        b[0][0] += gx * ox;
        b[0][1] += gx * oy;
        b[1][0] += gy * ox;
        b[1][1] += gy * oy;
      }
    }
    Particle to;
    for (int i = 0; i < 2; i++) {
      to.x[i] = at.x[i] + dt * v[i];
      to.v[i] = v[i];
      for (int j = 0; j < 2; j++) to.c[i][j] = 4 * cells * b[i][j];
      for (int j = 0; j < 2; j++)
        to.f[i][j] = at.f[i][j] + dt * (to.c[i][0] * at.f[0][j] + to.c[i][1] * at.f[1][j]);
    }
    next[p] = to;
  }
}

/* The adjoint of g2p: from the adjoint of the next state to this thread's grid (of the velocities) and, in the same
   place, to what the old x and f get by this way. v and c of the old state get nothing: they are cleared. */
static void g2p_back(const Mpm *m, const Particle *state, const Cell *grid, const Particle *next, ptrdiff_t id) {
  const real cells = (real)m->n, dt = (real)m->dt;
  Cell *own = m->own + id * m->n * m->n;
  clear_own(m, state, id);
  for (ptrdiff_t p = part(m->particles, id, m->threads); p < part(m->particles, id + 1, m->threads); p++) {
    const Particle at = state[p], to = next[p];
    Particle d = m->adjoint[p];
    Stencil s = around(at.x, cells);
    real dv[2], db[2][2], df[2][2], slope[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
      dv[i] = d.v[i] + dt * d.x[i];
      for (int j = 0; j < 2; j++) {
        real dc = d.c[i][j] + dt * (d.f[i][0] * at.f[j][0] + d.f[i][1] * at.f[j][1]);
        db[i][j] = 4 * cells * dc;
        df[i][j] = d.f[i][j] + dt * (to.c[0][i] * d.f[0][j] + to.c[1][i] * d.f[1][j]);
      }
    }
    for (int i = 0; i < 3; i++) {
      Cell *restrict mine = own + (s.i + i) * m->n + s.j;
      const Cell *row = grid + (s.i + i) * m->n + s.j;
      for (int j = 0; j < 3; j++) {
        real w = s.w[0][i] * s.w[1][j], ox = (real)i - s.fx[0], oy = (real)j - s.fx[1];
        real gx = dv[0] + db[0][0] * ox + db[0][1] * oy, gy = dv[1] + db[1][0] * ox + db[1][1] * oy;
        real dw = gx * row[j].v[0] + gy * row[j].v[1];
        mine[j].v[0] += w * gx;
        mine[j].v[1] += w * gy;
        slope[0] += dw * s.dw[0][i] * s.w[1][j];
        slope[1] += dw * s.w[0][i] * s.dw[1][j];
      }
    }
    for (int i = 0; i < 2; i++) { /* offsets fall as the particle moves on: their sum with weights is the new v */
      d.x[i] += cells * (slope[i] - (to.v[0] * db[0][i] + to.v[1] * db[1][i]));
      d.v[i] = 0;
      for (int j = 0; j < 2; j++) d.c[i][j] = 0, d.f[i][j] = df[i][j];
    }
    m->adjoint[p] = d;
  }
}

static void grid_back(const Mpm *m, const Cell *grid, ptrdiff_t id) {
  const ptrdiff_t n = m->n;
  const real fall = GRAVITY * (real)m->dt;
  for (ptrdiff_t i = part(n, id, m->threads); i < part(n, id + 1, m->threads); i++) {
    Cell *restrict back = m->back + i * n;
    const Cell *restrict row = grid + i * n;
    if (!sum_row(m, i, back)) continue;
    for (ptrdiff_t j = 0; j < n; j++) {
      int inside = i >= BORDER && i < n - BORDER && j >= BORDER && j < n - BORDER;
      real per_mass = inside ? 1 / (row[j].m + EPSILON) : 0;
      back[j].v[0] *= per_mass;
      back[j].v[1] *= per_mass;
      back[j].m = -(back[j].v[0] * row[j].v[0] + back[j].v[1] * (row[j].v[1] + fall));
    }
  }
}

static void p2g_back(const Mpm *m, const Particle *state, ptrdiff_t id) {
  const real cells = (real)m->n, dx = 1 / cells, scale = 4 * (real)m->dt * cells * cells;
  for (ptrdiff_t p = part(m->particles, id, m->threads); p < part(m->particles, id + 1, m->threads); p++) {
    const Particle at = state[p];
    Particle *d = m->adjoint + p;
    Stencil s = around(at.x, cells);
    Stress k = strain(at.f);
    real pull = scale * m->stiffness[p], a[2][2], da[2][2] = {{0, 0}, {0, 0}}, dv[2] = {0, 0}, slope[2] = {0, 0};
    for (int i = 0; i < 2; i++)
      for (int j = 0; j < 2; j++) a[i][j] = (at.c[i][j] - pull * k.tau[i][j]) * dx;
    for (int i = 0; i < 3; i++) {
      const Cell *row = m->back + (s.i + i) * m->n + s.j;
      for (int j = 0; j < 3; j++) {
        real w = s.w[0][i] * s.w[1][j], ox = (real)i - s.fx[0], oy = (real)j - s.fx[1];
        real gx = row[j].v[0], gy = row[j].v[1];
        real px = at.v[0] + a[0][0] * ox + a[0][1] * oy, py = at.v[1] + a[1][0] * ox + a[1][1] * oy;
        real dw = gx * px + gy * py + row[j].m;
        slope[0] += dw * s.dw[0][i] * s.w[1][j];
        slope[1] += dw * s.w[0][i] * s.dw[1][j];
        gx *= w;
        gy *= w;
        dv[0] += gx;
        dv[1] += gy;
        da[0][0] += gx * ox;
        da[0][1] += gx * oy;
        da[1][0] += gy * ox;
        da[1][1] += gy * oy;
      }
    }
    real tug = 0, dtau[2][2];
    for (int i = 0; i < 2; i++) {
      d->x[i] += cells * (slope[i] - (a[0][i] * dv[0] + a[1][i] * dv[1]));
      d->v[i] = dv[i];
      for (int j = 0; j < 2; j++) {
        d->c[i][j] = da[i][j] * dx;
        dtau[i][j] = -pull * d->c[i][j];
        tug += d->c[i][j] * k.tau[i][j];
      }
    }
    m->d_stiffness[p] -= scale * tug;
    strain_back(at.f, &k, dtau, d->f);
  }
}

/* Every part belongs to one thread, whatever the team: the same schedule each time, so own parts need no barrier. */

void mpm_forward(Mpm *m) {
  const ptrdiff_t cells = m->n * m->n;
#pragma omp parallel num_threads(m->threads)
  for (ptrdiff_t t = 0; t < m->steps; t++) {
    Particle *state = m->state + t * m->particles;
    Cell *grid = m->grid + t * cells;
#pragma omp for schedule(static, 1)
    for (ptrdiff_t id = 0; id < m->threads; id++) p2g(m, state, id);
#pragma omp for schedule(static, 1)
    for (ptrdiff_t id = 0; id < m->threads; id++) grid_op(m, grid, id);
#pragma omp for schedule(static, 1) nowait
    for (ptrdiff_t id = 0; id < m->threads; id++) g2p(m, state, grid, state + m->particles, id);
  }
  double loss = 0;
  const Particle *last = m->state + m->steps * m->particles;
  for (ptrdiff_t p = 0; p < m->particles; p++)
    for (int i = 0; i < 2; i++) {
      double away = (double)last[p].x[i] - m->target[i];
      loss += away * away;
    }
  m->loss = loss / (double)m->particles;
}

static void seed(const Mpm *m, const Particle *last, ptrdiff_t id) {
  const real scale = 2 / (real)m->particles;
  for (ptrdiff_t p = part(m->particles, id, m->threads); p < part(m->particles, id + 1, m->threads); p++) {
    m->adjoint[p] = (Particle){.x = {0}};
    for (int i = 0; i < 2; i++) m->adjoint[p].x[i] = scale * (last[p].x[i] - (real)m->target[i]);
    m->d_stiffness[p] = 0;
  }
}

void mpm_backward(Mpm *m) {
  const ptrdiff_t cells = m->n * m->n;
#pragma omp parallel num_threads(m->threads)
  {
#pragma omp for schedule(static, 1) nowait
    for (ptrdiff_t id = 0; id < m->threads; id++) seed(m, m->state + m->steps * m->particles, id);
    for (ptrdiff_t t = m->steps - 1; t >= 0; t--) {
      const Particle *state = m->state + t * m->particles;
      const Cell *grid = m->grid + t * cells;
#pragma omp for schedule(static, 1)
      for (ptrdiff_t id = 0; id < m->threads; id++) g2p_back(m, state, grid, state + m->particles, id);
#pragma omp for schedule(static, 1)
      for (ptrdiff_t id = 0; id < m->threads; id++) grid_back(m, grid, id);
#pragma omp for schedule(static, 1) nowait
      for (ptrdiff_t id = 0; id < m->threads; id++) p2g_back(m, state, id);
    }
  }
}
