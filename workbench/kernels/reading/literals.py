"""Numbers of Python in a kernel: literals, and the constants around it. What type they get.

A literal has no type of its own. Beside a value it takes that value's scalar type, where that holds it: beside floats
any number, but no integer that would be rounded and nothing that would become infinite or zero; beside integers an
integer in their range; 0 and 1 compared with bools. Anywhere else (bound to a name, among literals alone) it is
float32, int32 or bool. A literal that cannot be held keeps its own type, and the operation refuses two types; only
comparisons take two, and compare the numbers. A shift leaves its left operand alone: it says what comes out. A builtin
is asked with the literals' own types first. Python's numbers from outside of the kernel are literals too
(`wb.constant` as well); those of NumPy have their types.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from .. import ir, ops
from ..ir import constant
from ..types import Scalar, Small, Type, bool_, float32, float64, int32, int64, is_float, scalar_of
from . import hints
from .base import Meaning, ReaderBase
from .scope import Shape, StructParts, Unusable, describe, is_array, is_literal


class LiteralsReader(ReaderBase):
    """Mixin of `Reader`: conversion of Python numbers to IR values."""

    def value(self, x: Meaning) -> ir.Value:
        """The IR value of a number: a literal gets its default type."""
        if isinstance(x, ir.Value):
            return x
        if isinstance(x, Small) and x.type is not None and x.shape == x.type.shape:
            self.lookups.vector(x)
            return constant(x.type, tuple(np.ravel(x).tolist()))
        if isinstance(x, np.generic):
            return constant(scalar_of(x.dtype), x.item())
        if is_literal(x):
            type = bool_ if isinstance(x, bool) else int32 if isinstance(x, int) else float32
            return constant(type, self.in_range(x))
        raise self.not_a_value(x)

    def in_range(self, x: float) -> float:
        if isinstance(x, int) and not isinstance(x, bool) and not -(2**31) <= x < 2**31:
            raise self.error(f"{x} does not fit int32", "literal-range", None, "A literal is int32.", f"int64({x})")
        return x if isinstance(x, bool) else int(x) if isinstance(x, int) else float(x)

    def not_a_value(self, x: Meaning) -> Exception:
        if isinstance(x, Unusable):
            return x.error(self.builder.where)
        if isinstance(x, StructParts | Shape | tuple) or is_array(x):
            return self.error(f"{describe(x)} is not a number", "operand-type", None, "", "one element or field of it")
        text = self.builder.where.text if self.builder.where else ""
        name = next((n for n, known in self.frame.around.items() if known is x and n in text), "")
        what, instead = hints.instead_of_value(x, name)
        why = "A kernel takes numbers, vectors, funcs and types from Python."
        return self.error(what, "constant", None, why, instead)

    def typed(self, x: Meaning, type: Type) -> Any:
        """A literal as a constant of `type` where that holds it, else the value as it is."""
        if is_literal(x) and isinstance(type, Scalar) and self.held(x, type):
            held = type.numpy.type(x).item() if type.kind == "b" else float(x) if type.kind == "f" else x
            return constant(type, held)
        if isinstance(x, StructParts):
            return x
        v = self.value(x)
        converts = v.type != type and isinstance(v.type, Scalar) and isinstance(type, Scalar) and self.in_snippet()
        return ops.convert(type, v) if converts else v

    def in_snippet(self) -> bool:
        """True in a func_native: C converts numbers by itself."""
        return bool(self.frames) and hasattr(self.frames[-1].fn, "snippet")

    def held(self, x: float, type: Scalar) -> bool:
        """True if a literal of this type says what `x` says."""
        if isinstance(x, bool) or type.kind == "b":
            return False
        if type.kind == "f":
            number = self.as_float(x)
            return is_float_of(type, number, isinstance(x, int)) and (not isinstance(x, int) or number == x)
        return isinstance(x, int) and int(x) in _range(type)

    def beside(self, x: Meaning, others: Sequence[Any]) -> Any:
        """A literal in the type of the first of `others` that holds it; anything else as it is."""
        if is_literal(x):
            for other in others:
                scalar = getattr(other.type, "scalar", None) if isinstance(other, ir.Value) else None
                if scalar is not None and self.held(x, scalar):
                    return self.typed(x, scalar)
        return x

    def operands(self, sign: str, a: Meaning, b: Meaning) -> tuple[ir.Value, ir.Value]:
        """The two sides of an operator, a literal in the type of the other side; `flag == 0` asks for a bool."""
        if self.in_snippet() and (found := self.c_operands(sign, a, b)) is not None:
            return found
        if sign in ("==", "!="):
            a, b = _truth(a, b), _truth(b, a)
        if is_literal(a) and not is_literal(b):
            b = self.value(b)
            a = a if sign in ("<<", ">>") else self.beside(a, [b])
        a = self.value(a)
        count = sign in ("<<", ">>") or (sign == "**" and isinstance(b, int) and is_float(a.type))
        return a, self.value(b if count else self.beside(b, [a]))

    def c_operands(self, sign: str, a: Meaning, b: Meaning) -> tuple[ir.Value, ir.Value] | None:
        """Two numbers as C computes with them; None where one is no number."""
        for x, other in ((a, b), (b, a)):
            if is_literal(x) and isinstance(x, float) and is_float(getattr(other, "type", bool_)):
                return None  # a literal beside floats is one of them
        a, b = self.value(a), self.value(b)
        type = common(a.type, a.type if sign in ("<<", ">>") else b.type)
        return None if type is None or common(b.type, b.type) is None else (ops.convert(type, a), ops.convert(type, b))

    def comparable(self, a: ir.Value, b: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Two numbers in one type that holds all numbers of both, so that comparing them is exact.

        C, and so Warp, would round an integer to float32 there, and take a negative one for a large unsigned one.
        """
        common = _common(a.type, b.type)
        return (a, b) if common is None else (ops.convert(common, a), ops.convert(common, b))


@cache
def _common(a: Type, b: Type) -> Scalar | None:
    """The type in which two different types of numbers are compared; None if there is none, or no need of one."""
    if a == b or not (isinstance(a, Scalar) and isinstance(b, Scalar)) or "b" in (a.kind, b.kind):
        return None
    whole = [t for t in (a, b) if t.kind != "f"]
    if len(whole) == 2:
        return None if any(t.kind == "u" and t.bits == 64 for t in whole) else int64
    return None if any(t.bits == 64 for t in whole) else float64


def common(a: Type, b: Type) -> Scalar | None:
    """The type in which C computes with two numbers; None where one is no number."""
    if not (isinstance(a, Scalar) and isinstance(b, Scalar)):
        return None
    floats = [t for t in (a, b) if t.kind == "f"]
    if floats:
        return max(floats, key=lambda t: t.bits)
    promoted = [int32 if t.bits < 32 or t.kind == "b" else t for t in (a, b)]
    return max(promoted, key=lambda t: (t.bits, t.kind == "u"))


def _truth(x: Meaning, other: Meaning) -> Any:
    return bool(x) if is_literal(x) and x in (0, 1) and getattr(other, "type", None) is bool_ else x


@cache
def _range(type: Scalar) -> range:
    """The integers that an integer type holds."""
    info = np.iinfo(type.numpy)
    return range(int(info.min), int(info.max) + 1)


def is_float_of(type: Scalar, x: float, exactly: bool) -> bool:
    """True if a float type holds `x`: an integer exactly, any other number to rounding, not as infinity or zero."""
    with np.errstate(all="ignore"):
        y = float(type.numpy.type(x))
    return y == x or (not exactly and (x != x or (math.isfinite(y) and y != 0.0)))


# Python's operators: the nodes of its grammar, their signs, and the functions
_NODES = "Add Sub Mult FloorDiv Mod Pow Div     BitAnd BitOr BitXor LShift RShift MatMult Lt LtE Gt GtE Eq NotEq"
_SIGNS = "+   -   *    //       %   **  /       &      |     ^      <<     >>     @       <  <=  >  >=  == !="
_NAMES = "add sub mul  floordiv mod pow truediv and_   or_   xor    lshift rshift matmul  lt le  gt ge  eq ne"
SIGNS: dict[str, str] = dict(zip(_NODES.split(), _SIGNS.split(), strict=True))
LITERAL: dict[str, Callable[[Any, Any], Any]] = {
    sign: getattr(operator, name) for sign, name in zip(_SIGNS.split(), _NAMES.split(), strict=True)
}


def fold(sign: str, a: float, b: float) -> Any:
    """Arithmetic on literals, as Python does it; None where the kernel language would refuse or fail."""
    if isinstance(a, bool) or isinstance(b, bool) or sign == "@":
        return None
    if sign == "/" and isinstance(a, int) and isinstance(b, int):
        return None
    try:
        made = LITERAL[sign](a, b)
    except (ArithmeticError, ValueError, TypeError):
        return None
    return made if isinstance(made, (int, float)) else None
