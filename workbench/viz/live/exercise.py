"""`exercise`: a kernel that the reader wrote, checked by values and gradient.

What is right is data and no code: the arrays after the author's own kernel, and its gradient, as text. Points are what
nbgrader takes for such: a cell whose metadata say `grade` earns the number that it ends with.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays.array import array, clone
from ...kernels.types import is_float
from ...launches.launch import launch
from ...tapes.tape import Tape
from .quiz import opened, packed

LOOSE = 1e-4  # of the largest number


def solution(kernel: Any, dim: Any, inputs: Sequence[Any], outputs: Sequence[Any], hint: str = "") -> str:
    """The result and the gradient of the author's kernel with these arguments, and a hint for who errs: for `exercise`.

    It is text that nobody reads by accident.

    >>> x, y = wb.array([1.0, 2.0], requires_grad=True), wb.zeros(2)
    >>> @wb.kernel
    ... def twice(x: wb.array[float], y: wb.array[float]):
    ...     i = wb.tid()
    ...     y[i] = 2.0 * x[i]
    >>> right = wb.viz.solution(twice, 2, [x], [y], hint="Look at the factor.")
    """
    return packed([_found(kernel, dim, inputs, outputs), hint])


def exercise(
    kernel: Any, dim: Any, inputs: Sequence[Any], outputs: Sequence[Any], right: str, points: float = 1.0
) -> float:
    """Check a kernel, and say what kind of mistake it has without the right numbers. Arrays stay as they are.

    inputs   arrays and numbers; gradients are compared for arrays with `requires_grad`.
    outputs  arrays, as they are before the launch.
    right    `solution(...)` of the author's kernel and the same arguments.

    Returns the points: all for values and gradient, half for values alone. Raises ValueError for another `right`, and
    what a launch of the kernel raises.

    >>> x, y = wb.array([1.0, 2.0], requires_grad=True), wb.zeros(2)
    >>> @wb.kernel
    ... def square(x: wb.array[float], y: wb.array[float]):
    ...     i = wb.tid()
    ...     y[i] = x[i] * x[i]
    >>> wb.viz.exercise(square, 2, [x], [y], wb.viz.solution(square, 2, [x], [y]), points=2)
    Values and gradient are right.
    2
    """
    known, hint = opened(right, "wb.viz.solution(kernel, dim, inputs, outputs)")
    found = _found(kernel, dim, inputs, outputs)
    for name, want in known.items():  # outputs first
        if kind := _difference(np.array(found.get(name, ()), float), np.array(want, float)):
            by_gradient = name.startswith("the gradient")
            said = f"The values are right, {name} is {kind}." if by_gradient else f"{name.capitalize()} is {kind}."
            sys.stdout.write(f"{said} {hint}".strip() + "\n")
            return points / 2 if by_gradient else 0.0
    sys.stdout.write("Values and gradient are right.\n")
    return points


def _found(kernel: Any, dim: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> dict[str, list[float]]:
    """A kernel's outputs from copies of all arrays, and gradients of a sum that weighs no two elements alike."""
    given, made = ([clone(a) if isinstance(a, array) else a for a in arrays] for arrays in (inputs, outputs))
    with Tape() as tape:
        launch(kernel, dim, given, made)
    floats: list[Any] = [a for a in made if is_float(a.dtype)]
    tape.backward(grads={a: np.cos(1.0 + np.arange(a.numpy().size)).reshape(a.numpy().shape) for a in floats})
    found = {f"output {k}": a for k, a in enumerate(made)}
    asked = {k: a for k, a in enumerate(given) if isinstance(a, array) and a.requires_grad}
    found |= {f"the gradient by input {k}": a.grad for k, a in asked.items()}
    return {name: np.ravel(a.numpy()).tolist() for name, a in found.items()}


def _difference(got: np.ndarray, want: np.ndarray) -> str:
    """The kind of the difference, without the numbers; "" where there is none."""
    if got.size != want.size:
        return f"of {got.size} numbers, not {want.size}"
    wrong = np.flatnonzero(~(np.abs(got - want) <= LOOSE * np.abs(want).max(initial=1e-30)))
    if not len(wrong):
        return ""
    if not np.isfinite(got).all():
        return f"not finite at {np.flatnonzero(~np.isfinite(got))[0]}"
    factor = got @ want / max(want @ want, 1e-30)
    if factor and np.allclose(got, factor * want, atol=LOOSE * np.abs(got).max()):
        return "right but for its sign" if abs(factor + 1.0) < LOOSE else "right but for one factor throughout"
    return f"right but at {wrong.tolist()}" if 2 * len(wrong) <= len(want) else "wrong nearly everywhere"
