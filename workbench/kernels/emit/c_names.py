"""Names, types and constants of the generated C: identifiers near the user's, and free in C and CUDA."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from ..ir import Function, type_as, walk
from ..types import Array, Composite, Matrix, Quat, Scalar, Stack, Tile, Transform, Type, Vector, float32, float64

_KEYWORDS = """
    auto break case char const continue default do double else enum extern float for goto if inline int long register
    restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool true false
    asm typeof class delete explicit export friend mutable namespace new operator private protected public template
    this throw try catch typename using virtual and or not xor compl bitand bitor constexpr decltype alignas alignof
    nullptr args begin end block status scratch int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t
    threadIdx blockIdx blockDim gridDim warpSize linux unix signbit printf realloc free memcpy memset memmove malloc
    main abort exit
""".split()
# Functions of C's math library, of one and of two numbers.
MATH1 = """
    sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh exp exp2 expm1 log log2 log10 log1p sqrt cbrt floor
    ceil round rint trunc fabs erf erfc tgamma lgamma nearbyint
""".split()
MATH2 = "pow fmod atan2 hypot copysign fmin fmax remainder nextafter".split()
_ALSO = "fma j0 j1 jn y0 y1 yn gamma abs labs min max index time erfinv norm rsqrt".split()
RESERVED = {*_KEYWORDS, *(n + f for n in (*MATH1, *MATH2, *_ALSO) for f in ("", "f"))}


@lru_cache(4096)
def c_name(name: str) -> str:
    """A C identifier like the user's name, free in C and CUDA: s_x for s.x, exp_ for exp. A kernel's entry has it."""
    text = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
    if not text or text[0].isdigit() or text.startswith("wb_"):
        text = f"k{text}"
    return f"{text}_" if text in RESERVED else text


class CNames:
    """Unique C identifiers, near the user's names: x, x_1, x_2."""

    def __init__(self) -> None:
        self.used: set[str] = set(RESERVED)
        self.last: dict[str, int] = {}

    def new(self, wish: str) -> str:
        text = base = c_name(wish)
        while text in self.used:
            self.last[base] = self.last.get(base, 0) + 1
            text = f"{base}_{self.last[base]}"
        self.used.add(text)
        return text

    def family(self, wish: str, endings: Sequence[str]) -> str:
        """A name such that it and it with each ending are all new."""
        while True:
            text = self.new(wish)
            whole = {text + e for e in endings}
            if not whole & self.used:
                self.used |= whole
                return text


def type_name(type: Type) -> str:
    """The C name of a value type: float, wb_vec3f, wb_mat33d, wb_mat2x5f, wb_quatf, wb_transformf."""
    if isinstance(type, Scalar):
        return type.c
    assert isinstance(type, Composite)
    short = type.scalar.suffix or "f"
    if isinstance(type, Vector):
        return f"wb_vec{type.length}{'_' if type.length > 9 else ''}{short}"
    if isinstance(type, Tile):
        return f"wb_tile{type.size}{short}"
    if isinstance(type, Matrix):
        return f"wb_mat{type.rows}x{type.cols}{short}"
    assert isinstance(type, (Quat, Transform))
    return f"wb_{'quat' if isinstance(type, Quat) else 'transform'}{short}"


def typedef(type: Composite) -> str:
    return f"typedef struct {{ {type.scalar.c} c[{type.size}]; }} {type_name(type)};"


def composites(function: Function) -> list[Composite]:
    """Every composite type of a function, in order of first use."""
    types: dict[int, Type] = {id(p.type): p.type for p in function.params}
    for stmt in walk(function.body):
        for v in stmt.outs:
            types.setdefault(id(v.type), v.type)
        for r in stmt.regions:
            types.update((id(p.type), p.type) for p in r.params if id(p.type) not in types)
        if isinstance(stmt.attr, Type):
            types.setdefault(id(stmt.attr), stmt.attr)
    found: dict[str, Composite] = {}
    for type in types.values():
        if isinstance(type, (Array, Stack)):
            type = type.dtype
        if isinstance(type, Composite):
            found.setdefault(type_name(type), type)
    return list(found.values())


def literal(type: Scalar, value: float | np.generic) -> str:
    """A scalar constant, exact: shortest digits that read back the same."""
    if type.kind == "b":
        return "true" if value else "false"
    if type.kind == "f":
        with np.errstate(over="ignore"):
            return _float_literal(type, float(type.numpy.type(value)))
    return _int_literal(type, int(value))


def _float_literal(type: Scalar, value: float) -> str:
    suffix = "" if type is float64 else "f"
    if math.isnan(value):
        text = f"WB_NAN{suffix.upper()}"
    elif math.isinf(value):
        text = f"{'-' if value < 0 else ''}WB_INF{suffix.upper()}"
    else:
        text = _digits(type, value) + suffix
    if type.bits == 16:
        return f"(({type.c}){text})"
    return f"({text})" if text[0] == "-" else text


def _digits(type: Scalar, value: float) -> str:
    """The shortest digits, where they give the same float32 read directly and by way of a double."""
    if type is not float32:
        return repr(value)
    short = str(np.float32(value))
    return short if float(np.float32(float(short))) == value else repr(value)


def _int_literal(type: Scalar, value: int) -> str:
    low = -(1 << type.bits - 1) if type.kind == "i" else 0
    value = (value - low) % (1 << type.bits) + low
    suffix = {("i", 64): "LL", ("u", 64): "ULL", ("u", 32): "u"}.get((type.kind, type.bits), "")
    text = f"{value}{suffix}"
    if value < 0 and value == low and type.bits >= 32:
        text = f"({value + 1}{suffix} - 1)"
    elif value < 0:
        text = f"({text})"
    return f"(({type.c}){text})" if type.bits < 32 else text


def zero(type: Type) -> str:
    if isinstance(type, Composite):
        return "{{" + ", ".join([literal(type.scalar, 0)] * type.size) + "}}"
    return literal(type_as(type, Scalar), 0)
