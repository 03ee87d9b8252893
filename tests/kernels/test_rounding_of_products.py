"""Products of vectors, matrices and quaternions, determinants and inverses over the whole range, against mpmath.

Their errors are measured in last places of the sum of the sizes of the terms: what cancels has lost them already. By
hand, densely: `python tests/kernels/test_rounding_of_products.py 300`.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from rounding_table import PRODUCTS, pages_of_products
from test_rounding_table import TYPES, places

import workbench as wb

THREE = range(3)
SIZES = (2, 3, 4)


def terms() -> dict[str, list[tuple]]:
    """Of every bilinear product: (place of the result, place in the first, place in the second, sign)."""
    i, j, k, w = range(4)
    turned = [(i, j, k), (j, k, i), (k, i, j)]
    quat = [(w, w, w, 1)] + [(w, n, n, -1) for n in THREE]
    quat += [x for n in THREE for x in ((n, w, n, 1), (n, n, w, 1))]
    quat += [x for a, b, c in turned for x in ((a, b, c, 1), (a, c, b, -1))]
    return {
        "dot": [((), (n,), (n,), 1) for n in THREE],
        "cross": [((a,), (x,), (y,), s) for a, b, c in turned for x, y, s in ((b, c, 1), (c, b, -1))],
        "outer": [((m, n), (m,), (n,), 1) for m in THREE for n in THREE],
        "mat * vec": [((m,), (m, n), (n,), 1) for m in THREE for n in THREE],
        "mat * mat": [((m, n), (m, o), (o, n), 1) for m in THREE for n in THREE for o in THREE],
        "quat * quat": [((a,), (b,), (c,), s) for a, b, c, s in quat],
        "vec * scalar": [((n,), (n,), (), 1) for n in THREE],
    }


def bilinear(real):
    vec3, mat33, quat = wb.types.vector(3, real), wb.types.matrix((3, 3), real), wb.types.quaternion(real)

    @wb.kernel
    def products(
        m: wb.array2d(dtype=mat33),
        v: wb.array2d(dtype=vec3),
        s: wb.array(dtype=real),
        q: wb.array2d(dtype=quat),
        scalars: wb.array(dtype=real),
        vectors: wb.array2d(dtype=vec3),
        matrices: wb.array2d(dtype=mat33),
        quats: wb.array(dtype=quat),
    ):
        i = wb.tid()
        scalars[i] = wb.dot(v[0, i], v[1, i])
        vectors[0, i] = wb.cross(v[2, i], v[3, i])
        vectors[1, i] = m[0, i] * v[4, i]
        vectors[2, i] = v[5, i] * s[i]
        matrices[0, i] = wb.outer(v[6, i], v[7, i])
        matrices[1, i] = m[1, i] * m[2, i]
        quats[i] = q[0, i] * q[1, i]

    return products


def drawn(number: type, shapes: list[tuple], n: int, low: float, high: float) -> np.ndarray:
    """Components up to 2^20 apart, each whole between 2^low and 2^high."""
    random = np.random.default_rng(len(shapes))
    rows = []
    for shape in shapes:
        size = 2.0 ** random.uniform(low, high, (n, *[1] * len(shape)))
        parts = random.choice([-1, 1], (n, *shape)) * 2.0 ** -random.uniform(0, 20, (n, *shape))
        rows.append((size * parts).astype(number))
    return np.stack(rows)


def checked_products(real, number: type, n: int) -> Iterator[tuple]:
    """Name, is it a derivative, error."""
    info = np.finfo(number)
    half = (info.maxexp - 8) / 2
    given = [
        drawn(number, [(3, 3)] * 3, n, -half, half),
        drawn(number, [(3,)] * 8, n, -half, half),
        drawn(number, [()], n, -half, half)[0],
        drawn(number, [(4,)] * 2, n, -half, half),
    ]
    vec3, mat33, quat = wb.types.vector(3, real), wb.types.matrix((3, 3), real), wb.types.quaternion(real)
    types = (mat33, vec3, real, quat)
    inputs = [wb.array(x, dtype=t, requires_grad=True) for x, t in zip(given, types, strict=True)]
    shapes = (n, (3, n), (2, n), n)
    outputs = [wb.zeros(x, dtype=t) for x, t in zip(shapes, (real, vec3, mat33, quat), strict=True)]
    with wb.Tape() as tape:
        wb.launch(bilinear(real), dim=n, inputs=inputs, outputs=outputs)
    tape.backward(grads={y: wb.array(np.ones_like(y.numpy()), dtype=y.dtype) for y in outputs})
    m, v, s, q = (a.numpy() for a in inputs)
    dm, dv, ds, dq = (a.grad.numpy() for a in inputs)
    scalars, vectors, matrices, quats = (y.numpy() for y in outputs)
    jobs = {
        "dot": (v[0], v[1], scalars, dv[0], dv[1]),
        "cross": (v[2], v[3], vectors[0], dv[2], dv[3]),
        "mat * vec": (m[0], v[4], vectors[1], dm[0], dv[4]),
        "vec * scalar": (v[5], s, vectors[2], dv[5], ds),
        "outer": (v[6], v[7], matrices[0], dv[6], dv[7]),
        "mat * mat": (m[1], m[2], matrices[1], dm[1], dm[2]),
        "quat * quat": (q[0], q[1], quats, dq[0], dq[1]),
    }
    for name, (a, b, y, da, db) in jobs.items():
        sums: dict = {}
        for at, left, right, sign in terms()[name]:
            for k in range(n):
                x, z = mp.mpf(float(a[k][left])), mp.mpf(float(b[k][right]))
                for key, term in (((0, k, at), sign * x * z), ((1, k, left), sign * z), ((2, k, right), sign * x)):
                    old = sums.get(key, (mp.mpf(0), mp.mpf(0)))
                    sums[key] = old[0] + term, old[1] + abs(term)
        for (which, k, at), (exact, size) in sums.items():
            yield name, which > 0, off((y, da, db)[which][k][at], exact, size, number)


def off(got, exact, size, number: type) -> float:
    """The error in last places of `size`."""
    if not np.isfinite(got):
        return float("inf")
    return places(float(got), exact, number) if size == abs(exact) else _apart(float(got), exact, size, number)


def _apart(got: float, exact, size, number: type) -> float:
    info = np.finfo(number)
    last = max(int(mp.floor(mp.log(size, 2))) - int(info.nmant), int(info.minexp) - int(info.nmant))
    return float(abs(mp.mpf(got) - exact) / mp.mpf(2) ** last)


def square(real, size: int):
    mat = wb.types.matrix((size, size), real)

    @wb.kernel
    def of_square(m: wb.array2d(dtype=mat), det: wb.array(dtype=real), inv: wb.array(dtype=mat)):
        i = wb.tid()
        det[i] = wb.determinant(m[0, i])
        inv[i] = wb.inverse(m[1, i])

    return of_square, mat


def checked_squares(real, number: type, n: int, size: int) -> Iterator[tuple]:
    kernel, mat = square(real, size)
    info, random = np.finfo(number), np.random.default_rng(size)
    well = random.normal(size=(2, n, size, size)) + 2 * np.eye(size)
    top = info.maxexp - 8
    scale = 2.0 ** np.stack([random.uniform(-top / size, top / size, n), random.uniform(-top, top, n)])
    given = (well * scale[..., None, None]).astype(number)
    m = wb.array(given, dtype=mat, requires_grad=True)
    det, inv = wb.zeros(n, dtype=real), wb.zeros(n, dtype=mat)
    with wb.Tape() as tape:
        wb.launch(kernel, dim=n, inputs=[m], outputs=[det, inv])
    seeds = {det: wb.ones(n, dtype=real), inv: wb.array(np.ones((n, size, size), number), dtype=mat)}
    tape.backward(grads=seeds)
    slope = m.grad.numpy()
    for k in range(n):
        one, two = (mp.matrix(x[k].astype(float).tolist()) for x in given)
        cofactors, sizes = minors(one, size)
        yield "determinant", False, off(det.numpy()[k], mp.det(one), permanent(one, list(range(size))), number)
        for i, j in itertools.product(range(size), repeat=2):
            yield "determinant", True, off(slope[0, k, i, j], cofactors[i, j], sizes[i, j], number)
        y = two**-1
        spread = absolute(y) * absolute(two) * absolute(y)
        for i, j in itertools.product(range(size), repeat=2):
            yield "inverse", False, off(inv.numpy()[k, i, j], y[i, j], max(spread[i, j], abs(y[i, j])), number)
        ones = mp.ones(size)
        exact, bound = -(y.T * ones * y.T), spread.T * ones * spread.T
        if max(abs(x) for x in bound) < mp.mpf(float(info.max)):
            for i, j in itertools.product(range(size), repeat=2):
                yield "inverse", True, off(slope[1, k, i, j], exact[i, j], bound[i, j], number)


def absolute(m):
    return m.apply(abs)


def permanent(m, columns: list[int], row: int = 0, skipped: int = -1):
    """The determinant with every sign positive: what its terms come to."""
    if row == skipped:
        row += 1
    if row >= m.rows:
        return mp.mpf(1)
    return sum(abs(m[row, j]) * permanent(m, [c for c in columns if c != j], row + 1, skipped) for j in columns)


def minors(m, size: int):
    cof, sizes = mp.zeros(size), mp.zeros(size)
    for i, j in itertools.product(range(size), repeat=2):
        rows, columns = ([r for r in range(size) if r != x] for x in (i, j))
        part = mp.matrix([[m[r, c] for c in columns] for r in rows])
        cof[i, j] = (-1) ** (i + j) * mp.det(part)
        sizes[i, j] = permanent(m, columns, 0, i)
    return cof, sizes


def worst(real, number: type, n: int) -> dict[str, list[float]]:
    found = {name: [0.0, 0.0] for name in PRODUCTS}
    squares = (checked_squares(real, number, n, size) for size in SIZES)
    for name, slope, error in itertools.chain(checked_products(real, number, n), *squares):
        found[name][slope] = max(found[name][slope], error)
    return found


@pytest.mark.parametrize("type", TYPES)
def test_every_product_keeps_its_bound_over_the_whole_range(type, backend):
    found = worst(*TYPES[type], 40 if backend == "c" else 12)
    assert {name: e for name, e in found.items() if e[0] > PRODUCTS[name][0] or e[1] > PRODUCTS[name][1]} == {}


def test_the_reference_shows_the_products():
    assert pages_of_products() in (Path(__file__).parents[2] / ".docs" / "functions.rst").read_text("utf-8")


HALF = np.array([[300, 400, 0], [1e-4, 2e-4, 2e-4], [3e-7, 0, 4e-7], [60000, 1, 1]], np.float16)


@wb.kernel
def sums_of_neighbours(a: wb.array[wb.vec2], b: wb.array[wb.vec2], d: wb.array[wb.vec2], y: wb.array[wb.vec2]):
    i = wb.tid()
    p = a[i]
    q = b[i]
    r = d[i]
    y[i] = wb.vec2(p[0] * q[0] - r[0], p[1] * q[1] + r[1])


@pytest.mark.needs_cc
def test_a_product_is_rounded_before_it_is_added():
    """Also where C compilers know an instruction for a difference beside a sum of products."""
    rng = np.random.default_rng(7)
    given = [rng.uniform(-1, 1, (1000, 2)).astype(np.float32) for _ in range(3)]
    found = []
    for backend in ("numpy", "c"):
        wb.config.backend = backend
        y = wb.zeros(1000, dtype=wb.vec2)
        wb.launch(sums_of_neighbours, 1000, [wb.array(x, dtype=wb.vec2) for x in given], [y])
        found.append(y.numpy().copy())
    np.testing.assert_array_equal(*found)


def test_lengths_of_halves_neither_overflow_nor_vanish(backend):
    vec3h = wb.types.vector(3, wb.float16)

    @wb.kernel
    def lengths(v: wb.array(dtype=vec3h), n: wb.array(dtype=wb.float16), u: wb.array(dtype=vec3h)):
        i = wb.tid()
        n[i] = wb.length(v[i])
        u[i] = wb.normalize(v[i])

    v, n, u = wb.array(HALF, dtype=vec3h, requires_grad=True), wb.zeros(4, dtype=wb.float16), wb.zeros(4, dtype=vec3h)
    with wb.Tape() as tape:
        wb.launch(lengths, dim=4, inputs=[v], outputs=[n, u])
    tape.backward(grads={n: wb.ones(4, dtype=wb.float16)})
    exact = np.linalg.norm(HALF.astype(float), axis=1)
    np.testing.assert_array_equal(n.numpy(), exact.astype(np.float16))
    np.testing.assert_allclose(u.numpy(), HALF / exact[:, None], atol=1e-3)
    np.testing.assert_allclose(v.grad.numpy(), HALF / exact[:, None], atol=1e-3)


@pytest.mark.parametrize("scale", [1e20, 1e-20, 1e30, 1e-30])
def test_an_inverse_far_from_one_is_that_near_one_scaled(backend, scale):
    made = np.array([[2.0, 1.0, 0.5], [0.0, 3.0, 1.0], [1.0, 0.0, 4.0]])
    m, y = wb.array(np.array([made * scale], np.float32), dtype=wb.mat33), wb.zeros(1, dtype=wb.mat33)

    @wb.kernel
    def inverted(m: wb.array[wb.mat33], y: wb.array[wb.mat33]):
        y[0] = wb.inverse(m[0])

    wb.launch(inverted, dim=1, inputs=[m], outputs=[y])
    np.testing.assert_allclose(y.numpy()[0] * scale, np.linalg.inv(made), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("sizes", [(1e30, 1e-30, 1.0), (1e20, 1e-20, 1.0, 1e10), (1e30, 1e-30, 1e30, 1e-30)])
def test_rows_of_different_sizes_do_not_drown_one_another(backend, sizes):
    n, d = len(sizes), np.array(sizes)
    made = wb.types.matrix((n, n), wb.float32)
    m, y = wb.array(np.diag(d).astype(np.float32)[None], dtype=made, requires_grad=True), wb.zeros(1, dtype=made)
    det = wb.zeros(1)

    @wb.kernel
    def both(m: wb.array(dtype=made), y: wb.array(dtype=made), det: wb.array(dtype=wb.float32)):
        y[0] = wb.inverse(m[0])
        det[0] = wb.determinant(m[0])

    with wb.Tape() as tape:
        wb.launch(both, dim=1, inputs=[m], outputs=[y, det])
    tape.backward(det)
    np.testing.assert_allclose(np.diag(y.numpy()[0]) * d, 1, rtol=1e-6)
    np.testing.assert_allclose(det.numpy()[0], np.prod(d), rtol=1e-6)
    np.testing.assert_allclose(np.diag(m.grad.numpy()[0]), np.prod(d) / d, rtol=1e-6)


if __name__ == "__main__":
    for backend in sys.argv[2:] or ["c"]:
        wb.config.backend = backend
        for type, (real, number) in TYPES.items():
            for name, errors in worst(real, number, int(sys.argv[1])).items():
                print(backend, type, name, *(f"{e:.2f}" for e in errors), flush=True)  # noqa: T201
