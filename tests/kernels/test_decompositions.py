"""Singular values, eigenvalues and orthogonal factors beside NumPy's; derivatives where values are apart or meet."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb

M2, M3, V2, V3 = wb.mat22d, wb.mat33d, wb.types.vector(2, wb.float64), wb.types.vector(3, wb.float64)


def matrices(n: int) -> list[np.ndarray]:
    """Of every kind: any, of rank one, nearly singular, diagonal with ties, huge, tiny, orthogonal, zero."""
    random, found = np.random.default_rng(n), []
    for _ in range(12):
        a = random.normal(size=(n, n))
        found += [a, np.outer(a[0], a[1]), a @ np.diag([1, 1e-7, 1e-12][:n]) @ a.T, a * 1e150, a * 1e-200]
        found += [np.diag(random.integers(-2, 3, n).astype(float)), np.linalg.qr(a)[0], a + a.T]
    return [*found, np.zeros((n, n)), np.eye(n)]


@wb.kernel
def all_three(
    a: wb.array(dtype=M3),
    u: wb.array(dtype=M3),
    s: wb.array(dtype=V3),
    v: wb.array(dtype=M3),
    q: wb.array(dtype=M3),
    r: wb.array(dtype=M3),
    e: wb.array(dtype=M3),
    d: wb.array(dtype=V3),
):
    i = wb.tid()
    left, values, right = wb.svd3(a[i])
    u[i] = left
    s[i] = values
    v[i] = right
    first = M3()
    second = M3()
    wb.qr3(a[i], first, second)
    q[i] = first
    r[i] = second
    wb.eig3(a[i], e[i], d[i])


@wb.kernel
def two(a: wb.array(dtype=M2), u: wb.array(dtype=M2), s: wb.array(dtype=V2), v: wb.array(dtype=M2)):
    i = wb.tid()
    wb.svd2(a[i], u[i], s[i], v[i])


def factors(kernel, given: list, types: list) -> list[np.ndarray]:
    made = [wb.zeros(len(given), dtype=t) for t in types]
    wb.launch(kernel, len(given), [wb.array(np.array(given), dtype=types[0])], made)
    return [m.numpy() for m in made]


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("backend", ["numpy", pytest.param("c", marks=pytest.mark.needs_cc)])
def test_factors_are_those_of_numpy(backend, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", backend)
    given = matrices(3)
    for a, u, s, v, q, r, e, d in zip(given, *factors(all_three, given, [M3, V3, M3, M3, M3, M3, V3]), strict=True):
        size = np.linalg.norm(a) or 1.0
        close(u @ np.diag(s / size) @ v.T, a / size)
        close(np.abs(s) / size, np.linalg.svd(a)[1] / size)
        assert s[0] >= s[1] >= abs(s[2]) - 1e-12 * size and (a.any() or not s.any())
        close(q @ (r / size), a / size)
        assert not np.tril(r, -1).any() and r[0, 0] >= 0 and r[1, 1] >= 0
        close(e @ np.diag(d / size) @ e.T, (a + a.T) / 2 / size)
        close(np.sort(d) / size, np.linalg.eigvalsh((a + a.T) / 2) / size)
        for turn in (u, v, q, e):
            close(turn.T @ turn, np.eye(3))
            close(np.linalg.det(turn), 1.0)
    given = matrices(2)
    for a, u, s, v in zip(given, *factors(two, given, [M2, V2, M2]), strict=True):
        size = np.linalg.norm(a) or 1.0
        close(u @ np.diag(s / size) @ v.T, a / size)
        close(s / size, np.linalg.svd(a)[1] / size)
        close(u.T @ u, np.eye(2))
        close(np.linalg.det(v), 1.0)


@wb.kernel
def rotation(a: wb.array(dtype=M3), y: wb.array(dtype=M3)):
    i = wb.tid()
    u, s, v = wb.svd3(a[i])
    y[i] = u * wb.transpose(v)


@wb.kernel
def left(a: wb.array(dtype=M3), y: wb.array(dtype=M3)):
    i = wb.tid()
    y[i] = wb.svd3(a[i])[0]


@wb.kernel
def stretch(a: wb.array(dtype=M3), y: wb.array(dtype=wb.float64)):
    i = wb.tid()
    u, s, v = wb.svd3(a[i])
    q, d = wb.eig3(wb.transpose(a[i]) * a[i])
    y[i] = wb.dot(s, s) + s[0] * s[1] * s[2] + wb.dot(d, d)


def gradient(kernel, a, dtype, seed) -> np.ndarray:
    x, y = wb.array([a], dtype=M3, requires_grad=True), wb.zeros(1, dtype=dtype)
    with wb.Tape() as tape:
        wb.launch(kernel, 1, [x], [y])
    tape.backward(grads={y: wb.array([seed], dtype=dtype)})
    return x.grad.numpy()[0]


def test_the_nearest_rotation_has_its_exact_derivative():
    """Of a = r p with p symmetric: the turn of r is r w with p w + w p = r^T da - da^T r, solved without any values."""
    random = np.random.default_rng(0)
    a, g = random.normal(size=(3, 3)), random.normal(size=(3, 3))
    a = a if np.linalg.det(a) > 0 else -a
    u, _, vt = np.linalg.svd(a)
    r = u @ vt
    p = r.T @ a
    wanted, one = np.zeros(9), np.eye(9)
    for k in range(9):
        da = one[k].reshape(3, 3)
        turn = np.linalg.solve(np.kron(p, np.eye(3)) + np.kron(np.eye(3), p), (r.T @ da - da.T @ r).ravel())
        wanted[k] = np.sum(g * (r @ turn.reshape(3, 3)))
    np.testing.assert_allclose(gradient(rotation, a, M3, g).ravel(), wanted, rtol=1e-11, atol=1e-12)


def test_where_values_meet_the_values_have_a_derivative_and_the_vectors_none():
    found = gradient(stretch, np.eye(3), wb.float64, 1.0)  # |a|² + det(a) + |a^T a|²
    np.testing.assert_allclose(found, (2 + 1 + 4) * np.eye(3), atol=1e-14)
    with pytest.raises(wb.GradientError, match=r"(?s)vectors of `svd3`.*wb.polar.*\[singular\]"):
        gradient(left, np.eye(3), M3, np.arange(9.0).reshape(3, 3))
    assert not gradient(left, np.eye(3), M3, np.zeros((3, 3))).any()


def test_matrices_that_are_no_3x3_of_floats_are_refused():
    @wb.kernel
    def kernel(a: wb.array(dtype=wb.mat22)):
        i = wb.tid()
        u, s, v = wb.svd3(a[i])
        a[i] = wb.mat22(s[0], 0.0, 0.0, 0.0)

    with pytest.raises(wb.KernelError, match="`svd3` takes a 3x3 matrix"):
        wb.launch(kernel, 1, [wb.zeros(1, dtype=wb.mat22)])


def test_second_derivatives_through_singular_values():
    a = np.random.default_rng(3).normal(size=(3, 3))
    x, y = wb.array([a], dtype=M3, requires_grad=True), wb.zeros(1, dtype=M3)
    g, v, h = np.random.default_rng(4).normal(size=(3, 3)), np.random.default_rng(5).normal(size=(3, 3)), 1e-5
    up, down = (gradient(rotation, a + s * h * v, M3, g) for s in (1, -1))

    @wb.kernel
    def weighed(y: wb.array(dtype=M3), w: wb.array(dtype=M3), z: wb.array(dtype=wb.float64)):
        i = wb.tid()
        z[i] = wb.ddot(y[i], w[i])

    z, w = wb.zeros(1, dtype=wb.float64), wb.array([g], dtype=M3)
    with wb.Tape(keep="all") as tape:
        wb.launch(rotation, 1, [x], [y])
        wb.launch(weighed, 1, [y, w], [z])
    found = wb.hvp(tape, z, {x: v[None]})[x]
    np.testing.assert_allclose(np.asarray(found)[0], (up - down) / (2 * h), rtol=1e-6, atol=1e-7)


@wb.kernel
def rotations_of_two(a: wb.array(dtype=M3), y: wb.array(dtype=M3)):
    u, _s, _v = wb.svd3(a[0])
    _u, _t, v = wb.svd3(a[1])
    y[0] = u * wb.transpose(v)


def test_vectors_of_two_decompositions_make_no_nearest_rotation():
    random = np.random.default_rng(3)
    given, g = random.normal(size=(2, 3, 3)), random.normal(size=(3, 3))

    def launched(values: np.ndarray, requires_grad: bool = False):
        x, y = wb.array(values, dtype=M3, requires_grad=requires_grad), wb.zeros(1, dtype=M3)
        with wb.Tape() as tape:
            wb.launch(rotations_of_two, 1, [x], [y])
        return tape, x, y

    tape, x, y = launched(given, True)
    tape.backward(grads={y: wb.array([g], dtype=M3)})
    h, wanted = 1e-6, np.zeros(18)
    for k, one in enumerate(np.eye(18).reshape(18, 2, 3, 3)):
        high, low = (launched(given + s * h * one)[2].numpy()[0] for s in (1, -1))
        wanted[k] = np.sum(g * (high - low)) / (2 * h)
    np.testing.assert_allclose(x.grad.numpy().ravel(), wanted, rtol=1e-6, atol=1e-7)
