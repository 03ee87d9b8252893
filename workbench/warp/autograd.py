"""Warp's names for Jacobians and checks, with its arguments and results; `jacobian` and `gradcheck` do the work."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arrays import allocation as memory
from ..arrays.array import array, clone
from ..derivatives import jacobian as exact, verify
from ..errors import LaunchError
from ..kernels.program import Kernel
from ..kernels.types import is_float
from ..launches.launch import launch
from ..tapes.jvp import components
from ..tapes.tape import Tape

__all__ = ["gradcheck", "gradcheck_tape", "jacobian", "jacobian_fd", "jacobian_plot"]
__dir__ = __all__.copy
Mask = list[tuple[Any, Any]] | None  # numbers or names of an input and an output
Found = dict[tuple[int, int], array]


def jacobian(
    function: Kernel | Callable,
    dim: object = None,
    inputs: Sequence[Any] | None = None,
    outputs: Sequence[Any] | None = None,
    input_output_mask: Mask = None,
    device: object = None,
    max_blocks: int = 0,
    block_dim: int | None = None,
    max_outputs_per_var: int = -1,
    plot_jacobians: bool = False,
    metadata: object = None,
    restore_inputs: bool = True,
) -> Found:
    """The exact Jacobians of a kernel (with `dim`, `inputs`, `outputs`) or of a function that returns arrays.

    By (number of the input, number of the output), for all arrays of floats, marked or not: an array with one row for
    each number of the output and one column for each element of the input, of the input's dtype. `input_output_mask`:
    these pairs alone, by numbers or by names (those of a function's results are output_0, output_1 ...).
    `max_outputs_per_var`: so many rows, NaN in the others. Runs on copies. `wb.jacobian(tape, y, x)` gives NumPy
    arrays, of any tape. Raises LaunchError [jacobian-mask].

    >>> @wb.kernel
    ... def square(x: wb.array[float], y: wb.array[float]):
    ...     i = wb.tid()
    ...     y[i] = x[i] * x[i]
    >>> wb.autograd.jacobian(square, dim=2, inputs=[wb.array([1.0, 2.0])], outputs=[wb.zeros(2)])[0, 0].numpy()
    array([[2., 0.],
           [0., 4.]], dtype=float32)
    """
    given = [_copied(a) for a in inputs or ()]
    for a in given:
        if _differentiable(a):
            a.requires_grad = True
    with Tape() as tape:
        results = _run(function, dim, given, outputs, device)
    labels, found = _labels(function, len(given), len(results)), {}
    mask = _pairs(input_output_mask, labels)
    for i, x in enumerate(given):
        for j, y in enumerate(results):
            if _differentiable(x) and _differentiable(y) and (mask is None or (i, j) in mask):
                most = y.data.size
                rows = exact.first_rows(tape, y, x, min(most, max_outputs_per_var) if max_outputs_per_var > 0 else most)
                found[i, j] = _as_array(rows.reshape(len(rows), -1), most, 0, x)
    return _shown(found, labels) if plot_jacobians else found


def jacobian_fd(
    function: Kernel | Callable,
    dim: object = None,
    inputs: Sequence[Any] | None = None,
    outputs: Sequence[Any] | None = None,
    input_output_mask: Mask = None,
    device: object = None,
    max_blocks: int = 0,
    block_dim: int | None = None,
    max_inputs_per_var: int = -1,
    eps: float = 1e-4,
    plot_jacobians: bool = False,
    metadata: object = None,
    restore_inputs: bool = True,
) -> Found:
    """`jacobian` by central differences of step `eps`, in the program's own precision: rough in float32.

    `max_inputs_per_var`: for so many numbers of an input, NaN in the other columns. Otherwise as `jacobian`.

    >>> @wb.kernel
    ... def double(x: wb.array[float], y: wb.array[float]):
    ...     i = wb.tid()
    ...     y[i] = 2.0 * x[i]
    >>> found = wb.autograd.jacobian_fd(double, dim=1, inputs=[wb.array([1.0])], outputs=[wb.zeros(1)], eps=0.5)
    >>> found[0, 0].numpy()
    array([[2.]], dtype=float32)
    """

    def values(k: int, shift: np.ndarray | None) -> list[Any]:
        given = [_copied(a) for a in inputs or ()]
        if shift is not None:
            given[k].assign((given[k].numpy().reshape(-1) + shift).reshape(given[k].numpy().shape))
        results = _run(function, dim, given, [_copied(a) for a in outputs or ()], device)
        return [y.numpy().reshape(-1).astype(np.float64) if _differentiable(y) else None for y in results]

    found: Found = {}
    with memory.unrecorded():
        count = 0 if isinstance(function, Kernel) else len(values(0, None))
        labels = _labels(function, len(inputs or ()), count)
        mask = _pairs(input_output_mask, labels)
        for i, x in enumerate(inputs or ()):
            if not _differentiable(x):
                continue
            n = x.numpy().size
            columns = []
            for k in range(min(n, max_inputs_per_var) if max_inputs_per_var > 0 else n):
                step = np.zeros(n, x.dtype.numpy)
                step[k] = eps
                pairs = zip(values(i, step), values(i, -step), strict=True)
                columns.append([None if up is None else (up - down) / (2 * eps) for up, down in pairs])
            for j in range(len(columns[0]) if columns else 0):
                if columns[0][j] is not None and (mask is None or (i, j) in mask):
                    found[i, j] = _as_array(np.stack([c[j] for c in columns], axis=1), n, 1, x)
    return _shown(found, labels) if plot_jacobians else found


def gradcheck(
    function: Kernel | Callable,
    dim: Any = None,
    inputs: Sequence[Any] | None = None,
    outputs: Sequence[Any] | None = None,
    *,
    eps: float | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    raise_exception: bool = True,
    **_: object,
) -> bool:
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
    tape: Tape,
    *,
    eps: float | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    raise_exception: bool = True,
    **_: object,
) -> bool:
    """`wb.gradcheck` of a `Tape(keep="all")` that has recorded; True if every launch agrees.

    >>> x = wb.array([2.0], requires_grad=True)
    >>> with wb.Tape(keep="all") as tape:
    ...     y = x * x
    >>> wb.autograd.gradcheck_tape(tape)
    True
    """
    return bool(verify.gradcheck(tape, eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception))


def jacobian_plot(
    jacobians: Found,
    kernel: Any,
    inputs: Sequence[Any] | None = None,
    show_plot: bool = True,
    show_colorbar: bool = True,
    scale_colors_per_submatrix: bool = False,
    title: str | None = None,
    colormap: str = "coolwarm",
    log_scale: bool = False,
) -> Any:
    """A picture of what `jacobian` or `jacobian_fd` found: a row of images for each output, a column for each input.

    `kernel`: the kernel (with `inputs`) or function they were found for, or what has `input_labels` and
    `output_labels`. Returns a matplotlib Figure, None if there are no Jacobians; `show_plot` shows it at once in a
    notebook. `log_scale`: by the logarithm of the size. Grey is NaN: not computed. Raises LaunchError [arguments].

    >>> @wb.kernel
    ... def square(x: wb.array[float], y: wb.array[float]):
    ...     i = wb.tid()
    ...     y[i] = x[i] * x[i]
    >>> x, y = wb.array([1.0, 2.0]), wb.zeros(2)
    >>> found = wb.autograd.jacobian(square, dim=2, inputs=[x], outputs=[y])
    >>> figure = wb.autograd.jacobian_plot(found, square, [x])
    >>> figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()
    ('x', 'y')
    """
    from ..viz.picture.chart import jacobian_chart

    if isinstance(kernel, Kernel) and inputs is None:
        raise LaunchError("jacobian_plot of a kernel without its inputs", slug="arguments", instead="inputs=[x]")
    if not jacobians:
        return None
    named = getattr(kernel, "input_labels", None), getattr(kernel, "output_labels", None)
    count = 1 + max(i for i, _ in jacobians), 1 + max(j for _, j in jacobians)
    labels: Any = named if None not in named else _labels(kernel, len(inputs) if inputs else count[0], count[1])
    looks = show_colorbar, scale_colors_per_submatrix, title, colormap, log_scale
    made = jacobian_chart({k: a.numpy() for k, a in jacobians.items()}, labels, *looks)
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if show_plot and shell is not None:
        from IPython.display import display

        display(made)
    return made


def _labels(function: Callable[..., Any], inputs: int, outputs: int) -> tuple[list[str], list[str]]:
    """The names of inputs and outputs."""
    names = list(inspect.signature(getattr(function, "func", function)).parameters)
    if isinstance(function, Kernel):
        return names[:inputs], names[inputs:]
    names += [f"input_{k}" for k in range(len(names), inputs)]
    return names, [f"output_{k}" for k in range(outputs)]


def _pairs(mask: Mask, labels: tuple[list[str], list[str]]) -> set[tuple[int, int]] | None:
    """The mask by numbers; None for all. Raises LaunchError [jacobian-mask] for a name that is not there."""

    def number(k: Any, side: int) -> int:
        if isinstance(k, str) and k not in labels[side]:
            known = ", ".join(labels[side])
            text = f"there is no {('input', 'output')[side]} {k!r}; there are {known}"
            raise LaunchError(text, slug="jacobian-mask", instead="input_output_mask=[(0, 0)]")
        return labels[side].index(k) if isinstance(k, str) else k

    return {(number(i, 0), number(j, 1)) for i, j in mask} if mask else None


def _shown(found: Found, labels: tuple[list[str], list[str]]) -> Found:
    made = type("labels", (), {"input_labels": labels[0], "output_labels": labels[1]})
    jacobian_plot(found, made)
    return found


def _differentiable(a: object) -> bool:
    return isinstance(a, array) and is_float(a.dtype)


def _copied(a: object) -> Any:
    return clone(a, requires_grad=False) if isinstance(a, array) else a


def _run(function: Callable[..., Any], dim: Any, inputs: list, outputs: Sequence[Any] | None, device: Any) -> list[Any]:
    if isinstance(function, Kernel):
        made = [_copied(a) for a in outputs or ()]
        launch(function, dim, inputs, made, device=device)
        return made
    result = function(*inputs)
    return list(result) if isinstance(result, (list, tuple)) else [result]


def _as_array(found: np.ndarray, size: int, axis: int, x: array) -> array:
    """A matrix, made up to `size` rows or columns by NaN, as an array with elements like those of `x`."""
    short = [(0, size - n if k == axis else 0) for k, n in enumerate(found.shape)]
    rows = np.pad(found, short, constant_values=np.nan)
    rows = rows.reshape(len(rows), x.size, *components(x)).astype(x.data.dtype)
    return array(rows, dtype=x.dtype, device=x.device)
