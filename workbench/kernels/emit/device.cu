// What generated CUDA stands on: parts that `c_text.c_texts` reads by their names.

//// TYPES
typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long int64_t;
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#define restrict __restrict__
#define WB_FN static __device__ __forceinline__
#define WB_INF __longlong_as_double(0x7ff0000000000000LL)
#define WB_INFF __int_as_float(0x7f800000)
#define WB_NAN __longlong_as_double(0x7ff8000000000000LL)
#define WB_NANF __int_as_float(0x7fc00000)
#define WB_AT(T, p, offset) (*(T *)((char *)(p) + (offset)))
#define WB_INT(x) (x)
#define wb_pow pow
#define wb_powf powf
#define wb_sinf sinf
#define wb_cosf cosf

// float16 is stored as 16 bits and computed as float; the conversions are single instructions.
//// HALF
struct _Float16 {
    unsigned short bits;
    _Float16() = default;
    template <class T> __device__ __forceinline__ _Float16(T x) {
        float f = (float)x;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(f));
    }
    __device__ __forceinline__ _Float16(double x) { asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(x)); }
    __device__ __forceinline__ operator float() const {
        float f;
        asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(bits));
        return f;
    }
};

//// CHECKS
#define wb_in(i, n) ((uint64_t)(i) < (uint64_t)(n))
static __device__ __noinline__ void wb_fail(
    int64_t *status, int64_t code, int64_t access, int64_t thread, int64_t count, int64_t i0, int64_t i1, int64_t i2,
    int64_t i3, int64_t i4, int64_t i5, int64_t n0, int64_t n1, int64_t n2, int64_t n3, int64_t n4, int64_t n5) {
    int64_t all[15] = {access, thread, count, i0, i1, i2, i3, i4, i5, n0, n1, n2, n3, n4, n5};
    if (!status || atomicCAS((unsigned long long *)status, 0ULL, (unsigned long long)code)) return;
    for (int k = 0; k < 15; ++k) status[1 + k] = all[k];
}
#define wb_full(status, access, thread) wb_fail(status, 2, access, thread, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)

//// STACK
#define wb_log wb_stack
#define WB_ROUND(size) (((int64_t)(size) + 7) & ~(int64_t)7)
struct wb_bytes { char *base; int64_t top, log, capacity; bool failed; };
struct wb_entry { char *place; int64_t size; };
WB_FN bool wb_room(wb_bytes *s, int64_t size) {
    if (!s->failed && s->top + s->log + WB_ROUND(size) <= s->capacity) return true;
    s->failed = true;
    return false;
}
WB_FN bool wb_left(wb_bytes *s, int64_t size) { return !s->failed && s->top >= WB_ROUND(size); }
#define WB_PUSH(T, v) (*(T *)(wb_stack.base + wb_stack.top) = (v), wb_stack.top += WB_ROUND(sizeof(T)))
#define WB_POP(T, v) (wb_stack.top -= WB_ROUND(sizeof(T)), (v) = *(T *)(wb_stack.base + wb_stack.top))
WB_FN int64_t wb_mark(wb_bytes *s) { return s->log; }
WB_FN bool wb_keep(wb_bytes *s, void *place, int64_t size) {
    int64_t whole = (int64_t)sizeof(wb_entry) + WB_ROUND(size);
    if (!wb_room(s, whole)) return false;
    s->log += whole;
    char *at = s->base + s->capacity - s->log;
    *(wb_entry *)at = wb_entry{(char *)place, size};
    for (int64_t k = 0; k < size; ++k) at[sizeof(wb_entry) + k] = ((char *)place)[k];
    return true;
}
WB_FN void wb_rollback(wb_bytes *s, int64_t mark) {
    while (s->log > mark) {
        char *at = s->base + s->capacity - s->log;
        wb_entry entry = *(wb_entry *)at;
        for (int64_t k = 0; k < entry.size; ++k) entry.place[k] = at[sizeof(wb_entry) + k];
        s->log -= (int64_t)sizeof(wb_entry) + WB_ROUND(entry.size);
    }
}

//// WITHIN
WB_FN bool wb_within(int32_t k, int64_t low, int64_t high) {
    return (uint32_t)k - (uint32_t)low < (uint32_t)high - (uint32_t)low;
}

//// OVER
template <class D> WB_FN uint32_t wb_over(uint32_t n, const D &d) { return __umulhi(2 * n, d.factor) >> d.shift; }

// A read-modify-write of a cell that other threads may touch, returning the old value.
//// UPDATE
HEAD {
    WORD *cell = (WORD *)p, seen = *(volatile WORD *)cell, before, after;
    T old;
    do {
        before = seen;
        memcpy(&old, &before, sizeof old);
        T next = AFTER;
        memcpy(&after, &next, sizeof next);
        seen = atomicCAS(cell, before, after);
    } while (seen != before);
    return old;
}

// `here` is the same for all threads in it, as they are together when they ask; so is `same`, and every way through.
//// WARP_SUM
template <class T> WB_FN T wb_sum_of_all(T v) {
    for (int step = 16; step; step >>= 1) v += __shfl_xor_sync(0xffffffffu, v, step);
    return v;
}
#if __CUDA_ARCH__ < 700
template <class T> WB_FN void wb_warp_add(T *p, T v) { atomicAdd(p, v); }
#else
template <class T> static __device__ __noinline__ T wb_sum_in_lowest(unsigned here, unsigned lane, T v) {
    unsigned above = here & (0xfffffffeu << lane), rank = __popc(here & ~(0xffffffffu << lane));
    for (; __any_sync(here, above); rank >>= 1) {
        int next = __ffs(above) - 1;
        T other = __shfl_sync(here, v, next < 0 ? lane : next);
        if (next >= 0) v += other;
        above &= __ballot_sync(here, !(rank & 1));
    }
    return v;
}
template <class T> WB_FN void wb_warp_add(T *p, T v) {
    unsigned here = __activemask(), lane = threadIdx.x & 31;
    int same;
    __match_all_sync(here, (unsigned long long)p, &same);
    if (!same) { atomicAdd(p, v); return; }
    v = here == 0xffffffffu ? wb_sum_of_all(v) : wb_sum_in_lowest(here, lane, v);
    if (lane == __ffs(here) - 1) atomicAdd(p, v);
}
#endif

// For all threads of a block; null in those that have nothing to add, else the same place. Blocks are whole warps.
//// BLOCK_SUM
template <class T> static __device__ __noinline__ void wb_block_add(T *p, T v) {
    __shared__ T parts[32], *place;
    if (threadIdx.x == 0) place = 0;
    __syncthreads();
    if (p) place = p;
    v = wb_sum_of_all(v);
    if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = v;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    v = wb_sum_of_all(threadIdx.x < blockDim.x >> 5 ? parts[threadIdx.x] : 0);
    if (threadIdx.x == 0 && place) atomicAdd(place, v);
}

// A vector in the fewest words that its alignment allows, of N components each; accesses stay those to components.
//// WORDS
template <class C, int N> struct __align__(N * sizeof(C)) wb_word { C c[N]; };
template <class C, int N, class T> WB_FN T wb_load(const T *p) {
    T v;
    for (int k = 0; k < (int)(sizeof(T) / sizeof(C)); k += N) {
        wb_word<C, N> w = ((const wb_word<C, N> *)p)[k / N];
        for (int j = 0; j < N; ++j) v.c[k + j] = w.c[j];
    }
    return v;
}
template <class C, int N, class T> WB_FN void wb_store(T *p, T v) {
    for (int k = 0; k < (int)(sizeof(T) / sizeof(C)); k += N) {
        wb_word<C, N> w;
        for (int j = 0; j < N; ++j) w.c[j] = v.c[k + j];
        ((wb_word<C, N> *)p)[k / N] = w;
    }
}
