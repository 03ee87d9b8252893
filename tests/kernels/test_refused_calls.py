"""What calls, subscripts and assignments a kernel refuses: for each arm of a condition one line that only it stops.

Beside them stand lines that are close to a refusal and run.
"""

from __future__ import annotations

import itertools
import linecache

import pytest

import workbench as wb

HEAD = """import workbench as wb
N, PAIRS = 3, (1, 2, 3)
@wb.struct
class Ball:
    q: wb.vec3
    m: float
@wb.struct
class Bag:
    x: wb.array(dtype=float)
    n: int
@wb.func
def half(a: float):
    return a * 0.5
@wb.func
def many(*a):
    return a[0]
def k(x: wb.array(dtype=float), z: wb.array2d(dtype=float), balls: wb.array(dtype=Ball), vs: wb.array(dtype=wb.vec3),
      ks: wb.array(dtype=int), bag: Bag, b: Ball, n: int, a: float, v: wb.vec3, m: wb.mat33, u: wb.vec2,
      r: wb.types.matrix((2, 3), float)):
"""
COUNT = itertools.count()

REFUSED = {
    "argument-type": ("s = half(x)",),
    "arguments": (
        "s = len(v=1)",
        "s = len(x, z)",
        "s = len()",
        "i = wb.tid(0)",
        "i = wb.tid(dim=1)",
        "s = wb.static()",
        "s = wb.static(1, 2)",
        "s = wb.static(n=1)",
        "s = wb.vec3(x=1.0)",
        "s = wb.vec3(1.0, w=1.0)",
        "s = wb.vec3(1.0, x=1.0, y=2.0)",
        "s = wb.vec3(1.0, y=1.0, z=2.0, w=3.0)",
        "wb.atomic_add()",
        "wb.atomic_add(x, 0, value=1.0)",
        "s = Ball(v, 1.0, 2.0)",
        "s = Ball(v, q=v)",
        "s = wb.zeros(3, shape=3)",
        "s = wb.zeros(3, float, dtype=float)",
        "s = wb.zeros(3, float, 1)",
        "s = half(a, a)",
        "s = half(a=a, b=1)",
        "s = wb.atan2(a)",
        "s = wb.atan2(a, a, a)",
        "s = wb.sin(a, a)",
        "s = wb.sin()",
        "s = wb.clamp(a, a)",
        "s = wb.lerp(a, a)",
        "s = wb.length(v, v)",
        "s = wb.dot(v)",
        "s = wb.cross(v)",
        "s = wb.normalize()",
        "s = wb.copysign(a)",
        "s = wb.pow(a)",
        "s = wb.mod(a)",
        "s = wb.rand_init()",
        "s = wb.transpose()",
        "s = wb.where(n > 0, a)",
        "s = wb.matrix(shape=(2, 2), dtype=float, kind=1)",
    ),
    "assign": (
        "bag.x = z",
        "bag.q = x",
        "b.m = x",
        "s = wb.zeros(3, dtype=float)\nbag.x = s",
        "x.shape = 3",
        "x.shape[0] = 3",
        "x.ndim = 1",
        "(a + 1.0)[0] = 2.0",
        "wb.vec3(1.0)[0] = 2.0",
        "half(a).x = 1.0",
        "balls[0] += b",
        "balls += b",
    ),
    "cast": ("s = wb.float64(v)",),
    "component": (
        "balls[0].m.x = 1.0",
        "x[0].x = 1.0",
        "u.z = 1.0",
        "s = u.z",
        "s = m.x",
        "s = a.x",
        "s = vs[0].w",
        "n.x = 1",
        "b = a\nb.m = 1.0",
    ),
    "condition": ("s = not v",),
    "field": ("balls[0].w = 1.0", "s = balls[0].w"),
    "for-range": ("for j in len(x):\n    pass", "for j in v:\n    pass"),
    "global": ("N += 1", "PAIRS[0] = 2", "half.x = 1"),
    "index-type": ("s = v[n > 0]", "s = v[a]"),
    "local-array": (
        "s = wb.zeros(shape=(2, n), dtype=float)",
        "s = wb.zeros(n, dtype=float)",
        "s = wb.zeros(0, dtype=float)",
        "s = wb.zeros(dtype=float)",
        "s = wb.zeros(2000, dtype=float)",
        "s = wb.zeros(400, dtype=wb.vec3)",
    ),
    "maybe-unbound": ("if n > 0:\n    s = 1.0\ns += 1.0",),
    "method": ("s = x.shape.n", "s = PAIRS.count"),
    "mixed-types": (
        "m[0] = u",
        "s = wb.min(a, n)",
        "s = wb.where(n > 0, 1.0, 2)",
        "s = wb.where(n > 0, v, u)",
        "s = wb.dot(v, u)",
        "s = wb.cw_mul(v, u)",
        "s = wb.cw_mul(m, r)",
        "s = (n > 0) + 1",
        "s = (n > 0) & n",
    ),
    "not-an-array": ("wb.atomic_add(balls, 0, 1.0)",),
    "not-callable": ("s = wb.array(3)",),
    "not-indexable": ("a[0] = 1.0", "x[0][0] = 1.0", "s = m[0][1][2]"),
    "operand-type": (
        "s = len(a)",
        "s = wb.rand_init(1.0)",
        "s = wb.rand_init(v)",
        "s = wb.rand_init(1, 2.0)",
        "s = wb.randf(n)",
        "s = wb.randf(a)",
        "balls = b\nballs[0] = b",
        "b += b",
        "s = v < v",
        "s = wb.cross(u, u)",
        "s = wb.skew(u)",
        "s = wb.transpose(v)",
        "s = wb.get_diag(v)",
        "s = wb.quat_rotate(wb.quat(0.0, 0.0, 0.0, 1.0), u)",
        "s = wb.quat_from_axis_angle(u, a)",
        "s = wb.quat_from_axis_angle(v, v)",
        "s = wb.length(a)",
        "s = wb.length_sq(a)",
        "s = wb.ddot(v, v)",
        "s = wb.outer(a, v)",
        "s = wb.cw_div(a, a)",
        "s = wb.sin(v)",
        "s = wb.sin(n)",
        "s = wb.sin(n > 0)",
        "s = ~a",
        "s = -(n > 0)",
        "s = wb.abs(x)",
        "s = wb.max(m)",
        "s = wb.min(a)",
        "s = float(x)",
        "a = x\nx[0] = a",
        "s = wb.determinant(v)",
        "s = wb.quat_rotate(v, v)",
    ),
    "printf": ("wb.printf()", "wb.printf(a)", "wb.printf(3)", 'wb.printf("%f", x=a)'),
    "rand-state": ("s = wb.randf()", "s = wb.randf(N)", "s = wb.randf(q)"),
    "rank": (
        "wb.atomic_add(x)",
        "wb.atomic_add(x, 0)",
        "wb.atomic_add(x, 0, 1, 2.0)",
        "wb.atomic_cas(x, 0, 1.0)",
        "wb.atomic_cas(ks, 0)",
        "wb.atomic_cas(ks, 0, 1)",
        "s = balls[0, 1]",
        "s = x[0, 1]",
        "z[0] = v",
        "x += 1.0",
        "s = m[0, 1, 2]",
    ),
    "shape": ("s = m @ u", "s = wb.determinant(r)", "s = wb.inverse(r)", "s = wb.trace(r)"),
    "slice": ("v[0:2] = wb.vec3(1.0, 2.0, 3.0)",),
    "star": ("s = many(a)",),
    "static": ("s = wb.identity(n=n, dtype=float)",),
    "static-index": (
        "s = wb.vector(length=n, dtype=float)",
        "s = wb.vector(length=0, dtype=float)",
        "s = wb.matrix(shape=(n, 2), dtype=float)",
        "s = wb.matrix(shape=(2, n), dtype=float)",
        "s = wb.matrix(shape=(0, 2), dtype=float)",
        "s = wb.matrix(shape=(2, 0), dtype=float)",
        "s = wb.matrix(shape=3, dtype=float)",
        "s = x.shape[n]",
        "s = x.shape[1]",
        "s = x.shape[-2]",
    ),
    "store-type": (
        "wb.atomic_cas(ks, 0, 1, 2.0)",
        "b.q = u",
        "b.q = 1.0",
        "balls[0] = v",
        "balls[0] = balls",
        "balls[0] = Bag()",
    ),
    "tid-rank": ("a1, b1, c1, d1, e1 = wb.tid()",),
    "unpack": ("*p, q = v",),
}

RUN = (
    "s = len(v) + len(x) + len(m)",
    "s = wb.vec3(1.0, z=1.0, y=2.0)",
    "wb.atomic_add(vs[0].x, 1.0)",
    "wb.atomic_add(vs[0], v)",
    "wb.atomic_min(vs[0], v)",
    "wb.atomic_min(vs, 0, v)",
    "wb.atomic_add(balls[0].q, v)",
    "s = Ball(v, m=1)",
    "s = vs[0, 1]",
    "s = x.shape[-1]",
    "v[0:2] = u",
    "m[0] = v",
    "[p, q] = u",
    "bag.x = x",
    "b.m = 1",
    "balls[0] = b",
    "s = wb.where(a, 1.0, 2.0)",
    "s = v == v",
    "s = v @ m",
    "s = r @ v",
    "s = wb.diag(u)",
    "s = n > 0 and a",
    "s = wb.max(v)",
)


def read(body: str):
    text = HEAD + "".join(f"    {line}\n" for line in body.splitlines())
    file = f"<refused-{next(COUNT)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    exec(compile(text, file, "exec"), scope := {})
    return wb.Kernel(func=scope["k"]).program()


@pytest.mark.parametrize(("slug", "body"), [(slug, body) for slug, bodies in REFUSED.items() for body in bodies])
def test_a_line_outside_the_language_is_refused_at_its_place(slug, body):
    with pytest.raises(wb.KernelError) as found:
        read(body)
    assert found.value.slug == slug
    assert found.value.where.text.strip() in [*map(str.strip, body.splitlines()), "def many(*a):"]


@pytest.mark.parametrize("body", RUN)
def test_a_line_beside_a_refusal_is_read(body):
    assert read(body) is not None
