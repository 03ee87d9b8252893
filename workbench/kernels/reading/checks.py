"""Output and assertions of a running kernel: `print(...)`, `assert`, `expect_eq` and the like.

A claim is one statement of the IR (`ops.control.Claim`). Where one does not hold, the launch fails with its line.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import ir, ops
from ..ops import control
from ..types import Composite, Matrix, Scalar, Type, is_float
from .base import ReaderBase, reads
from .declare import Marker
from .scope import describe
from .tile_parts import numbers_of


class Claimed(Marker):
    """A claim; on the host AssertionError is raised where `holds` is False of the values."""

    def __init__(self, name: str, holds: Callable[..., Any], doc: str):
        super().__init__(name, doc)
        self.holds = holds

    def __call__(self, *values: object, **named: object) -> None:
        if not self.holds(*values, **named):
            raise AssertionError(f"{self.__name__}({', '.join(map(str, (*values, *named.values())))})")


def _near(a: ArrayLike, b: ArrayLike, tolerance: float = 1e-6) -> bool:
    return bool(np.all(np.abs(np.subtract(a, b)) <= tolerance))


print_ = Marker(
    "print",
    "print(*values): print numbers, bools (as 1 and 0), vectors and text from a thread. Python's `print` does it too.",
)
expect_eq = Claimed(
    "expect_eq",
    lambda a, b: np.array_equal(a, b),  # NumPy has other names for them
    """expect_eq(a: T, b: T): an error of the launch, with its line and thread, where a != b. Composites as a whole.

In Warp it prints and goes on. It is looked at in every launch, `assert` where `wb.config.check_bounds` says so.""",
)
expect_neq = Claimed(
    "expect_neq",
    lambda a, b: not np.array_equal(a, b),
    "expect_neq(a: T, b: T): an error of the launch, with its line and thread, where a == b. See `expect_eq`.",
)
expect_near = Claimed(
    "expect_near",
    _near,
    """expect_near(a: F, b: F, tolerance: F = 1e-6): an error of the launch where a component differs by more than that.

NaN is near nothing. See `expect_eq`.""",
)


# ---- expect


def expected(reader: ReaderBase, node: ast.Call, most: int) -> tuple[Any, ...]:
    """The arguments, a literal among them in the type beside it."""
    names = ("a", "b", "tolerance")[len(node.args) : most]
    named = {k.arg: k.value for k in node.keywords if k.arg in names}
    if len(named) < len(node.keywords) or list(named) != [n for n in names if n in named]:
        text = f"the names of its other arguments are, in this order: {', '.join(names) or 'none'}"
        usage = "expect_near(a, b, tolerance=1e-6)" if most == 3 else "expect_eq(a, b)"
        raise reader.error(text, "arguments", node, "", usage)
    given = [reader.visit(a) for a in (*node.args, *named.values())]
    if not 2 <= len(given) <= most:
        takes = "two values" + " and a tolerance" * (most == 3)
        raise reader.error(f"this takes {takes}, got {len(given)}", "arguments", node, "", "expect_eq(a, b)")
    a, b = reader.operands("==", given[0], given[1])
    return (a, b, *given[2:])


@reads(expect_eq, sign="==", text="values that were to be equal differ")
@reads(expect_neq, sign="!=", text="values that were to differ are equal")
def call_expect_equal(reader: ReaderBase, node: ast.Call, sign: str, text: str) -> None:
    a, b = expected(reader, node, 2)
    reader.claim(ops.compare(sign, a, b), control.Claim(f"{text}: {ast.unparse(node)}", "expect", always=True))


@reads(expect_near)
def call_expect_near(reader: ReaderBase, node: ast.Call) -> None:
    a, b, *rest = expected(reader, node, 3)
    if not is_float(a.type) or a.type != b.type:
        what = f"expect_near() compares floats of one type, not {describe(a)} and {describe(b)}"
        raise reader.error(what, "operand-type", node, "", "expect_eq(a, b)")
    tolerance = reader.typed(rest[0] if rest else 1e-6, a.type.scalar)
    claim = control.Claim(f"values that were to be near differ by more: {ast.unparse(node)}", "expect", always=True)
    for x, y in zip(numbers_of(reader, a), numbers_of(reader, b), strict=True):
        reader.claim(ops.compare("<=", ops.BUILTINS["abs"](ops.binary("-", x, y)), tolerance), claim)


# ---- print


@reads(builtins.print, print_)
def call_print(reader: ReaderBase, node: ast.Call) -> None:
    if node.keywords:
        raise reader.error("print() takes values alone here", "arguments", node.keywords[0].value, "", "print(a, b)")
    parts: list[str] = []
    values: list[ir.Value] = []
    for arg in node.args:
        if isinstance(arg, ast.Constant) and isinstance(arg.value, str):
            parts.append(arg.value.replace("%", "%%"))
            continue
        given = reader.visit(arg)
        for x in given if isinstance(given, tuple) else (given,):
            values.append(reader.value(x))
            parts.append(conversions(values[-1].type))
    shown = tuple(ast.unparse(a) for a in node.args)
    reader.builder.emit(control.PRINTF, *values, attr=(" ".join(parts) + "\n", shown))


def conversions(type: Type) -> str:
    """The printf format of a value; a matrix has one line per row."""
    if isinstance(type, Scalar):
        return "%g" if type.kind == "f" else "%u" if type.kind == "u" else "%d"
    assert isinstance(type, Composite)
    one = conversions(type.scalar)
    if not isinstance(type, Matrix):
        return " ".join([one] * type.size)
    return "\n".join([" ".join([one] * type.cols)] * type.rows)
