"""Numbers that stand for something (`mesh.id`), the library funcs that take them, and loops over their queries.

A kernel gets a mesh, a tree or a grid as a uint64. Where that parameter meets a library func whose own parameter is a
`Handle`, the arrays and numbers behind it become parameters of the kernel: the IR holds nothing but arrays.
"""

from __future__ import annotations

import ast
from typing import Any

from .. import ir
from ..types import Handle, Query, uint64
from .declare import Func
from .library import Library
from .scope import Record, describe

Opened = tuple[str, Handle, str]  # the parameter with the number, what it stands for, and the field: `points`, `a.b`


class Handles:
    """Part of the reader."""

    def open_handle(self, wanted: Handle, value: Any) -> Record:
        """The fields behind a number. Raises KernelError [handle] for a number that is no parameter."""
        if isinstance(value, Record):
            return value  # checked by the caller, as every struct is
        if not isinstance(value, ir.Value) or value.type != uint64:
            raise self.error(
                f"a {wanted.name} is given by its number, a uint64, not by {describe(value)}", "handle", None, "",
                "mesh: wb.uint64 in the kernel, and mesh.id at the launch",
            )  # fmt: skip
        if value not in self.top.params:
            raise self.error(
                f"this number of a {wanted.name} is computed in the kernel", "handle", None,
                "Its arrays are bound when the kernel is launched, for all threads.",
                f"a parameter: {wanted.name.lower()}: wb.uint64, or a field of a struct that is one",
            )  # fmt: skip
        known = next((handle for id, handle, _ in self.behind.values() if id == value.name), wanted)
        if known != wanted:
            raise self.error(
                f"`{value.name}` is a {known.name} in one call and a {wanted.name} here", "handle", None, "",
                "a parameter for each",
            )  # fmt: skip
        key = f"{value.name}.<{wanted.name}>"
        if key not in self.handles:
            before = len(self.top.params)
            with self.builder.inside(self.top):
                self.handles[key] = self.parameter(value.name, wanted, value.where)
            for p in self.top.params[before:]:
                self.behind[p.name] = value.name, wanted, p.name.removeprefix(f"{value.name}.")
        return self.handles[key]

    def keep_used(self) -> None:
        """Drop the parameters of opened numbers that the kernel does not read."""
        used = ir.used(self.top)
        roots = used | {ir.root(v) for v in used}
        self.top.params = [p for p in self.top.params if p.name not in self.behind or p in roots]

    def call_library(self, f: Library, node: ast.Call) -> Any:
        f = f.form(node)
        bound = self.bound_arguments(f.fn, node)
        result = self.inlined(f.fn, bound, node, self.where(node))
        if not f.hands_out:
            return result
        value, *new = self.checked(result, node)
        for target, part in zip(f.handed_out(node), new, strict=True):
            if not isinstance(target, ast.Name):
                raise self.error(
                    f"`{f.key}` gives something back here", "handed-out", target, "It takes the name of a local.",
                    "i = int(0), before this line, and i here",
                )  # fmt: skip
            self.assign(target, part)
        return value

    # ---- loops

    def query_loop(self, node: ast.For) -> bool:
        """Read `for i in query`. False if what it runs over is no query."""
        over = node.iter
        if isinstance(over, ast.Call):
            if not isinstance(self.python_object(over.func), Func):
                return False
        elif not (isinstance(over, ast.Name) and isinstance(self.state.names.get(over.id), Record)):
            return False
        query = self.visit(over)
        if not (isinstance(query, Record) and isinstance(query.type, Query)):
            return False
        number = self.serial()
        q, step, found = (f"{name} of loop {number}" for name in ("query", "step", "index"))
        self.state.names[q], self.state.names[step] = query, query.type.next
        read, write = ast.Load(), ast.Store()
        turn = [
            ast.Assign(
                [ast.Tuple([ast.Name(q, write), ast.Name(found, write)], write)],
                ast.Call(ast.Name(step, read), [ast.Name(q, read)], []),
            ),
            ast.If(ast.Compare(ast.Name(found, read), [ast.Lt()], [ast.Constant(0)]), [ast.Break()], []),
            ast.Assign([node.target], ast.Name(found, read)),
        ]
        self.visit(placed(ast.While(ast.Constant(True), [*turn, *node.body], []), node))
        for name in (q, step, found):
            self.state.names.pop(name, None)
        return True

    def with_plain_test(self, node: ast.While) -> ast.While:
        """`while f(query, i): ...` where f hands out: the same loop with its test at the start of each turn."""
        calls = (n for n in ast.walk(node.test) if isinstance(n, ast.Call))
        if not any(isinstance(self.python_object(n.func), Library) and self.changed_by(n) for n in calls):
            return node
        leave = ast.If(ast.UnaryOp(ast.Not(), node.test), [ast.Break()], [])
        return placed(ast.While(ast.Constant(True), [leave, *node.body], []), node)


def placed(new: Any, old: ast.stmt) -> Any:
    """A tree whose new nodes stand at the first line of an old one."""
    for n in ast.walk(new):
        if isinstance(n, ast.stmt | ast.expr) and not hasattr(n, "lineno"):
            n.lineno, n.col_offset = old.lineno, old.col_offset
            n.end_lineno, n.end_col_offset = old.end_lineno, old.end_col_offset
    return new
