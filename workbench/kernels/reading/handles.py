"""Numbers that stand for something (`mesh.id`), the library funcs that take them, and loops over their queries.

A kernel gets a mesh, a tree or a grid as a uint64. Where that parameter meets a library func whose own parameter is a
`Handle`, the arrays and numbers behind it become parameters of the kernel: the IR holds nothing but arrays.
"""

from __future__ import annotations

import ast
from typing import Any

from ...errors import KernelError, Where
from .. import ir
from ..ops import memory
from ..types import Array, Handle, Query, Struct, Type, uint64
from .base import Meaning, ReaderBase
from .declare import Func
from .library import Library
from .scope import ArrayView, Choice, StructParts, describe, is_literal


def row_of(number: uint64, numbers: Array(uint64)):  # pyright: ignore[reportInvalidTypeForm]
    """The row of what a number stands for: one behind its place among the sorted; 0 is the empty one.

    Past the end, where an access is refused, for the number of nothing: it would find nothing, in silence.
    """
    low, high = 0, numbers.shape[0]
    while low < high:
        middle = (low + high) // 2
        if numbers[middle] < number:
            low = middle + 1
        else:
            high = middle
    row = numbers.shape[0] + 1
    if number == uint64(0):
        row = 0
    if low < numbers.shape[0]:  # noqa: SIM102  past the end nothing is read
        if numbers[low] == number:
            row = low + 1
    return row


def all_of(handle: Struct) -> Handle:
    """The fields of all living objects of a kind: of numbers an array, of arrays one with the objects along axis 0."""

    def whole(type: Type) -> Type:
        if isinstance(type, Struct):
            return Struct(f"every {type.name}", tuple((n, whole(t)) for n, t in type.fields))
        return Array(type.dtype, type.ndim + 1) if isinstance(type, Array) else Array(type)

    fields = tuple((n, whole(t)) for n, t in handle.fields)
    return Handle(handle.name, (("numbers", Array(uint64)), *fields), None, getattr(handle, "empty", None), every=True)


def open_handle(reader: ReaderBase, wanted: Handle, value: Meaning) -> StructParts:
    """The fields behind a number. Raises KernelError [handle] for a number that is no parameter."""
    if isinstance(value, StructParts):
        return value  # checked by the caller, as every struct is
    if not isinstance(value, ir.Value) or value.type != uint64:
        text = f"a {wanted.name} is given by its number, a uint64, not by {describe(value)}"
        raise reader.error(text, "handle", None, "", "mesh: wb.uint64 in the kernel, and mesh.id at the launch")
    if value not in reader.top.params:
        return chosen_handle(reader, wanted, value)
    known = next((handle for id, handle, _ in reader.behind.values() if id == value.name), wanted)
    if known != wanted:
        text = f"`{value.name}` is a {known.name} in one call and a {wanted.name} here"
        raise reader.error(text, "handle", None, "", "a parameter for each")
    return fields_behind(reader, value.name, wanted, value.where)


def fields_behind(reader: ReaderBase, name: str, handle: Handle, where: Where | None) -> StructParts:
    """The parameters that a handle stands for, made when first asked for."""
    if name not in reader.handles:
        before = len(reader.top.params)
        with reader.builder.inside(reader.top):
            reader.handles[name] = reader.parameter(name, handle, where)
        for p in reader.top.params[before:]:
            reader.behind[p.name] = name, handle, p.name.removeprefix(f"{name}.")
    return reader.handles[name]


def chosen_handle(reader: ReaderBase, wanted: Handle, number: ir.Value) -> StructParts:
    """The fields behind an id computed in the kernel: one row of the arrays that hold all living objects."""
    every = fields_behind(reader, f"every {wanted.name}", all_of(wanted), reader.builder.where)
    bound = {"number": number, "numbers": every.fields["numbers"]}
    row = reader.inlined(row_of, bound, reader.frame.source.tree)
    return row_behind(reader, every, wanted, row)


def row_behind(reader: ReaderBase, every: StructParts, wanted: Struct, row: ir.Value) -> StructParts:
    fields: dict[str, Any] = {}
    for name, type in wanted.fields:
        part = every.fields[name]
        if isinstance(type, Struct):
            fields[name] = row_behind(reader, part, type, row)
        elif isinstance(type, Array):
            fields[name] = part.at((row,))
        else:
            fields[name] = reader.builder.emit(memory.LOAD, part.root, row)
    return StructParts(wanted, fields)


def refuse_writes(reader: ReaderBase) -> None:
    """Raises KernelError [handle] for a store into what stands for a copy."""
    for stmt in ir.walk(reader.top):
        name = ir.root(stmt.args[0]).name if stmt.row.writes and stmt.args else ""
        if name in reader.behind and reader.behind[name][1].every:
            text = f"this writes into a {reader.behind[name][1].name} that the kernel chooses"
            why = "Numbers chosen in a kernel stand for copies."
            instead = "a parameter for its number, or for the array"
            raise KernelError(text, slug="handle", where=stmt.where, why=why, instead=instead)


def call_library(reader: ReaderBase, f: Library, node: ast.Call) -> Any:
    f = f.form(node)
    bound = reader.bound(f.fn, *reader.given(node), node)
    for name, other in f.like.items():
        if is_literal(bound[name]) and isinstance(bound[other], ArrayView | Choice):
            bound[name] = reader.typed(bound[name], bound[other].type.dtype)
    result = reader.inlined(f.fn, bound, node, reader.where(node))
    if not f.hands_out:
        return result
    value, *new = reader.checked(result, node)
    for target, part in zip(f.handed_out(node), new, strict=True):
        if not isinstance(target, ast.Name):
            text = f"`{f.key}` gives something back here"
            why = "It takes the name of a local."
            raise reader.error(text, "handed-out", target, why, "i = int(0), before this line, and i here")
        reader.assign(target, part)
    return value


# ---- loops


def query_loop(reader: ReaderBase, node: ast.For) -> bool:
    """Read `for i in query`. False if what it runs over is no query."""
    over = node.iter
    if isinstance(over, ast.Call):
        if not isinstance(reader.python_object(over.func), Func):
            return False
    elif not (isinstance(over, ast.Name) and isinstance(reader.state.names.get(over.id), StructParts)):
        return False
    query = reader.visit(over)
    if not (isinstance(query, StructParts) and isinstance(query.type, Query)):
        return False
    number = reader.serial()
    q, step, found = (f"{name} of loop {number}" for name in ("query", "step", "index"))
    reader.state.names[q], reader.state.names[step] = query, query.type.next
    read, write = ast.Load(), ast.Store()
    turn = [
        ast.Assign(
            [ast.Tuple([ast.Name(q, write), ast.Name(found, write)], write)],
            ast.Call(ast.Name(step, read), [ast.Name(q, read)], []),
        ),
        ast.If(ast.Compare(ast.Name(found, read), [ast.Lt()], [ast.Constant(0)]), [ast.Break()], []),
        ast.Assign([node.target], ast.Name(found, read)),
    ]
    reader.visit(placed(ast.While(ast.Constant(True), [*turn, *node.body], []), node))
    for name in (q, step, found):
        reader.state.names.pop(name, None)
    return True


def with_plain_test(reader: ReaderBase, node: ast.While) -> ast.While:
    """`while f(query, i): ...` where f hands out: the same loop with its test at the start of each turn."""
    calls = (n for n in ast.walk(node.test) if isinstance(n, ast.Call))
    if not any(isinstance(reader.python_object(n.func), Library) and reader.changed_by(n) for n in calls):
        return node
    leave = ast.If(ast.UnaryOp(ast.Not(), node.test), [ast.Break()], [])
    return placed(ast.While(ast.Constant(True), [leave, *node.body], []), node)


def placed(new: ast.While, old: ast.stmt) -> ast.While:
    """A tree whose new nodes stand where an old one does."""
    return ast.fix_missing_locations(ast.copy_location(new, old))
