// Tiles in generated CUDA, whose elements the threads of a block share out: `c_text.c_texts` reads it.

//// MACROS
#define WB_TILE(k, n) for (int32_t k = threadIdx.x; k < (n); k += blockDim.x)
#define WB_ONE if (threadIdx.x == 0)
#define WB_TOTAL(T, out, t, n) do { \
    __shared__ T wb_p[16]; \
    T wb_q[16]; \
    WB_TILE(wb_l, 16) { \
        T wb_s = 0; \
        for (int32_t wb_k = wb_l; wb_k < (n); wb_k += 16) wb_s = (T)(wb_s + (t)[wb_k]); \
        wb_p[wb_l] = wb_s; \
    } \
    __syncthreads(); \
    for (int32_t wb_l = 0; wb_l < 16; ++wb_l) wb_q[wb_l] = wb_p[wb_l]; \
    __syncthreads(); \
    for (int32_t wb_h = 8; wb_h; wb_h /= 2) \
        for (int32_t wb_l = 0; wb_l < wb_h; ++wb_l) wb_q[wb_l] = (T)(wb_q[wb_l] + wb_q[wb_l + wb_h]); \
    out = wb_q[0]; \
} while (0);
WB_FN float wb_fma(float a, float b, float c) { return fmaf(a, b, c); }
WB_FN double wb_fma(double a, double b, double c) { return fma(a, b, c); }
#define WB_MATMUL(T, n, m, k, c, a, b) WB_TILE(wb_k, (n) * (m)) { \
    T wb_s = (c)[wb_k]; \
    for (int32_t wb_j = 0; wb_j < (k); ++wb_j) \
        wb_s = wb_fma((a)[wb_k / (m) * (k) + wb_j], (b)[wb_j * (m) + wb_k % (m)], wb_s); \
    (c)[wb_k] = wb_s; \
}
WB_FN float wb_root(float x) { return sqrtf(x); }
WB_FN double wb_root(double x) { return sqrt(x); }
#define WB_SOLVE(T, n, m, x, a, upper) WB_TILE(wb_k, m) for (int32_t wb_r = 0; wb_r < (n); ++wb_r) { \
    int32_t wb_i = (upper) ? (n) - 1 - wb_r : wb_r; \
    T wb_s = (x)[wb_i * (m) + wb_k]; \
    for (int32_t wb_q = 0; wb_q < wb_r; ++wb_q) { \
        int32_t wb_j = (upper) ? wb_i + 1 + wb_q : wb_q; \
        wb_s -= (a)[wb_i * (n) + wb_j] * (x)[wb_j * (m) + wb_k]; \
    } \
    (x)[wb_i * (m) + wb_k] = wb_s / (a)[wb_i * (n) + wb_i]; \
}
#define WB_CHOLESKY(T, n, c) for (int32_t wb_j = 0; wb_j < (n); ++wb_j) { \
    WB_ONE { \
        T wb_s = (c)[wb_j * ((n) + 1)]; \
        for (int32_t wb_p = 0; wb_p < wb_j; ++wb_p) wb_s -= (c)[wb_j * (n) + wb_p] * (c)[wb_j * (n) + wb_p]; \
        (c)[wb_j * ((n) + 1)] = wb_root(wb_s); \
    } \
    __syncthreads(); \
    WB_TILE(wb_i, n) if (wb_i != wb_j) { \
        T wb_s = (c)[wb_i * (n) + wb_j]; \
        for (int32_t wb_p = 0; wb_p < wb_j; ++wb_p) wb_s -= (c)[wb_i * (n) + wb_p] * (c)[wb_j * (n) + wb_p]; \
        (c)[wb_i * (n) + wb_j] = wb_i < wb_j ? 0 : wb_s / (c)[wb_j * ((n) + 1)]; \
    } \
    __syncthreads(); \
}
#define WB_FFT(T, rows, n, c, sign) do { \
    T *wb_re = (c), *wb_im = (c) + (rows) * (n); \
    WB_TILE(wb_k, (rows) * (n)) { \
        int32_t wb_i = wb_k % (n), wb_j = 0; \
        for (int32_t wb_b = 1; wb_b < (n); wb_b *= 2) wb_j = 2 * wb_j + ((wb_i & wb_b) != 0); \
        if (wb_i < wb_j) { \
            int32_t wb_o = wb_k - wb_i + wb_j; \
            T wb_x = wb_re[wb_k], wb_y = wb_im[wb_k]; \
            wb_re[wb_k] = wb_re[wb_o]; wb_im[wb_k] = wb_im[wb_o]; wb_re[wb_o] = wb_x; wb_im[wb_o] = wb_y; \
        } \
    } \
    for (int32_t wb_h = 1; wb_h < (n); wb_h *= 2) { \
        __syncthreads(); \
        WB_TILE(wb_q, (rows) * (n) / 2) { \
            int32_t wb_j = wb_q % wb_h, wb_k = (wb_q - wb_j) * 2 + wb_j; \
            T wb_a = (T)((sign) * 3.14159265358979323846 * wb_j / wb_h), wb_u = (T)cos(wb_a), wb_v = (T)sin(wb_a); \
            T wb_x = wb_u * wb_re[wb_k + wb_h] - wb_v * wb_im[wb_k + wb_h]; \
            T wb_y = wb_u * wb_im[wb_k + wb_h] + wb_v * wb_re[wb_k + wb_h]; \
            wb_re[wb_k + wb_h] = wb_re[wb_k] - wb_x; wb_im[wb_k + wb_h] = wb_im[wb_k] - wb_y; \
            wb_re[wb_k] += wb_x; wb_im[wb_k] += wb_y; \
        } \
    } \
} while (0);
