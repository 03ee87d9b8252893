"""func_native: a snippet means what a C compiler makes of it, is differentiated exactly, or refused where called."""

import ctypes
import pickle
import shutil
import subprocess
from contextlib import nullcontext

import numpy as np
import pytest

import workbench as wb
from workbench.kernels.emit import cuda
from workbench.kernels.reading.elementwise import elementwise
from workbench.kernels.types import Array

SNIPPETS = {
    "loops": """
        float s = 0.0f;
        for (int j = 0; j < n; ++j) {
            if (j == 2) continue;
            s += sinf(x * (j + 1)) / 2;
        }
        for (int j = n; j > 0; j -= 2) s += j * 0.25f;
        int k = 0;
        while (k < n) { k++; if (k == 4) continue; s += k; }
        s += k; // what it is after the loop
        return s;""",
    "integers": """
        int k = -7;
        k /= 2;
        k -= -7 % 3;
        unsigned int u = 0xFFFFFFFFu;
        u += n;
        k += (u >> 1) & 0xF;
        unsigned char c = 250; c += n;
        k = n > 3 ? k * 2 : k - 1;
        k ^= 5; k |= 8; ++k; k--;
        long long big = 1LL << 40;
        if (k < n && n > (k + 1)) k += (n) -1 - abs(k) * (n);
        return k + c + (float)(big >> 38) + (int)(x * 3.7f) + !n;""",
    "shadows": """
        float r = x; int i = 3;
        { float q = 2.0f; i += (int)q; }
        for (int j = 0; j < 2; j++) { int q = j; r += q; }
        for (int j = 3; j >= 0; --j) { float q = j; r -= q; }
        if (r > 0.5f && i == 5 || n) { r *= 2; } else if (r < -1) r = 7; else { r = -r; }
        while (r > 1.0f) { r *= 0.5f; if (r < 1.1f) break; }
        const float twice = 1.0f + x * 2; // a comment
        int two = 2; /* another */
        return r + twice * two;""",
    "conversions": """
        int a = x * 10;
        a *= 1.5f;
        float b = a / 4 + a / 4.0f;
        bool big = a > 3;
        int count = big + (n > 1);
        unsigned short s = 65535; s += 2;
        return fmaxf(b, -1.0f) + count + s + powf(fabsf(x), 2.0f) - (x < 0 ? -1 : 1) * ~n;""",
    "bits": """
        unsigned int u = n + 12;
        unsigned long long wide = 40ULL << (4 * n);
        int last = __builtin_ctz(u) + __builtin_ctzll(wide) * x + __builtin_ffs(n) * 2 + __builtin_popcount(u);
        return last + (wide >> 3 & 1 | u << 2 ^ 5) * 2;""",
}


@pytest.mark.needs_cc
@pytest.mark.parametrize("name", SNIPPETS)
def test_a_snippet_computes_what_a_c_compiler_makes_of_it(name, tmp_path, backend):
    (tmp_path / "f.c").write_text(
        f"#include <math.h>\n#include <stdbool.h>\n#include <stdlib.h>\nfloat f(float x, int n) {{ {SNIPPETS[name]} }}"
    )
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))))
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-fwrapv", "-o", tmp_path / "f.so", tmp_path / "f.c", "-lm"], check=True
    )
    f = ctypes.CDLL(str(tmp_path / "f.so")).f
    f.restype, f.argtypes = ctypes.c_float, [ctypes.c_float, ctypes.c_int]

    @wb.func_native(SNIPPETS[name])
    def ours(x: float, n: int) -> float: ...

    @wb.kernel
    def k(x: wb.array[float], n: wb.array[int], y: wb.array[float]):
        i = wb.tid()
        y[i] = ours(x[i], n[i])

    given = [(x, n) for x in (-2.25, -0.5, 0.0, 0.375, 3.5) for n in (0, 1, 2, 5, 9)]
    y = wb.zeros(len(given))
    wb.launch(k, len(given), [wb.array([x for x, _ in given]), wb.array([n for _, n in given]), y])
    np.testing.assert_allclose(y.numpy(), [f(x, n) for x, n in given], rtol=2e-6)


@wb.func_native("int t = tid; out[t] = a[t] * a[t];", adj_snippet="adj_a[tid] += 2.0f * a[tid] * adj_out[tid];")
def squared(a: wb.array[float], out: wb.array[float], tid: int): ...


@wb.func_native("int t = tid; out[t] = a[t] * a[t];")
def squared_itself(a: wb.array[float], out: wb.array[float], tid: int): ...


@pytest.mark.parametrize("f", [squared, squared_itself])
def test_a_store_ends_the_gradient_of_what_was_there(f, backend):
    @wb.kernel
    def before(z: wb.array[float], out: wb.array[float]):
        i = wb.tid()
        out[i] = 3.0 * z[i]

    @wb.kernel
    def k(a: wb.array[float], out: wb.array[float]):
        f(a, out, wb.tid())

    a, z = wb.array([1.0, 2.0, 3.0], requires_grad=True), wb.ones(3, requires_grad=True)
    out = wb.zeros(3)
    with wb.Tape(keep="all") as tape:
        wb.launch(before, 3, [z, out])
        wb.launch(k, 3, [a, out])
    wb.gradcheck(tape)
    tape.backward(grads={out: wb.ones(3)})
    assert a.grad.numpy().tolist() == [2, 4, 6] and z.grad.numpy().tolist() == [0, 0, 0]


def test_where_it_cannot_be_told_what_ends_the_adjoint_says_it(backend):
    @wb.func_native("if (a[i] > 0.0f) a[i] = a[i] * a[i];", adj_snippet="adj_a[i] += 2.0f * adj_a[i];")
    def bad(a: wb.array[float], i: int): ...

    @wb.kernel
    def refused(a: wb.array[float]):
        bad(a, wb.tid())

    with pytest.raises(wb.KernelError, match="native-adjoint"):
        refused.program()

    @wb.func_native("a[i] = b[i] * 2.0f;", adj_snippet="adj_b[i] += 2.0f * adj_a[i]; adj_a.data[i] = 0.0f;")
    def fine(a: wb.array[float], b: wb.array[float], i: int): ...

    @wb.kernel
    def k(a: wb.array[float], b: wb.array[float]):
        fine(a, b, wb.tid())

    a, b = wb.ones(2, requires_grad=True), wb.ones(2, requires_grad=True)
    with wb.Tape(keep="all") as tape:
        wb.launch(k, 2, [a, b])
    wb.gradcheck(tape)


@pytest.mark.parametrize("text", ["if (i > 0) out[i] = a[i];", "if (i == 0) return; out[i] = a[i];"])
def test_a_store_on_some_paths_only_is_not_guessed_at(text):
    @wb.func_native(text, adj_snippet="adj_a[i] += adj_out[i];")
    def put(a: wb.array[float], out: wb.array[float], i: int): ...

    @wb.func_native(text)
    def itself(a: wb.array[float], out: wb.array[float], i: int): ...

    @wb.kernel
    def k(a: wb.array[float], out: wb.array[float]):
        put(a, out, wb.tid())

    @wb.kernel
    def fine(a: wb.array[float], out: wb.array[float]):
        itself(a, out, wb.tid())

    with pytest.raises(wb.KernelError, match="native-adjoint"):
        k.program()
    a, out = wb.ones(2, requires_grad=True), wb.ones(2, requires_grad=True)
    with wb.Tape(keep="all") as tape:
        wb.launch(fine, 2, [a, out])
    wb.gradcheck(tape)


def test_it_goes_to_other_processes():
    @wb.func_native("int k = x * 2.5f; return k / 2 + x;")
    def f(x: float) -> float: ...

    again = pickle.loads(pickle.dumps(f))
    assert wb.map(again, wb.array([3.0])).numpy().tolist() == wb.map(f, wb.array([3.0])).numpy().tolist() == [6]


def test_values_have_adjoints_that_are_checked():
    @wb.func_native("return x * x * y;", adj_snippet="adj_x += 2.0f * x * y * adj_ret; adj_y += x * x * adj_ret;")
    def right(x: float, y: float) -> float: ...

    @wb.func_native("return x * x * y;", adj_snippet="adj_x += 3.0f * x * y * adj_ret; adj_y += x * x * adj_ret;")
    def wrong(x: float, y: float) -> float: ...

    @wb.func_native("return x * y;", adj_snippet="adj_x += y * adj_ret;")
    def forgotten(x: float, y: float) -> float: ...

    wb.verify.check_rule(right)
    with pytest.raises(wb.GradientError, match="check-rule"):
        wb.verify.check_rule(wrong)
    with pytest.raises(wb.KernelError, match="adjoint-missing"):
        wb.verify.check_rule(forgotten)


def test_memory_atomics_and_components(backend):
    @wb.func_native("""
        float old = a.data[i];
        a[i] = old * 2.0f + v.c[1] + v.x;
        wp::atomic_add(a, 0, old);
        atomicAdd(&a.data[0], 1.0f);
        wp::vec3 w = v * 2.0f;
        m[i, 1] = w[2];
    """)
    def work(a: wb.array[wb.float32], m: wb.array2d[float], i: int, v: wb.vec3): ...

    @wb.kernel
    def k(a: wb.array[float], m: wb.array2d[float], v: wb.array[wb.vec3]):
        work(a, m, 1, v[0])

    a, m = wb.array([1.0, 2.0], requires_grad=True), wb.zeros((2, 2))
    v = wb.array([(1.0, 2.0, 3.0)], dtype=wb.vec3, requires_grad=True)
    with wb.Tape(keep="all") as tape:
        wb.launch(k, 1, [a, m, v])
    assert a.numpy().tolist() == [4, 7] and m.numpy().tolist() == [[0, 0], [0, 6]]
    wb.gradcheck(tape)


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("sign", ["", "u"])
def test_integers_of_every_width(sign, bits, backend):
    """What does not fit goes round, in the width that is written."""
    name = f"{sign}int{bits}"

    @wb.func_native(f"{name}_t i = ({name}_t)x; i = i + 1; return (int64_t)i;")
    def after(x: wb.int64) -> wb.int64: ...

    @wb.kernel
    def k(x: wb.array[wb.int64], y: wb.array[wb.int64]):
        y[wb.tid()] = after(x[wb.tid()])

    x = np.array([-2, 5, 126, 254, 32766, 65534, 2**31 - 2, 2**32 - 2], np.int64)
    y = wb.zeros(len(x), dtype=wb.int64)
    wb.launch(k, len(x), [wb.array(x, dtype=wb.int64), y])
    with np.errstate(over="ignore"):
        want = (x.astype(name) + np.dtype(name).type(1)).astype(np.int64)
    assert y.numpy().tolist() == want.tolist()


@pytest.mark.parametrize(
    "text",
    [
        "uint32_t i = reinterpret_cast<uint32_t&>(x); return i ^ ((uint32_t)(-(int)(i >> 31)) | 0x80000000);",
        "auto i = reinterpret_cast<unsigned int&>(x); return i ^ (static_cast<unsigned>(-(int)(i >> 31)) | 1u << 31);",
    ],
)
def test_bits_of_numbers(text, backend):
    """The order of the floats is the order of the integers (Herf, radix tricks)."""

    @wb.func_native(text)
    def flip(x: float) -> wb.uint32: ...

    @wb.kernel
    def k(x: wb.array[float], y: wb.array[wb.uint32]):
        y[wb.tid()] = flip(x[wb.tid()])

    x = np.array([-np.inf, -3.5, -1e-40, -0.0, 0.0, 1e-40, 0.5, 2.25, np.inf], np.float32)
    y = wb.zeros(len(x), dtype=wb.uint32)
    wb.launch(k, len(x), [wb.array(x), y])
    bits = x.view(np.uint32)
    expected = bits ^ np.where(bits >> 31, np.uint32(0xFFFFFFFF), np.uint32(0x80000000))
    assert y.numpy().tolist() == expected.tolist() == sorted(expected.tolist())


@pytest.mark.parametrize(
    "text",
    ["reinterpret_cast<int&>(x) = 3; return x;", "*(int*)&x = 3; return x;", "return reinterpret_cast<double&>(x);"],
)
def test_bits_are_read_only_and_as_many_as_there_are(text):
    @wb.func_native(text)
    def f(x: float) -> float: ...

    @wb.kernel
    def k(x: wb.array[float]):
        x[0] = f(x[0])

    with pytest.raises(wb.KernelError, match=r"native-snippet|takes a number of 32 or 64 bits"):
        k.program()


def test_a_replay_is_what_the_reverse_pass_runs():
    @wb.func_native("return x * x;", adj_snippet="adj_x += 2.0f * x * adj_ret;", replay_snippet="return x * x + 0.0f;")
    def f(x: float) -> float: ...

    assert f.replay is not None and wb.map(f, wb.array([3.0])).numpy().tolist() == [9]


@pytest.mark.parametrize(
    "text, what",
    [
        ("return __shfl_xor_sync(0xffffffffu, x, 1, 32);", "__shfl_xor_sync"),
        ("__shared__ float v[4]; return v[0];", "__shared__"),
        ("return y;", "`y`"),
        ("do { x += 1; } while (x < 3); return x;", "`do`"),
        ("float y; return (y = x);", "`=`"),
        ("float y = 1.0f, z; return x;", "`,`"),
        ("float y; y = x++; return y;", "`++`"),
        ("int k = 0; for (k = 1; k < 4; ++k) x += k; return x;", "another variable `k`"),
        ("for (int k = 1; k < 64; k <<= 1) x += k; return x;", "this `for`"),
        ("for (int k = 0; k < a[0]; ++k) a[k] = x; return x;", "this `for`, whose bound may change,"),
        ("int n = 4; for (int k = 0; k < n; ++k) n = 2; return x;", "this `for`, whose bound may change,"),
        ("for (int k = 0; k < 4; ++k) { if (x > 0) k += 2; } return x;", "this `for`, whose bound may change,"),
        ("return __builtin_clz(8u) + x;", "__builtin_clz"),
        ("return *(int*)&x;", "`*`"),
        ("return *reinterpret_cast<const float*>(&a.data[0]);", "`*`"),
        ("x + 1; return x;", "`+`"),
        ("return 08;", "`08`"),
        ("{ float x = 2.0f; a[0] = x; } return x;", "another variable `x`"),
        ("float in = x; return in;", "another variable `in`"),
        ("float y = (x, 2.0f); return y;", "`,`"),
        ("return __float_as_int(x);", "__float_as_int"),
        ("if (x > 0) { return x;", "what lacks `}`"),
        ("float *p = (float*)x; return *p;", "`*`"),
        ("float b = x; float *p = &b; return *p;", "`*`"),
        ("return *(wp::address(a, 0) + 1);", "`*`"),
        ("float p = wp::address(a, 0); return p;", "wp::address"),
        ("return reinterpret_cast<float>(x);", "reinterpret_cast"),
        ("return x +;", "`;`"),
        ("return x", "what lacks `;`"),
        ("return * x;", "`*`"),
        ("return x; } void g() {", "`}`"),
        ("float v[] = {1, 2}; return v[0];", "`[`"),
        ("#if X > 3\nreturn x;\n#endif", "#if X > 3"),
        ("return some::thing(x);", "some::thing"),
        ('asm("nop"); return x;', "`asm`"),
        ("auto f = [&](float a) { return a; }; return f(x);", "`[`"),
        ("switch (x) { case 1: return x; }", "switch"),
    ],
)
def test_what_is_not_read_is_refused_where_it_is_called(text, what):
    @wb.func_native(text)
    def f(x: float, a: wb.array[float]) -> float: ...

    @wb.kernel
    def k(x: wb.array[float]):
        x[0] = f(x[0], x)

    with pytest.raises(wb.KernelError, match="native-snippet") as e:
        k.program()
    assert what in str(e.value) and "f(x[0], x)" in e.value.where.text
    assert "the same in Python: a @wb.func" in e.value.instead


def test_one_number_does_not_count_the_elements_of_several_axes():
    @wb.func_native("return x.data[k];")
    def flat(x: wb.array2d[float], k: int) -> float: ...

    @wb.func_native("return t.data.ptr[k];")
    def of_tile(t: wb.tile[float, 2, 8], k: int) -> float: ...

    @wb.kernel
    def run(x: wb.array2d[float]):
        x[0, 0] = flat(x, 1)

    @wb.kernel
    def tiled(x: wb.array2d[float]):
        x[0, 0] = of_tile(wb.tile_load(x, shape=(2, 8)), 1)

    for k in (run, tiled):
        with pytest.raises(wb.KernelError, match="native-snippet"):
            k.program()


def test_loops_over_a_range_end_where_the_array_does(backend):
    @wb.func_native("for (int j = 0; j < a.shape[0]; j++) atomicAdd(&a.data[j], s.data[0] * (float)j);")
    def spread(a: wb.array[float], s: wb.array[float]): ...

    @wb.kernel
    def k(a: wb.array[float], s: wb.array[float]):
        spread(a, s)

    a, s = wb.zeros(3, requires_grad=True), wb.array([2.0], requires_grad=True)
    with wb.Tape(keep="all") as tape:
        wb.launch(k, 1, [a, s])
    assert a.numpy().tolist() == [0, 2, 4]
    wb.gradcheck(tape)


@wb.func
def plain(x: float):
    return x * x


def test_a_side_for_cuda_is_told_apart():
    @wb.func_native("""
    #if defined(__CUDA_ARCH__)
        __syncthreads();
    #endif
    """)
    def meet(): ...

    @wb.func_native("""
    #ifndef __CUDA_ARCH__
        return x;
    #else
        return __shfl_sync(0xffffffff, x, 0);
    #endif
    """)
    def told(x: float) -> float: ...

    @wb.kernel
    def k(x: wb.array[float], y: wb.array[float]):
        i = wb.tid()
        meet()
        y[i] = told(x[i])

    y = wb.zeros(2)
    wb.launch(k, 2, [wb.ones(2), y])
    assert y.numpy().tolist() == [1, 1]
    with pytest.raises(wb.KernelError, match="something else for CUDA"):
        _ = k.cuda
    for mapped, text in ((told, "something else for CUDA"), (plain, "")):
        function = elementwise(mapped, [Array(wb.float32, 1)], 1).reading.function
        with pytest.raises(wb.KernelError, match=text) if text else nullcontext():
            cuda.text(function)


def test_a_barrier_of_a_block_is_no_work_since_a_block_is_one_thread(backend):
    @wb.func_native("WP_TILE_SYNC();")
    def meet(): ...

    @wb.kernel
    def k(x: wb.array[float], between: wb.array[float], y: wb.array[float]):
        block, lane = wb.tid()
        for i in range(lane, 3, wb.block_dim()):
            between[3 * block + i] = x[3 * block + i] * x[3 * block + i]
        meet()
        for i in range(lane, 3, wb.block_dim()):
            y[3 * block + i] = between[3 * block + 2 - i] * x[3 * block + i]

    x = wb.array([1.0, 2.0, 3.0, -1.0, 0.5, 4.0], requires_grad=True)
    between, y = (wb.zeros(6, requires_grad=True) for _ in range(2))
    with wb.Tape() as tape:
        wb.launch_tiled(k, dim=2, inputs=[x, between, y], block_dim=64)
    tape.backward(grads={y: wb.ones(6)})
    a = x.numpy().reshape(2, 3)
    assert y.numpy().tolist() == (a[:, ::-1] ** 2 * a).ravel().tolist()
    exact = a[:, ::-1] ** 2 + 2 * a * a[:, ::-1]  # of the element itself, and through its square
    assert x.grad.numpy().tolist() == exact.ravel().tolist()


def test_a_snippet_that_ends_too_early_is_shown_with_its_last_line():
    @wb.func_native("float y = x;\nreturn y")
    def f(x: float) -> float: ...

    @wb.kernel
    def k(x: wb.array[float]):
        x[0] = f(x[0])

    with pytest.raises(wb.KernelError, match=r"Its line 2 is: return y"):
        k.program()


@pytest.mark.parametrize("type", ["float", "auto", "double", "int"])
@pytest.mark.parametrize("sign", ["=", "+=", "*="])
def test_a_variable_keeps_the_type_that_it_was_declared_with(type, sign, backend):
    @wb.func_native(f"{type} s = 2; s {sign} x; s {sign} 3; return s;")
    def changed(x: float) -> float: ...

    @wb.kernel
    def k(x: wb.array[float], y: wb.array[float]):
        y[wb.tid()] = float(changed(x[wb.tid()]))

    x = np.array([0.5, 2.25, -7.75], np.float32)
    y = wb.zeros(3, dtype=float)
    wb.launch(k, 3, [wb.array(x), y])
    whole = np.trunc if type in ("auto", "int") else np.asarray  # of 2 `auto` makes an int, as in C
    want = {"=": 0 * x + 3, "+=": whole(2 + x) + 3, "*=": whole(2 * x) * 3}[sign]
    assert y.numpy().tolist() == want.tolist()
