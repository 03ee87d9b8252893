"""Sums over whole arrays: `utils.array_sum(a)` and `utils.array_inner(a, b)`.

Each thread adds up one block of elements and then adds its part to the result: an ordinary kernel, recorded and
differentiated like one. Blocks keep the rounding error of a long sum small. Results of one launch on a CPU are
the same to the last bit at every run; on a GPU the order of the blocks is open.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn

from ..arrays import allocation as memory
from ..arrays.array import array, copied
from ..arrays.creation import zeros
from ..arrays.dtypes import scalar_in
from ..errors import GradientError, LaunchError
from ..kernels import ops
from ..kernels.ops.memory import ATOMIC_ADD as atomic_add
from ..kernels.program import Program, program
from ..kernels.reading.declare import Refused, tid
from ..kernels.reading.reader import read
from ..kernels.types import Array, Composite, Matrix, Scalar, Type, bool_, int32, is_float
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


def _row_sum(a: Any, out: Any):
    i = tid()
    total = a[i, 0]
    for j in range(1, a.shape[1]):
        total += a[i, j]
    out[i] = total


def _row_inner(product: Callable[..., Any]) -> Callable[..., Any]:
    def inner(a: Any, b: Any, out: Any):
        i = tid()
        total = product(a[i, 0], b[i, 0])
        for j in range(1, a.shape[1]):
            total += product(a[i, j], b[i, j])
        out[i] = total

    return inner


@cache
def _program(name: str, dtype: Scalar | Composite, result: Type, rows: bool) -> Program:
    """The program that sums elements, or products of elements: in blocks, or with `rows` each row of a matrix."""
    arrays = "a" if name == "array_sum" else "ab"
    product = mul if isinstance(dtype, Scalar) else ddot if isinstance(dtype, Matrix) else dot
    plain, of_products = (_row_sum, _row_inner) if rows else (_sum, _inner)
    types = {**dict.fromkeys(arrays, Array(dtype, 1 + rows)), "block": int32, "out": Array(result)}
    text = plain if arrays == "a" else of_products(product)
    return program(read(text, name=name, generic_types=types), name)


def array_sum(values: array, out: array | None = None, value_count: int | None = None, axis: int | None = None) -> Any:
    """The sum of all elements of `values`, any shape: a number or vector, or written to `out`, an array of one element.

    With `axis`, sums along that axis: an array of the shape of `values` with 1 in its place (`out`, if it is given).
    With `out` or `axis` it is an event of an open tape, and differentiable. Else the value leaves the tape:
    GradientError [value-leaves-tape] if it depends on an array with `requires_grad`. Integers wrap around in their own
    type. `value_count`: of how many elements, all or along the axis. Raises LaunchError for what is no array of
    numbers, [axis] for an axis that `values` has not.
    """
    _check("array_sum", values)
    if axis is not None:
        return _along("array_sum", axis, (values,), value_count, values.dtype, out)
    (a,) = _part(value_count, values)
    return _reduced("array_sum", (a,), a.dtype, out)


def array_inner(a: array, b: array, out: array | None = None, count: int | None = None, axis: int | None = None) -> Any:
    """The sum of the products of the elements of `a` and `b`, of one shape and dtype (dot products of vectors).

    `out`, `axis` and errors as for `array_sum`; the result is one number, or one for each row.
    """
    _check("array_inner", a)
    _check("array_inner", b)
    if a.dtype != b.dtype or a.shape != b.shape:
        text = f"array_inner of {a.dtype} {a.shape} and {b.dtype} {b.shape}"
        instead = "wb.utils.array_inner(a, b)   with a.dtype == b.dtype and a.shape == b.shape"
        raise LaunchError(text, slug="shape" if a.dtype == b.dtype else "dtype", instead=instead)
    result = scalar_in(a.dtype)
    if axis is not None:
        return _along("array_inner", axis, (a, b), count, result, out)
    a, b = _part(count, a, b)
    return _reduced("array_inner", (a, b), result, out)


def _along(name: str, axis: int, args: tuple[array, ...], count: int | None, dtype: Type, out: array | None) -> array:
    """Sums along one axis, one thread for each; see `array_sum`."""
    ndim, shape = args[0].ndim, list(args[0].shape)
    if not -ndim <= axis < ndim:
        raise LaunchError(f"{name}(axis={axis}) of an array with {ndim} axes", slug="axis", instead=f"axis={ndim - 1}")
    order = [k for k in range(ndim) if k != axis % ndim] + [axis % ndim]
    shape[axis] = 1
    if out is None:
        out = zeros(tuple(shape), dtype, args[0].device, any(a.requires_grad for a in args) and is_float(dtype))
    elif not isinstance(out, array) or out.dtype != dtype or list(out.shape) != shape:
        _refuse_out(name, dtype, tuple(shape), out)
    apart = [copied(a) if a.span.overlaps(out.span) is not False else a for a in args]
    columns = slice(count)
    rows = [a.transpose(order).contiguous().reshape((-1, a.shape[axis]))[:, columns] for a in apart]
    if 0 in rows[0].shape:
        return out.zero_()
    operators.run(_program(name, args[0].dtype, dtype, True), rows[0].shape[0], [*rows, out.flatten()])
    return out


def _refuse_out(name: str, dtype: Type, shape: tuple[int, ...], out: object) -> NoReturn:
    shown = f"{out.dtype} of shape {out.shape}" if isinstance(out, array) else type(out).__name__
    text = f"{name} writes {dtype} of shape {shape}, out is {shown}"
    raise LaunchError(text, slug="out", instead=f"wb.zeros({shape[0] if len(shape) == 1 else shape}, dtype=wb.{dtype})")


def _part(count: int | None, *args: array) -> list[array]:
    """The first `count` elements."""
    return [a if count is None else a.contiguous().flatten()[:count] for a in args]


def _check(name: str, a: object) -> None:
    if not isinstance(a, array) or not isinstance(a.dtype, (Scalar, Composite)) or a.dtype.scalar is bool_:
        what = f"an array of {a.dtype}" if isinstance(a, array) else type(a).__name__
        text = f"{name} takes an array of numbers, not {what}"
        raise LaunchError(text, slug="argument-type", instead="wb.array(data)")


def _reduced(name: str, args: tuple[array, ...], dtype: Type, out: array | None) -> Any:
    if out is None:
        _refuse_leaving(name, args)
        total = zeros(1, dtype, args[0].device)
        with memory.unrecorded():
            _launch(name, args, total)
        return total.item()
    if not isinstance(out, array) or out.dtype != dtype or out.size != 1:
        _refuse_out(name, dtype, (1,), out)
    apart = tuple([copied(a) if a.span.overlaps(out.span) is not False else a for a in args])
    out.zero_()
    _launch(name, apart, out)
    return out


def _launch(name: str, args: tuple[array, ...], out: array) -> None:
    flat = [a.contiguous().flatten() for a in args]
    made, blocks = _program(name, flat[0].dtype, out.dtype, False), -(-flat[0].size // BLOCK)
    operators.run(made, blocks, [*flat, BLOCK, out.flatten()])


def _refuse_leaving(name: str, args: tuple[array, ...]) -> None:
    tape = memory.recorder()
    if tape is not None and any(a.requires_grad or a.allocation in tape.active for a in args):
        text = f"{name} without `out` returns a number, and a number is not on the tape."
        why = "The gradient of what is computed from it would be lost in silence."
        instead = f"loss = wb.zeros(1, dtype=wb.{args[0].dtype}, requires_grad=True); wb.utils.{name}(..., out=loss)"
        raise GradientError(text, slug="value-leaves-tape", where=memory.caller_where(), why=why, instead=instead)


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
