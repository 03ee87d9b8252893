/* A net of springs and its adjoint, written by hand: what a good compiler for kernels could reach on this machine.

   State of a step: four rows of n numbers, x, y, vx, vy; the whole history is kept. Per spring, with d = x_b - x_a:
     u = d / |d|,   s = stiffness (|d| - rest) + damping (v_b - v_a) . u,   g = s u pulls a, -g pulls b;
   per node:   v' = drag (v + dt (f + contact - gravity)),   x' = x + dt v',   contact = ground min(y, 0)^2 upwards.
   Nobody adds to what another thread adds to: springs write their own pull, and nodes gather the pulls of their springs
   through the incidence list (springs that start at node i: entry[start[i] .. middle[i]), that end there: up to
   start[i + 1]). The adjoint goes the same way: per spring from the adjoints F of its two nodes' forces,
     G = F_a - F_b,   S = G . u,   r = v_b - v_a,
     D = (s (G - S u) + S damping (r - (r . u) u)) / |d| + S stiffness u,
   D for x_b, -D for x_a, S damping u for v_b and its opposite for v_a, -S stiffness for rest; then per node
   the sums. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>

typedef REAL real;
typedef real pair __attribute__((vector_size(2 * sizeof(real)), may_alias));
typedef real quad __attribute__((vector_size(4 * sizeof(real)), may_alias));

typedef struct {
  const int32_t *a, *b, *start, *middle, *entry;
  const real *rest;
  real *state;            /* (steps + 1) x 4 x n */
  real *pulls;            /* springs x 4: the work space of a step, two of each four used by the forward */
  real *adjoint, *force;  /* 4 x n, of the state; 2 x n, of the forces on the nodes */
  real *rest_adjoint;
  ptrdiff_t n, springs, steps;
  real dt, stiffness, damping, drag, gravity, ground, target_x, target_y;
  int threads;
} Net;

static inline real root(real value) {
  return sizeof(real) == 4 ? (real)sqrtf((float)value) : (real)sqrt((double)value);
}

/* Every function down to `forward` and `both` is called by all threads of a team, which meet at the end of its loop. */

static void pull(const Net *net, const real *state) {
  const ptrdiff_t n = net->n, springs = net->springs;
  const int32_t *restrict a = net->a, *restrict b = net->b;
  const real *restrict x = state, *restrict y = x + n, *restrict vx = y + n, *restrict vy = vx + n;
  const real *restrict rest = net->rest, stiffness = net->stiffness, damping = net->damping;
  real *restrict pulls = net->pulls;
#pragma omp for simd schedule(static)
  for (ptrdiff_t s = 0; s < springs; s++) {
    const int32_t i = a[s], j = b[s];
    const real dx = x[j] - x[i], dy = y[j] - y[i];
    const real length = root(dx * dx + dy * dy), over = 1 / length, ux = dx * over, uy = dy * over;
    const real along = (vx[j] - vx[i]) * ux + (vy[j] - vy[i]) * uy;
    const real size = stiffness * (length - rest[s]) + damping * along;
    pulls[2 * s] = size * ux;
    pulls[2 * s + 1] = size * uy;
  }
}

static void move(const Net *net, const real *state, real *next) {
  const ptrdiff_t n = net->n;
  const int32_t *restrict start = net->start, *restrict middle = net->middle, *restrict entry = net->entry;
  const real *restrict x = state, *restrict y = x + n, *restrict vx = y + n, *restrict vy = vx + n;
  real *restrict x1 = next, *restrict y1 = x1 + n, *restrict vx1 = y1 + n, *restrict vy1 = vx1 + n;
  const real dt = net->dt, drag = net->drag, gravity = net->gravity, ground = net->ground;
  const pair *restrict pulls = (const pair *)net->pulls;
#pragma omp for schedule(static)
  for (ptrdiff_t i = 0; i < n; i++) {
    pair f = {0, 0};
    for (int32_t k = start[i]; k < middle[i]; k++) f += pulls[entry[k]];
    for (int32_t k = middle[i]; k < start[i + 1]; k++) f -= pulls[entry[k]];
    const real depth = y[i] < 0 ? y[i] : 0;
    vx1[i] = drag * (vx[i] + dt * f[0]);
    vy1[i] = drag * (vy[i] + dt * (f[1] + ground * depth * depth - gravity));
    x1[i] = x[i] + dt * vx1[i];
    y1[i] = y[i] + dt * vy1[i];
  }
}

/* The adjoints of a step's results, as they arrive, become those of the forces: all that the step's springs need. */
static inline __attribute__((always_inline)) void forces_of_node(const Net *net, ptrdiff_t i, real px, real py, real qx,
                                                                 real qy) {
  const ptrdiff_t n = net->n;
  real *adjoint = net->adjoint;
  qx = net->drag * (qx + net->dt * px);
  qy = net->drag * (qy + net->dt * py);
  adjoint[i] = px;
  adjoint[n + i] = py;
  adjoint[2 * n + i] = qx;
  adjoint[3 * n + i] = qy;
  net->force[i] = net->dt * qx;
  net->force[n + i] = net->dt * qy;
}

static void seed(const Net *net, const real *last) {
  const ptrdiff_t n = net->n;
  const real weight = (real)2 / (real)n;
#pragma omp for schedule(static)
  for (ptrdiff_t i = 0; i < n; i++)
    forces_of_node(net, i, weight * (last[i] - net->target_x), weight * (last[n + i] - net->target_y), 0, 0);
}

static void pull_adjoint(const Net *net, const real *state, int first) {
  const ptrdiff_t n = net->n, springs = net->springs;
  const int32_t *restrict a = net->a, *restrict b = net->b;
  const real *restrict x = state, *restrict y = x + n, *restrict vx = y + n, *restrict vy = vx + n;
  const real *restrict rest = net->rest, stiffness = net->stiffness, damping = net->damping;
  const real *restrict fx = net->force, *restrict fy = fx + n;
  real *restrict pulls = net->pulls, *restrict rest_adjoint = net->rest_adjoint;
  const real kept = first ? 0 : 1;
#pragma omp for simd schedule(static)
  for (ptrdiff_t s = 0; s < springs; s++) {
    const int32_t i = a[s], j = b[s];
    const real dx = x[j] - x[i], dy = y[j] - y[i];
    const real length = root(dx * dx + dy * dy), over = 1 / length, ux = dx * over, uy = dy * over;
    const real rx = vx[j] - vx[i], ry = vy[j] - vy[i], along = rx * ux + ry * uy;
    const real size = stiffness * (length - rest[s]) + damping * along;
    const real gx = fx[i] - fx[j], gy = fy[i] - fy[j], along_g = gx * ux + gy * uy;
    const real turn = along_g * damping, stretch = along_g * stiffness;
    pulls[4 * s] = (size * (gx - along_g * ux) + turn * (rx - along * ux)) * over + stretch * ux;
    pulls[4 * s + 1] = (size * (gy - along_g * uy) + turn * (ry - along * uy)) * over + stretch * uy;
    pulls[4 * s + 2] = turn * ux;
    pulls[4 * s + 3] = turn * uy;
    rest_adjoint[s] = kept * rest_adjoint[s] - stretch;
  }
}

static void move_adjoint(const Net *net, const real *state, int last) {
  const ptrdiff_t n = net->n;
  const int32_t *restrict start = net->start, *restrict middle = net->middle, *restrict entry = net->entry;
  const real *restrict y = state + n;
  const quad *restrict pulls = (const quad *)net->pulls;
  real *adjoint = net->adjoint;
#pragma omp for schedule(static)
  for (ptrdiff_t i = 0; i < n; i++) {
    const real depth = y[i] < 0 ? y[i] : 0;
    quad sum = {adjoint[i], adjoint[n + i], adjoint[2 * n + i], adjoint[3 * n + i]};
    for (int32_t k = start[i]; k < middle[i]; k++) sum -= pulls[entry[k]];
    for (int32_t k = middle[i]; k < start[i + 1]; k++) sum += pulls[entry[k]];
    sum[1] += 2 * net->ground * depth * net->force[n + i];
    if (last) for (int k = 0; k < 4; k++) adjoint[k * n + i] = sum[k];
    else forces_of_node(net, i, sum[0], sum[1], sum[2], sum[3]);
  }
}

static void all_steps(const Net *net) {
  for (ptrdiff_t t = 0; t < net->steps; t++) {
    const real *state = net->state + t * 4 * net->n;
    pull(net, state);
    move(net, state, net->state + (t + 1) * 4 * net->n);
  }
}

static real distance(const Net *net) {
  const ptrdiff_t n = net->n;
  const real *restrict x = net->state + net->steps * 4 * n, *restrict y = x + n;
  double sum = 0;
#pragma omp parallel for simd schedule(static) reduction(+ : sum) num_threads(net->threads)
  for (ptrdiff_t i = 0; i < n; i++) {
    const real dx = x[i] - net->target_x, dy = y[i] - net->target_y;
    sum += (double)(dx * dx + dy * dy);
  }
  return (real)(sum / (double)n);
}

real forward(const Net *net) {
#pragma omp parallel num_threads(net->threads)
  all_steps(net);
  return distance(net);
}

real both(const Net *net) {
#pragma omp parallel num_threads(net->threads)
  {
    all_steps(net);
    seed(net, net->state + net->steps * 4 * net->n);
    for (ptrdiff_t t = net->steps - 1; t >= 0; t--) {
      const real *state = net->state + t * 4 * net->n;
      pull_adjoint(net, state, t == net->steps - 1);
      move_adjoint(net, state, t == 0);
    }
  }
  return distance(net);
}
