"""The interpreter: what a kernel means. Threads run one after another in C order, each statement by statement.

One idea: every region is turned once into a list of closures over one list of slots (a slot per value), so that a
statement costs about a microsecond and the rows stay the only place that knows an operation.
Invariants: values are never changed in place; every access is checked against its shape; a scalar is a NumPy scalar of
its type and a composite a `Small` of its type, whatever a row's meaning returns (as an assignment converts in C).
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...errors import BoundsError, GradientError
from .. import ir
from ..ops.memory import ATOMICS
from ..ops.row import Row, literal
from ..types import Array, Composite, Scalar, Small, Type

Step = Callable[[list], None]
THREAD, LOG = 0, 1  # the slots of the thread index and of what this thread's `log_store`s overwrote


class Values:
    """What a trace may ask: `values[v]` is the present number of IR value `v` (an ndarray for arrays: live memory)."""

    def __init__(self, compiler: _Compiler):
        self._compiler = compiler

    def __getitem__(self, value: ir.Value) -> Any:
        if id(value) in self._compiler.arrays:
            return self._compiler.arrays[id(value)].data
        return self._compiler.slots[self._compiler.slot_of[id(value)]]


class _Memory:
    """An array argument: its data (axes of the array, then of the component), the user's name, the indexed axes."""

    def __init__(self, data: np.ndarray, name: str, ndim: int):
        self.data, self.name, self.ndim = data, name, ndim
        self.shape = data.shape[:ndim]


def run(
    function: ir.Function,
    dims: Sequence[int],
    args: Sequence[Any],
    *,
    status: Any = None,
    trace: Callable[[tuple[int, ...], ir.Stmt, Values], None] | None = None,
    threads: Sequence[tuple[int, ...]] | None = None,
) -> None:
    """Run every thread of the grid `dims` (or these alone) on `args`, one per parameter; stores go to the arrays.

    An array parameter takes an ndarray of shape (*array shape, *component shape) with the scalar dtype of its element,
    strided as it may be, or None for an array of no elements. A value parameter takes a number or an ndarray.
    `trace(thread, stmt, values)` is called after every statement. `status` is what compiled kernels report errors
    through; here they raise at once: BoundsError for an index outside its array or component.
    """
    with np.errstate(all="ignore"):
        compiler = _Compiler(dims, trace, function.name)
        compiler.bind(function.params, args)
        steps, slots = compiler.region(function.body), compiler.slots
        for thread in itertools.product(*map(range, dims)) if threads is None else threads:
            slots[THREAD], slots[LOG] = thread, []
            for step in steps:
                step(slots)


class _Compiler:
    def __init__(self, dims: Sequence[int], trace: Callable | None, kernel: str = ""):
        self.kernel = kernel
        self.dims = tuple(int(d) for d in dims)
        self.trace = trace
        self.slots: list[Any] = [None, None]
        self.slot_of: dict[int, int] = {}
        self.arrays: dict[int, _Memory] = {}
        self.kept: list[Any] = []  # values made here must live as long as their ids are keys

    # --- slots

    def bind(self, params: list[ir.Value], args: Sequence[Any]) -> None:
        if len(params) != len(args):
            raise ValueError(f"{len(params)} parameters, {len(args)} arguments")
        for param, arg in zip(params, args, strict=True):
            if isinstance(param.type, Array):
                self.arrays[id(param)] = _memory(param, arg)
            else:
                self.slots[self.new(param)] = _converter(param.type)(arg)

    def scratch(self) -> int:
        self.slots.append(None)
        return len(self.slots) - 1

    def new(self, value: ir.Value) -> int:
        self.slot_of[id(value)] = self.scratch()
        return self.slot_of[id(value)]

    def at(self, values: Sequence[ir.Value]) -> list[int]:
        return [self.slot_of[id(v)] for v in values]

    # --- regions and statements

    def region(self, region: ir.Region) -> list[Step]:
        return [step for stmt in region.body for step in self.statement(stmt)]

    def compile(self, stmt: ir.Stmt) -> Step | None:
        return _STEPS.get(stmt.row.name, _value)(self, stmt)

    def statement(self, stmt: ir.Stmt) -> list[Step]:
        made = self.compile(stmt)
        steps = [made] if made is not None else []
        if self.trace is not None:
            steps.append(partial(_traced, self.trace, stmt, Values(self)))
        return steps

    def fixed(self, stmt: ir.Stmt, value: Any) -> None:
        """A result that is known before any thread runs costs nothing while they do."""
        self.slots[self.new(stmt.outs[0])] = _converter(stmt.outs[0].type)(value)


def _traced(trace: Callable, stmt: ir.Stmt, values: Values, s: list) -> None:
    trace(s[THREAD], stmt, values)


def _memory(param: ir.Value, data: np.ndarray | None) -> _Memory:
    assert isinstance(param.type, Array)
    element, ndim = param.type.dtype, param.type.ndim
    assert isinstance(element, (Scalar, Composite))
    if data is None:
        data = np.empty((0,) * ndim + element.shape, element.numpy)
    if data.ndim != ndim + len(element.shape) or data.shape[ndim:] != element.shape or data.dtype != element.numpy:
        raise ValueError(f"{param.name}: {param.type} cannot be shape {data.shape} of {data.dtype}")
    return _Memory(data, param.name, ndim)


def _converter(type: Type) -> Callable[[Any], Any]:
    """Any representation of a value of `type` -> the one the interpreter holds."""
    if isinstance(type, Scalar):
        return type.numpy.type
    assert isinstance(type, Composite)

    def convert(value: Any) -> Small:
        data = np.array(value, type.numpy)
        data = np.full(type.shape, data) if data.ndim == 0 else data.reshape(type.shape)
        small = data.view(Small)
        small.type = type
        return small

    return convert


# --- rows that compute values


def _value(c: _Compiler, stmt: ir.Stmt) -> Step:
    row = stmt.row
    if row.whole is not None and isinstance(stmt.args[0].type, Composite):
        row = row.whole
    if row.expand is not None:
        return _linear(c, stmt, row)
    compute = row.meaning
    assert compute is not None, f"{row.name} has no meaning"
    if row.typed_by_attr:
        compute = partial(compute, attr=stmt.attr)
    args = c.at(stmt.args)
    if len(stmt.outs) != 1:
        return _several(compute, args, [c.new(o) for o in stmt.outs], [_converter(o.type) for o in stmt.outs])
    (result,) = stmt.outs
    out, type = c.new(result), result.type
    if isinstance(type, Scalar):
        return _scalar(compute, args, out, type.numpy.type)
    return _composite(compute, args, out, _converter(type))


def _linear(c: _Compiler, stmt: ir.Stmt, row: Row) -> Step:
    """A row written over components is written out once, as scalar statements, which then run like any others."""
    operands = [_opened(a) for a in stmt.args]
    opened = [
        (slot, [c.new(v) for v in operand])
        for slot, operand in zip(c.at(stmt.args), operands, strict=True)
        if isinstance(operand, list)
    ]
    outs = [o.type for o in stmt.outs]
    extra = {"attr": stmt.attr} if row.typed_by_attr else {}
    body, types = ir.Region(), [a.type for a in stmt.args]
    with ir.Builder(body).open():
        assert row.expand is not None
        made = row.expand(*operands, types=types, out=outs[0] if len(outs) == 1 else tuple(outs), **extra)
        results = [_components_of(r, t) for r, t in zip([made] if len(outs) == 1 else made, outs, strict=True)]
    c.kept.append((operands, body))
    inner = [made for s in body.body if (made := c.compile(s)) is not None]
    closed = [
        (c.new(out), c.at(parts), _converter(out.type), isinstance(out.type, Composite))
        for out, parts in zip(stmt.outs, results, strict=True)
    ]

    def step(s: list) -> None:
        for slot, parts in opened:
            s[parts[0] : parts[-1] + 1] = s[slot].ravel()
        for inside in inner:
            inside(s)
        for out, parts, convert, composite in closed:
            s[out] = convert([s[p] for p in parts] if composite else s[parts[0]])

    return step


def _opened(value: ir.Value) -> ir.Value | list[ir.Value]:
    type = value.type
    return [ir.Value(type.scalar) for _ in range(type.size)] if isinstance(type, Composite) else value


def _components_of(made: Any, type: Type) -> list[ir.Value]:
    """What `expand` returned as IR values; numbers among them become constants."""
    parts = made if isinstance(made, (list, tuple)) else [made]
    return [p if isinstance(p, ir.Value) else literal(type.scalar, p) for p in parts]  # type: ignore[attr-defined]


def _scalar(compute: Callable, args: list[int], out: int, kind: type) -> Step:
    if len(args) == 1:
        (a,) = args

        def unary(s: list) -> None:
            r = compute(s[a])
            s[out] = r if r.__class__ is kind else kind(r)

        return unary
    if len(args) == 2:
        a, b = args

        def binary(s: list) -> None:
            r = compute(s[a], s[b])
            s[out] = r if r.__class__ is kind else kind(r)

        return binary

    def step(s: list) -> None:
        r = compute(*[s[k] for k in args])
        s[out] = r if r.__class__ is kind else kind(r)

    return step


def _composite(compute: Callable, args: list[int], out: int, convert: Callable) -> Step:
    def step(s: list) -> None:
        s[out] = convert(compute(*[s[a] for a in args]))

    return step


def _several(compute: Callable, args: list[int], outs: list[int], converts: list[Callable]) -> Step:
    def step(s: list) -> None:
        results = compute(*[s[a] for a in args])
        for out, convert, result in zip(outs, converts, results if outs else (), strict=True):
            s[out] = convert(result)

    return step


def _component_at(c: _Compiler, stmt: ir.Stmt) -> Step:
    """extract_at(v, *i) and insert_at(v, *i, new): the index is known only now, and may count from the end."""
    v, *rest = c.at(stmt.args)
    extracts = stmt.row.name == "extract_at"
    indices, new = (rest, v) if extracts else (rest[:-1], rest[-1])
    shape, name = stmt.args[0].type.shape, stmt.args[0].name or str(stmt.args[0].type)  # type: ignore[attr-defined]
    out, convert = c.new(stmt.outs[0]), _converter(stmt.outs[0].type)

    def step(s: list) -> None:
        index = tuple([int(s[i]) for i in indices])
        for i, n in zip(index, shape, strict=False):
            if not -n <= i < n:
                raise _outside(c.kernel, stmt, name, s[THREAD], index, shape)
        if extracts:
            s[out] = convert(s[v][index])
        else:
            s[out] = made = convert(s[v])
            made[index] = s[new]

    return step


def _const(c: _Compiler, stmt: ir.Stmt) -> None:
    c.fixed(stmt, stmt.attr)


def _tid(c: _Compiler, stmt: ir.Stmt) -> Step | None:
    axis, out = stmt.attr.axis, c.new(stmt.outs[0])
    if axis >= len(c.dims):
        return c.fixed(stmt, 0)

    def step(s: list) -> None:
        s[out] = np.int32(s[THREAD][axis])

    return step


def _dim(c: _Compiler, stmt: ir.Stmt) -> None:
    c.fixed(stmt, c.dims[stmt.attr.axis] if stmt.attr.axis < len(c.dims) else 1)


# --- memory


def _shape(c: _Compiler, stmt: ir.Stmt) -> None:
    c.fixed(stmt, c.arrays[id(stmt.args[0])].shape[stmt.attr])


def _components(c: _Compiler, stmt: ir.Stmt) -> None:
    memory = c.arrays[id(stmt.args[0])]
    c.arrays[id(stmt.outs[0])] = _Memory(memory.data, memory.name, memory.data.ndim)


def _outside(kernel: str, stmt: ir.Stmt, name: str, thread: tuple, index: tuple, shape: tuple) -> BoundsError:
    shown = ", ".join(map(str, index))
    at: object = thread if len(thread) != 1 else next(iter(thread))
    line = f" at line {stmt.where.line}" if stmt.where else ""
    return BoundsError(
        f"Kernel {kernel!r}, array {name!r}: thread {at} uses {name}[{shown}]{line}, outside shape {shape}",
        slug="bounds", where=stmt.where,
        why=f"each index must be at least 0 and less than the extent of {name} along its axis",
        instead=f"an `if` around this line, or a launch whose dim fits {name}.shape",
    )  # fmt: skip


def _as_written(index: ir.Value) -> ir.Value:
    """An index before it was counted from the end: what the user knows it by."""
    stmt = index.stmt
    return stmt.args[0] if stmt is not None and stmt.row.name == "wrap" else index


def _address(c: _Compiler, stmt: ir.Stmt) -> tuple[np.ndarray, Callable[[list], Any], int]:
    """The array's data, a closure that gives the checked index, and how many arguments the address takes."""
    memory = c.arrays[id(stmt.args[0])]
    indices, shape = c.at(stmt.args[1 : 1 + memory.ndim]), memory.shape
    written = c.at([_as_written(i) for i in stmt.args[1 : 1 + memory.ndim]])

    def fail(s: list) -> BoundsError:
        return _outside(c.kernel, stmt, memory.name, s[THREAD], tuple(int(s[i]) for i in written), shape)

    if memory.ndim == 1:
        (at,), (extent,) = indices, shape

        def one(s: list) -> int:
            i = int(s[at])
            if 0 <= i < extent:
                return i
            raise fail(s)

        return memory.data, one, 2

    def many(s: list) -> tuple[int, ...]:
        index = tuple([int(s[i]) for i in indices])
        for i, n in zip(index, shape, strict=True):
            if not 0 <= i < n:
                raise fail(s)
        return index

    return memory.data, many, 1 + memory.ndim


def _element(stmt: ir.Stmt) -> Callable[[Any], Any]:
    """Reading a cell: a scalar is a copy by itself, a composite must be copied out of the array."""
    array = stmt.args[0].type
    assert isinstance(array, Array)
    return _converter(array.dtype)


def _load(c: _Compiler, stmt: ir.Stmt) -> Step:
    data, address, _ = _address(c, stmt)
    out, copy = c.new(stmt.outs[0]), _element(stmt)

    def step(s: list) -> None:
        s[out] = copy(data[address(s)])

    return step


def _store(c: _Compiler, stmt: ir.Stmt) -> Step:
    data, address, used = _address(c, stmt)
    (value,) = c.at(stmt.args[used:])

    def step(s: list) -> None:
        data[address(s)] = s[value]

    return step


def _update(combine: Callable[[Any, Any], Any]) -> Callable[[_Compiler, ir.Stmt], Step]:
    """Read, combine, write; the old value is the result where the row has one."""

    def compile(c: _Compiler, stmt: ir.Stmt) -> Step:
        data, address, used = _address(c, stmt)
        (value,), copy = c.at(stmt.args[used:]), _element(stmt)
        out = c.new(stmt.outs[0]) if stmt.outs else c.scratch()

        def step(s: list) -> None:
            i = address(s)
            s[out] = old = copy(data[i])
            data[i] = combine(old, s[value])

        return step

    return compile


def _cas(c: _Compiler, stmt: ir.Stmt) -> Step:
    data, address, used = _address(c, stmt)
    expected, new = c.at(stmt.args[used:])
    out, copy = c.new(stmt.outs[0]), _element(stmt)

    def step(s: list) -> None:
        i = address(s)
        s[out] = old = copy(data[i])
        if np.all(old == s[expected]):
            data[i] = s[new]

    return step


# --- the private copy of a replay


def _log_store(c: _Compiler, stmt: ir.Stmt) -> Step:
    data, address, used = _address(c, stmt)
    (value,), copy = c.at(stmt.args[used:]), _element(stmt)

    def step(s: list) -> None:
        i = address(s)
        s[LOG].append((data, i, copy(data[i])))
        data[i] = s[value]

    return step


def _mark(c: _Compiler, stmt: ir.Stmt) -> Step:
    out = c.new(stmt.outs[0])

    def step(s: list) -> None:
        s[out] = np.int64(len(s[LOG]))

    return step


def _rollback(c: _Compiler, stmt: ir.Stmt) -> Step:
    (mark,) = c.at(stmt.args)

    def step(s: list) -> None:
        log = s[LOG]
        while len(log) > s[mark]:
            data, i, old = log.pop()
            data[i] = old

    return step


# --- stacks and printing


def _stack(c: _Compiler, stmt: ir.Stmt) -> Step:
    out = c.new(stmt.outs[0])

    def step(s: list) -> None:
        s[out] = []

    return step


def _push(c: _Compiler, stmt: ir.Stmt) -> Step:
    stack, value = c.at(stmt.args)
    capacity = stmt.args[0].type.capacity  # type: ignore[attr-defined]

    def step(s: list) -> None:
        if len(s[stack]) == capacity:
            raise RuntimeError(f"internal error: a stack of capacity {capacity} overflows ({stmt.where})")
        s[stack].append(s[value])

    return step


def _pop(c: _Compiler, stmt: ir.Stmt) -> Step:
    (stack,), out = c.at(stmt.args), c.new(stmt.outs[0])

    def step(s: list) -> None:
        if not s[stack]:
            raise RuntimeError(f"internal error: an empty stack is popped ({stmt.where})")
        s[out] = s[stack].pop()

    return step


_LENGTH = re.compile(r"(%[-+ #0]*\d*(?:\.\d+)?)(?:hh|h|ll|l|z|j|t)(?=[a-zA-Z])")


def _printf(c: _Compiler, stmt: ir.Stmt) -> Step:
    format, args = _LENGTH.sub(r"\1", stmt.attr[0]), c.at(stmt.args)

    def step(s: list) -> None:
        values = tuple(s[a].item() if isinstance(s[a], np.generic) else s[a] for a in args)
        sys.stdout.write(format % values)

    return step


# --- control flow


def _if(c: _Compiler, stmt: ir.Stmt) -> Step:
    (condition,) = c.at(stmt.args)
    bodies = [c.region(r) for r in stmt.regions]
    results = [c.at(r.results) for r in stmt.regions]
    outs = [c.new(o) for o in stmt.outs]
    taken = [(body, list(zip(outs, found, strict=True))) for body, found in zip(bodies, results, strict=True)]

    def step(s: list) -> None:
        body, moves = taken[0] if s[condition] else taken[1]
        for inner in body:
            inner(s)
        for out, result in moves:
            s[out] = s[result]

    return step


def _turn(c: _Compiler, region: ir.Region, breaks: bool) -> Callable[[list, list], tuple[Any, list]]:
    """One turn of a loop: carried values in, (go on?, carried values out)."""
    params = [c.new(p) for p in region.params]
    body, results = c.region(region), c.at(region.results)

    def turn(s: list, carried: list) -> tuple[Any, list]:
        for param, value in zip(params, carried, strict=True):
            s[param] = value
        for inner in body:
            inner(s)
        found = [s[r] for r in results]
        return (found[0], found[1:]) if breaks else (True, found)

    return turn


def _for(c: _Compiler, stmt: ir.Stmt) -> Step:
    start, stop, stride, *init = c.at(stmt.args)
    kind = stmt.args[0].type.numpy.type  # type: ignore[attr-defined]
    turn = _turn(c, stmt.regions[0], stmt.attr.breaks)
    outs = [c.new(o) for o in stmt.outs]

    def step(s: list) -> None:
        first, last, by = int(s[start]), int(s[stop]), int(s[stride])
        carried = [s[i] for i in init]
        for i in range(first, last, by) if by else ():
            go, carried = turn(s, [kind(i), *carried])
            if not go:
                break
        for out, value in zip(outs, carried, strict=True):
            s[out] = value

    return step


def _while(c: _Compiler, stmt: ir.Stmt) -> Step:
    init = c.at(stmt.args)
    test = _turn(c, stmt.regions[0], breaks=True)
    turn = _turn(c, stmt.regions[1], stmt.attr.breaks)
    outs = [c.new(o) for o in stmt.outs]

    def step(s: list) -> None:
        carried, go = [s[i] for i in init], True
        while go and test(s, carried)[0]:
            go, carried = turn(s, carried)
        for out, value in zip(outs, carried, strict=True):
            s[out] = value

    return step


def _call(c: _Compiler, stmt: ir.Stmt) -> Step:
    """A func with its own adjoint means its body; its parameters are the arguments under other names."""
    (region,) = stmt.regions
    for param, arg in zip(region.params, stmt.args, strict=True):
        names: dict = c.arrays if isinstance(arg.type, Array) else c.slot_of
        names[id(param)] = names[id(arg)]
    body, results = c.region(region), c.at(region.results)
    outs = [c.new(o) for o in stmt.outs]
    compare = _replayed(c, stmt, results)

    def step(s: list) -> None:
        for inner in body:
            inner(s)
        if compare is not None:
            compare(s)
        for out, result in zip(outs, results, strict=True):
            s[out] = s[result]

    return step


def _replayed(c: _Compiler, stmt: ir.Stmt, results: list[int]) -> Step | None:
    """Does the func_replay return what the func returned; None where there is none, or it writes to memory."""
    custom = stmt.attr
    if (
        custom is None
        or custom.replay is None
        or any(s.row.name == "store" or s.row in ATOMICS for s in ir.walk(custom.replay))
    ):
        return None
    for param, arg in zip(custom.replay.params, stmt.args, strict=True):
        names: dict = c.arrays if isinstance(arg.type, Array) else c.slot_of
        names[id(param)] = names[id(arg)]
    trace, c.trace = c.trace, None  # these are no statements of the kernel
    body, again = c.region(custom.replay), c.at(custom.replay.results)
    c.trace = trace

    def step(s: list) -> None:
        for inner in body:
            inner(s)
        for one, other in zip(results, again, strict=True):
            if np.asarray(s[one]).tobytes() != np.asarray(s[other]).tobytes():
                raise GradientError(
                    f"the func_replay of `{custom.func.key}` returned {s[other]}, the func {s[one]}.",
                    slug="replay-differs", where=stmt.where,
                    why="The reverse pass would differentiate at another value than the launch had.",
                )  # fmt: skip

    return step


def _smaller(old: Any, new: Any) -> Any:
    return np.where(new < old, new, old)


def _larger(old: Any, new: Any) -> Any:
    return np.where(new > old, new, old)


_STEPS: dict[str, Callable[[_Compiler, ir.Stmt], Step | None]] = {
    "const": _const, "tid": _tid, "dim": _dim, "if": _if, "for": _for, "while": _while, "call": _call,
    "stack": _stack, "push": _push, "pop": _pop, "printf": _printf,
    "load": _load, "store": _store, "components": _components, "shape": _shape,
    "accumulate": _update(lambda old, new: old + new), "atomic_add": _update(lambda old, new: old + new),
    "atomic_sub": _update(lambda old, new: old - new), "atomic_min": _update(_smaller),
    "atomic_max": _update(_larger), "atomic_exch": _update(lambda old, new: new), "atomic_cas": _cas,
    "log_store": _log_store, "mark": _mark, "rollback": _rollback,
    "extract_at": _component_at, "insert_at": _component_at,
}  # fmt: skip
