"""Arrays that are read and written through lists of indices: `x[i]` is `data[indices0[i]]`, and so is its gradient."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, TypeGuard, final

from .. import ir
from ..parameter_types import IndexedArray, indexed_type
from . import refused_syntax
from .base import Meaning, ReaderBase
from .scope import ArrayView, StructParts

if TYPE_CHECKING:

    @final
    class IndexedParts(StructParts):
        type: IndexedArray


def indexed_item(reader: ReaderBase, base: IndexedParts, nodes: list[ast.expr]) -> Any:
    """`x[i, j]`; what goes beyond the axes picks components."""
    found, beyond = indexed_element(reader, base, nodes[: base.type.ndim]), nodes[base.type.ndim :]
    if not beyond:
        return found
    whole = reader.loaded(found)
    return reader.component(whole, reader.picked(reader.composite(whole.type, beyond[0]), beyond))


def indexed_element(reader: ReaderBase, base: IndexedParts, nodes: list[ast.expr]) -> Any:
    """An element of the array behind it; with fewer indices than axes the rest, as an indexedarray."""
    type = base.type
    lists = [base.fields[f"indices{axis}"] for axis in range(type.ndim)]
    places = tuple(index_behind(reader, which, n) for which, n in zip(lists, nodes, strict=False))
    data, rest = base.fields["data"].at(places), lists[len(nodes) :]
    if not rest:
        return data
    fields = {f"indices{k}": which for k, which in enumerate(rest)}
    return StructParts(indexed_type(type.dtype, len(rest)), {"data": data, **fields})


def index_behind(reader: ReaderBase, which: ArrayView, node: ast.expr) -> ir.Value:
    """The index in the array behind."""
    if isinstance(node, ast.Slice):
        raise refused_syntax.refuse("Slice", reader.where(node))
    return reader.loaded(reader.element(which, [node]))


def indexed_attribute(reader: ReaderBase, base: IndexedParts, node: ast.Attribute) -> Any:
    if node.attr == "dtype":
        return base.type.dtype
    if node.attr == "ndim":
        return base.type.ndim
    if node.attr == "shape":
        return tuple(reader.length(base.fields[f"indices{axis}"], 0) for axis in range(base.type.ndim))
    text = f"an indexedarray has no attribute `{node.attr}` in a kernel"
    raise reader.error(text, "attribute", node, "There are shape, ndim and dtype.", "x.shape[0]")


def is_indexed(x: Meaning) -> TypeGuard[IndexedParts]:
    return isinstance(x, StructParts) and isinstance(x.type, IndexedArray)


def with_args(node: ast.Call, n: int) -> ast.Call:
    """A call of an atomic without its indices, which are taken: the array is an element already."""
    return ast.copy_location(ast.Call(node.func, [node.args[0], *node.args[n + 1 :]], node.keywords), node)
