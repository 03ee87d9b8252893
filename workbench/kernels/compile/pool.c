#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>
#if defined(_WIN32)
#include <windows.h>
#elif defined(__linux__)
#include <sys/syscall.h>
#endif
#if defined(__x86_64__) || defined(__i386__)
#define PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define PAUSE() __asm__ volatile("yield")
#else
#define PAUSE() ((void)0)
#endif
/* Time, in a unit of the machine's own: only ratios are taken. */
static int64_t now(void) {
#if defined(__x86_64__) || defined(__i386__)
    return (int64_t)__builtin_ia32_rdtsc();
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * (int64_t)1000000000 + t.tv_nsec;
#endif
}
/* Signals: loops that may never end ask now and then whether they are to stop. Only Python's main thread may run its
   handlers of signals; what one of them raised is kept until the launch is over. `mine`: is this a thread of the pool. */
static struct { int (*ensure)(void); void (*release)(int); int (*check)(void);
    void (*fetch)(void **, void **, void **); void (*normalize)(void **, void **, void **); } python;
static struct { void *type, *value, *trace; } raised;
static __thread int mine;
static int owned_by_main;
static unsigned long main_thread; /* as Windows numbers them; elsewhere the system knows */
int wb_stop;

void wb_python(int (*ensure)(void), void (*release)(int), int (*check)(void),
               void (*fetch)(void **, void **, void **), void (*normalize)(void **, void **, void **),
               unsigned long main) {
    python.ensure = ensure; python.release = release; python.check = check;
    python.fetch = fetch; python.normalize = normalize;
    main_thread = main;
}

static int is_main(void) {
#if defined(_WIN32)
    return GetCurrentThreadId() == main_thread;
#elif defined(__APPLE__)
    return pthread_main_np();
#else
    return (int)syscall(SYS_gettid) == (int)getpid();
#endif
}

static int64_t processors(void) {
#if defined(_WIN32)
    SYSTEM_INFO system;
    GetSystemInfo(&system);
    return system.dwNumberOfProcessors;
#else
    return sysconf(_SC_NPROCESSORS_ONLN);
#endif
}

int wb_asked(void) {
    if (mine) return __atomic_load_n(&owned_by_main, __ATOMIC_RELAXED) && __atomic_load_n(&wb_stop, __ATOMIC_RELAXED);
    if (!is_main()) return 0;
    if (wb_stop || !python.ensure) return wb_stop;
    int state = python.ensure();
    if (python.check()) {
        python.fetch(&raised.type, &raised.value, &raised.trace);
        python.normalize(&raised.type, &raised.value, &raised.trace);
        __atomic_store_n(&wb_stop, 1, __ATOMIC_RELAXED);
    }
    python.release(state);
    return wb_stop;
}

/* The exception that stopped the launch: it belongs to the caller. */
void *wb_raised(void) {
    void *value = raised.value;
    raised.value = 0;
    wb_stop = 0;
    return value;
}

enum { TICK_NS = 100000000, SLOTS = 256, MANY = 2000, SPIN = 500, FEW = 200, PATIENCE = 32, LIGHT = 8, MOST = 65536 };
typedef void (*wb_kernel)(const void *, int64_t, int64_t);
static pthread_mutex_t owner = PTHREAD_MUTEX_INITIALIZER, lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER, done = PTHREAD_COND_INITIALIZER;
static int workers, prepared, spins = MANY; /* about a millisecond: most launches are over before a sleeper wakes */
static uint64_t number, light;
/* `word`: the number of the job << 16 | the pieces of a share << 8 | threads. What stands beside it is read only by
   those who have claimed a piece: it lasts until all pieces are done. */
static struct { uint64_t word; wb_kernel kernel; const void *args; int64_t begin, end, pad[3]; } job
    __attribute__((aligned(64)));
static struct { int sleeping, waiting, pad[14]; } who __attribute__((aligned(64)));
/* Of each thread: how many pieces of its share are claimed, and how many pieces it has done; number << 16 | count. They
   lie apart, since the caller looks at the second all the time. */
static struct { uint64_t claimed, pad[7], did, pad2[7]; } slot[SLOTS] __attribute__((aligned(64)));
/* Of launches with no, one and more pieces a share: the time that sharing has saved, and how many run alone now because
   it has cost time. A loss is worked off when launches have taken wb_loss times as long; at 0, all share again at once. */
int wb_loss = 16;
static struct { int64_t saved, alone; } sharing[3] __attribute__((aligned(64)));

/* A turn of waiting. After a short spin whoever else wants this processor gets it, another thread of the launch too. */
static void wait(int turn) {
    if (turn < SPIN) PAUSE();
    else sched_yield();
}

static int threads_of(uint64_t word) { return (int)(word & 255); }
static int pieces_of(uint64_t word) { return (int)(word >> 8 & 255); }
static int count_of(uint64_t seen, uint64_t word) { return seen >> 16 == word >> 16 ? (int)(seen & 0xffff) : 0; }

/* The next piece of a share; -1 if none is left, or if the job is over. */
static int claim(int s, uint64_t word) {
    uint64_t seen = __atomic_load_n(&slot[s].claimed, __ATOMIC_ACQUIRE);
    for (;;) {
        int taken = count_of(seen, word);
        if (taken == pieces_of(word) || seen >> 16 > word >> 16) return -1;
        if (__atomic_compare_exchange_n(&slot[s].claimed, &seen, (word >> 16 << 16) + taken + 1, 0, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE))
            return taken;
    }
}

static void run(int s, int piece, uint64_t word) {
    int threads = threads_of(word), pieces = pieces_of(word);
    int64_t n = job.end - job.begin;
    int64_t low = job.begin + n * s / threads, size = job.begin + n * (s + 1) / threads - low;
    int64_t begin = low + size * piece / pieces, end = low + size * (piece + 1) / pieces;
    if (begin < end) job.kernel(job.args, begin, end);
}

/* Do what is left of a share: so many pieces. */
static int take(int s, uint64_t word) {
    int count = 0;
    for (int piece; (piece = claim(s, word)) >= 0; ++count) run(s, piece, word);
    return count;
}

/* Each thread has its share, the same in every launch of one form. Where shares have several pieces, who is through
   helps the others; a share of one piece is for its worker, or for the caller when that has waited for a while. */
static void *worker(void *seat) {
    int me = (int)(intptr_t)seat;
    mine = 1;
    uint64_t seen = 0;
    for (int idle = 0;;) {
        uint64_t word = __atomic_load_n(&job.word, __ATOMIC_ACQUIRE);
        int threads = threads_of(word);
        if (word != seen && me < threads) {
            uint64_t did = word >> 16 << 16;
            for (int k = 0; k < (pieces_of(word) == 1 ? 1 : threads); ++k) {
                did += take(me + k < threads ? me + k : me + k - threads, word);
                __atomic_store_n(&slot[me].did, did, __ATOMIC_SEQ_CST);
            }
            idle = 0;
            if (__atomic_load_n(&who.waiting, __ATOMIC_SEQ_CST)) {
                pthread_mutex_lock(&lock);
                pthread_cond_signal(&done);
                pthread_mutex_unlock(&lock);
            }
        }
        seen = word;
        if (++idle < __atomic_load_n(&spins, __ATOMIC_RELAXED)) { wait(idle); continue; }
        pthread_mutex_lock(&lock);
        __atomic_fetch_add(&who.sleeping, 1, __ATOMIC_SEQ_CST);
        while (__atomic_load_n(&job.word, __ATOMIC_SEQ_CST) == seen) pthread_cond_wait(&wake, &lock);
        __atomic_fetch_sub(&who.sleeping, 1, __ATOMIC_SEQ_CST);
        pthread_mutex_unlock(&lock);
    }
    return 0;
}

/* The threads of the parent do not exist in a forked child. */
static void forked(void) {
    pthread_mutex_init(&owner, 0); pthread_mutex_init(&lock, 0);
    pthread_cond_init(&wake, 0); pthread_cond_init(&done, 0);
    workers = who.sleeping = who.waiting = 0;
    job.word = 0;
}

static void grow(int wanted) {
    pthread_attr_t attributes;
    pthread_t made;
#if !defined(_WIN32)
    if (!prepared) { prepared = 1; pthread_atfork(0, 0, forked); }
#endif
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    for (intptr_t seat; workers < wanted; ++workers) {
        seat = workers + 1;
        if (pthread_create(&made, &attributes, worker, (void *)seat)) break;
    }
    pthread_attr_destroy(&attributes);
    if (workers >= processors()) __atomic_store_n(&spins, FEW, __ATOMIC_RELAXED); /* they would spin
        while others have work */
}

static int over(uint64_t word, int mine) {
    int left = threads_of(word) * pieces_of(word) - mine;
    for (int s = 1; s < threads_of(word); ++s) left -= count_of(__atomic_load_n(&slot[s].did, __ATOMIC_SEQ_CST), word);
    return left == 0;
}

/* The caller's part, and its wait for the others: how many pieces it did, and when it was through with them. No line
   of memory that a worker will write is looked at before. */
static int work(uint64_t word, int64_t *through) {
    int alone = pieces_of(word) == 1, did = alone;
    if (alone) run(0, 0, word);
    *through = now();
    for (int k = 0; k < spins; ++k) {
        if (k == (alone ? PATIENCE : 0)) {
            for (int s = alone; s < threads_of(word); ++s) did += take(s, word);
            *through = now();
        }
        if (over(word, did)) return did;
        wait(k);
    }
    pthread_mutex_lock(&lock);
    __atomic_store_n(&who.waiting, 1, __ATOMIC_SEQ_CST);
    while (!over(word, did)) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += TICK_NS;
        if (until.tv_nsec >= 1000000000) { until.tv_nsec -= 1000000000; ++until.tv_sec; }
        pthread_cond_timedwait(&done, &lock, &until);
        if (!owned_by_main || over(word, did)) continue;
        pthread_mutex_unlock(&lock);
        wb_asked();
        pthread_mutex_lock(&lock);
    }
    __atomic_store_n(&who.waiting, 0, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&lock);
    return did;
}

/* A worker that other programs keep from its processor is waited for longer than its share is worth. So the books are
   kept: what a launch alone takes is told by the caller's pace. After a loss launches run alone until it is a small part
   of their time. Old savings do not cover much. */
static void account(int kind, uint64_t word, int did, int64_t own, int64_t whole) {
    int64_t single = did ? own * threads_of(word) * pieces_of(word) / did : whole;
    int64_t saved = sharing[kind].saved + single - whole;
    sharing[kind].saved = saved < 0 ? 0 : saved < 4 * single ? saved : 4 * single;
    if (saved >= 0 || single <= 0) return;
    int64_t alone = wb_loss * -saved / single;
    sharing[kind].alone = alone < MOST ? alone : MOST;
}

/* `team`: threads, and << 32 the pieces of a share: several, if the launch takes long enough for others to help; 0, if
   it is over before a sleeper wakes: then sleepers are woken for one in so many only. For the owner of the pool. */
static void launch(wb_kernel kernel, const void *args, int64_t begin, int64_t end, int64_t team) {
    int64_t threads = team & 0xffffffff, pieces = team >> 32;
    int asleep = __atomic_load_n(&who.sleeping, __ATOMIC_RELAXED); /* who falls asleep now: the caller does its share */
    if (threads > end - begin) threads = end - begin;
    if (threads >= SLOTS) threads = SLOTS - 1;
    if (threads > 1 && workers < threads - 1) grow((int)threads - 1);
    if (threads > workers + 1) threads = workers + 1;
    int kind = pieces > 1 ? 2 : (int)pieces;
    if (threads > 1 && wb_loss && sharing[kind].alone > 0) { --sharing[kind].alone; threads = 1; }
    if (threads <= 1 || (!pieces && asleep && ++light % LIGHT)) { kernel(args, begin, end); return; }
    int64_t start = now(), through;
    job.kernel = kernel; job.args = args; job.begin = begin; job.end = end;
    __atomic_store_n(&owned_by_main, is_main(), __ATOMIC_RELAXED);
    uint64_t word = ++number << 16 | (uint64_t)(pieces ? pieces : 1) << 8 | (uint64_t)threads;
    __atomic_store_n(&job.word, word, __ATOMIC_RELEASE);
    if (asleep) {
        pthread_mutex_lock(&lock);
        pthread_cond_broadcast(&wake);
        pthread_mutex_unlock(&lock);
    }
    int did = work(word, &through);
    account(kind, word, did, through - start, now() - start);
}

/* The caller works too; a second caller at the same time does its own work alone. */
void wb_parallel(wb_kernel kernel, const void *args, int64_t begin, int64_t end, int64_t team) {
    if (pthread_mutex_trylock(&owner)) { kernel(args, begin, end); return; }
    launch(kernel, args, begin, end, team);
    pthread_mutex_unlock(&owner);
}

typedef struct { char *to; const char *from; } wb_bytes;

/* Bytes copied, or cleared where `from` is null. */
void wb_move(const void *args, int64_t begin, int64_t end) {
    const wb_bytes *b = args;
    if (b->from) __builtin_memcpy(b->to + begin, b->from + begin, end - begin);
    else __builtin_memset(b->to + begin, 0, end - begin);
}

#define ADD(NAME, T) void NAME(const void *args, int64_t begin, int64_t end) { \
    const wb_bytes *b = args; \
    T *to = (T *)b->to; \
    const T *from = (const T *)b->from; \
    for (int64_t k = begin; k < end; ++k) to[k] += from[k]; \
}
ADD(wb_add32, float)
ADD(wb_add64, double)

/* One slice per worker, each with arguments of its own. */
typedef struct { wb_kernel kernel; const void *args; int64_t begin, end; } wb_slice;
void wb_slices(const void *args, int64_t begin, int64_t end) {
    const wb_slice *slices = args;
    for (const wb_slice *s = slices + begin; s < slices + end; ++s) s->kernel(s->args, s->begin, s->end);
}

/* to += from; from = 0, block by block: those that hold nothing are only read. */
#define MERGE(NAME, T, U) void NAME(const void *args, int64_t begin, int64_t end) { \
    const wb_bytes *b = args; \
    T *to = (T *)b->to, *from = (T *)b->from; \
    for (int64_t k = begin; k < end; k += 16) { \
        int64_t n = end - k < 16 ? end - k : 16; \
        U any = 0; \
        for (int64_t j = 0; j < n; ++j) any |= ((const U *)from)[k + j]; \
        if (any) for (int64_t j = 0; j < n; ++j) { to[k + j] += from[k + j]; from[k + j] = 0; } \
    } \
}
MERGE(wb_merge32, float, uint32_t)
MERGE(wb_merge64, double, uint64_t)

typedef struct { wb_kernel kernel; const void *args; int64_t begin, end, team; } wb_call;
void wb_replay(const wb_call *calls, int64_t n) {
    int taken = pthread_mutex_trylock(&owner);
    for (const wb_call *c = calls; c < calls + n; ++c)
        if (taken || c->team <= 1) c->kernel(c->args, c->begin, c->end);
        else launch(c->kernel, c->args, c->begin, c->end, c->team);
    if (!taken) pthread_mutex_unlock(&owner);
}

/* Conjugate gradients (Hestenes and Stiefel 1952): `times` makes ap of p, `prepare` z of r; without it z is r. */
typedef struct {
    const wb_call *times; int64_t n_times; const wb_call *prepare; int64_t n_prepare;
    void *b, *x, *p, *ap, *r, *z; int64_t n, most, restart, turn; double limit, residual;
    double *sizes; int64_t n_sizes;  /* of the first residuals */
} wb_system;
#define CG(NAME, T) \
static double NAME##_dot(const T *a, const T *b, int64_t n) { \
    T sums[16] = {0}; \
    double total = 0; \
    int64_t k = 0; \
    for (; k + 16 <= n; k += 16) for (int j = 0; j < 16; ++j) sums[j] += a[k + j] * b[k + j]; \
    for (; k < n; ++k) sums[k & 15] += a[k] * b[k]; \
    for (int j = 0; j < 16; ++j) total += sums[j]; \
    return total; \
} \
void NAME(wb_system *s) { \
    T *x = s->x, *p = s->p, *r = s->r, *z = s->z; \
    const T *b = s->b, *ap = s->ap; \
    for (int64_t n = s->n, first;;) { \
        for (int64_t k = 0; k < n; ++k) p[k] = x[k]; \
        wb_replay(s->times, s->n_times); \
        for (int64_t k = 0; k < n; ++k) r[k] = b[k] - ap[k]; \
        wb_replay(s->prepare, s->n_prepare); \
        for (int64_t k = 0; k < n; ++k) p[k] = z[k]; \
        double rz = NAME##_dot(r, z, n); \
        for (first = s->turn; !s->restart || s->turn - first < s->restart; ++s->turn) { \
            s->residual = __builtin_sqrt(z == r ? rz : NAME##_dot(r, r, n)); \
            if (s->turn < s->n_sizes) s->sizes[s->turn] = s->residual; \
            if (s->residual <= s->limit || s->turn >= s->most || !(s->residual < __builtin_inf())) return; \
            wb_replay(s->times, s->n_times); \
            double curvature = NAME##_dot(p, ap, n), old = rz; \
            if (curvature == 0 || (s->turn % 16 == 0 && wb_asked())) return; \
            T alpha = (T)(rz / curvature); \
            for (int64_t k = 0; k < n; ++k) { x[k] += alpha * p[k]; r[k] -= alpha * ap[k]; } \
            wb_replay(s->prepare, s->n_prepare); \
            rz = NAME##_dot(r, z, n); \
            T beta = (T)(old != 0 ? rz / old : 0); \
            for (int64_t k = 0; k < n; ++k) p[k] = z[k] + beta * p[k]; \
        } \
    } \
}
CG(wb_cg32, float)
CG(wb_cg64, double)
