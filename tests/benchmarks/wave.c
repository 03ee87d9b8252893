/* The wave step and its adjoint, written by hand: what a good compiler for kernels could reach on this machine.

   Forward, in the interior of an n x m grid:   out = 2 u - up + c lap(u);   the boundary of out is left alone.
   Adjoint by gathering, one writer a cell, from g = d out:
     du  = 2 g + c (g_north + g_south + g_west + g_east - 4 g)   with g taken as 0 on the boundary
     dup = -g
     g   = 0 in the interior (the store consumed it)
   `how` says what the caller knows: STORE_U, STORE_UP: that shadow holds nothing yet, so it is stored and not added to;
   KEEP_G: nobody reads g again, so it need not be cleared. Clearing is a second pass: neighbours still read the cells. */

#include <pthread.h>
#include <stddef.h>

enum { STORE_U = 1, STORE_UP = 2, KEEP_G = 4 };

typedef struct {
  const float *u, *up;
  float *out, *du, *dup, *g;
  float c;
  ptrdiff_t n, m;
  int how;
} Wave;

typedef void (*Rows)(const Wave *, ptrdiff_t, ptrdiff_t);

static void step_rows(const Wave *w, ptrdiff_t low, ptrdiff_t high) {
  const ptrdiff_t m = w->m;
  const float c = w->c;
  if (low < 1) low = 1;
  if (high > w->n - 1) high = w->n - 1;
  for (ptrdiff_t i = low; i < high; i++) {
    const float *restrict u = w->u + i * m, *restrict up = w->up + i * m;
    float *restrict out = w->out + i * m;
    for (ptrdiff_t j = 1; j < m - 1; j++) {
      float lap = u[j - m] + u[j + m] + u[j - 1] + u[j + 1] - 4.0f * u[j];
      out[j] = 2.0f * u[j] - up[j] + c * lap;
    }
  }
}

static inline float inside(const Wave *w, ptrdiff_t i, ptrdiff_t j) {
  return i > 0 && i < w->n - 1 && j > 0 && j < w->m - 1 ? w->g[i * w->m + j] : 0.0f;
}

/* A cell at or beside the boundary, where some neighbour took no part. */
static void gather_cell(const Wave *w, ptrdiff_t i, ptrdiff_t j) {
  float g = inside(w, i, j);
  float around = inside(w, i - 1, j) + inside(w, i + 1, j) + inside(w, i, j - 1) + inside(w, i, j + 1);
  float du = 2.0f * g + w->c * (around - 4.0f * g);
  ptrdiff_t at = i * w->m + j;
  w->du[at] = (w->how & STORE_U ? 0.0f : w->du[at]) + du;
  w->dup[at] = (w->how & STORE_UP ? 0.0f : w->dup[at]) - g;
}

/* The middle of a row. The two flags are constants at every call, so each call becomes a loop of its own. */
static inline __attribute__((always_inline)) void gather_row(float *restrict du, float *restrict dup, const float *restrict g,
                                                             float c, ptrdiff_t m, int store_u, int store_up) {
  for (ptrdiff_t j = 2; j < m - 2; j++) {
    float value = 2.0f * g[j] + c * (g[j - m] + g[j + m] + g[j - 1] + g[j + 1] - 4.0f * g[j]);
    du[j] = store_u ? value : du[j] + value;
    dup[j] = store_up ? -g[j] : dup[j] - g[j];
  }
}

static void gather_rows(const Wave *w, ptrdiff_t low, ptrdiff_t high) {
  const ptrdiff_t n = w->n, m = w->m;
  for (ptrdiff_t i = low; i < high; i++) {
    if (i < 2 || i > n - 3 || m < 5) {
      for (ptrdiff_t j = 0; j < m; j++) gather_cell(w, i, j);
      continue;
    }
    const float *restrict g = w->g + i * m;
    float *restrict du = w->du + i * m, *restrict dup = w->dup + i * m;
    gather_cell(w, i, 0);
    gather_cell(w, i, 1);
    if (w->how & STORE_U && w->how & STORE_UP) gather_row(du, dup, g, w->c, m, 1, 1);
    else if (w->how & STORE_UP) gather_row(du, dup, g, w->c, m, 0, 1);
    else if (w->how & STORE_U) gather_row(du, dup, g, w->c, m, 1, 0);
    else gather_row(du, dup, g, w->c, m, 0, 0);
    gather_cell(w, i, m - 2);
    gather_cell(w, i, m - 1);
  }
}

static void clear_rows(const Wave *w, ptrdiff_t low, ptrdiff_t high) {
  if (low < 1) low = 1;
  if (high > w->n - 1) high = w->n - 1;
  for (ptrdiff_t i = low; i < high; i++) {
    float *g = w->g + i * w->m;
    for (ptrdiff_t j = 1; j < w->m - 1; j++) g[j] = 0.0f;
  }
}

/* One helper thread that sleeps on a condition variable: nobody spins, so a busy neighbour costs no more than its share. */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER, done = PTHREAD_COND_INITIALIZER;
static const Wave *job;
static Rows job_rows;
static int pending, started;

static void *helper(void *unused) {
  (void)unused;
  pthread_mutex_lock(&lock);
  for (;;) {
    while (!pending) pthread_cond_wait(&work, &lock);
    pthread_mutex_unlock(&lock);
    job_rows(job, job->n / 2, job->n);
    pthread_mutex_lock(&lock);
    pending = 0;
    pthread_cond_signal(&done);
  }
  return NULL;
}

static void halves(const Wave *w, Rows rows, int threads) {
  if (threads < 2) {
    rows(w, 0, w->n);
    return;
  }
  pthread_mutex_lock(&lock);
  if (!started) {
    pthread_t thread;
    started = pthread_create(&thread, NULL, helper, NULL) == 0;
    if (started) pthread_detach(thread);
  }
  job = w;
  job_rows = rows;
  pending = started;
  pthread_cond_signal(&work);
  pthread_mutex_unlock(&lock);
  rows(w, 0, started ? w->n / 2 : w->n);
  pthread_mutex_lock(&lock);
  while (pending) pthread_cond_wait(&done, &lock);
  pthread_mutex_unlock(&lock);
}

void wave_step(const float *u, const float *up, float *out, float c, ptrdiff_t n, ptrdiff_t m, int threads) {
  Wave w = {.u = u, .up = up, .out = out, .c = c, .n = n, .m = m};
  halves(&w, step_rows, threads);
}

void wave_adjoint(float *du, float *dup, float *g, float c, ptrdiff_t n, ptrdiff_t m, int how, int threads) {
  Wave w = {.du = du, .dup = dup, .g = g, .c = c, .n = n, .m = m, .how = how};
  halves(&w, gather_rows, threads);
  if (!(how & KEEP_G)) halves(&w, clear_rows, threads);
}
