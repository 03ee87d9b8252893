"""Odd kernels: what is legal computes what its Python says, with the gradient of differences; all else is our error.

The illegal ones name the user's line. Each body is the rest of a kernel whose thread is `i`; `x` and `y` hold floats,
`b` bools, `n` integers.
"""

from __future__ import annotations

import itertools
import linecache
import textwrap

import numpy as np
import pytest

import workbench as wb
from workbench.errors import KernelError

F = wb.float64
X = np.array([0.7, -1.3, 2.1])
B = np.array([True, False, True])
N = np.array([0, 1, 2], np.int32)
SEED = np.array([1.0, -2.0, 0.5])
COUNT = itertools.count()
HEAD = """
import numpy as np
import workbench as wb
F = wb.float64
V2, V3, V4 = (wb.vector(k, F) for k in (2, 3, 4))
M22, M23, M33 = (wb.matrix(s, F) for s in ((2, 2), (2, 3), (3, 3)))
BV, BM, IV, IM, Q = wb.vector(3, bool), wb.matrix((2, 2), bool), wb.vec3i, wb.matrix((2, 2), int), wb.quatd
C = V3(2.0, 3.0, 4.0)
@wb.struct
class In:
    v: V3
    m: M22
    o: bool
@wb.struct
class Out:
    s: In
    t: F
    h: BM
@wb.func
def early(a: F):
    if a > F(0.0):
        return a
    elif a > F(-1.0):
        return a * a
    else:
        return a * a * a
@wb.func
def pair(a: F):
    if a > F(0.0):
        return V2(a, a), F(1.0)
    return V2(a * a, a), a
@wb.func
def half(a: F, by: F = 2.0, v: V3 = V3(1.0)):
    return a / by * v[0]
@wb.func
def some(a: F):
    if a > F(0.0):
        return a
@wb.func
def none(a: F):
    a = a * a
@wb.func
def again(a: F):
    return again(a)
"""
KERNEL = """
@wb.kernel
def k(x: wb.array(dtype=F), b: wb.array(dtype=bool), n: wb.array(dtype=int), y: wb.array(dtype=F)):
    i = wb.tid()
"""


def kernel(body: str, before: str = ""):
    text = HEAD + textwrap.dedent(before) + KERNEL + textwrap.indent(body, "    ") + "\n"
    file = f"<odd kernel {next(COUNT)}>"
    linecache.cache[file] = len(text), None, text.splitlines(True), file
    space: dict = {"__name__": "odd"}
    exec(compile(text, file, "exec"), space)
    return space["k"]


def run(made, values: np.ndarray, differentiate: bool = False):
    x, y = wb.array(values, dtype=F, requires_grad=differentiate), wb.zeros(len(X), dtype=F)
    inputs = [x, wb.array(B, dtype=bool), wb.array(N, dtype=int), y]
    if not differentiate:
        wb.launch(made, dim=len(X), inputs=inputs)
        return y.numpy()
    with wb.Tape() as tape:
        wb.launch(made, dim=len(X), inputs=inputs)
    tape.backward(grads={y: wb.array(SEED, dtype=F)})
    return y.numpy(), x.grad.numpy()


def differences(of, step: float = 1e-4) -> np.ndarray:
    """Central differences of fourth order of a function of one x, b and n at a time."""
    moves = ((-2, 1), (-1, -8), (1, 8), (2, -1))
    return np.array(
        [sum(w * of(x + s * step, b, n) for s, w in moves) / (12 * step) for x, b, n in zip(X, B, N, strict=True)]
    )


ROW = "m = M22(x[i], F(2.0), F(3.0), x[i] * x[i])\n"
LEGAL = {
    "a component of a row": (ROW + "y[i] = m[0][0] * m[1][1]", lambda x, b, n: x**3),
    "a row from the end": (ROW + "r = m[-1]\ny[i] = r.y * r[0]", lambda x, b, n: 3 * x * x),
    "a row at run time": (ROW + "y[i] = m[n[i] % 2][1]", lambda x, b, n: x * x if n % 2 else 2.0),
    "rows unpacked": (ROW + "(a, c), d = m\ny[i] = a * d[1]", lambda x, b, n: x**3),
    "the dot of two rows": (ROW + "y[i] = wb.dot(m[0], m[1])", lambda x, b, n: 3 * x + 2 * x * x),
    "a row replaced": (ROW + "m[0] = V2(x[i], x[i])\ny[i] = m[0][1] * m[0, 0]", lambda x, b, n: x * x),
    "a component of a row replaced": (ROW + "m[0][1] = x[i]\nr = m[0]\ny[i] = r[1] * m[0, 1]", lambda x, b, n: x * x),
    "a component of a row updated": (ROW + "m[1].y *= x[i]\nr = m[1]\ny[i] = r[1] + r[0]", lambda x, b, n: x**3 + 3),
    "a row updated": (ROW + "m[1] += m[0]\ny[i] = m[1][0] * m[1][1]", lambda x, b, n: (3 + x) * (x * x + 2)),
    "a row after a component of another": (
        ROW + "m[0][0] = F(5.0)\ny[i] = m[1][1] * m[0][0]",
        lambda x, b, n: 5 * x * x,
    ),
    "rows of rows": ("m = M33(x[i])\ns = m[1:, 1:]\ny[i] = s[1][1] * s[0][0]", lambda x, b, n: x * x),
    "a column": (ROW + "c = m[:, 1]\ny[i] = c[0] * c[1]", lambda x, b, n: 2 * x * x),
    "a row of a product": (ROW + "y[i] = (m * m)[0][0]", lambda x, b, n: x * x + 6),
    "a row of a transpose": ("y[i] = wb.transpose(M23(x[i]))[2][1]", lambda x, b, n: x),
    "a row of what one number fills": ("y[i] = M22(x[i])[1][0]", lambda x, b, n: x),
    "a row of matrix(shape=)": ("y[i] = wb.matrix(x[i], shape=(2, 3), dtype=F)[1][2]", lambda x, b, n: x),
    "a row of matrix_from_rows": ("y[i] = wb.matrix_from_rows(V2(x[i]), V2(F(1.0)))[0][1]", lambda x, b, n: x),
    "a vector of one component": ("v = wb.vector(x[i], dtype=F)\ny[i] = v[0] * v[-1]", lambda x, b, n: x * x),
    "the zero of a bool matrix": ("m = BM()\ny[i] = F(2.0) * x[i] if m[0, 0] else x[i]", lambda x, b, n: x),
    "a bool matrix written": ("m = BM()\nm[0][1] = b[i]\ny[i] = x[i] if m[0][1] else F(0.0)", lambda x, b, n: x * b),
    "a bool matrix in a loop": (
        "m = BM()\nfor j in range(3):\n    m[0, 0] = not m[0][0]\ny[i] = x[i] if m[0][0] else F(0.0)",
        lambda x, b, n: x,
    ),
    "a bool vector of bools": (
        "v = BV(b[i], True, False)\ny[i] = x[i] if v.x and not v.z else F(0.0)",
        lambda x, b, n: x * b,
    ),
    "bool vectors compared": ("y[i] = x[i] if BV(b[i]) == BV(True) else F(0.0)", lambda x, b, n: x * b),
    "a bool vector on a branch": (
        "v = BV(b[i]) if x[i] > F(0.0) else BV()\ny[i] = x[i] if v[2] else F(0.0)",
        lambda x, b, n: x * (b and x > 0),
    ),
    "a bool unit matrix": ("y[i] = x[i] if wb.identity(2, bool)[1][1] else F(0.0)", lambda x, b, n: x),
    "a whole unit matrix": ("y[i] = x[i] * F(wb.identity(2, int)[1][1])", lambda x, b, n: x),
    "bools from floats": ("y[i] = x[i] if BV(V3(x[i]))[0] else F(0.0)", lambda x, b, n: x),
    "floats from bools": ("y[i] = x[i] * V3(BV(b[i]))[0]", lambda x, b, n: x * b),
    "vector(v, dtype=)": (
        "v = wb.vector(IV(n[i], 2, 3), dtype=F)\ny[i] = v[0] * x[i] + v[1]",
        lambda x, b, n: n * x + 2,
    ),
    "vector(v)": ("v = wb.vector(V3(x[i]))\ny[i] = v[0] * v[2]", lambda x, b, n: x * x),
    "vector(v, length=, dtype=)": ("y[i] = wb.vector(V3(x[i]), length=3, dtype=F)[2]", lambda x, b, n: x),
    "matrix(m, dtype=)": ("y[i] = wb.matrix(IM(1, 2, 3, 4), dtype=F)[1][0] * x[i]", lambda x, b, n: 3 * x),
    "a vector of bools from vector()": (
        "v = wb.vector(b[i], True, dtype=bool)\ny[i] = x[i] if v[0] else F(0.0)",
        lambda x, b, n: x * b,
    ),
    "a quaternion of a vector and a number": ("y[i] = Q(V3(x[i]), F(2.0)).w * x[i]", lambda x, b, n: 2 * x),
    "components by name": ("y[i] = V3(x[i], y=x[i], z=F(2.0)).z * x[i]", lambda x, b, n: 2 * x),
    "a slice backwards": ("y[i] = V3(x[i], F(1.0), F(2.0))[::-1][0] * x[i]", lambda x, b, n: 2 * x),
    "a slice updated": (
        "v = V3(x[i], F(1.0), F(2.0))\nv[0:2] += V2(x[i])\ny[i] = v[0] * v[1]",
        lambda x, b, n: 2 * x * (1 + x),
    ),
    "a tuple": ("t = (x[i], V2(x[i]))\na, (c, d) = t\ny[i] = a * c * t[1][1]", lambda x, b, n: x**3),
    "a copy is a value": ("v = V2(x[i])\nw = v\nw[0] = F(0.0)\ny[i] = v[0] * v[1]", lambda x, b, n: x * x),
    "a struct in a struct": (
        (
            "o = Out(In(V3(x[i]), M22(x[i]), True), x[i], BM(True))\no.s.m[0][1] *= o.t\n"
            "y[i] = o.s.m[0][1] * o.s.v.y if o.h[0][0] and o.s.o else F(0.0)"
        ),
        lambda x, b, n: x**3,
    ),
    "the zero of a struct": (
        "o = Out()\no.s.v[0] = x[i]\no.t += o.s.v.x\ny[i] = o.t * o.s.v[0] + o.s.m[1][1]",
        lambda x, b, n: x * x,
    ),
    "a struct carried by a loop": (
        (
            "o = Out()\nfor j in range(3):\n    o.t += x[i]\n    o.s.v[j] += o.t\n    o.h[0][0] = not o.h[0][0]\n"
            "y[i] = o.s.v[2] * o.s.v[0] if o.h[0][0] else F(0.0)"
        ),
        lambda x, b, n: 3 * x * x,
    ),
    "structs on two branches": (
        "o = Out() if b[i] else Out(t=x[i])\ny[i] = o.t * o.t",
        lambda x, b, n: 0 if b else x * x,
    ),
    "a local array": (
        "l = wb.zeros(shape=3, dtype=F)\nl[0] = x[i]\nl[-1] += l[0]\ny[i] = l[0] * l[2]",
        lambda x, b, n: x * x,
    ),
    "returns on every branch": ("y[i] = early(x[i])", lambda x, b, n: x if x > 0 else x * x if x > -1 else x**3),
    "tuples returned": ("v, s = pair(x[i])\ny[i] = v[0] * s", lambda x, b, n: x if x > 0 else x**3),
    "defaults": (
        "y[i] = half(x[i]) + half(x[i], by=x[i]) + half(x[i], F(4.0), V3(x[i]))",
        lambda x, b, n: x / 2 + 1 + x * x / 4,
    ),
    "a constant's component": ("y[i] = C[0] * x[i] + C.y + (C + C)[2]", lambda x, b, n: 2 * x + 11),
    "a chain of comparisons": (
        "y[i] = x[i] if F(0.0) < x[i] < F(1.0) or b[i] and not n[i] > 1 else F(0.0)",
        lambda x, b, n: x if 0 < x < 1 or (b and not n > 1) else 0,
    ),
    "a loop that returns": (
        "for j in range(3):\n    y[i] += x[i]\n    if j == n[i]:\n        return",
        lambda x, b, n: x * (n + 1),
    ),
    "what a statement's func returns on some paths": ("some(x[i])\ny[i] = x[i]", lambda x, b, n: x),
    "printf of a vector and a bool": (
        'if n[i] > 9:\n    wb.printf("%f %g %e %d %%\\n", V3(x[i]), b[i])\ny[i] = x[i]',
        lambda x, b, n: x,
    ),
}


@pytest.mark.parametrize("name", LEGAL)
def test_what_is_legal_computes_what_its_python_says(backend, name):
    body, expected = LEGAL[name]
    values, gradient = run(kernel(body), X, differentiate=True)
    np.testing.assert_allclose(values, [expected(*z) for z in zip(X, B, N, strict=True)], rtol=1e-13)
    np.testing.assert_allclose(gradient, SEED * differences(expected), rtol=1e-8, atol=1e-9)


ILLEGAL = {
    "a component beyond a row": (ROW + "y[i] = m[0][0][0]", "not-indexable", 2),
    "a row beyond the matrix": (ROW + "y[i] = m[2][0]", "component-range", 2),
    "three indices of a matrix": (ROW + "y[i] = m[0, 1, 1]", "rank", 2),
    "a name of a matrix": (ROW + "y[i] = m.x", "component", 2),
    "an empty slice": (ROW + "y[i] = m[0:0][0]", "slice", 2),
    "a slice by 0": (ROW + "y[i] = m[0:2:0][0]", "slice", 2),
    "a slice at run time": (ROW + "y[i] = m[n[i]:][0]", "slice", 2),
    "a float as index": (ROW + "y[i] = m[x[i]][0]", "index-type", 2),
    "a number into a row": (ROW + "m[0] = x[i]", "mixed-types", 2),
    "a longer vector into a row": (ROW + "m[0] = V3(x[i])", "mixed-types", 2),
    "a product of bool matrices": ("m = BM(True) * BM(True)", "operand-type", 1),
    "a dot of bool vectors": ("v = wb.dot(BV(True), BV(b[i]))", "operand-type", 1),
    "the trace of a bool matrix": ("v = wb.trace(BM(b[i]))", "operand-type", 1),
    "a bool vector as condition": ("if BV(True):\n    y[i] = x[i]", "condition", 1),
    "a number in a bool vector": ("v = BV(b[i], 1, 0)", "mixed-types", 1),
    "another length for vector(v)": ("v = wb.vector(V3(x[i]), length=2, dtype=F)", "shape", 1),
    "another shape for matrix(m)": ("v = wb.matrix(M22(x[i]), shape=(3, 3), dtype=F)", "shape", 1),
    "a vector of vectors": ("v = wb.vector(V3(x[i]), V3(x[i]), dtype=F)", "components", 1),
    "no length": ("v = wb.vector(dtype=F)", "static-index", 1),
    "a length of 0": ("v = wb.vector(x[i], length=0, dtype=F)", "static-index", 1),
    "a composite dtype": ("v = wb.vector(x[i], length=3, dtype=V3)", "dtype", 1),
    "a number as dtype": ("v = wb.vector(x[i], length=3, dtype=3)", "dtype", 1),
    "an unknown argument of vector": ("v = wb.vector(x[i], foo=3)", "arguments", 1),
    "an unknown argument of zeros": ("v = wb.zeros(3, foo=3)", "arguments", 1),
    "too many arguments of zeros": ("v = wb.zeros(3, F, 5)", "arguments", 1),
    "too few components": ("v = V3(x[i], x[i])", "components", 1),
    "a matrix as vector": ("v = V3(M33(x[i]))", "shape", 1),
    "an array as vector": ("v = V3(x)", "operand-type", 1),
    "a builtin without operands": ("y[i] = wb.sin()", "arguments", 1),
    "a builtin with too many": ("y[i] = wb.sin(x[i], x[i])", "arguments", 1),
    "a builtin with named operands": ("y[i] = wb.clamp(x[i], low=x[i], high=x[i])", "arguments", 1),
    "max of nothing": ("y[i] = max()", "arguments", 1),
    "rows of nothing": ("m = wb.matrix_from_rows()", "arguments", 1),
    "an int beyond floats": ("y[i] = F(10**400)", "literal-range", 1),
    "an int beyond int32": ("j = 2**40", "literal-range", 1),
    "a date": ("y[i] = wb.static(np.datetime64('2020')) * x[i]", "dtype", 1),
    "printf without its value": ('wb.printf("%f")', "printf", 1),
    "printf with one too many": ('wb.printf("%f", x[i], x[i])', "printf", 1),
    "printf of a string": ('wb.printf("%s", x[i])', "printf", 1),
    "printf that writes": ('wb.printf("%n", n[i])', "printf", 1),
    "printf of a given width": ('wb.printf("%*d", 3, n[i])', "printf", 1),
    "printf with a lone %": ('wb.printf("100%", x[i])', "printf", 1),
    "a struct's unknown field": ("o = Out()\no.q = x[i]", "field", 2),
    "a struct of another type": ("o = Out(Out(), x[i])", "store-type", 1),
    "a struct's field of another type": ("o = Out()\no.h = x[i]", "store-type", 2),
    "a sum of structs": ("o = Out() + Out()", "operand-type", 1),
    "a number shifted by a vector": ("v = n[i] << IV(1, 2, 3)", "operand-type", 1),
    "a vector shifted by one of another length": ("v = IV(1, 2, n[i]) >> wb.vec2i(1, 2)", "operand-type", 1),
    "a row of a number": ("y[i] = x[i][0]", "not-indexable", 1),
    "no index": ("y[i] = x[()]", "operand-type", 1),
    "a part of a constructor written": ("V3(x[i])[0] = F(0.0)", "assign", 1),
    "a constant written": ("C[0] = x[i]", "global", 1),
    "a range of floats": ("for j in range(x[i]):\n    y[i] += x[i]", "range-type", 1),
    "a func that has no end": ("y[i] = again(x[i])", "recursion", None),
}


@pytest.mark.parametrize("name", ILLEGAL)
def test_what_is_illegal_is_refused_at_its_line(name):
    body, slug, line = ILLEGAL[name]
    made = kernel(body)
    with pytest.raises(KernelError) as found:
        made.program()
    assert found.value.slug == slug, found.value
    assert found.value.where.file == made.func.__code__.co_filename
    if line is not None:
        assert found.value.where.text.strip() == body.split("\n")[line - 1]


# ---- funcs that do not return


@pytest.mark.parametrize(
    ("body", "func"),
    [
        ("y[i] = some(x[i])", "some"),
        ("y[i] = F(2.0) * none(x[i])", "none"),
        ("v = V2(some(x[i]))", "some"),
        ("z = some(x[i])\ny[i] = z", "some"),
        ("y[i] = early(some(x[i]))", "some"),
    ],
)
def test_a_func_that_does_not_always_return_is_named_at_its_own_line(body, func):
    with pytest.raises(KernelError, match=f"`{func}` does not return a value on every path") as found:
        kernel(body).program()
    assert found.value.slug == "missing-return"
    assert found.value.where.text == f"def {func}(a: F):"
    assert found.value.why.startswith("Line ")  # that of the caller


@pytest.mark.parametrize(
    "text",
    [
        "for j in range(3):\n    if a > F(j):\n        return a",
        "while a < F(5.0):\n    return a",
        "if a > F(0.0):\n    return a\nreturn",
        "if a > F(0.0):\n    if a > F(1.0):\n        return a",
    ],
)
def test_whatever_leaves_a_path_open(text):
    before = "@wb.func\ndef leaky(a: F):\n" + textwrap.indent(text, "    ") + "\n"
    with pytest.raises(KernelError, match="`leaky` does not return") as found:
        kernel("y[i] = leaky(x[i])", before).program()
    assert found.value.where.text == "def leaky(a: F):"


def test_a_path_open_behind_several_returns_is_looked_at_by_each_thread(backend):
    wb.config.backend = backend
    before = "@wb.func\ndef sign(a: F):\n    if a > F(0.0):\n        return a\n    if a < F(0.0):\n        return -a\n"
    k = kernel("y[i] = sign(x[i])\nsign(x[i])", before)
    x = wb.array([1.0, -2.0, 3.0], dtype=F)
    y, b, n = wb.zeros(3, dtype=F), wb.zeros(3, dtype=bool), wb.zeros(3, dtype=int)
    wb.launch(k, dim=3, inputs=[x, b, n, y])
    assert y.numpy().tolist() == [1.0, 2.0, 3.0]
    x[1] = 0.0
    with pytest.raises(wb.LaunchError, match=r"thread 1: `sign` returned no value[\s\S]*\[missing-return\]"):
        wb.launch(k, dim=3, inputs=[x, b, n, y])


# ---- a func_grad, or func_replay, that calls its own func

RULES = {
    "itself": "wb.adjoint[a] += F(2.0) * f(a) / a * g",
    "through another func": "wb.adjoint[a] += F(2.0) * over(a) * g",
    "through a func with a rule of its own": "wb.adjoint[a] += F(2.0) * ruled(a) * g",
}
OTHERS = """
@wb.func
def f(a: F):
    return a * a
@wb.func
def over(a: F):
    return f(a) / a
@wb.func
def ruled(a: F):
    return a
@wb.func_grad(ruled)
def adj_ruled(a: F, g: F):
    wb.adjoint[a] += f(a) / (a * a) * g
"""


@pytest.mark.parametrize("name", RULES)
def test_a_func_grad_may_call_its_own_func(backend, name):
    rule = f"@wb.func_grad(f)\ndef adj_f(a: F, g: F):\n    {RULES[name]}\n"
    values, gradient = run(kernel("y[i] = f(x[i]) * ruled(x[i])", OTHERS + rule), X, differentiate=True)
    np.testing.assert_allclose(values, X**3, rtol=1e-14)
    np.testing.assert_allclose(gradient, SEED * 3 * X**2, rtol=1e-13)


def test_a_func_replay_may_call_its_own_func(backend):
    replay = "@wb.func_replay(f)\ndef f_again(a: F):\n    return f(a)\n"
    _, gradient = run(kernel("y[i] = f(x[i]) * f(x[i])", OTHERS + replay), X, differentiate=True)
    np.testing.assert_allclose(gradient, SEED * 4 * X**3, rtol=1e-13)


def test_what_the_reader_itself_fails_on_names_the_line(monkeypatch):
    from workbench.kernels.reading.base import READERS

    def broken(self, node):
        raise ZeroDivisionError("a fault")

    monkeypatch.setitem(READERS, id(len), broken)
    with pytest.raises(KernelError, match="ZeroDivisionError: a fault") as found:
        kernel("z = F(1.0)\ny[i] = F(len(x))").program()
    assert found.value.slug == "unread"
    assert found.value.where.text.strip() == "y[i] = F(len(x))"
    assert isinstance(found.value.__cause__, ZeroDivisionError)


def test_names_of_the_language_need_no_prefix(backend):
    @wb.kernel
    def k(y: wb.array(dtype=float)):
        v = vec3(1.0, 2.0, 3.0)  # noqa: F821
        y[tid()] = dot(v, v)  # noqa: F821

    y = wb.zeros(1)
    wb.launch(k, 1, [y])
    assert y.list() == [14]


def test_bits_of_vectors_and_how_many_are_set(backend):
    @wb.kernel
    def k(
        x: wb.array(dtype=wb.vec3i), y: wb.array(dtype=wb.vec3i), big: wb.array(dtype=wb.int64), n: wb.array(dtype=int)
    ):
        i = wb.tid()
        y[i] = ((x[i] << wb.vec3i(1, 2, 3)) | (x[i] & wb.vec3i(3, 3, 3))) ^ (~x[i] >> 1)
        n[i] = wb.bit_count(big[i])

    values = np.array([[1, 2, 3], [-5, 6, 1 << 30]], np.int32)
    y, n = wb.zeros(2, dtype=wb.vec3i), wb.zeros(2, dtype=int)
    wb.launch(k, 2, [wb.array(values, dtype=wb.vec3i), y, wb.array([-1, 7], dtype=wb.int64), n])
    want = ((values << np.array([1, 2, 3], np.int32)) | (values & 3)) ^ (~values >> 1)
    assert (y.numpy() == want).all() and n.list() == [64, 3]


@wb.func
def left_by_the_else(v: float):
    if v > 0.0:
        a = 2.0 * v
    else:
        return -v
    return a + 1.0


@wb.kernel
def behind_an_else_that_leaves(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    if x[i] > -5.0:
        s = left_by_the_else(x[i])
    else:
        return
    y[i] = s * s


def test_what_stands_behind_an_else_that_leaves_is_of_the_other_arm(backend):
    x, y = wb.array([1.0, -2.0, -7.0], requires_grad=True), wb.zeros(3)
    with wb.Tape() as tape:
        wb.launch(behind_an_else_that_leaves, 3, inputs=[x], outputs=[y])
    tape.backward(grads={y: wb.ones(3)})
    assert y.numpy().tolist() == [9.0, 4.0, 0.0]
    assert x.grad.numpy().tolist() == [12.0, -4.0, 0.0]
