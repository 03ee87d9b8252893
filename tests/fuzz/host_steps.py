"""What `host` draws from: steps over vectors, sparse and dense matrices, solvers, sorts, optimizers, meshes.

A step is drawn once, from a source of randomness, and then done as often as wanted on another `World`; which memory it
takes is fixed by numbers that it keeps. All vectors have SIZE numbers, all matrices SIZE x SIZE of them.
"""

# The types of the kernel language are values, not types of Python.
# pyright: reportInvalidTypeForm=false, reportCallIssue=false, reportIndexIssue=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import workbench as wb
from workbench import sparse
from workbench.optim import linear

F, SIZE = wb.float64, 6
BLOCKS = [wb.float64, wb.mat22d, wb.mat33d, wb.types.matrix((2, 3), wb.float64)]


class World:
    """What a program works on: `v` vectors, `m` sparse matrices, `d` dense ones, `s` a declared scalar."""

    def __init__(self, start: dict[str, np.ndarray], requires_grad: bool):
        def leaf(name: str) -> Any:
            return wb.array(start[name], dtype=F, requires_grad=requires_grad)

        self.leaves = {name: leaf(name) for name in ("x", "y", "values", "dense")}
        self.s = wb.scalar(float(start["s"]), dtype=F, requires_grad=requires_grad)
        self.v = [self.leaves["x"], self.leaves["y"], wb.full(SIZE, 0.3, dtype=F), wb.full(SIZE, -0.6, dtype=F)]
        self.m: list[Any] = []
        self.d = [self.leaves["dense"]]
        self.kept: list[Any] = []  # all that a seed may be given to


# ---- kernels


@wb.kernel
def bend(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = 0.8 * wb.sin(x[i]) + 0.4


@wb.kernel
def add(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] += 0.3 * x[i] * x[i]


@wb.kernel
def weigh(a: F, x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = wb.tanh(a * x[i]) + 0.1


@wb.kernel
def blended(x: wb.array(dtype=Any), s: Any, y: wb.array(dtype=Any)):
    """Of numbers, vectors and matrices."""
    i = wb.tid()
    y[i] = x[i] * s + y[i] * type(s)(0.25)


@wb.kernel
def gathered(at: wb.array(dtype=int), x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = 0.5 * x[at[i] % 6] + 0.1 * wb.float64(at[i] % 3)


@wb.kernel
def bounded(x: wb.array2d(dtype=F)):
    i, j = wb.tid()
    x[i, j] = wb.sin(x[i, j])


@wb.kernel
def heavy(x: wb.array2d(dtype=F), y: wb.array2d(dtype=F)):
    """Symmetric and positive definite."""
    i, j = wb.tid()
    y[i, j] = 0.2 * (wb.sin(x[i, j]) + wb.sin(x[j, i])) + wb.where(i == j, F(4.0), F(0.0))


@wb.kernel
def positive(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = 1.5 + 0.5 * wb.cos(x[i])


@wb.kernel
def placed(x: wb.array(dtype=F), base: wb.array(dtype=wb.vec3), p: wb.array(dtype=wb.vec3)):
    i = wb.tid()
    d = wb.vec3(float(wb.sin(x[i % 6])), float(wb.sin(x[(i + 1) % 6])), float(wb.cos(x[(i + 2) % 6])))
    p[i] = base[i] + 0.2 * d


@wb.func
def surface(mesh: wb.uint64, p: wb.vec3):
    q = wb.mesh_query_point_no_sign(mesh, p, 100.0)
    return wb.mesh_eval_position(mesh, q.face, q.u, q.v)


@wb.kernel
def to_surface(mesh: wb.uint64, p: wb.array(dtype=wb.vec3), y: wb.array(dtype=F)):
    i = wb.tid()
    d = surface(mesh, p[i]) - p[i]
    y[i] = F(wb.length(d)) + 0.5 * F(d[1])


@wb.kernel
def signed_distance(mesh: wb.uint64, p: wb.array(dtype=wb.vec3), y: wb.array(dtype=F)):
    i = wb.tid()
    q = wb.mesh_query_point_sign_normal(mesh, p[i], 100.0)
    if not q.result:
        return
    d = p[i] - wb.mesh_eval_position(mesh, q.face, q.u, q.v)
    n = wb.mesh_eval_face_normal(mesh, q.face)
    y[i] = 0.3 * y[i] + F(q.sign * wb.length(d)) + 0.2 * F(n[0])


@wb.kernel
def along_rays(mesh: wb.uint64, p: wb.array(dtype=wb.vec3), y: wb.array(dtype=F)):
    i = wb.tid()
    q = wb.mesh_query_ray(mesh, 3.0 * p[i], -p[i], 100.0)
    if q.result:
        y[i] = F(q.t + 0.3 * q.u * q.normal[2])


@wb.kernel
def densities(grid: wb.uint64, p: wb.array(dtype=wb.vec3), y: wb.array(dtype=F)):
    i = wb.tid()
    total = F(0.0)
    for j in wb.hash_grid_query(grid, p[i], 1.4):
        d = p[i] - p[j]
        near = wb.max(0.0, 1.96 - wb.dot(d, d))
        total += F(near * near * near) * 0.1
    y[i] = total


@wb.kernel
def pushed(grid: wb.uint64, p: wb.array(dtype=wb.vec3), q: wb.array(dtype=wb.vec3)):
    i = wb.tid()
    move = wb.vec3()
    for j in wb.hash_grid_query(grid, p[i], 1.4):
        if i == j:
            continue
        d = p[i] - p[j]
        near = wb.max(0.0, 1.96 - wb.dot(d, d))
        move += 0.02 * near * near * near * d
    q[i] = p[i] + move


@wb.kernel
def boxed(p: wb.array(dtype=wb.vec3), low: wb.array(dtype=wb.vec3), high: wb.array(dtype=wb.vec3)):
    i = wb.tid()
    low[i] = p[i] - wb.vec3(0.7)
    high[i] = p[i] + wb.vec3(0.7)


@wb.kernel
def overlaps(tree: wb.uint64, p: wb.array(dtype=wb.vec3), low: wb.array(dtype=wb.vec3), y: wb.array(dtype=F)):
    i = wb.tid()
    query = wb.bvh_query_aabb(tree, p[i] - wb.vec3(0.8), p[i] + wb.vec3(0.8))
    k = 0
    while wb.bvh_query_next(query, k):
        d = p[i] - (low[k] + wb.vec3(0.7))
        near = wb.max(0.0, 1.96 - wb.dot(d, d))
        y[i] = y[i] + F(near * near * near) * 0.05


BASE = np.array([[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1]], float)
SIDES = [[a, b, c] for a in (0, 1) for b in (2, 3) for c in (4, 5)]
AROUND = BASE[[0, 2, 4, 1, 3, 5]] * 0.9 + [0.4, 0.35, 0.3]


# ---- vectors

Step = Callable[[World], Any]


def launched(r) -> Step:
    kernel, a, b = r.choice([bend, add]), *two(r)
    return lambda w: wb.launch(kernel, SIZE, [w.v[a]], [w.v[b]])


def two(r) -> list[int]:
    return r.sample(range(4), 2)


def weighed(r) -> Step:
    a, b = two(r)
    return lambda w: wb.launch(weigh, SIZE, [w.s, w.v[a]], [w.v[b]])


def generic(r) -> Step:
    """One kernel for numbers, vectors, matrices: of declared or of plain scalars."""
    (a, b), kind, declared = two(r), r.choice([None, wb.vec2d, wb.vec3d, wb.types.matrix((2, 3), F)]), r.random() < 0.5

    def done(w):
        x, y = ((v if kind is None else v.view(kind).flatten()) for v in (w.v[a], w.v[b]))
        wb.launch(blended, len(x), [x, w.s if declared else F(0.6)], [y])

    return done


def moved(r) -> Step:
    """Copies, views of all kinds, memory given another name."""
    a, b = two(r)
    i, j, n = r.randrange(3), r.randrange(3), r.randrange(1, 4)
    return r.choice(
        [
            lambda w: wb.copy(w.v[b], w.v[a]),
            lambda w: wb.copy(w.v[b], w.v[a], i, j, n),
            lambda w: w.v[b][i : i + n].assign(w.v[a][j : j + n]),
            lambda w: w.v[b][::2].assign(w.v[a][i : i + 3]),
            lambda w: w.v[b][::-1].assign(w.v[a]),
            lambda w: w.v[a][1:].assign(w.v[a][:-1]),
            lambda w: w.v.__setitem__(b, wb.clone(w.v[a])),
            lambda w: w.v[b].reshape((2, 3)).assign(w.v[a].reshape((3, 2)).transpose()),
            lambda w: w.v[b].view(wb.vec3d).assign(w.v[a].view(wb.vec3d)[::-1]),
            lambda w: w.v.__setitem__(b, w.v[a].reshape((2, 3)).transpose().contiguous().flatten()),
            lambda w: wb.launch(bend, 3, [w.v[a][::2]], [w.v[a][1::2]]),
            lambda w: wb.launch(add, 4, [w.v[a][2:]], [w.v[b][:4]]),
            lambda w: w.v[b][i : i + n].fill_(0.25),
            lambda w: w.v[b].zero_(),
            lambda w: w.v[b].fill_(0.5),
        ]
    )


def scanned(r) -> Step:
    a, b, inclusive, part = *two(r), r.random() < 0.5, r.randrange(4)
    return [
        lambda w: wb.utils.array_scan(w.v[a], w.v[b], inclusive),
        lambda w: wb.utils.array_scan(w.v[a], w.v[a], inclusive),
        lambda w: wb.utils.array_scan(w.v[a][2:], w.v[b][1:5], inclusive),
        lambda w: wb.utils.array_scan(w.v[a][::2], w.v[b][::-2], inclusive),
    ][part]


def summed(r) -> Step:
    a, b, i = *two(r), r.randrange(SIZE)
    return r.choice(
        [
            lambda w: wb.utils.array_sum(w.v[a], out=w.v[b][i : i + 1]),
            lambda w: wb.utils.array_sum(w.v[a], out=w.v[a][i : i + 1]),
            lambda w: wb.utils.array_sum(w.v[a].view(wb.vec3d), out=w.v[b].view(wb.vec3d)[:1]),
            lambda w: wb.utils.array_sum(w.d[0], out=w.v[b][i : i + 1]),
            lambda w: wb.utils.array_inner(w.v[a], w.v[b], out=w.v[b][i : i + 1]),
            lambda w: wb.utils.array_inner(w.v[a], w.v[a], out=w.v[b][i : i + 1]),
            lambda w: wb.utils.array_inner(w.v[a].view(wb.vec2d), w.v[b].view(wb.vec2d), out=w.v[b][i : i + 1]),
            lambda w: wb.utils.array_inner(w.v[a][::2], w.v[b][1::2], out=w.v[a][i : i + 1]),
        ]
    )


def sorted_(r) -> Step:
    """Values moved with keys: of keys with a derivative, of fixed ones, within segments."""
    a, b, n = *two(r), r.choice([SIZE, SIZE, 4])
    fixed = [r.randrange(4) for _ in range(SIZE)]

    def by_itself(w):
        wb.utils.radix_sort_pairs(w.v[a], w.v[b], n)

    def by_whole_numbers(w):
        keys = wb.array(fixed, dtype=int)
        wb.utils.radix_sort_pairs(keys, w.v[b], n)

    def order(w):
        at = wb.array(np.arange(SIZE), dtype=int)
        wb.utils.radix_sort_pairs(wb.clone(w.v[a]), at, SIZE)
        wb.launch(gathered, SIZE, [at, w.v[b]], [w.v[a]])

    def within(w):
        wb.utils.segmented_sort_pairs(w.v[a], w.v[b], SIZE, wb.array([0, 2, SIZE], dtype=int))

    def runs(w):
        values, lengths = wb.zeros(SIZE, dtype=int), wb.zeros(SIZE, dtype=int)
        wb.utils.runlength_encode(wb.array(sorted(fixed), dtype=int), values, lengths)
        wb.launch(gathered, SIZE, [lengths, w.v[a]], [w.v[b]])

    return r.choice([by_itself, by_whole_numbers, order, within, runs])


def cast(r) -> Step:
    """Through another type and back; sums of float32 are rounded, so these programs are compared loosely."""
    a, b, kind = *two(r), r.choice([wb.float32, wb.float32, wb.float64])

    def through(w):
        other = wb.zeros(SIZE, dtype=kind)
        wb.utils.array_cast(w.v[a], other)
        wb.utils.array_cast(other, w.v[b])

    def blocks(w):
        other = wb.zeros(2, dtype=wb.vec3)
        wb.utils.array_cast(w.v[a].view(wb.vec3d), other)
        wb.utils.array_cast(other, w.v[b].view(wb.vec3d))

    def some(w):
        other = wb.zeros(SIZE, dtype=kind)
        wb.utils.array_cast(w.v[a], other, count=4)
        wb.utils.array_cast(other[:4], w.v[b][::-1][:4])

    return r.choice([through, blocks, some])


# ---- sparse and dense matrices


def triplets(r) -> Step:
    """A matrix of SIZE x SIZE numbers from a leaf, or from a vector; some places come twice or lie outside."""
    block, a, from_vector = r.choice(BLOCKS), r.randrange(4), r.random() < 0.4
    rows, cols = block.shape or (1, 1)
    size = rows * cols
    n = (6 if from_vector else 12) // size
    high, wide = SIZE // rows, SIZE // cols
    where = [r.randrange(-1, high + (r.random() < 0.2)) for _ in range(n)], [r.randrange(wide) for _ in range(n)]

    def made(w):
        numbers = w.v[a] if from_vector else w.leaves["values"]
        values = numbers[: n * size].view(block) if size > 1 else numbers[:n]
        if size > 1 and values.ndim > 1:
            values = values.flatten()
        at = [wb.array(k, dtype=int) for k in where]
        w.m.append(sparse.bsr_from_triplets(high, wide, *at, values, prune_numerical_zeros=False))

    return made


def square(A: Any) -> bool:
    return A.nrow == A.ncol and A.block_shape[0] == A.block_shape[1]


def matrix(r) -> Callable[[World], Any]:
    """One of the matrices that there are, or a new one with a vector on its diagonal."""
    k, a, block = r.random(), r.randrange(4), r.choice([wb.float64, wb.mat22d, wb.mat33d])

    def given(w):
        if w.m and k < 0.9:
            return w.m[int(k * 97) % len(w.m)]
        n = SIZE // (block.shape[0] if block.shape else 1)
        if block is wb.float64:
            return sparse.bsr_diag(w.v[a])
        return sparse.bsr_identity(n, block)

    return given


def number(r) -> Callable[[World], Any]:
    return r.choice([lambda w: 0.7, lambda w: -0.4, lambda w: w.s, lambda w: 1.0])


def times_vector(r) -> Step:
    A, (a, b), alpha, beta, turned = matrix(r), two(r), number(r), number(r), r.random() < 0.4
    form = r.randrange(5)

    def done(w):
        if form == 0:
            w.v[b] = sparse.bsr_mv(A(w), w.v[a], alpha=alpha(w), transpose=turned)
            w.v[b] = w.v[b] if w.v[b].ndim == 1 and w.v[b].dtype == F else w.v[b].view(F).flatten()
        elif form == 1:
            sparse.bsr_mv(A(w), w.v[a], w.v[b], alpha(w), beta(w), turned)
        elif form == 2:
            sparse.bsr_mv(A(w), w.v[a], w.v[a], alpha(w), beta(w), turned)
        elif form == 3:
            sparse.bsr_mv(A(w), w.v[a], w.v[b], alpha(w), 0.0, turned)
        else:
            found = A(w) @ w.v[a]
            w.v[b] = found if found.dtype == F else found.view(F).flatten()

    return done


def of_matrices(r) -> Step:
    A, B, alpha, beta, form = matrix(r), matrix(r), number(r), number(r), r.randrange(15)

    def done(w):
        a, b = A(w), B(w)
        alike = (a.nrow, a.ncol, a.dtype) == (b.nrow, b.ncol, b.dtype)
        fits = a.block_shape[1] == b.block_shape[0]
        if form == 0 and fits:
            w.m.append(sparse.bsr_mm(a, b, alpha=alpha(w)))
        elif form == 1 and square(a) and alike:
            sparse.bsr_mm(a, b, a, alpha(w), beta(w))
        elif form == 2 and square(a):
            w.m.append(a @ a.transpose() + 0.3 * a)
        elif form == 3 and alike:
            sparse.bsr_axpy(a, b, alpha(w), beta(w))
        elif form == 4 and alike:
            w.m.append(a - b / 2.0)
        elif form == 5:
            w.m.append(sparse.bsr_transposed(a))
        elif form == 6:
            sparse.bsr_scale(a, alpha(w))
        elif form == 7 and a.dtype == F:
            w.v[1] = sparse.bsr_get_diag(a, w.v[1]) if alpha(w) == 0.7 else sparse.bsr_get_diag(a)
        elif form == 8 and a.dtype == F:
            sparse.bsr_set_diag(a, w.v[2])
        elif form == 9 and alike:
            sparse.bsr_assign(a, b)
        elif form == 10:
            w.m.append(sparse.bsr_compress(a, prune_numerical_zeros=False, inplace=alpha(w) == 0.7))
        elif form == 11 and a.nnz:
            flat = a.values if a.dtype == F else a.values.view(F).flatten()
            wb.launch(bend, flat.size, [flat], [flat])
        elif form == 12:
            w.m.append(sparse.bsr_copy(a))
        elif form == 13:
            sparse.bsr_axpy(a, a, alpha(w), beta(w))
        elif form == 14 and square(a):
            sparse.bsr_set_transpose(a, a)

    return done


def of_dense(r) -> Step:
    a, i, form = r.randrange(4), r.randrange(SIZE), r.randrange(5)

    def done(w):
        if form == 0:
            w.d[0][i].assign(w.v[a])
        elif form == 1:
            w.v[a] = wb.clone(w.d[0][:, i])
        elif form == 2:
            wb.launch(bounded, (SIZE, SIZE), [w.d[0]])
        elif form == 3:
            w.d[0] = wb.clone(w.d[0].transpose())
        else:
            wb.launch(add, SIZE, [w.v[a]], [w.d[0][:, i]])

    return done


def solved(r) -> Step:
    """x = A^-1 b, by one of the solvers, with A dense, a diagonal or sparse; what it read is overwritten at times."""
    name, form = r.choice(["cg", "cr", "bicgstab", "gmres"]), r.randrange(4)
    (a, b), k, M = two(r), r.randrange(4), r.random() < 0.3
    same, after, later, A = r.random() < 0.2, r.random() < 0.3, r.random() < 0.2, matrix(r)

    def done(w):
        if form == 0:
            system = wb.zeros((SIZE, SIZE), dtype=F)
            wb.launch(heavy, (SIZE, SIZE), [w.d[0]], [system])
        elif form == 1:
            system = wb.zeros(SIZE, dtype=F)
            wb.launch(positive, SIZE, [w.v[k]], [system])
        else:
            s = A(w)
            if not square(s):
                return
            flat = s.values if s.dtype == F else s.values.view(F).flatten()
            if flat.size:
                wb.launch(bend, flat.size, [wb.clone(flat)], [flat])
            system = sparse.bsr_axpy(sparse.bsr_identity(s.nrow, s.dtype), 0.3 * (s + s.transpose()), 8.0, 1.0)
            if name in ("bicgstab", "gmres"):
                system = system + 0.5 * s
        how = {"tol": 1e-13, "maxiter": 200, "M": linear.preconditioner(system) if M else None}
        x = w.v[a] if same else w.v[b]
        if later:
            solver = getattr(linear, name)(system, w.v[a], x, run=False, **how)
            solver()
            wb.launch(bend, SIZE, [x], [w.v[a]])
            solver()
        else:
            getattr(linear, name)(system, w.v[a], x, **how)
        if after:
            flat = system.values if isinstance(system, sparse.BsrMatrix) else system
            flat.zero_()
            w.v[a].fill_(0.4)

    return done


def descended(r) -> Step:
    """Steps of an optimizer as part of the program: by parameters, gradients and what the optimizer keeps."""
    a, b = two(r)
    kind, turns, decay, nesterov = r.randrange(3), r.randrange(1, 4), r.choice([0.0, 0.1]), r.random() < 0.5
    again = r.random() < 0.2

    def done(w):
        if kind == 0:
            by = wb.optim.Adam([w.v[a]], lr=0.1, betas=(0.8, 0.9))
        else:
            momentum = 0.8 if kind == 1 else 0.0
            by = wb.optim.SGD([w.v[a]], 0.1, momentum, 0.0 if nesterov else 0.2, decay, nesterov and kind == 1)
        for turn in range(turns):
            by.step([w.v[b]])
            if again and turn == 0:
                by.reset_internal_state()
            wb.launch(add, SIZE, [w.v[a]], [w.v[b]])

    return done


# ---- meshes, trees, hash grids


def places(w: World, a: int, base: np.ndarray) -> Any:
    p = wb.zeros(len(base), dtype=wb.vec3)
    wb.launch(placed, len(base), [w.v[a], wb.array(base, dtype=wb.vec3)], [p])
    return p


def searched(r) -> Step:
    """A mesh of moved points, or one that is moved and fitted again, asked at moved places."""
    (a, b), c, kernel = two(r), r.randrange(4), r.choice([to_surface, signed_distance, along_rays])
    moves, fitted, twice, scale = r.random() < 0.5, r.random() < 0.8, r.random() < 0.3, r.choice([0.5, 1.6])

    def done(w):
        points = wb.array(BASE, dtype=wb.vec3) if moves else places(w, b, BASE)
        mesh = wb.Mesh(points, wb.array(np.ravel(SIDES), dtype=int))
        p = places(w, a, AROUND * scale)
        if moves:
            wb.launch(placed, SIZE, [w.v[b], wb.array(BASE, dtype=wb.vec3)], [points])
            if fitted:
                mesh.refit()
        wb.launch(kernel, SIZE, [mesh.id, p], [w.v[c]])
        if twice:
            wb.launch(placed, SIZE, [w.v[c], wb.array(BASE, dtype=wb.vec3)], [points])
            mesh.refit()
            wb.launch(kernel, SIZE, [mesh.id, p], [w.v[b]])
        w.kept.append(mesh)

    return done


def neighbours(r) -> Step:
    (a, b), turns, tree, fitted = two(r), r.randrange(1, 3), r.random() < 0.4, r.randrange(3)

    def done(w):
        p = places(w, a, AROUND)
        if tree:
            low, high = wb.zeros(SIZE, dtype=wb.vec3), wb.zeros(SIZE, dtype=wb.vec3)
            wb.launch(boxed, SIZE, [p], [low, high])
            boxes = wb.Bvh(low, high)
            if fitted:
                wb.launch(placed, SIZE, [w.v[b], wb.array(AROUND[::-1].copy(), dtype=wb.vec3)], [p])
                wb.launch(boxed, SIZE, [p], [low, high])
                boxes.refit() if fitted == 1 else boxes.rebuild()
            wb.launch(overlaps, SIZE, [boxes.id, p, low], [w.v[b]])
            w.kept.append(boxes)
            return
        grid = wb.HashGrid(8, 8, 8)
        for _ in range(turns):
            grid.build(p, 1.4)
            q = wb.zeros(SIZE, dtype=wb.vec3)
            wb.launch(pushed, SIZE, [grid.id, p], [q])
            p = q
        grid.build(p, 1.4)
        wb.launch(densities, SIZE, [grid.id, p], [w.v[b]])
        w.kept.append(grid)

    return done


SINGLE = (cast, searched, neighbours)  # steps with float32 in them
KINDS = (
    launched,
    launched,
    weighed,
    generic,
    moved,
    moved,
    scanned,
    summed,
    sorted_,
    triplets,
    triplets,
    times_vector,
    times_vector,
    of_matrices,
    of_matrices,
    of_dense,
    solved,
    solved,
    descended,
)
