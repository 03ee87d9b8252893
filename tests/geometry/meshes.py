"""Meshes for tests, and what queries must find, in float64 and by looking at every triangle."""

from __future__ import annotations

import numpy as np


def sphere(n: int = 12, bumps: float = 0.2):
    """A closed surface around 0 whose normals point outwards, of 2 n (n - 1) faces."""
    u = np.linspace(0, 2 * np.pi, n + 1)[:-1]
    v = np.linspace(0, np.pi, n + 1)[1:-1]
    uu, vv = np.meshgrid(u, v, indexing="ij")
    r = 1 + bumps * np.sin(3 * uu) * np.sin(vv) ** 2
    ring = np.stack([r * np.cos(uu) * np.sin(vv), r * np.sin(uu) * np.sin(vv), r * np.cos(vv)], -1).reshape(-1, 3)
    points = np.concatenate([ring, [[0, 0, 1], [0, 0, -1]]])
    m, top, faces = n - 1, n * (n - 1), []
    for i in range(n):
        j = (i + 1) % n
        faces += [[top, i * m, j * m], [top + 1, j * m + m - 1, i * m + m - 1]]
        for k in range(m - 1):
            faces += [[i * m + k, i * m + k + 1, j * m + k], [i * m + k + 1, j * m + k + 1, j * m + k]]
    return points.astype(np.float32), np.array(faces, dtype=np.int32)


def soup(n: int, seed: int = 0, size: float = 0.5):
    """Triangles that have nothing to do with each other."""
    rng = np.random.default_rng(seed)
    points = rng.uniform(-1, 1, (n, 1, 3)) + rng.normal(size=(n, 3, 3)) * size
    return points.reshape(-1, 3).astype(np.float32), np.arange(3 * n, dtype=np.int32).reshape(-1, 3)


def closest_weights(a, b, c, p):
    """Weights of a, b, c of the closest point of a triangle, float64: of its plane, else of the closest edge."""
    a, b, c, p = (np.asarray(x, np.float64) for x in (a, b, c, p))
    basis = np.stack([b - a, c - a], -1)
    candidates = []
    if np.linalg.matrix_rank(basis) == 2:
        v, w = np.linalg.lstsq(basis, p - a, rcond=None)[0]
        if v >= 0 and w >= 0 and v + w <= 1:
            candidates.append((1 - v - w, v, w))
    for (x, y), place in (((a, b), (0, 1)), ((a, c), (0, 2)), ((b, c), (1, 2))):
        d = y - x
        t = np.clip((p - x) @ d / max(d @ d, 1e-300), 0, 1)
        weights = np.zeros(3)
        weights[list(place)] = 1 - t, t
        candidates.append(tuple(weights))
    corners = np.stack([a, b, c])
    return np.array(min(candidates, key=lambda w: np.linalg.norm(np.array(w) @ corners - p)))


def distances(points, faces, p):
    """Distance of p to every face."""
    corners = points.astype(np.float64)[faces]
    return np.array([np.linalg.norm(closest_weights(*t, p) @ t - p) for t in corners])


def ray_hit(a, b, c, start, dir):
    """t and weights where a ray's line meets the plane of a triangle, float64; None where it does not."""
    a, b, c, start, dir = (np.asarray(x, np.float64) for x in (a, b, c, start, dir))
    m = np.stack([-dir, b - a, c - a], -1)
    if abs(np.linalg.det(m)) < 1e-14:
        return None
    t, v, w = np.linalg.solve(m, start - a)
    return t, np.array([1 - v - w, v, w])
