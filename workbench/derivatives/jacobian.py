"""Products of derivatives: the Jacobian by rows or by columns, losses as optimizers want them, second derivatives.

Rows are reverse walks, columns forward walks, each in a workspace of its own: no user's `.grad` is touched.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple

import numpy as np

from ..arrays import allocation, allocation as memory
from ..arrays.array import array, read_values
from ..arrays.workspace import Workspace, gradient_dtype
from ..errors import GradientError
from ..kernels import ir
from ..kernels.program import Kernel
from ..kernels.types import Struct, is_float
from ..tapes import conventions
from ..tapes.jit import Jit
from ..tapes.jvp import add_numbers, carry_tangents, check_directions, confirm_conventions, value_of
from ..tapes.private_copies import InFloat64
from ..tapes.publish import clear_published
from ..tapes.reverse import walk
from ..tapes.seeds import as_read, check_pairs, check_seed, check_start, check_tape
from ..tapes.tape import Tape
from . import sparsity as sparsity
from .sweep import spread

RANK = 1e-6  # a singular value below this part of the largest is none


def jacobian(
    tape: Tape,
    y: array,
    x: array,
    mode: str | None = None,
    *,
    executor: Executor | None = None,
    sparse: bool = False,
    pattern: object = None,
) -> Any:
    """The derivative of every component of y by every component of x, which must have been on an active path.

    By the final contents of y and the contents of x that the tape started from. mode "rows" walks backwards once per
    component of y, "columns" forwards once per component of x; None takes whichever is fewer (rows where the tape
    holds a `record_func`). `executor`: its workers compute the rows or columns (see `sweep`). Returns a new NumPy array
    of shape (*y.shape, *y's components, *x.shape, *x's components) in the gradient dtype of x (rows) or y (columns).
    sparse=True gives a `scipy.sparse.csr_array` with one row per number of y and one column per number of x, from as
    few walks as there are colours: rows that share no column are found together, and columns that share no row. Where
    entries can lie is found from the launches, or given as `pattern` (dense or sparse, non-zero where entries may be).
    A pattern that is given is checked by a product in a random direction, and so is one that was found where sines,
    powers and the like decide about branches or indices: the interpreter, which finds it, may round them otherwise.
    Raises GradientError where a row or column would not be exact; [pattern].

    Use it to look at a whole derivative; for one direction `jvp` or `backward` is enough.

    >>> @wb.kernel
    ... def square(x: wb.array[float], y: wb.array[float]):
    ...     i = wb.tid()
    ...     y[i] = x[i] * x[i]
    >>> x, y = wb.array([1.0, 2.0, 3.0], requires_grad=True), wb.zeros(3)
    >>> with wb.Tape() as tape:
    ...     wb.launch(square, dim=3, inputs=[x], outputs=[y])
    >>> wb.jacobian(tape, y, x)
    array([[2., 0., 0.],
           [0., 4., 0.],
           [0., 0., 6.]], dtype=float32)
    """
    check_tape("jacobian(tape, y, x)", tape, y, x)
    _check_numbers(x, y)
    if mode not in (None, "rows", "columns"):
        raise ValueError('mode is "rows", "columns" or None')
    with allocation.LOCK, allocation.unrecorded():
        check_seed(tape, y)
        _check_order(tape, y, x)
        check_directions(tape, x)
        calls = [e.op for e in tape.events if e.kind.closed]
        opaque = any(call is None or call.op.push_rule(()) is None for call in calls)  # without tangents
    if sparse:
        return _sparse(tape, y, x, "rows" if opaque else mode, pattern, executor)
    mode = mode or ("rows" if opaque or y.data.size <= x.data.size else "columns")
    shape = y.data.shape + x.data.shape
    if mode == "rows":
        rows = _each(walk, tape, y, x, range(y.data.size), executor)
        return as_read(tape, np.array(rows, gradient_dtype(x)).reshape(shape))
    columns = _each(carry_tangents, tape, y, x, range(x.data.size), executor)
    stacked = np.array(columns, gradient_dtype(y)).reshape((x.data.size, y.data.size))
    return as_read(tape, np.ascontiguousarray(stacked.T).reshape(shape))


def _check_numbers(*given: object) -> None:
    """Raises GradientError [seed-type] for what is no array of numbers or vectors."""
    for a in given:
        if not isinstance(a, array) or isinstance(a.dtype, Struct):
            got = a.dtype if isinstance(a, array) else type(a).__name__
            text = f"jacobian() takes arrays of numbers or vectors, not {got}."
            instead = "one field: a.field(name)" if isinstance(a, array) else "jacobian(tape, y, x), with arrays"
            raise GradientError(text, slug="seed-type", instead=instead)


def first_rows(tape: Tape, y: array, x: array, count: int) -> np.ndarray:
    """As many rows of `jacobian(tape, y, x)`, shape (count, *x.shape, *x's components). `count` is 1 at least."""
    with allocation.LOCK, allocation.unrecorded():
        check_seed(tape, y)
        check_directions(tape, x)
    return np.array(_each(walk, tape, y, x, range(count), None), gradient_dtype(x))


def _check_order(tape: Tape, y: array, x: array) -> None:
    """Refuse an output that the tape never wrote by an input that it did: all zeros, most likely swapped arguments."""
    tape.log.tally()
    by_tape = [(m := tape.log.written.get(a.allocation)) is not None and m.touch(a.span) for a in (y, x)]
    if by_tape == [False, True]:
        text = f"jacobian(tape, {y.label}, {x.label}): the tape wrote {x.label} and only read {y.label}."
        why = "The output comes before the input; this way round every entry is zero."
        raise GradientError(text, slug="jacobian-order", why=why, instead=f"jacobian(tape, {x.label}, {y.label})")


def _each(
    through: Callable[..., Any], tape: Tape, y: array, x: array, wanted: Sequence[Any], executor: Executor | None
) -> list[np.ndarray]:
    """All rows (by `walk`) or columns (by `carry_tangents`) wanted. The first is computed here, so that races are
    searched for once."""
    conventions.clear(tape)
    shared = through, tape, y, x
    found = [_line(shared, k) for k in wanted[:1]] + spread(_line, shared, wanted[1:], executor, "jacobian")
    if through is not walk:
        with allocation.LOCK, allocation.unrecorded():
            confirm_conventions(tape, [y])
    conventions.warn(tape)
    return found


def _sparse(tape: Tape, y: array, x: array, mode: str | None, pattern: object, executor: Executor | None) -> Any:
    shape = y.data.size, x.data.size
    with allocation.LOCK, allocation.unrecorded():
        lines, certain = (sparsity.given(pattern, shape), False) if pattern is not None else sparsity.find(tape, y, x)
    across = sparsity.transposed(lines, shape[1])
    groups = {"rows": sparsity.colour(lines), "columns": sparsity.colour(across)}
    mode = mode or min(groups, key=lambda m: len(groups[m]))
    through, crossing = (walk, lines) if mode == "rows" else (carry_tangents, across)
    found = _each(through, tape, y, x, groups[mode], executor)
    entries = {}
    for group, values in zip(groups[mode], found, strict=True):
        flat = values.reshape(-1)
        for line in group:
            for place in sparsity.members(crossing[line]):
                entries[(line, place) if mode == "rows" else (place, line)] = flat[place]
    made = sparsity.matrix(entries, shape, gradient_dtype(x if mode == "rows" else y))
    if not certain:
        with allocation.LOCK, allocation.unrecorded():
            _check_pattern(tape, y, x, made, through, "given" if pattern is not None else "found")
    return made


def _check_pattern(tape: Tape, y: array, x: array, made: Any, through: Callable[..., Any], known: str) -> None:
    """Check a sparsity pattern by one walk in a random direction: a missing entry changes the product."""
    matrix, seeded = (made.T, y) if through is walk else (made, x)
    weights = np.random.default_rng(0).uniform(0.5, 1.0, seeded.data.size).astype(gradient_dtype(seeded))
    weights[::2] *= -1
    got = _line((through, tape, y, x), slice(None), weights).reshape(-1).astype(np.float64)
    off = differing_entries(tape, matrix, weights, got)
    if off.size and _leaves_out(tape, y, x, matrix, carry_tangents if through is walk else walk, off):
        raise GradientError(
            f"the pattern {known} for d {y.label} / d {x.label} leaves out entries that are not zero.",
            slug="pattern",
            why=f"A product with the Jacobian differs at {off.size} of {got.size} places."
            + (" Rounding decides about a branch or an index." if known == "found" else ""),
            instead=f"jacobian(tape, y, x{', sparse=True), which finds the pattern' if known == 'given' else ')'}",
        )


def _leaves_out(tape: Tape, y: array, x: array, matrix: Any, through: Callable[..., Any], lines: np.ndarray) -> bool:
    """True unless walks of these lines alone show that only rounding differs: no entry outside of the pattern."""
    matrix = matrix.tocsr()
    try:
        for k in lines.tolist():
            values = _line((through, tape, y, x), k).reshape(-1).copy()
            values[matrix.indices[matrix.indptr[k] : matrix.indptr[k + 1]]] = 0
            if values.any():
                return True
    except GradientError:  # forward mode does not see what a function of the user's does
        return True
    return False


def differing_entries(tape: Tape, made: Any, weights: np.ndarray, got: np.ndarray) -> np.ndarray:
    """The places where a product, `got`, is not that of a sparse matrix and `weights`, to rounding."""
    matrix = made.astype(np.float64)
    with np.errstate(invalid="ignore"):
        want, size = matrix @ weights.astype(np.float64), abs(matrix) @ abs(weights).astype(np.float64)
        near = np.isfinite(want) & (np.abs(got - want) <= 64 * _coarsest(tape) * (size + np.abs(got)))
        return np.flatnonzero(~(near | (got == want) | (np.isnan(got) & np.isnan(want))))


def _coarsest(tape: Tape) -> float:
    """The unit roundoff of the coarsest float type in which the launches of a tape compute."""
    bodies = {e.command.program.function for e in tape.events if e.reverse is not None}
    types: list[Any] = [o.type for f in bodies for s in ir.walk(f.body) for o in s.outs if ir.is_value(o.type)]
    kinds = {getattr(t, "scalar", t).numpy for t in (*types, *tape.scalars.values()) if is_float(t)}
    return max(float(np.finfo(k).eps) for k in kinds)


def _line(shared: tuple, k: int | list[int] | slice, weight: np.ndarray | float = 1.0) -> np.ndarray:
    """Row k by the reverse walk, or column k by the forward one; or the sum of some, each times its weight."""
    through, tape, y, x = shared
    seeded, wanted = (y, x) if through is walk else (x, y)
    with allocation.LOCK, allocation.unrecorded():
        space = Workspace()
        weights = np.zeros(seeded.data.size, gradient_dtype(seeded))
        weights[k] = weight
        add_numbers(space, seeded, weights.reshape(seeded.data.shape))
        through(tape, space)
        found = value_of(wanted, space)
        space.release()
    return found


# ---- losses for optimizers


class ValueAndGrad:
    """A loss with its gradient: what `value_and_grad` returns.

    Called with the arguments of the function, it gives (value: float, gradient). `closure(*tensors)` gives the
    function that torch's optimizers call. `tape` is the last one that was recorded, to look at; `trust` the `Trust` of
    its gradient, where that was asked for.
    """

    def __init__(
        self,
        fn: Callable[..., array],
        argnums: int | tuple[int, ...],
        like: array | None,
        jit: bool,
        trust: bool = False,
    ):
        self.fn, self.argnums, self.like, self.looks = fn, argnums, like, trust
        self.tape: Tape | None = None
        self.trust: Any = None

        @functools.wraps(fn)
        def walked(*given: Any) -> array:
            return self._walked(given)

        self._run = Jit(walked, off=not jit or trust)
        self.__name__, self.__doc__ = getattr(fn, "__name__", "loss"), fn.__doc__ or self.__doc__

    def __reduce__(self) -> Any:
        return ValueAndGrad, (self.fn, self.argnums, self.like, not self._run.off, self.looks)

    def __call__(self, *args: Any) -> tuple[float, Any]:
        picked = self._picked
        if not picked or max(picked) >= len(args):
            last = f"argument {max(picked, default=0)} (counted from 0), got {len(args)} of them"
            raise TypeError(f"{self.__name__} differentiates by {last}: argnums={self.argnums}")
        given = list(args)
        for k in picked:
            given[k] = copied_input(args[k], self.like)
        loss = self._run(*given)
        value = float(loss.carrying(read_values(loss)).ravel()[0])  # under another open tape it knows its origin
        grads = tuple(_output(args[k], given[k]) for k in picked)
        return value, grads[0] if isinstance(self.argnums, int) else grads

    def _walked(self, given: tuple) -> array:
        """Record the function and walk back. Returns the loss."""
        self.tape = Tape(keep="all" if self.looks else "needed")
        with self.tape:
            loss: object = self.fn(*given)
            clear_published(self.tape, [given[k] for k in self._picked])
        if not isinstance(loss, array):
            text = f"{self.__name__} returned a {type(loss).__name__}; it must return an array of one element."
            raise GradientError(text, slug="loss-shape", instead="return loss")
        for k in self._picked:
            if not self.tape.log.has_touched(given[k].span):
                text = f"{self.__name__} never used its argument {k} in a launch: a gradient would be zero in silence."
                why = "What NumPy does with its values is on no tape."
                instead = "wb.launch(kernel, dim, inputs=[x], ...), with the array itself"
                raise GradientError(text, slug="unused-argument", why=why, instead=instead)
        if loss.data.size != 1:
            text = f"{self.__name__} returned an array of {loss.dtype}, shape {loss.shape}; a loss is one number."
            instead = "return wb.utils.array_sum(...), or a kernel that adds up by wb.atomic_add"
            raise GradientError(text, slug="loss-shape", instead=instead)
        self.tape.backward(loss)
        if self.looks:
            self.trust = self.tape.trust(loss, [given[k] for k in self._picked])
        return loss

    def closure(self, *args: Any) -> Callable[[], float]:
        """For `optimizer.step(closure)` of torch: evaluates at the tensors, sets their `.grad`, returns the loss."""

        def evaluate() -> float:
            value, grads = self(*args)
            for k, g in zip(self._picked, (grads,) if isinstance(self.argnums, int) else grads, strict=True):
                args[k].grad = g
            return value

        return evaluate

    @property
    def _picked(self) -> tuple[int, ...]:
        return (self.argnums,) if isinstance(self.argnums, int) else tuple(self.argnums)


def value_and_grad(
    fn: Callable[..., array],
    argnums: int | tuple[int, ...] = 0,
    like: array | None = None,
    *,
    jit: bool = False,
    trust: bool = False,
) -> ValueAndGrad:
    """A function that gives the loss and its gradient, as `scipy.optimize.minimize(..., jac=True)` takes it.

    fn       takes arrays, launches kernels, returns an array of one element. It is run under a new tape at every call.
    argnums  the argument, or the tuple of arguments, to differentiate by.
    like     the dtype and shape in which `fn` wants them: a flat vector is cast and folded into it. By default an
             argument keeps its own shape and its dtype becomes the array's.
    jit      record it at the second call and replay it from the third on: see `jit`, whose errors it raises then.
    trust    look at every gradient with `Tape.trust` (up to sixty runs more; nothing is replayed then): the result has
             it as `trust`, by whose `radius` a step can be shortened.
    Arguments may be NumPy arrays, torch tensors (on the CPU) or arrays; gradients come back as what was given, in its
    dtype and shape; `fn` gets a copy of each. With torch: `optimizer.step(value_and_grad(fn).closure(tensor))`.
    Raises GradientError [loss-shape], [unused-argument], and what `Tape.backward` raises.

    Use it to hand a simulation to an optimizer of SciPy or torch.

    >>> def loss(x):
    ...     return wb.utils.array_inner(x, x, out=wb.zeros(1))
    >>> wb.value_and_grad(loss)(np.array([3.0, 4.0], np.float32))
    (25.0, array([6., 8.], dtype=float32))
    """
    if isinstance(fn, Kernel):
        raise TypeError(
            f"value_and_grad takes a function that launches {fn.__name__} and returns the loss, an array of one"
            " element; a kernel returns nothing"
        )
    if not callable(fn) or inspect.isclass(fn):
        raise TypeError(f"value_and_grad takes a function of arrays, not {fn!r}")
    return ValueAndGrad(fn, argnums, like, jit, trust)


def copied_input(value: object, like: array | None) -> array:
    """A copy of an argument, with a gradient."""
    raw = input_numbers(value)
    if like is not None:
        raw = raw.reshape(like.data.shape).astype(gradient_dtype(like), copy=False)
    model = value if like is None else like
    if isinstance(model, array):
        return array(raw, dtype=model.dtype, device=model.device, requires_grad=True)
    return array(raw, requires_grad=True)


def input_numbers(value: Any) -> np.ndarray:
    """The numbers of an argument, as floats: of an array, a tensor or anything like a NumPy array. Raises TypeError."""
    if isinstance(value, array):
        return value.carrying(read_values(value))
    if hasattr(value, "cpu"):
        value = value.detach().cpu().numpy()
    raw = np.asanyarray(value)
    if raw.dtype.kind not in "fiub":
        text = f"a function is differentiated by arrays of numbers, not by {type(value).__name__} {value!r}"
        raise TypeError(text[:120])
    return raw if raw.dtype.kind == "f" else raw.astype(np.float64)


def _output(given: Any, x: array) -> Any:
    """The gradient as the argument was given."""
    assert x.grad is not None
    g = x.grad.carrying(read_values(x.grad))
    if isinstance(given, array):
        return array(g, dtype=x.grad.dtype, device=given.device)
    if hasattr(given, "new_tensor"):
        return given.new_tensor(g.reshape(tuple(given.shape)), requires_grad=False)
    raw = input_numbers(given)
    return g.reshape(raw.shape).astype(raw.dtype, copy=True)


# ---- second derivatives


def hvp(tape: Tape, loss: array, tangents: Mapping[array, Any]) -> dict[array, np.ndarray]:
    """Hessian times vector: the derivative of the gradient of `loss` in one direction. Reverse over forward, exact.

    tape      recorded with keep="all", since its launches run again, on copies.
    loss      an array of one element.
    tangents  {x: v} as for `jvp`. Returns {x: (H v) restricted to x}, with v one direction for all x together.
    A slope given by convention (of abs, length and the like at their kinks) counts as constant there; where H is
    infinite the result is infinite or NaN.
    Raises GradientError [not-kept], [jvp-func], [loss-shape], [not-active], [hvp-half] for float16; KernelError
    [second-derivative] for extremes by atomics and funcs with an adjoint of their own.

    Use it for Newton's method and for curvature along a direction.

    >>> @wb.kernel
    ... def energy(x: wb.array[float], out: wb.array[float]):
    ...     i = wb.tid()
    ...     wb.atomic_add(out, 0, x[i] * x[i] * x[i])
    >>> x, out = wb.array([1.0, 2.0], requires_grad=True), wb.zeros(1)
    >>> with wb.Tape(keep="all") as tape:
    ...     wb.launch(energy, dim=2, inputs=[x], outputs=[out])
    >>> wb.hvp(tape, out, {x: np.ones(2, np.float32)})[x]
    array([ 6., 12.], dtype=float32)
    """
    check_tape("hvp(tape, loss, {x: v})", tape, loss)
    check_pairs("hvp(tape, loss, tangents)", tangents, "direction", "hvp(tape, loss, {x: v})")
    if not isinstance(loss, array) or loss.data.size != 1:
        raise GradientError("hvp() takes a loss of one element.", slug="loss-shape", instead="hvp(tape, loss, {x: v})")
    with allocation.LOCK, allocation.unrecorded():
        check_seed(tape, loss)
        check_directions(tape, *tangents)
        for x, v in tangents.items():
            if np.shape(v) != x.data.shape:
                raise GradientError(f"the direction of {x.label} has shape {np.shape(v)}", slug="seed-shape")
        products = InFloat64(tape).follow().product(loss, tangents)
    return {x: as_read(tape, v) for x, v in products.items()}


# ---- matrices: the Hessian of a loss, and the covariance of parameters fitted to residuals


class Covariance(NamedTuple):
    """The covariance of fitted parameters.

    matrix   shape (n, n) over the n numbers of x in row-major order, float64; infinite variances where the fit says
             nothing are left out (the pseudo-inverse).
    rank     how many combinations of the parameters the residuals determine; `deviation`: of one residual.
    unseen   shape (n - rank, n): directions, of length 1, that change no residual.
    """

    matrix: np.ndarray
    rank: int
    deviation: float
    unseen: np.ndarray


def hessian(tape: Tape, loss: array, x: array, *, sparse: bool = False) -> Any:
    """The Hessian of a loss of one element by x, exact: one product with a unit direction for each number of x.

    tape   recorded with keep="all", as for `hvp`. Returns shape (*x.shape, *components, *x.shape, *components) in the
    dtype of x's gradient. Raises what `hvp` raises. The launches are read once, and run once for each number of x.
    sparse=True gives a `scipy.sparse.csr_array` with a row and a column for each number of x, from as few products as
    there are colours (see `jacobian`): two numbers have an entry if what one thread loads depends on both. Raises
    GradientError [pattern] where that cannot be found.

    >>> @wb.kernel
    ... def energy(x: wb.array[float], out: wb.array[float]):
    ...     out[0] = x[0] * x[0] * x[1]
    >>> x, out = wb.array([1.0, 2.0], requires_grad=True), wb.zeros(1)
    >>> with wb.Tape(keep="all") as tape:
    ...     wb.launch(energy, 1, inputs=[x], outputs=[out])
    >>> wb.hessian(tape, out, x).tolist()
    [[4.0, 2.0], [2.0, 0.0]]
    """
    check_tape("hessian(tape, loss, x)", tape, loss, x)
    if not isinstance(loss, array) or loss.data.size != 1:
        raise GradientError("hessian() takes a loss of one element.", slug="loss-shape", instead="out[0], summed up")
    with memory.LOCK, memory.unrecorded():
        check_seed(tape, loss)
        check_seed(tape, x)
        check_start(tape, x)
        products = _Products(tape, loss, x)
        if sparse:
            return _sparse_hessian(tape, products, x)
        rows = [products.of([k]) for k in range(x.data.size)]
    return as_read(tape, np.array(rows).reshape(*x.data.shape, *x.data.shape))


class _Products:
    """Products of a Hessian with vectors, each from the same start."""

    def __init__(self, tape: Tape, loss: array, x: array):
        self.twice, self.loss, self.x = InFloat64(tape).follow(), loss, x
        memories = (*self.twice.twins.memory.values(), *self.twice.moved.memory.values())
        self.start = [(span, span.copy_out()) for span in (m.span() for m in memories)]

    def of(self, ones: Sequence[int], weight: np.ndarray | float = 1.0) -> np.ndarray:
        """The product with the vector that is `weight` at these numbers of x, and 0 elsewhere: one number for each."""
        v = np.zeros(self.x.data.size, np.float64)
        v[ones] = weight
        found = self.twice.product(self.loss, {self.x: v.reshape(self.x.data.shape)})[self.x].reshape(-1)
        for span, data in self.start:
            span.copy_in(data)
        return found


def _sparse_hessian(tape: Tape, products: _Products, x: array) -> Any:
    lines, certain = sparsity.find_pairs(tape, x)
    entries = {}
    for group in sparsity.colour(lines):
        found = products.of(group)
        entries |= {(i, k): found[i] for k in group for i in sparsity.members(lines[k])}
    made = sparsity.matrix(entries, (x.data.size, x.data.size), gradient_dtype(x))
    if not certain:
        weights = np.random.default_rng(0).uniform(0.5, 1.0, x.data.size).astype(gradient_dtype(x))
        got = products.of(range(x.data.size), weights).astype(np.float64)
        if differing_entries(tape, made, weights, got).size:
            text = f"the pattern found for the Hessian by {x.label} leaves out entries that are not zero."
            why = "Rounding decides about a branch or an index."
            raise GradientError(text, slug="pattern", why=why, instead="hessian(tape, loss, x)")
    return made


def covariance(tape: Tape, residuals: array, x: array) -> Covariance:
    """The covariance of parameters x that were fitted to residuals by least squares: s^2 (J^T J)^-1 (Gauss-Newton).

    residuals   an array of m numbers, of which the loss is the sum of squares; J is their derivative by x, taken from
                the tape, and s^2 = |residuals|^2 / (m - rank) the variance of one of them (NaN for m = rank).
    Raises what `jacobian` raises.

    >>> @wb.kernel
    ... def misfit(p: wb.array[float], r: wb.array[float]):
    ...     i = wb.tid()
    ...     r[i] = (p[0] + p[1]) * float(i) - 1.0
    >>> p, r = wb.array([0.1, 0.2], requires_grad=True), wb.zeros(5)
    >>> with wb.Tape() as tape:
    ...     wb.launch(misfit, 5, inputs=[p], outputs=[r])
    >>> found = wb.covariance(tape, r, p)
    >>> found.rank, abs(found.unseen).round(2).tolist()
    (1, [[0.71, 0.71]])
    """
    rows = np.asarray(jacobian(tape, residuals, x), np.float64).reshape(residuals.data.size, x.data.size)
    _, sigma, right = np.linalg.svd(rows, full_matrices=True)
    sigma = np.concatenate((sigma, np.zeros(x.data.size - len(sigma))))
    rank = int((sigma > RANK * sigma[0]).sum()) if sigma[0] > 0 else 0
    square = float(np.sum(read_values(residuals).astype(np.float64) ** 2))
    many = residuals.data.size - rank
    deviation = np.sqrt(square / many) if many else np.nan
    seen = right[:rank] / sigma[:rank, None]
    return Covariance(deviation**2 * seen.T @ seen, rank, float(deviation), right[rank:])
