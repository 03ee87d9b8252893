//// wb_pymodF
T wb_pymodF(T a, T b) {
    T r = fmodF(a, b);
    return r == 0 ? copysignF(r, b) : (b < 0) != (r < 0) ? r + b : r;
}

//// wb_floordivF
T wb_floordivF(T a, T b) {
    if (b == 0) return a / b;
    T r = fmodF(a, b), q = (a - r) / b;
    if (r != 0 && (b < 0) != (r < 0)) q -= 1;
    T n = floorF(q);
    if (q - n > (T)0.5) n += 1;
    return q == 0 ? copysignF((T)0, a / b) : n;
}

//// wb_evenf
float wb_evenf(float x, int32_t n) {
    union { float x; uint32_t u; } b;
    b.x = x;
    int32_t e = n + 254 - (int32_t)(b.u >> 23 & 255);
    b.u = (uint32_t)(e < 1 ? 1 : e > 253 ? 253 : e) << 23;
    return b.x;
}

//// wb_even
double wb_even(double x, int32_t n) {
    union { double x; uint64_t u; } b;
    b.x = x;
    int32_t e = n + 2046 - (int32_t)(b.u >> 52 & 2047);
    b.u = (uint64_t)(e < 1 ? 1 : e > 2045 ? 2045 : e) << 52;
    return b.x;
}

//// wb_pcg
uint32_t wb_pcg(uint32_t s) {
    uint32_t b = s * 747796405u + 2891336453u;
    uint32_t c = ((b >> ((b >> 28) + 4)) ^ b) * 277803737u;
    return (c >> 22) ^ c;
}

//// wb_bit_count
int32_t wb_bit_count(uint64_t x) {
    x -= x >> 1 & 0x5555555555555555ULL;
    x = (x & 0x3333333333333333ULL) + (x >> 2 & 0x3333333333333333ULL);
    return (int32_t)(((x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fULL) * 0x0101010101010101ULL >> 56);
}

//// wb_erf_tail
double wb_erf_tail(double q) {
    double l = -log(q), y = sqrt(l - 0.5 * log(3.141592653589793 * fmax(l, 0.8)));
    for (int32_t i = 0; i < 5; ++i) {
        double v = erfc(y);
        if (v > 0) y += log(v / q) * v * 0.886226925452758 * exp(y * y);
    }
    return y;
}

//// wb_erf_middle
double wb_erf_middle(double x) {
    double y = x * 0.886226925452758;
    for (int32_t i = 0; i < 4; ++i) {
        double s = (erf(y) - x) * 0.886226925452758 * exp(y * y);
        y -= s / (1 + y * s);
    }
    return y;
}
