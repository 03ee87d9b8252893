"""IR -> text: the statements of a kernel as a C subset that is also CUDA C++, and the block of arguments it takes.

`Signature` lays out one packed struct of arguments, the same bytes for C and CUDA. `Body` writes the statements of one
thread, a line per statement, in the user's names. `emit_c` and `emit_cuda` put a loop over threads around it.
Every SSA value becomes one C variable, what a loop carries one mutable variable. Constants are written in place, with
all digits. What a launch knows about its arrays (`Variant`) selects the text of each access.
Errors on the device go to `status`, the first wins: code, access id, thread, index count, six indices, six extents.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...errors import KernelError, Where
from ..ir import Function, Region, Stmt, Value, root, walk
from ..ops.memory import ATOMICS
from ..ops.row import ROWS, Row, weak_type
from ..ops.scalar import MATH1, MATH2
from ..types import (
    Array,
    Composite,
    Matrix,
    Quat,
    Scalar,
    Stack,
    Type,
    Vector,
    bool_,
    float16,
    float32,
    float64,
    scalar_of,
)

STATUS_WORDS = 16
MAX_RANK = 4
BOUNDS, STACK_FULL = 1, 2

_SHORT = {
    "float32": "f", "float64": "d", "float16": "h", "int32": "i", "int64": "l", "int16": "s", "int8": "b",
    "uint32": "ui", "uint64": "ul", "uint16": "us", "uint8": "ub", "bool": "bool",
}  # fmt: skip
_FORMAT = {
    "float32": "f", "float64": "d", "float16": "e", "int32": "i", "int64": "q", "int16": "h", "int8": "b",
    "uint32": "I", "uint64": "Q", "uint16": "H", "uint8": "B", "bool": "?",
}  # fmt: skip


@dataclass(frozen=True)
class Variant:
    """What one launch knows, and so what its text may assume. Names are those of array parameters.

    contiguous: arrays in C order without gaps. restrict: no two arrays overlap. check_bounds: test every index.
    atomic: arrays whose updates come from several workers at once. index32: every array, and the grid, has fewer than
    2**31 elements; heeded on GPUs alone, as wrapping 32-bit indices keep a C compiler from vectorising.
    inner: the function without its tests, for a box of threads that every launch gives; on C alone. alone: threads
    outside the box do nothing.
    aligned: contiguous arrays of 8 or 16 bytes an element (or a multiple) begin at such a multiple; heeded on GPUs.
    """

    contiguous: frozenset[str] = frozenset()
    restrict: bool = False
    check_bounds: bool = False
    atomic: frozenset[str] = frozenset()
    index32: bool = False
    inner: Function | None = None
    alone: bool = False
    aligned: bool = False


PLAIN = Variant()


class Access(NamedTuple):
    """One statement that can fail on the device: its place, the array (or stack) it uses, the row."""

    where: Where | None
    array: str
    row: str


_ACCESSES = {"load", "store", "log_store", "accumulate", "push", *(r.name for r in ATOMICS)}


_LOGGING = {"log_store", "mark", "rollback"}


def access_table(function: Function) -> tuple[Access, ...]:
    """Every access in program order: the access id in `status` is an index into it."""
    return tuple(Access(s.where, root(s.args[0]).name, s.row.name) for s in _accesses(function))


def _accesses(function: Function) -> list[Stmt]:
    return [s for s in walk(function.body) if s.row.name in _ACCESSES]


def needs_scratch(function: Function) -> bool:
    """Does a launch on a GPU need scratch memory: a stack of unknown height, or the log of a replay."""
    stmts = list(walk(function.body))
    return any(s.row.name in _LOGGING or (isinstance(s.attr, Stack) and s.attr.capacity is None) for s in stmts)


@lru_cache(4096)
def c_name(name: str) -> str:
    """A C identifier like the user's name, free in C and CUDA: s_x for s.x, exp_ for exp. A kernel's entry has it."""
    text = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
    if not text or text[0].isdigit() or text.startswith("wb_"):
        text = f"k{text}"
    return f"{text}_" if text in RESERVED else text


# ---- names and types of the text


_KEYWORDS = """
    auto break case char const continue default do double else enum extern float for goto if inline int long register
    restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool true false
    asm typeof class delete explicit export friend mutable namespace new operator private protected public template
    this throw try catch typename using virtual and or not xor compl bitand bitor constexpr decltype alignas alignof
    nullptr args begin end block status scratch int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t
    threadIdx blockIdx blockDim gridDim warpSize linux unix signbit printf realloc free memcpy memset memmove malloc
    main abort exit
""".split()
_ALSO = "fma j0 j1 jn y0 y1 yn gamma abs labs min max index time erfinv norm rsqrt".split()
RESERVED = {*_KEYWORDS, *(n + f for n in (*MATH1, *MATH2, *_ALSO) for f in ("", "f"))}


class Names:
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
    """The C name of a value type: float, wb_vec3f, wb_mat33d, wb_mat2x5f, wb_quatf."""
    if isinstance(type, Scalar):
        return type.c
    assert isinstance(type, Composite)
    short = _SHORT[type.scalar.name]
    if isinstance(type, Vector):
        return f"wb_vec{type.length}{'_' if type.length > 9 else ''}{short}"
    if isinstance(type, Matrix):
        return f"wb_mat{type.rows}x{type.cols}{short}"
    assert isinstance(type, Quat)
    return f"wb_quat{short}"


def typedef(type: Composite) -> str:
    return f"typedef struct {{ {type.scalar.c} c[{type.size}]; }} {type_name(type)};"


def composites(function: Function) -> list[Composite]:
    """Every composite type of a function, in order of first use."""
    types: dict[int, Any] = {id(p.type): p.type for p in function.params}
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


def literal(type: Scalar, value: Any) -> str:
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


_UNPACKED = re.compile(r"\s*const \w+ (\w+) = .*args(?:->|\.)")


# ---- the block of arguments


class Signature:
    """The argument block of a function: int64 dim[4]; per parameter a pointer, its shape and its byte strides, or a
    value padded to 8 bytes; then int64 *status, void *scratch, int64 scratch_bytes. The same bytes on every backend.
    With `boxed` there are first and one-past-last thread of a box along each launch dimension after the parameters.
    """

    def __init__(self, function: Function, boxed: bool = False):
        names = Names()
        self.function = function
        self.name = c_name(function.name)
        names.used |= {"dim", "scratch_bytes"}
        self.fields = {p: names.family(p.name, ("_shape", "_strides")) for p in function.params}
        parts = [self._part(p.type) for p in function.params]
        self.box = 2 * function.rank if boxed else 0
        self.struct = struct.Struct("=4q" + "".join(parts) + f"{self.box}q" + "QQq")
        self.size = self.struct.size
        self._pack = self.struct.pack
        self.count = sum(_flat_count(p.type) for p in function.params)

    @staticmethod
    def _part(type: Type) -> str:
        if isinstance(type, Array):
            return f"Q{2 * type.ndim}q"
        size, scalar = type.itemsize, type.scalar  # type: ignore[attr-defined]
        return f"{type.size}{_FORMAT[scalar.name]}" + f"{-size % 8}x" * (size % 8 > 0)  # type: ignore[attr-defined]

    def pack(
        self, dims: Sequence[int], values: Sequence[Any], status: int = 0, scratch: int = 0, scratch_bytes: int = 0
    ) -> bytes:
        """The bytes. `values`: per array (pointer, *shape, *byte strides), per value its components, all in a row; the
        box after them.
        """
        return self._pack(*dims, *_ONES[len(dims)], *values, status, scratch, scratch_bytes)

    @property
    def c_declaration(self) -> str:
        lines = ["typedef struct {", f"    int64_t dim[{MAX_RANK}];"]
        for p, name in self.fields.items():
            if isinstance(p.type, Array):
                shape = f"int64_t {name}_shape[{p.type.ndim}], {name}_strides[{p.type.ndim}];"
                lines.append(f"    union {{ {type_name(p.type.dtype)} *p; int64_t pad; }} {name}; {shape}")
            else:
                words = -(-p.type.itemsize // 8)  # type: ignore[attr-defined]
                lines.append(f"    union {{ {type_name(p.type)} v; int64_t pad[{words}]; }} {name};")
        lines += [f"    int64_t wb_box[{self.box}];"] * (self.box > 0)
        lines += ["    int64_t *status; void *scratch; int64_t scratch_bytes;", f"}} {self.name}_args;"]
        return "\n".join(lines)


_ONES = [(1,) * (MAX_RANK - n) for n in range(MAX_RANK + 1)]  # the extents that a launch of n dimensions leaves open


def _flat_count(type: Type) -> int:
    return 1 + 2 * type.ndim if isinstance(type, Array) else type.size  # type: ignore[attr-defined]


# ---- expressions, for rows written over components


class Expr:
    """A scalar C expression: rows applied to it write C. Long texts are put into a variable."""

    def __init__(self, body: Body, text: str, type: Scalar):
        self.body, self.text, self.type = body, text, type

    def apply_row(self, row: Row, args: tuple, attr: Any) -> Any:
        beside: list[Type] = [a.type for a in args if isinstance(a, Expr)]
        exprs = [a if isinstance(a, Expr) else self._constant(a, beside) for a in args]
        types = [e.type for e in exprs]
        out = row.type(*types, **({"attr": attr} if row.typed_by_attr else {}))
        if row.expand is not None:
            extra = {"attr": attr} if row.typed_by_attr else {}
            return row.expand(*exprs, types=types, out=out, **extra)
        text = self.body.scalar_text(row, types, out, [e.text for e in exprs], attr)
        return self.body.short(Expr(self.body, text, out))

    def _constant(self, value: Any, beside: list[Type]) -> Expr:
        type = scalar_of(value.dtype) if isinstance(value, np.generic) else weak_type(value, beside)
        return Expr(self.body, literal(type, value), type)

    def __bool__(self) -> bool:
        raise TypeError("a C expression has no truth value: use where(...)")


def _operator(method: str, name: str, reflected: bool) -> None:
    def apply(self: Expr, *others: Any) -> Any:
        args = (*others, self) if reflected else (self, *others)
        return self.apply_row(ROWS[name], args, None)

    setattr(Expr, method, apply)


for _method, _name in {
    "__add__": "add", "__sub__": "sub", "__mul__": "mul", "__truediv__": "div", "__neg__": "neg",
    "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge",
}.items():  # fmt: skip
    _operator(_method, _name, False)
for _method, _name in {"__radd__": "add", "__rsub__": "sub", "__rmul__": "mul", "__rtruediv__": "div"}.items():
    _operator(_method, _name, True)


# ---- statements


@dataclass
class Memory:
    """How the text names one array: pointer, extents, byte strides; `inner` is the shape of seen components."""

    param: str
    pointer: str
    type: Array
    shape: list[str]
    strides: list[str]
    contiguous: bool
    inner: tuple[int, ...] = ()


@dataclass
class StackText:
    """How the text names one stack; `data` is empty where the stack lives in the worker's byte stack."""

    type: Stack
    data: str = ""
    top: str = ""


@dataclass
class Body:
    """Writes the statements of one thread. `update` is the dialect's text of one read-modify-write."""

    function: Function
    variant: Variant
    signature: Signature
    update: Callable[..., str]
    index: str = "int64_t"
    lines: list[str] = field(default_factory=list)
    helpers: dict[str, str] = field(default_factory=dict)
    depth: int = 1

    def __post_init__(self) -> None:
        self.names = Names()
        self.texts: dict[Value, str] = {}
        self.memory: dict[Value, Memory] = {}
        self.stacks: dict[Value, StackText] = {}
        stmts = list(walk(self.function.body))
        accesses = [s for s in stmts if s.row.name in _ACCESSES]
        self.access_ids = {id(s): i for i, s in enumerate(accesses)}
        self.line = 0
        self.written = {root(s.args[0]) for s in accesses if s.row.name not in ("load", "push")}
        self.grows = any(isinstance(s.attr, Stack) and s.attr.capacity is None for s in stmts)
        kinds = {s.row.name for s in stmts}
        self.logs = not kinds.isdisjoint(_LOGGING)
        self.fails = self.variant.check_bounds or self.logs or "push" in kinds  # may anything be reported in `status`
        self._name_parameters()
        self._name_axes(stmts)

    # -- what the frame around the statements declares

    def _name_parameters(self) -> None:
        self.names.used.update(self.signature.fields.values())
        for p, name in self.signature.fields.items():
            if not isinstance(p.type, Array):
                self.texts[p] = name
                continue
            shape = [self.names.new(f"{name}_n{k}") for k in range(p.type.ndim)]
            strides = [self.names.new(f"{name}_s{k}") for k in range(p.type.ndim)]
            self.memory[p] = Memory(p.name, name, p.type, shape, strides, p.name in self.variant.contiguous)

    def _name_axes(self, stmts: list[Stmt]) -> None:
        rank = self.function.rank
        wishes = [f"t{k}" for k in range(rank)]
        for stmt in reversed([s for s in stmts if s.row.name == "tid"]):
            if stmt.outs[0].name and stmt.attr.axis < rank:
                wishes[stmt.attr.axis] = stmt.outs[0].name
        self.axes = [self.names.new(w) for w in wishes]
        self.dims = [self.names.new(f"dim{k}") for k in range(rank)]

    def pointer_parameters(self) -> list[tuple[str, str]]:
        """(declaration, argument) per array, for the function whose parameters carry `restrict`."""
        out = []
        for p in self.function.arrays:
            const = "" if p in self.written else "const "
            restrict = "restrict " if self.variant.restrict else ""
            name = self.memory[p].pointer
            out.append((f"{const}{type_name(p.type.dtype)} *{restrict}{name}", f"args->{name}.p"))  # type: ignore[attr-defined]
        return out

    def unpack(self, access: str = "args->") -> None:
        """Lines that read extents, strides and values from the argument block."""
        for k, dim in enumerate(self.dims):
            self.put(f"const int32_t {dim} = (int32_t){access}dim[{k}];")
        for p, name in self.signature.fields.items():
            if not isinstance(p.type, Array):
                self.put(f"const {type_name(p.type)} {name} = {access}{name}.v;")
                continue
            m = self.memory[p]
            for k, n in enumerate(m.shape):
                self.put(f"const {self.index} {n} = ({self.index}){access}{name}_shape[{k}];")
            for k, s in enumerate([] if m.contiguous else m.strides):
                self.put(f"const int64_t {s} = {access}{name}_strides[{k}];")

    def used_lines(self) -> list[str]:
        """The lines without the constants read from the argument block that nothing uses."""
        found = [_UNPACKED.match(line) if "args" in line else None for line in self.lines]
        text = "\n".join(self.lines)
        return [line for line, m in zip(self.lines, found, strict=True) if m is None or _repeated(m[1], text)]

    @property
    def thread(self) -> str:
        """The linear index of this thread."""
        text = f"(int64_t){self.axes[0]}"
        for axis, dim in zip(self.axes[1:], self.dims[1:], strict=True):
            text = f"({text} * {dim} + {axis})"
        return text

    # -- lines

    def put(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def block(self, head: str = ""):
        self.put(f"{head} {{".lstrip())
        self.depth += 1
        yield
        self.depth -= 1
        self.put("}")

    def declare(self, value: Value, text: str) -> None:
        """One variable for one SSA value."""
        name = self.names.new(value.name or "t")
        self.texts[value] = name
        self.put(f"{type_name(value.type)} {name} = {text};")

    def variable(self, type: Type, text: str, wish: str = "e") -> str:
        name = self.names.new(wish)
        self.put(f"{type_name(type)} {name} = {text};" if text else f"{type_name(type)} {name};")
        return name

    def helper(self, name: str, text: str) -> str:
        self.helpers.setdefault(name, text)
        return name

    def short(self, e: Expr) -> Expr:
        if len(e.text) > 48:
            e.text = self.variable(e.type, e.text)
        return e

    # -- statements

    def region(self, region: Region) -> None:
        for stmt in region.body:
            self.statement(stmt)

    def statement(self, stmt: Stmt) -> None:
        self._mark(stmt.where)
        write = getattr(self, f"row_{stmt.row.name}", None)
        if write is not None:
            write(stmt)
        elif stmt.row.name.startswith("atomic_"):
            self._atomic(stmt)
        else:
            self._value_row(stmt)

    def _mark(self, where: Where | None) -> None:
        if where is not None and where.line != self.line:
            self.line = where.line
            text = where.text.strip().replace("*/", "* /").replace("/*", "/ *").replace("\\", "/")
            self.put(f"/* {where.line}: {text} */" if text else f"/* line {where.line} */")

    def scalar_text(self, row: Row, types: Sequence[Type], out: Type, texts: Sequence[str], attr: Any) -> str:
        """The C text of a row on scalars, parenthesised. float16 is computed in float and rounded at every step."""
        if float16 in types:
            texts = [f"((float){x})" if t is float16 else x for t, x in zip(types, texts, strict=True)]
        if callable(row.c):
            text = row.c(types, *texts, **({"attr": attr} if row.typed_by_attr else {}))
        else:
            assert isinstance(row.c, str), f"row {row.name} has no C text"
            floats = [t for t in (out, *types) if isinstance(t, Scalar) and t.kind == "f"]
            wide = floats[0] if floats else float64
            text = row.c.format(*texts, T=out.scalar.c, f="" if wide is float64 else "f")  # type: ignore[attr-defined]
        narrow = isinstance(out, Scalar) and out.bits < 32 and out.kind != "b"
        return f"(({out.c})({text}))" if narrow else f"({text})"  # type: ignore[attr-defined]

    def _value_row(self, stmt: Stmt) -> None:
        row, out = stmt.row, stmt.outs
        assert len(out) == 1, f"row {row.name} makes {len(out)} values"
        types = [a.type for a in stmt.args]
        if row.expand is not None:
            text = self._expand(stmt, types)
        elif isinstance(out[0].type, Composite):
            parts = [self._component_text(stmt, types, k) for k in range(out[0].type.size)]
            text = "{{" + ", ".join(parts) + "}}"
        else:
            text = self.scalar_text(row, types, out[0].type, [self.text(a) for a in stmt.args], stmt.attr)
        if text.startswith("(") and text.endswith(")") and _closes_at_end(text):
            text = text[1:-1]
        self.declare(out[0], text)

    def _component_text(self, stmt: Stmt, types: list[Type], k: int) -> str:
        texts = [f"{self.text(a)}.c[{k}]" if isinstance(a.type, Composite) else self.text(a) for a in stmt.args]
        scalars = [t.scalar for t in types]  # type: ignore[attr-defined]
        return self.scalar_text(stmt.row, scalars, stmt.outs[0].type.scalar, texts, stmt.attr)  # type: ignore[attr-defined]

    def _expand(self, stmt: Stmt, types: list[Type]) -> str:
        out = stmt.outs[0].type
        args = [self._parts(a) for a in stmt.args]
        extra = {"attr": stmt.attr} if stmt.row.typed_by_attr else {}
        result = stmt.row.expand(*args, types=types, out=out, **extra)  # type: ignore[misc]
        if isinstance(out, Composite):
            return "{{" + ", ".join(self._expr_text(r, out.scalar) for r in result) + "}}"
        return self._expr_text(result, out)  # type: ignore[arg-type]

    def _parts(self, value: Value) -> Any:
        text = self.text(value)
        if isinstance(value.type, Composite):
            return [Expr(self, f"{text}.c[{k}]", value.type.scalar) for k in range(value.type.size)]
        return Expr(self, text, value.type)  # type: ignore[arg-type]

    def _expr_text(self, result: Any, type: Scalar) -> str:
        return result.text if isinstance(result, Expr) else literal(type, result)

    def text(self, value: Value) -> str:
        return self.texts[value]

    # -- constants, grid

    def row_const(self, stmt: Stmt) -> None:
        out = stmt.outs[0]
        if isinstance(out.type, Composite):
            parts = np.broadcast_to(np.ravel(np.array(stmt.attr, dtype=object)), (out.type.size,))
            self.declare(out, "{{" + ", ".join(literal(out.type.scalar, p) for p in parts) + "}}")
        else:
            self.texts[out] = literal(out.type, stmt.attr)  # type: ignore[arg-type]

    def row_tid(self, stmt: Stmt) -> None:
        self.texts[stmt.outs[0]] = self.axes[stmt.attr.axis] if stmt.attr.axis < self.function.rank else "0"

    def row_dim(self, stmt: Stmt) -> None:
        self.texts[stmt.outs[0]] = self.dims[stmt.attr.axis] if stmt.attr.axis < self.function.rank else "1"

    # -- control flow

    def row_if(self, stmt: Stmt) -> None:
        names = [self.variable(o.type, "", o.name or "t") for o in stmt.outs]
        then, other = stmt.regions
        with self.block(f"if ({self.text(stmt.args[0])})"):
            self._branch(then, names)
        if other.body or other.results:
            self.lines[-1] += " else {"
            self.depth += 1
            self._branch(other, names)
            self.depth -= 1
            self.put("}")
        self.texts.update(zip(stmt.outs, names, strict=True))

    def _branch(self, region: Region, names: list[str]) -> None:
        self.region(region)
        for name, value in zip(names, region.results, strict=True):
            self.put(f"{name} = {self.text(value)};")

    def _carry(self, stmt: Stmt, init: Sequence[Value], params: Sequence[Value]) -> list[str]:
        """Mutable variables for what a loop carries; the loop's results are read from them afterwards."""
        names = []
        for out, value, param in zip(stmt.outs, init, params, strict=True):
            names.append(self.variable(value.type, self.text(value), param.name or out.name or "c"))
            self.texts[param] = self.texts[out] = names[-1]
        return names

    def _next(self, names: list[str], results: Sequence[Value]) -> None:
        """All at once: a result that reads a variable assigned before it goes through a temporary."""
        texts = [self.text(r) for r in results]
        moves = [(n, t, r) for n, t, r in zip(names, texts, results, strict=True) if n != t]
        targets = {n for n, _, _ in moves}
        if any(t in targets for _, t, _ in moves):
            moves = [(n, self.variable(r.type, t, "next") if t in targets else t, r) for n, t, r in moves]
        for name, text, _ in moves:
            self.put(f"{name} = {text};")

    def _turn(self, stmt: Stmt, region: Region, names: list[str]) -> None:
        self.region(region)
        results = list(region.results)
        go = None
        if stmt.attr is not None and stmt.attr.breaks:
            go = self.text(results.pop(0))
            if go in names:
                go = self.variable(bool_, go, "go")
        self._next(names, results)
        if go is not None:
            self.put(f"if (!({go})) break;")

    def row_for(self, stmt: Stmt) -> None:
        start, stop, step, *init = stmt.args
        (region,) = stmt.regions
        names = self._carry(stmt, init, region.params[1:])
        with self.turns(start, stop, step, region.params[0]):
            self._turn(stmt, region, names)

    @contextmanager
    def turns(self, start: Value, stop: Value, step: Value, counter: Value):
        """The head of a `for`; inside, `counter` is the number of the turn."""
        i = self.names.new(counter.name or "i")
        self.texts[counter] = i
        with self.block(self._for_head(start, stop, step, i)):
            if self._unit(step) == 0:
                first = self.text(start)
                self.put(f"{start.type.c} {i} = ({start.type.c})({first} + {i}_k * (int64_t){self.text(step)});")  # type: ignore[attr-defined]
            yield

    @staticmethod
    def _unit(step: Value) -> int:
        """1 or -1 where the step is that constant, else 0: only then the loop variable cannot overflow."""
        known = step.stmt is not None and step.stmt.row.name == "const" and step.stmt.attr in (1, -1)
        return int(step.stmt.attr) if known else 0  # type: ignore[union-attr]

    def _for_head(self, start: Value, stop: Value, step: Value, i: str) -> str:
        a, b, s = self.text(start), self.text(stop), self.text(step)
        unit = self._unit(step)
        if unit:
            compare, move = ("<", f"++{i}") if unit == 1 else (">", f"--{i}")
            return f"for ({start.type.c} {i} = {a}; {i} {compare} {b}; {move})"  # type: ignore[attr-defined]
        turns = self.names.new(f"{i}_turns")
        self.names.used.add(f"{i}_k")
        self.put(f"const int64_t {turns} = wb_turns({a}, {b}, {s});")
        return f"for (int64_t {i}_k = 0; {i}_k < {turns}; ++{i}_k)"

    def row_while(self, stmt: Stmt) -> None:
        test, body = stmt.regions
        names = self._carry(stmt, stmt.args, test.params)
        for param, name in zip(body.params, names, strict=True):
            self.texts[param] = name
        with self.block("for (;;)"):
            self.region(test)
            self.put(f"if (!({self.text(test.results[0])})) break;")
            self._turn(stmt, body, names)

    def row_call(self, stmt: Stmt) -> None:
        (region,) = stmt.regions
        for param, value in zip(region.params, stmt.args, strict=True):
            for table in (self.texts, self.memory, self.stacks):
                if value in table:
                    table[param] = table[value]  # type: ignore[index]
        names = [self.variable(o.type, "", o.name or "t") for o in stmt.outs]
        with self.block():
            self._branch(region, names)
        self.texts.update(zip(stmt.outs, names, strict=True))

    # -- memory

    def row_components(self, stmt: Stmt) -> None:
        m = self.memory[stmt.args[0]]
        inner = m.type.dtype.shape  # type: ignore[attr-defined]
        self.memory[stmt.outs[0]] = Memory(m.param, m.pointer, m.type, m.shape, m.strides, m.contiguous, inner)

    def row_shape(self, stmt: Stmt) -> None:
        text = self._extents(self.memory[stmt.args[0]])[stmt.attr]
        self.texts[stmt.outs[0]] = text if text.isdigit() else f"(int32_t){text}" if self.index == "int64_t" else text

    @staticmethod
    def _extents(m: Memory) -> list[str]:
        return [*m.shape, *map(str, m.inner)]

    def place(self, m: Memory, indices: list[str]) -> str:
        """The lvalue of one element."""
        outer, inner = indices[: m.type.ndim], indices[m.type.ndim :]
        if m.contiguous:
            linear = outer[0]
            for i, n in zip(outer[1:], m.shape[1:], strict=True):
                linear = f"({linear}) * {n} + {i}" if " " in linear else f"{linear} * {n} + {i}"
            text = f"{m.pointer}[{linear}]"
        else:
            offset = " + ".join(f"{i} * {s}" for i, s in zip(outer, m.strides, strict=True))
            text = f"WB_AT({type_name(m.type.dtype)}, {m.pointer}, {offset})"
        if not inner:
            return text
        flat = inner[0] if len(inner) == 1 else f"{inner[0]} * {m.inner[1]} + {inner[1]}"
        return f"{text}.c[{flat}]"

    @contextmanager
    def _inside(self, stmt: Stmt, m: Memory, indices: list[str]):
        """Guard what is written in the block by the bounds, where this variant checks them."""
        if not self.variant.check_bounds:
            yield
            return
        extents = self._extents(m)
        tests = [f"wb_in({i}, {n})" for i, n in zip(indices, extents, strict=True)]
        with self.block(f"if ({' && '.join(tests)})"):
            yield
        fill = ["0"] * (6 - len(indices))
        numbers = ", ".join([*indices, *fill, *extents, *fill])
        failure = f"{BOUNDS}, {self.access_ids[id(stmt)]}, {self.thread}, {len(indices)}, {numbers}"
        self.lines[-1] += f" else wb_fail(status, {failure});"

    def _target(self, stmt: Stmt, values: int) -> tuple[Memory, list[str], list[str]]:
        count = len(stmt.args) - values
        m = self.memory[stmt.args[0]]
        return m, [self.text(a) for a in stmt.args[1:count]], [self.text(a) for a in stmt.args[count:]]

    def row_load(self, stmt: Stmt) -> None:
        m, indices, _ = self._target(stmt, 0)
        if not self.variant.check_bounds:
            self.declare(stmt.outs[0], self.place(m, indices))
            return
        self.declare(stmt.outs[0], zero(stmt.outs[0].type))
        with self._inside(stmt, m, indices):
            self.put(f"{self.text(stmt.outs[0])} = {self.place(m, indices)};")

    def row_store(self, stmt: Stmt) -> None:
        m, indices, (value,) = self._target(stmt, 1)
        with self._inside(stmt, m, indices):
            self.put(f"{self.place(m, indices)} = {value};")

    def row_log_store(self, stmt: Stmt) -> None:
        m, indices, (value,) = self._target(stmt, 1)
        with self._inside(stmt, m, indices):
            place, size = self.place(m, indices), f"sizeof({type_name(stmt.args[-1].type)})"
            self.put(f"if (wb_keep(&wb_log, &{place}, {size})) {place} = {value}; else {self._full(stmt)}")

    def row_mark(self, stmt: Stmt) -> None:
        self.declare(stmt.outs[0], "wb_mark(&wb_log)")

    def row_rollback(self, stmt: Stmt) -> None:
        self.put(f"wb_rollback(&wb_log, {self.text(stmt.args[0])});")

    def row_accumulate(self, stmt: Stmt) -> None:
        m, indices, (value,) = self._target(stmt, 1)
        place, type = self.place(m, indices), stmt.args[-1].type
        with self._inside(stmt, m, indices):
            if m.param in self.variant.atomic:
                self._update(stmt, "add", place, type, [value], "")
            elif isinstance(type, Composite):
                self.put(f"for (int32_t wb_c = 0; wb_c < {type.size}; ++wb_c) {place}.c[wb_c] += {value}.c[wb_c];")
            else:
                self.put(f"{place} += {value};" if type.bits >= 32 else f"{place} = ({type.c})({place} + {value});")  # type: ignore[attr-defined]

    def _atomic(self, stmt: Stmt) -> None:
        operation = stmt.row.name.removeprefix("atomic_")
        m, indices, values = self._target(stmt, 2 if operation == "cas" else 1)
        out = stmt.outs[0]
        self.declare(out, zero(out.type))
        with self._inside(stmt, m, indices):
            self._update(stmt, operation, self.place(m, indices), out.type, values, self.text(out))

    def _update(self, stmt: Stmt, op: str, place: str, type: Type, values: list[str], old: str) -> None:
        """One read-modify-write, component by component; `old` receives what was there."""
        scalar: Scalar = type.scalar  # type: ignore[attr-defined]
        shared = self.memory[stmt.args[0]].param in self.variant.atomic
        name = f"wb_{'atomic' if shared else 'plain'}_{op}_{scalar.name}"
        self.helper(name, self.update(name, op, scalar, shared, stmt.where))
        part, head = "", ""
        if isinstance(type, Composite):
            part, head = ".c[wb_c]", f"for (int32_t wb_c = 0; wb_c < {type.size}; ++wb_c) "
        call = f"{name}(&{place}{part}, {', '.join(v + part for v in values)});"
        self.put(f"{head}{old}{part} = {call}" if old else head + call)

    # -- stacks

    def row_stack(self, stmt: Stmt) -> None:
        type: Stack = stmt.attr
        if type.capacity is None:
            self.stacks[stmt.outs[0]] = StackText(type)
            return
        data = self.names.new(stmt.outs[0].name or "kept")
        top = self.names.new(f"{data}_top")
        self.put(f"{type_name(type.dtype)} {data}[{max(type.capacity, 1)}];")
        self.put(f"int32_t {top} = 0;")
        self.stacks[stmt.outs[0]] = StackText(type, data, top)

    def row_push(self, stmt: Stmt) -> None:
        stack, value = self.stacks[stmt.args[0]], self.text(stmt.args[1])
        name, full = type_name(stack.type.dtype), self._full(stmt)
        if stack.data:
            self.put(f"if ({stack.top} < {stack.type.capacity}) {stack.data}[{stack.top}++] = {value}; else {full}")
            return
        room = f"if (wb_room(&wb_stack, sizeof({name})))"
        self.put(f"{room} {{ {name} wb_v = {value}; WB_PUSH({name}, wb_v); }} else {full}")

    def _full(self, stmt: Stmt) -> str:
        return f"wb_full(status, {self.access_ids[id(stmt)]}, {self.thread});"

    def row_pop(self, stmt: Stmt) -> None:
        stack, out = self.stacks[stmt.args[0]], stmt.outs[0]
        self.declare(out, zero(out.type))
        name, type = self.text(out), type_name(out.type)
        if stack.data:
            self.put(f"if ({stack.top} > 0) {name} = {stack.data}[--{stack.top}];")
        else:
            self.put(f"if (wb_left(&wb_stack, sizeof({type}))) WB_POP({type}, {name});")

    # -- printing

    def row_printf(self, stmt: Stmt) -> None:
        form = stmt.attr[0] if isinstance(stmt.attr, tuple) else stmt.attr
        parts = [p for a in stmt.args for p in self._printed(a)]
        casts: list[str] = []
        text = re.sub(r"%([-+ #0-9.]*)(?:hh|h|ll|l|z)?([a-zA-Z%])", lambda m: _conversion(m, casts), form)
        if len(casts) != len(parts):
            raise KernelError(
                f"printf has {len(casts)} conversions and {len(parts)} values", slug="printf", where=stmt.where
            )
        values = "".join(f", ({c})({p})" for c, p in zip(casts, parts, strict=True))
        self.put(f"printf({_c_string(text)}{values});")

    def _printed(self, value: Value) -> list[str]:
        text = self.text(value)
        if isinstance(value.type, Composite):
            return [f"{text}.c[{k}]" for k in range(value.type.size)]
        return [text]


def _conversion(match: re.Match, casts: list[str]) -> str:
    flags, kind = match.groups()
    if kind == "%":
        return "%%"
    if kind in "di":
        casts.append("long long")
        return f"%{flags}ll{kind}"
    if kind in "uxXo":
        casts.append("unsigned long long")
        return f"%{flags}ll{kind}"
    casts.append("double" if kind in "feEgGaF" else "int")
    return f"%{flags}{kind}"


def _c_string(text: str) -> str:
    out = "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\?*' else f"\\{b:03o}" for b in text.encode())
    return f'"{out}"'


def _repeated(name: str, text: str) -> bool:
    """Does a name stand twice in a text."""
    count, place = 0, text.find(name)
    while place >= 0:
        count += not _in_word(text[place - 1 : place]) and not _in_word(text[place + len(name) : place + len(name) + 1])
        if count > 1:
            return True
        place = text.find(name, place + 1)
    return False


def _in_word(sign: str) -> bool:
    return sign.isalnum() or sign == "_"


def _closes_at_end(text: str) -> bool:
    """Is the first parenthesis closed by the last character."""
    if text.find(")") == len(text) - 1 and text.startswith("("):
        return True
    depth = 0
    for k, ch in enumerate(text):
        depth += (ch == "(") - (ch == ")")
        if depth == 0:
            return k == len(text) - 1
    return False


def zero(type: Type) -> str:
    if isinstance(type, Composite):
        return "{{" + ", ".join([literal(type.scalar, 0)] * type.size) + "}}"
    return literal(type, 0)  # type: ignore[arg-type]
