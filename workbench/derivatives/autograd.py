"""Warp's names for Jacobians and checks, with its arguments and results; `jacobian` and `gradcheck` do the work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arrays import allocation as memory
from ..arrays.array import array, clone
from ..errors import LaunchError
from ..kernels.program import Kernel
from ..kernels.reading.declare import Refused
from ..kernels.types import is_float
from ..launches.launch import launch
from ..tapes.tape import Tape
from . import jacobian as exact
from . import verify

Mask = list[tuple[Any, Any]] | None


def jacobian(
    function: Kernel | Callable, dim: Any = None, inputs: Sequence[Any] | None = None,
    outputs: Sequence[Any] | None = None, input_output_mask: Mask = None, device: Any = None, max_blocks: int = 0,
    block_dim: int | None = None, max_outputs_per_var: int = -1, plot_jacobians: bool = False, metadata: Any = None,
    restore_inputs: bool = True,
) -> dict[tuple[int, int], array]:  # fmt: skip
    """The exact Jacobians of a kernel (with `dim`, `inputs`, `outputs`) or of a function that returns arrays.

    By (number of the input, number of the output), for all arrays of floats, marked or not: an array with one row for
    each number of the output and one column for each element of the input, of the input's dtype. All rows are
    computed. Runs on copies. `wb.jacobian(tape, y, x)` gives NumPy arrays, of any tape.

    >>> @wb.kernel
    ... def square(x: wb.array[float], y: wb.array[float]):
    ...     i = wb.tid()
    ...     y[i] = x[i] * x[i]
    >>> wb.autograd.jacobian(square, dim=2, inputs=[wb.array([1.0, 2.0])], outputs=[wb.zeros(2)])[0, 0].numpy()
    array([[2., 0.],
           [0., 4.]], dtype=float32)
    """
    _refuse_plot(plot_jacobians)
    given = [_copied(a) for a in inputs or ()]
    for a in given:
        if _differentiable(a):
            a.requires_grad = True
    with Tape() as tape:
        results = _run(function, dim, given, outputs, device)
    found = {}
    for i, x in enumerate(given):
        for j, y in enumerate(results):
            if _differentiable(x) and _differentiable(y) and _wanted(input_output_mask, i, j):
                rows = exact.jacobian(tape, y, x, "rows").reshape(-1, *x.data.shape)
                found[i, j] = _as_array(rows.reshape(len(rows), x.size, *x.dtype.shape), x)  # type: ignore[attr-defined]
    return found


def jacobian_fd(
    function: Kernel | Callable, dim: Any = None, inputs: Sequence[Any] | None = None,
    outputs: Sequence[Any] | None = None, input_output_mask: Mask = None, device: Any = None, max_blocks: int = 0,
    block_dim: int | None = None, max_inputs_per_var: int = -1, eps: float = 1e-4, plot_jacobians: bool = False,
    metadata: Any = None, restore_inputs: bool = True,
) -> dict[tuple[int, int], array]:  # fmt: skip
    """`jacobian` by central differences of step `eps`, in the program's own precision: rough in float32.

    >>> @wb.kernel
    ... def double(x: wb.array[float], y: wb.array[float]):
    ...     i = wb.tid()
    ...     y[i] = 2.0 * x[i]
    >>> found = wb.autograd.jacobian_fd(double, dim=1, inputs=[wb.array([1.0])], outputs=[wb.zeros(1)], eps=0.5)
    >>> found[0, 0].numpy()
    array([[2.]], dtype=float32)
    """
    _refuse_plot(plot_jacobians)

    def values(k: int, shift: np.ndarray | None) -> list[Any]:
        given = [_copied(a) for a in inputs or ()]
        if shift is not None:
            given[k].assign((given[k].numpy().reshape(-1) + shift).reshape(given[k].numpy().shape))
        results = _run(function, dim, given, [_copied(a) for a in outputs or ()], device)
        return [y.numpy().reshape(-1).astype(np.float64) if _differentiable(y) else None for y in results]

    found: dict[tuple[int, int], array] = {}
    with memory.unrecorded():
        for i, x in enumerate(inputs or ()):
            if not _differentiable(x):
                continue
            n = x.numpy().size
            columns = []
            for k in range(n):
                step = np.zeros(n, x.dtype.numpy)
                step[k] = eps
                pairs = zip(values(i, step), values(i, -step), strict=True)
                columns.append([None if up is None else (up - down) / (2 * eps) for up, down in pairs])
            for j in range(len(columns[0]) if columns else 0):
                if columns[0][j] is not None and _wanted(input_output_mask, i, j):
                    rows = np.stack([c[j] for c in columns], axis=1)
                    found[i, j] = _as_array(rows.reshape(len(rows), x.size, *x.dtype.shape), x)
    return found


def gradcheck(
    function: Kernel | Callable, dim: Any = None, inputs: Sequence[Any] | None = None,
    outputs: Sequence[Any] | None = None, *, eps: float | None = None, atol: float | None = None,
    rtol: float | None = None, raise_exception: bool = True, **_: Any,
) -> bool:  # fmt: skip
    """`wb.gradcheck`, which says more; True if every gradient agrees. Tolerances left out are those of `wb.gradcheck`.

    >>> @wb.kernel
    ... def cube(x: wb.array[float], y: wb.array[float]):
    ...     i = wb.tid()
    ...     y[i] = x[i] * x[i] * x[i]
    >>> wb.autograd.gradcheck(cube, dim=1, inputs=[wb.array([2.0])], outputs=[wb.zeros(1)])
    True
    """
    how = {"eps": eps, "atol": atol, "rtol": rtol, "raise_exception": raise_exception}
    return bool(verify.gradcheck(function, dim, list(inputs or ()), list(outputs or ()), **how))


def gradcheck_tape(
    tape: Tape, *, eps: float | None = None, atol: float | None = None, rtol: float | None = None,
    raise_exception: bool = True, **_: Any,
) -> bool:  # fmt: skip
    """`wb.gradcheck` of a `Tape(keep="all")` that has recorded; True if every launch agrees.

    >>> x = wb.array([2.0], requires_grad=True)
    >>> with wb.Tape(keep="all") as tape:
    ...     y = x * x
    >>> wb.autograd.gradcheck_tape(tape)
    True
    """
    return bool(verify.gradcheck(tape, eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception))


jacobian_plot = Refused(
    "autograd.jacobian_plot", "tape.seeds(y) shows a Jacobian; matplotlib's imshow draws its array."
)


def _differentiable(a: Any) -> bool:
    return isinstance(a, array) and is_float(a.dtype)


def _wanted(mask: Mask, i: int, j: int) -> bool:
    return mask is None or (i, j) in mask


def _copied(a: Any) -> Any:
    return clone(a, requires_grad=False) if isinstance(a, array) else a


def _run(function: Any, dim: Any, inputs: list, outputs: Sequence[Any] | None, device: Any) -> list[Any]:
    if isinstance(function, Kernel):
        made = [_copied(a) for a in outputs or ()]
        launch(function, dim, inputs, made, device=device)
        return made
    result = function(*inputs)
    return list(result) if isinstance(result, (list, tuple)) else [result]


def _as_array(rows: np.ndarray, x: array) -> array:
    return array(rows.astype(x.dtype.numpy), dtype=x.dtype, device=x.device)  # type: ignore[attr-defined]


def _refuse_plot(wanted: bool) -> None:
    if wanted:
        raise LaunchError("plot_jacobians=True is not here.", slug="not-here", instead="tape.seeds(y)")
