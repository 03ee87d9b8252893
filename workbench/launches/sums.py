"""Sums over whole arrays: `utils.array_sum(a)` and `utils.array_inner(a, b)`.

Each thread adds up one block of elements and then adds its part to the result: an ordinary kernel, recorded and
differentiated like one. Blocks keep the rounding error of a long sum small. Results of one launch on a CPU are
the same to the last bit at every run; on a GPU the order of the blocks is open.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from ..arrays import allocation as memory
from ..arrays.array import array, copied
from ..arrays.creation import zeros
from ..errors import GradientError, LaunchError
from ..kernels import ops
from ..kernels.ops.memory import ATOMIC_ADD as atomic_add
from ..kernels.program import Program, program
from ..kernels.reading.declare import Refused, tid
from ..kernels.reading.reader import read
from ..kernels.types import Array, Composite, Matrix, Scalar, Type, bool_, int32
from . import array_tools, operators

BLOCK = 256  # elements that one thread adds up

dot, ddot, mul = ops.BUILTINS["dot"], ops.BUILTINS["ddot"], ops.BUILTINS["mul"]


def _sum(a: Any, block: int, out: Any):
    first = tid() * block
    total = a[first]
    for i in range(first + 1, min(first + block, a.shape[0])):
        total += a[i]
    atomic_add(out, 0, total)


def _inner(product: Callable[..., Any]) -> Callable[..., Any]:
    def inner(a: Any, b: Any, block: int, out: Any):
        first = tid() * block
        total = product(a[first], b[first])
        for i in range(first + 1, min(first + block, a.shape[0])):
            total += product(a[i], b[i])
        atomic_add(out, 0, total)

    return inner


@cache
def _sum_program(dtype: Type) -> Program:
    types = {"a": Array(dtype), "block": int32, "out": Array(dtype)}
    return program(read(_sum, name="array_sum", generic_types=types), "array_sum")


@cache
def _inner_program(dtype: Scalar | Composite) -> Program:
    product = mul if isinstance(dtype, Scalar) else ddot if isinstance(dtype, Matrix) else dot
    types = {"a": Array(dtype), "b": Array(dtype), "block": int32, "out": Array(dtype.scalar)}
    return program(read(_inner(product), name="array_inner", generic_types=types), "array_inner")


def array_sum(values: array, out: array | None = None, value_count: int | None = None, axis: int | None = None) -> Any:
    """The sum of all elements of `values`, any shape: a number or vector, or written to `out`, an array of one element.

    With `out` it is an event of an open tape, and differentiable. Without, the value leaves the tape: GradientError
    [value-leaves-tape] if it depends on an array with `requires_grad`. Integers wrap around in their own type.
    Raises LaunchError for what is no array of numbers.
    """
    _check("array_sum", values)
    (a,) = _part("array_sum", value_count, axis, values)
    return _reduced("array_sum", _sum_program(a.dtype), (a,), a.dtype, out)


def array_inner(a: array, b: array, out: array | None = None, count: int | None = None, axis: int | None = None) -> Any:
    """The sum of the products of the elements of `a` and `b`, of one shape and dtype (dot products of vectors).

    `out` and errors as for `array_sum`; the result is one number.
    """
    _check("array_inner", a)
    _check("array_inner", b)
    if a.dtype != b.dtype or a.shape != b.shape:
        raise LaunchError(
            f"array_inner of {a.dtype} {a.shape} and {b.dtype} {b.shape}",
            slug="shape" if a.dtype == b.dtype else "dtype",
            instead="wb.utils.array_inner(a, b)   with a.dtype == b.dtype and a.shape == b.shape",
        )  # fmt: skip
    a, b = _part("array_inner", count, axis, a, b)
    return _reduced("array_inner", _inner_program(a.dtype), (a, b), a.dtype.scalar, out)  # type: ignore[attr-defined]


def _part(name: str, count: int | None, axis: int | None, *args: array) -> list[array]:
    """The first `count` elements. Raises LaunchError [axis]: sums along one axis are not here."""
    if axis is not None and args[0].ndim > 1:
        raise LaunchError(f"{name}(axis={axis}) is not here.", slug="axis", instead="a kernel that adds up each row")
    return [a if count is None else a.contiguous().flatten()[:count] for a in args]


def _check(name: str, a: Any) -> None:
    if not isinstance(a, array) or not isinstance(a.dtype, (Scalar, Composite)) or a.dtype.scalar is bool_:
        what = f"an array of {a.dtype}" if isinstance(a, array) else type(a).__name__
        text = f"{name} takes an array of numbers, not {what}"
        raise LaunchError(text, slug="argument-type", instead="wb.array(data)")


def _reduced(name: str, made: Program, args: tuple[array, ...], dtype: Type, out: array | None) -> Any:
    if out is None:
        _refuse_leaving(name, args)
        total = zeros(1, dtype, args[0].device)
        with memory.unrecorded():
            _launch(made, args, total)
        return total.item()
    if not isinstance(out, array) or out.dtype != dtype or out.size != 1:
        shown = f"{out.dtype} of shape {out.shape}" if isinstance(out, array) else type(out).__name__
        text = f"{name} writes one {dtype}, out is {shown}"
        raise LaunchError(text, slug="out", instead=f"wb.zeros(1, dtype=wb.{dtype})")
    apart = tuple([copied(a) if a.span.overlaps(out.span) is not False else a for a in args])
    out.zero_()
    _launch(made, apart, out)
    return out


def _launch(made: Program, args: tuple[array, ...], out: array) -> None:
    flat = [a.contiguous().flatten() for a in args]
    operators.run(made, -(-flat[0].size // BLOCK), [*flat, BLOCK, out.flatten()])


def _refuse_leaving(name: str, args: tuple[array, ...]) -> None:
    tape = memory.recorder()
    if tape is not None and any(a.requires_grad or a.allocation in tape.active for a in args):
        raise GradientError(
            f"{name} without `out` returns a number, and a number is not on the tape.", slug="value-leaves-tape",
            where=memory.caller_where(), why="The gradient of what is computed from it would be lost in silence.",
            instead=f"loss = wb.zeros(1, dtype=wb.{args[0].dtype}, requires_grad=True); wb.utils.{name}(..., out=loss)",
        )  # fmt: skip


class utils:
    """Functions of whole arrays, under the name that users of NVIDIA Warp know: `wb.utils.array_sum(a, out=loss)`.

    >>> wb.utils.array_sum(wb.array([1.0, 2.0, 3.0]))
    np.float32(6.0)
    """

    array_sum = staticmethod(array_sum)
    array_inner = staticmethod(array_inner)
    array_scan = staticmethod(array_tools.array_scan)
    array_cast = staticmethod(array_tools.array_cast)
    radix_sort_pairs = staticmethod(array_tools.radix_sort_pairs)
    segmented_sort_pairs = staticmethod(array_tools.segmented_sort_pairs)
    runlength_encode = staticmethod(array_tools.runlength_encode)
    create_warp_function = Refused("utils.create_warp_function", "Decorate it: @wb.func.")
    graph_coloring_assign = Refused("utils.graph_coloring_assign", "Colour the graph on the host, with NumPy.")
    graph_coloring_balance = Refused("utils.graph_coloring_balance", "Colour the graph on the host, with NumPy.")
    graph_coloring_get_groups = Refused("utils.graph_coloring_get_groups", "Colour the graph on the host, with NumPy.")
    GraphColoringAlgorithm = Refused("utils.GraphColoringAlgorithm", "Colour the graph on the host, with NumPy.")
    AllocatorRmm = Refused("utils.AllocatorRmm", "Memory is NumPy's and CuPy's: set their allocators.")
