"""Addresses: `x.ptr`, what is added to it, and the array that `array(ptr=..., shape=..., dtype=...)` makes of it.

An address is no number of the program. It notes an element of an array, and the array made of it is a part of that one,
as a slice is: memory keeps one name, so nothing is lost to those who look for what overlaps. Elements are counted, not
bytes: of an array with gaps between its elements (`a[::2]` on the host) the gaps are passed over.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeGuard

from .. import ir
from ..ops import scalar
from ..types import Array, Composite, Scalar, Struct, Type, int64, is_int, scalar_of, uint64
from .base import Meaning, ReaderBase
from .cuts import plus, times, turn_of, wide
from .lower_bounds import static_int
from .scope import ArrayView, Choice, Int, SlicedAxis, StructParts, Turn, describe

NUMBERS = uint64, int64  # the types that hold an address
HANDED_OVER = "Memory is allocated by the host, and this is the address of none of the kernel's arrays."
WAY_OUT = "the array as an argument, then array(ptr=x.ptr, ...), or x[offset + i]; or zeros(shape=..., dtype=...)"


@dataclass(frozen=True, repr=False)
class Address(Struct):
    """The type of an address, as a struct: `of`, the array, and `first`, which of its elements is meant."""


@lru_cache(None)
def address_type(dtype: Type, first: Scalar) -> Address:
    return Address(f"address of an element of array(dtype={dtype})", (("of", Array(dtype)), ("first", first)), None)


def is_address(x: Meaning) -> TypeGuard[StructParts]:
    return isinstance(x, StructParts) and isinstance(x.type, Address)


def address_of(reader: ReaderBase, array: Meaning, node: ast.AST) -> StructParts:
    """`x.ptr`. Raises KernelError [address] for what is not one axis of numbers, vectors or matrices."""
    if not isinstance(array, ArrayView) or ir.type_as(array.root, Array).ndim != 1 or array.type.ndim != 1:
        text = f"there is no address of {describe(array)} in a kernel"
        why = "An address counts the elements of an array of one axis."
        raise reader.error(text, "address", node, why, "x[i, j], or x.flatten() at the launch")
    return address(reader, array, 0)


def address(reader: ReaderBase, array: ArrayView, first: Int) -> StructParts:
    at = reader.value(first)
    return StructParts(address_type(array.type.dtype, ir.type_as(at, Scalar)), {"of": array, "first": at})


def moved_address(reader: ReaderBase, sign: str, a: Meaning, b: Meaning) -> StructParts:
    """An address plus or minus a number of bytes. Raises KernelError [address]."""
    base, by = (a, b) if is_address(a) else (b, a)
    assert is_address(base)
    steps = None if is_address(by) else elements_in(reader, reader.value(by), base.fields["of"].type.dtype.itemsize)
    if sign not in "+-" or steps is None or (sign == "-" and base is b):
        text = f"the {base.type} takes whole elements alone"
        why = "A number of bytes is added to it or taken away: an integer times the size of an element."
        raise reader.error(text, "address", None, why, "x.ptr + uint64(i) * uint64(4), or x[i:]")
    first = base.fields["first"]
    return address(reader, base.fields["of"], plus(reader, first, steps if sign == "+" else times(reader, steps, -1)))


def elements_in(reader: ReaderBase, size: ir.Value, item: int) -> Int | None:
    """The number of elements in `size` bytes; None unless the program shows that it is a whole number."""
    size = before_casts(size)
    if (k := static_int(size)) is not None:
        return None if k % item else k // item
    if not is_int(size.type):
        return None
    made = size.stmt
    if made is not None and made.row in (scalar.ADD, scalar.SUB):
        a, b = elements_in(reader, made.args[0], item), elements_in(reader, made.args[1], item)
        return (
            None if a is None or b is None else plus(reader, a, b if made.row is scalar.ADD else times(reader, b, -1))
        )
    if made is not None and made.row is scalar.MUL:
        for one, other in (made.args, made.args[::-1]):
            if (k := static_int(one)) is not None and k % item == 0:
                return times(reader, counted(reader, before_casts(other)), k // item)
    return counted(reader, size) if item == 1 else None


def before_casts(v: ir.Value) -> ir.Value:
    """An integer as it was before casts that hold all of it: `i` of `uint64(i)`."""
    while v.stmt is not None and v.stmt.row is scalar.CAST and is_int(v.stmt.args[0].type):
        if ir.type_as(v, Scalar).bits < ir.type_as(v.stmt.args[0], Scalar).bits:
            break
        v = v.stmt.args[0]
    return v


def counted(reader: ReaderBase, n: Meaning) -> Int:
    k = static_int(n)
    return wide(reader, reader.value(n)) if k is None else k


def array_of_memory(reader: ReaderBase, node: ast.Call) -> ArrayView | Choice:
    """`array(ptr=..., shape=..., dtype=...)`: a part of the array that the address is in, row by row."""
    names = "ptr", "shape", "dtype"
    given = dict(zip(names, (reader.visit(a) for a in node.args), strict=False)) | reader.named(node, names)
    at, shape, dtype = (given.get(name) for name in names)
    if not is_address(at):
        raise reader.error("a kernel makes no array from memory", "not-callable", node, HANDED_OVER, WAY_OUT)
    array: ArrayView | Choice = at.fields["of"]
    if dtype is None or (dtype if isinstance(dtype, Composite) else scalar_of(dtype)) != array.type.dtype:
        why = "The array made of it has elements of that type."
        raise reader.error(f"this address is one in {array.type}", "address", node, why, f"dtype={array.type.dtype}")
    one = static_int(shape) is not None or (isinstance(shape, ir.Value) and is_int(shape.type))
    sizes = [shape] if one else reader.unpacked(shape, node)
    lengths = [counted(reader, n) for n in sizes]
    if isinstance(array, Choice):
        return array.each(lambda option: part_from(reader, option, at.fields["first"], lengths, node))
    return part_from(reader, array, at.fields["first"], lengths, node)


def part_from(reader: ReaderBase, array: ArrayView, first: Int, sizes: list[Int], node: ast.AST) -> ArrayView:
    """So many elements of an array of one axis, from one on, seen as an array of this shape."""
    if not 1 <= len(sizes) <= 4:
        raise reader.error("an array has one to four axes", "rank", node, "", "shape=(n, m)")
    whole = turn_of(reader, array, 0)
    step: Int = 1 if whole is None else whole.step
    start = (
        times(reader, first, step) if whole is None else plus(reader, array.prefix[0].start, times(reader, first, step))
    )
    turns: list[Turn] = []
    for n in reversed(sizes):
        turns.append(Turn(step, n))
        step = times(reader, step, n)
    return ArrayView(array.root, (SlicedAxis(start, tuple(reversed(turns))),))
