// What generated C for a processor stands on: parts that `c_text.c_texts` reads by their names.

// WB_INT: gcc would make `(float)(int)x` the trunc of x, which has a -0.
// WB_FINITE: `x == 0 ? 0 : x * y` for a finite y that is not 0: the sum with 0 makes 0 of -0.
// WB_PRODUCT: gcc from 12 on contracts a * b - c beside d * e + f to one vfmaddsub, in spite of -ffp-contract=off.
//// TYPES
typedef __INT8_TYPE__ int8_t; typedef __INT16_TYPE__ int16_t; typedef __INT32_TYPE__ int32_t;
typedef __INT64_TYPE__ int64_t; typedef __UINT8_TYPE__ uint8_t; typedef __UINT16_TYPE__ uint16_t;
typedef __UINT32_TYPE__ uint32_t; typedef __UINT64_TYPE__ uint64_t;
#define bool _Bool
#define true ((bool)1)
#define false ((bool)0)
#define WB_FN static inline __attribute__((unused))
#define WB_INF __builtin_inf()
#define WB_INFF __builtin_inff()
#define WB_NAN __builtin_nan("")
#define WB_NANF __builtin_nanf("")
#define WB_AT(T, p, offset) (*(T *)((char *)(p) + (offset)))
#if defined(__clang__)
#define WB_INT(x) (x)
#define WB_PRODUCT(x) (x)
#elif __GNUC__ >= 12
#define WB_INT(x) __builtin_assoc_barrier(x)
#define WB_PRODUCT(x) __builtin_assoc_barrier(x)
#else
#define WB_PRODUCT(x) (x)
#define WB_INT(x) __extension__({ __typeof__(x) wb_int = (x); __asm__("" : "+r"(wb_int)); wb_int; })
#endif
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define WB_FINITE(x, y, fma) fma(x, y, 0)
#else
#define WB_FINITE(x, y, fma) (WB_PRODUCT((x) * (y)) + 0)
#endif
int printf(const char *, ...);
void *realloc(void *, __SIZE_TYPE__);
void free(void *);
#define WB_TEXT(x) #x
#define WB_LABEL(prefix, name) WB_TEXT(prefix) name
double wb_pow(double, double) __asm__(WB_LABEL(__USER_LABEL_PREFIX__, "pow")) __attribute__((const));
float wb_powf(float, float) __asm__(WB_LABEL(__USER_LABEL_PREFIX__, "powf")) __attribute__((const));

//// CHECKS
#define wb_in(i, n) ((uint64_t)(i) < (uint64_t)(n))
static __attribute__((noinline, cold, unused)) void wb_fail(
    int64_t *status, int64_t code, int64_t access, int64_t thread, int64_t count, int64_t i0, int64_t i1, int64_t i2,
    int64_t i3, int64_t i4, int64_t i5, int64_t n0, int64_t n1, int64_t n2, int64_t n3, int64_t n4, int64_t n5) {
    int64_t none = 0, all[15] = {access, thread, count, i0, i1, i2, i3, i4, i5, n0, n1, n2, n3, n4, n5};
    if (!status || !__atomic_compare_exchange_n(status, &none, code, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return;
    for (int k = 0; k < 15; ++k) status[1 + k] = all[k];
}
#define wb_full(status, access, thread) wb_fail(status, 2, access, thread, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)

// Thread indices are no less than 0: without knowing it, compilers gather `a[i - 1]` number by number, in case it wraps.
//// FIRST
WB_FN int32_t wb_first(int64_t n) {
    if (n < 0 || n > 2147483647) __builtin_unreachable();
    return (int32_t)n;
}

//// TURNS
WB_FN int64_t wb_turns(int64_t start, int64_t stop, int64_t step) {
    if (step > 0) return start < stop ? (stop - start - 1) / step + 1 : 0;
    if (step < 0) return start > stop ? (start - stop - 1) / -step + 1 : 0;
    return 0;
}

//// STACK
typedef struct { char *base; int64_t top, capacity; bool failed; } wb_bytes;
static __attribute__((noinline)) bool wb_grow(wb_bytes *s, int64_t size) {
    int64_t capacity = 2 * (s->capacity + size) + 4096;
    char *base = realloc(s->base, capacity);
    if (!base) { s->failed = 1; return 0; }
    s->base = base; s->capacity = capacity;
    return 1;
}
WB_FN bool wb_room(wb_bytes *s, int64_t size) {
    return !s->failed && (s->top + size <= s->capacity || wb_grow(s, size));
}
WB_FN bool wb_left(wb_bytes *s, int64_t size) { return !s->failed && s->top >= size; }
#define WB_PUSH(T, v) \
    (__builtin_memcpy(wb_stack.base + wb_stack.top, &(v), sizeof(T)), wb_stack.top += (int64_t)sizeof(T))
#define WB_POP(T, v) \
    (wb_stack.top -= (int64_t)sizeof(T), __builtin_memcpy(&(v), wb_stack.base + wb_stack.top, sizeof(T)))
typedef struct { char *place; int64_t size; } wb_entry;
WB_FN int64_t wb_mark(wb_bytes *s) { return s->top; }
WB_FN bool wb_keep(wb_bytes *s, void *place, int64_t size) {
    wb_entry entry = {place, size};
    if (!wb_room(s, size + (int64_t)sizeof entry)) return 0;
    __builtin_memcpy(s->base + s->top, place, size);
    __builtin_memcpy(s->base + s->top + size, &entry, sizeof entry);
    s->top += size + (int64_t)sizeof entry;
    return 1;
}
WB_FN void wb_rollback(wb_bytes *s, int64_t mark) {
    wb_entry entry;
    while (s->top > mark) {
        __builtin_memcpy(&entry, s->base + (s->top -= (int64_t)sizeof entry), sizeof entry);
        __builtin_memcpy(entry.place, s->base + (s->top -= entry.size), entry.size);
    }
}

// What may never end asks after so many turns of its loops; not at each, so that it costs nothing beside a turn.
//// ASK
int (*wb_ask)(void);
#define WB_ASK if (++wb_turn >= 262144) { wb_turn = 0; if (wb_ask && wb_ask()) goto wb_end; }

// A read-modify-write of a cell that other workers may touch, returning the old value.
//// UPDATE
HEAD {
    union { T v; WORD b; } seen, next;
    T old;
    seen.b = __atomic_load_n((WORD *)p, __ATOMIC_RELAXED);
    do { old = seen.v; next.v = AFTER; }
    while (!__atomic_compare_exchange_n((WORD *)p, &seen.b, next.b, 1, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
    return old;
}

// The entry of a launch whose inner box needs no tests: NAME, RANK, POINTERS and AROUND are put in.
//// BOXED_ENTRY
void NAME(const void *block, int64_t begin, int64_t end) {
    const NAME_args *args = block;
    int64_t all[2 * RANK], in[2 * RANK];
    for (int k = 0; k < RANK; ++k) {
        all[2 * k] = k ? 0 : begin;
        all[2 * k + 1] = k ? args->dim[k] : end;
        for (int e = 2 * k; e < 2 * k + 2; ++e) {
            int64_t x = args->wb_box[e];
            in[e] = x < all[2 * k] ? all[2 * k] : x > all[2 * k + 1] ? all[2 * k + 1] : x;
        }
    }
    NAME_inner(args, inPOINTERS);
AROUND}

//// AROUND
    int64_t part[2 * RANK];
    for (int e = 0; e < 2 * RANK; ++e) part[e] = all[e];
    for (int k = 0; k < RANK; ++k) {
        part[2 * k + 1] = in[2 * k];
        NAME_cells(args, partPOINTERS);
        part[2 * k] = in[2 * k + 1];
        part[2 * k + 1] = all[2 * k + 1];
        NAME_cells(args, partPOINTERS);
        part[2 * k] = in[2 * k];
        part[2 * k + 1] = in[2 * k + 1];
    }

// The entry of a launch whose threads are tested, a block of them at once: NAME, INNER, WORDS, NOTED, POINTERS_.. are put in.
//// TESTED_ENTRY
void NAME(const void *block, int64_t begin, int64_t end) {
    const NAME_args *args = block;
    NAME_args given = *args;
    int64_t noted[WORDS] = {0}, inner = INNER, size = (inner + 1023) / inner;
    given.status = noted;
    for (int64_t b = begin, e; b < end; b = e) {
        e = b + size < end ? b + size : end;
        NAME_tests(&given, b, ePOINTERS_tests);
        if (!noted[NOTED]) {
            NAME_free(args, b, ePOINTERS_free);
            continue;
        }
        NAME_cells(args, b, ePOINTERS_cells);
        if (args->status && args->status[0]) return;
        noted[NOTED] = 0;
    }
}
