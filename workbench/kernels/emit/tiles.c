// Tiles in generated C: parts that `c_text.c_texts` reads by their names.

//// TOTAL
#define WB_TOTAL(T, out, t, n) do { \
    T wb_p[16] = {0}; \
    for (int32_t wb_k = 0; wb_k + 16 <= (n); wb_k += 16) \
        for (int32_t wb_l = 0; wb_l < 16; ++wb_l) wb_p[wb_l] = (T)(wb_p[wb_l] + (t)[wb_k + wb_l]); \
    for (int32_t wb_k = (n) / 16 * 16; wb_k < (n); ++wb_k) wb_p[wb_k % 16] = (T)(wb_p[wb_k % 16] + (t)[wb_k]); \
    for (int32_t wb_h = 8; wb_h; wb_h /= 2) \
        for (int32_t wb_l = 0; wb_l < wb_h; ++wb_l) wb_p[wb_l] = (T)(wb_p[wb_l] + wb_p[wb_l + wb_h]); \
    out = wb_p[0]; \
} while (0);

// Blocks of ROWS x COLUMNS sums in registers: for that, loops over their rows must be written out, also where a compiler
// is told to be sparing. What is left over goes number by number, in the same order over p.
//// MATMUL
#ifdef __AVX512F__
enum { WB_ROWS = 8, WB_BYTES = 128 };
#else
enum { WB_ROWS = 4, WB_BYTES = 64 };
#endif
#define WB_UNROLL _Pragma("GCC unroll 8")
#define WB_MATMUL(T, n, m, k, c, a, b) wb_matmul_##T(n, m, k, c, a, b);
#define WB_DEFINE_MATMUL(T, FMA) \
static __attribute__((noinline)) void wb_matmul_##T( \
    int32_t n, int32_t m, int32_t k, T *restrict c, const T *a, const T *b) { \
    enum { COLUMNS = WB_BYTES / sizeof(T) }; \
    int32_t whole = n / WB_ROWS * WB_ROWS, wide = m / COLUMNS * COLUMNS; \
    for (int32_t i = 0; i < whole; i += WB_ROWS) for (int32_t j = 0; j < wide; j += COLUMNS) { \
        T s[WB_ROWS][COLUMNS]; \
        WB_UNROLL for (int32_t r = 0; r < WB_ROWS; ++r) \
            for (int32_t q = 0; q < COLUMNS; ++q) s[r][q] = c[(i + r) * m + j + q]; \
        for (int32_t p = 0; p < k; ++p) WB_UNROLL for (int32_t r = 0; r < WB_ROWS; ++r) \
            for (int32_t q = 0; q < COLUMNS; ++q) s[r][q] = FMA(a[(i + r) * k + p], b[p * m + j + q], s[r][q]); \
        WB_UNROLL for (int32_t r = 0; r < WB_ROWS; ++r) \
            for (int32_t q = 0; q < COLUMNS; ++q) c[(i + r) * m + j + q] = s[r][q]; \
    } \
    for (int32_t i = 0; i < n; ++i) { \
        int32_t from = i < whole ? wide : 0; \
        for (int32_t p = 0; p < k; ++p) \
            for (int32_t j = from; j < m; ++j) c[i * m + j] = FMA(a[i * k + p], b[p * m + j], c[i * m + j]); \
    } \
}

// Without an instruction for a * b + c the function would be a slow call.
//// FMA
#ifdef __FMA__
#define WB_FMA_float __builtin_fmaf
#define WB_FMA_double __builtin_fma
#else
#define WB_FMA_float(a, b, c) ((a) * (b) + (c))
#define WB_FMA_double WB_FMA_float
#endif

// x holds y at first; rows are done in the order in which they depend on each other.
//// SOLVE
#define WB_DEFINE_SOLVE(T) \
static __attribute__((noinline)) void wb_solve_##T(int32_t n, int32_t m, T *restrict x, const T *a, int32_t upper) { \
    for (int32_t r = 0; r < n; ++r) { \
        int32_t i = upper ? n - 1 - r : r; \
        for (int32_t s = 0; s < r; ++s) { \
            int32_t j = upper ? i + 1 + s : s; \
            for (int32_t k = 0; k < m; ++k) x[i * m + k] -= a[i * n + j] * x[j * m + k]; \
        } \
        for (int32_t k = 0; k < m; ++k) x[i * m + k] /= a[i * n + i]; \
    } \
}
#define WB_SOLVE(T, n, m, x, a, upper) wb_solve_##T(n, m, x, a, upper);

//// CHOLESKY
#define WB_ROOT_float sqrtf
#define WB_ROOT_double sqrt
#define WB_DEFINE_CHOLESKY(T) \
static __attribute__((noinline)) void wb_cholesky_##T(int32_t n, T *c) { \
    for (int32_t j = 0; j < n; ++j) for (int32_t i = 0; i < n; ++i) { \
        if (i < j) { c[i * n + j] = 0; continue; } \
        T s = c[i * n + j]; \
        for (int32_t p = 0; p < j; ++p) s -= c[i * n + p] * c[j * n + p]; \
        c[i * n + j] = i == j ? WB_ROOT_##T(s) : s / c[j * n + j]; \
    } \
}
#define WB_CHOLESKY(T, n, c) wb_cholesky_##T(n, c);

// Rows of n = 2^k: elements change places by their bits read backward, then halves are put together.
//// FFT
#define WB_DEFINE_FFT(T, COS, SIN) \
static __attribute__((noinline)) void wb_fft_##T(int32_t rows, int32_t n, T *restrict c, int32_t sign) { \
    T *re = c, *im = c + rows * n; \
    for (int32_t i = 1, j = 0; i < n; ++i) { \
        int32_t bit = n >> 1; \
        for (; j & bit; bit >>= 1) j ^= bit; \
        j ^= bit; \
        if (i < j) for (int32_t r = 0; r < rows * n; r += n) { \
            T x = re[r + i], y = im[r + i]; \
            re[r + i] = re[r + j]; im[r + i] = im[r + j]; re[r + j] = x; im[r + j] = y; \
        } \
    } \
    for (int32_t h = 1; h < n; h *= 2) for (int32_t j = 0; j < h; ++j) { \
        T a = (T)(sign * 3.14159265358979323846 * j / h), u = COS(a), v = SIN(a); \
        for (int32_t k = j; k < rows * n; k += 2 * h) { \
            T x = u * re[k + h] - v * im[k + h], y = u * im[k + h] + v * re[k + h]; \
            re[k + h] = re[k] - x; im[k + h] = im[k] - y; re[k] += x; im[k] += y; \
        } \
    } \
}
#define WB_FFT(T, rows, n, c, sign) wb_fft_##T(rows, n, c, sign);

//// DFT
#define WB_DFT(T, rows, n, out, t, sign) WB_TILE(wb_k, (rows) * (n)) { \
    const int32_t wb_r = wb_k / (n) * (n), wb_m = (rows) * (n); \
    T wb_x = 0, wb_y = 0; \
    for (int32_t wb_j = 0; wb_j < (n); ++wb_j) { \
        int32_t wb_p = (int32_t)((int64_t)(wb_k - wb_r) * wb_j % (n)); \
        T wb_a = (T)((sign) * 6.28318530717958647692 * wb_p / (n)), wb_u = (T)cos(wb_a), wb_v = (T)sin(wb_a); \
        wb_x += wb_u * (t)[wb_r + wb_j] - wb_v * (t)[wb_m + wb_r + wb_j]; \
        wb_y += wb_u * (t)[wb_m + wb_r + wb_j] + wb_v * (t)[wb_r + wb_j]; \
    } \
    (out)[wb_k] = wb_x; (out)[wb_m + wb_k] = wb_y; \
}

// A product that met 0 * inf is taken again, number by number, where the factor that is an adjoint is 0.
//// MATMUL_ADJOINT
#define WB_MATMUL_ADJOINT(T, n, m, k, c, a, b, side) do { \
    bool wb_ok = true; \
    for (int32_t wb_i = 0; wb_i < (n) * (k); ++wb_i) wb_ok &= (a)[wb_i] - (a)[wb_i] == 0; \
    for (int32_t wb_i = 0; wb_i < (k) * (m); ++wb_i) wb_ok &= (b)[wb_i] - (b)[wb_i] == 0; \
    if (wb_ok) { WB_MATMUL(T, n, m, k, c, a, b) } \
    else WB_TILE(wb_k, (n) * (m)) for (int32_t wb_j = 0; wb_j < (k); ++wb_j) { \
        T wb_x = (a)[wb_k / (m) * (k) + wb_j], wb_y = (b)[wb_j * (m) + wb_k % (m)]; \
        if ((side) == 1 ? wb_x != 0 : wb_y != 0) (c)[wb_k] += wb_x * wb_y; \
    } \
} while (0);
