// Factors of 3x3 matrices with loops, as `decompositions.py` has them written out: parts that `c_text.c_texts` reads by
// their names. T is the type of the numbers, F the suffix of its functions.
//// wb_svd3
void wb_svd3F(const T *m, T *out) {
    T size = 0, a[9];
    for (int32_t k = 0; k < 9; ++k) size = fabsF(m[k]) > size ? fabsF(m[k]) : size;
    if (size == 0) size = 1;
    T *const u = out, *const v = out + 12;
    for (int32_t k = 0; k < 9; ++k) { a[k] = m[k] / size; v[k] = k % 4 == 0; }
    for (int32_t n = 0; n < SWEEPS * 3; ++n) {
        const int32_t i = n % 3 == 2, j = n % 3 == 0 ? 1 : 2;
        T pp = 0, qq = 0, off = 0;
        for (int32_t r = 0; r < 9; r += 3) {
            pp += a[r + i] * a[r + i]; qq += a[r + j] * a[r + j]; off += a[r + i] * a[r + j];
        }
        const T gap = qq - pp;
        T root = sqrtF(gap * gap + 4 * (off * off)), t = 2 * off / (gap + copysignF(root, gap));
        if (fabsF(off) <= TINY) t = off * 0;
        const T c = 1 / sqrtF(t * t + 1), s = t * c;
        for (int32_t r = 0; r < 9; r += 3) {
            const T p = a[r + i], q = a[r + j]; a[r + i] = c * p - s * q; a[r + j] = s * p + c * q;
            const T x = v[r + i], y = v[r + j]; v[r + i] = c * x - s * y; v[r + j] = s * x + c * y;
        }
    }
    for (int32_t n = 0; n < 3; ++n) {
        const int32_t i = n == 2, j = n == 0 ? 1 : 2;
        if (!(a[i] * a[i] + a[3 + i] * a[3 + i] + a[6 + i] * a[6 + i]
              < a[j] * a[j] + a[3 + j] * a[3 + j] + a[6 + j] * a[6 + j])) continue;
        for (int32_t r = 0; r < 9; r += 3) {
            const T p = a[r + i], x = v[r + i]; a[r + i] = a[r + j]; a[r + j] = -p; v[r + i] = v[r + j]; v[r + j] = -x;
        }
    }
    T s = sqrtF(a[0] * a[0] + a[3] * a[3] + a[6] * a[6]);
    for (int32_t r = 0; r < 9; r += 3) u[r] = s != 0 ? a[r] / s : r == 0;
    out[9] = s * size;
    const T along = u[0] * a[1] + u[3] * a[4] + u[6] * a[7];
    T w[3], z[3]; for (int32_t r = 0; r < 3; ++r) w[r] = a[3 * r + 1] - u[3 * r] * along;
    s = sqrtF(w[0] * w[0] + w[1] * w[1] + w[2] * w[2]);
    const bool flat = fabsF(u[0]) < (T)0.6;
    z[0] = flat ? 0 : u[6]; z[1] = flat ? u[6] : 0; z[2] = flat ? -u[3] : -u[0];
    const T across = sqrtF(z[0] * z[0] + z[1] * z[1] + z[2] * z[2]);
    for (int32_t r = 0; r < 3; ++r) u[3 * r + 1] = s != 0 ? w[r] / s : z[r] / across;
    out[10] = s * size;
    u[2] = u[3] * u[7] - u[6] * u[4]; u[5] = u[6] * u[1] - u[0] * u[7]; u[8] = u[0] * u[4] - u[3] * u[1];
    out[11] = (u[2] * a[2] + u[5] * a[5] + u[8] * a[8]) * size;
}

//// wb_eig3
void wb_eig3F(const T *m, T *out) {
    T size = 0, a[9];
    for (int32_t k = 0; k < 9; ++k) size = fabsF(m[k]) > size ? fabsF(m[k]) : size;
    if (size == 0) size = 1;
    for (int32_t i = 0; i < 3; ++i) for (int32_t j = 0; j < 3; ++j) {
        a[3 * i + j] = (T)0.5 * (m[3 * i + j] / size + m[3 * j + i] / size);
        out[3 * i + j] = i == j;
    }
    for (int32_t n = 0; n < SWEEPS * 3; ++n) {
        const int32_t i = n % 3 == 2, j = n % 3 == 0 ? 1 : 2;
        const int32_t k = 3 - i - j;
        const T off = a[3 * i + j], gap = a[4 * j] - a[4 * i], x = a[3 * i + k], y = a[3 * j + k];
        T root = sqrtF(gap * gap + 4 * (off * off)), t = 2 * off / (gap + copysignF(root, gap));
        if (fabsF(off) <= TINY) t = off * 0;
        const T c = 1 / sqrtF(t * t + 1), s = t * c;
        a[4 * i] -= t * off; a[4 * j] += t * off; a[3 * i + j] = a[3 * j + i] = off * 0;
        a[3 * i + k] = a[3 * k + i] = c * x - s * y; a[3 * j + k] = a[3 * k + j] = s * x + c * y;
        for (int32_t r = 0; r < 9; r += 3) {
            const T p = out[r + i], q = out[r + j]; out[r + i] = c * p - s * q; out[r + j] = s * p + c * q;
        }
    }
    for (int32_t i = 0; i < 3; ++i) out[9 + i] = a[4 * i] * size;
}
