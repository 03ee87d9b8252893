"""IR -> text: the statements of one thread as a C subset that is also CUDA C++; `c` and `cuda` put a loop around it.

A line per statement, in the user's names. Every SSA value becomes one C variable, what a loop carries one mutable
variable. Constants are written in place, with all digits. What a launch knows about its arrays (`Variant`) selects the
text of each access.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import Where
from ..ir import Function, Region, Stmt, Value, numeric, root, type_as, walk
from ..ops import control, memory as mem, scalar, vectors
from ..row import Row
from ..types import Array, Composite, Scalar, Stack, Tile, Type, bool_
from .c_names import CNames, literal, type_name, zero
from .components import CHOSEN, Expr, component
from .signature import BOUNDS, CLAIM, Signature, Variant, accesses, claims, conventions, logs
from .tiles import TileText

_WORD = re.compile(r"\w+")
_UNPACKED = re.compile(r"\s*const \w+ (\w+) = .*args(?:->|\.)")


@dataclass
class ArrayNames:
    """The C names of one array: pointer, extents, byte strides; `inner` is the component shape of a view."""

    param: str
    pointer: str
    type: Array
    shape: list[str]
    strides: list[str]
    contiguous: bool
    inner: tuple[int, ...] = ()


@dataclass
class StackText:
    """The C names of one stack; `data` is empty where the stack lives in the worker's byte stack."""

    type: Stack
    data: str = ""
    top: str = ""


@dataclass
class Body(TileText):
    """Writes the statements of one thread. `update` is the dialect's text of one read-modify-write,
    `product` its function around one of floats."""

    function: Function
    variant: Variant
    signature: Signature
    update: Callable[..., str]
    index: str = "int64_t"
    product: str = ""
    lines: list[str] = field(default_factory=list)
    helpers: dict[str, str] = field(default_factory=dict)
    depth: int = 1
    asks: bool = False  # may loops ask whether they are to stop
    asking: bool = field(default=False, init=False)  # does one
    leaving: bool = field(default=False, init=False)  # does a failure end the work

    def __post_init__(self) -> None:
        self.names = CNames()
        self.texts: dict[Value, str] = {}
        self.memory: dict[Value, ArrayNames] = {}
        self.stacks: dict[Value, StackText] = {}
        stmts = list(walk(self.function.body))
        used = accesses(stmts)
        self.access_ids = {id(s): i for i, s in enumerate(used)}
        self.line = 0
        self.written = {root(s.args[0]) for s in used if s.row.touches and s.row is not mem.LOAD}
        self.grows = any(isinstance(s.attr, Stack) and s.attr.capacity is None for s in stmts)
        self.logs = logs(stmts)
        pushes = any(s.row is control.PUSH for s in stmts)
        # may anything be reported in `status`
        self.fails = bool(self.variant.checked) or self.logs or pushes or claims(stmts)
        self.notes = bool(conventions(stmts))
        self.begin_tiles(stmts)
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
            self.memory[p] = ArrayNames(p.name, name, p.type, shape, strides, p.name in self.variant.contiguous)

    def _name_axes(self, stmts: list[Stmt]) -> None:
        rank = self.function.rank
        wishes = [f"t{k}" for k in range(rank)]
        for stmt in reversed([s for s in stmts if s.row is control.TID]):
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
            out.append((f"{const}{type_name(type_as(p, Array).dtype)} *{restrict}{name}", f"args->{name}.p"))
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
        words = Counter(_WORD.findall("\n".join(self.lines)))
        return [line for line in self.lines if (m := _UNPACKED.match(line)) is None or words[m[1]] > 1]

    @property
    def thread(self) -> str:
        """The linear index of this thread."""
        text = f"(int64_t){self.axes[0]}"
        for axis, dim in zip(self.axes[1:], self.dims[1:], strict=True):
            text = f"({text} * {dim} + {axis})"
        return text

    # -- lines

    @contextmanager
    def block(self, head: str = "", behind: bool = False):
        """Braces around what is written inside, their head `behind` the line above."""
        if behind:
            self.lines[-1] += f" {head} {{"
        else:
            self.put(f"{head} {{".lstrip())
        self.depth += 1
        kept = self.scope()
        yield
        self.unscope(kept)
        self.depth -= 1
        self.put("}")

    def helper(self, name: str, text: str) -> str:
        self.helpers.setdefault(name, text)
        return name

    # -- statements

    def region(self, region: Region) -> None:
        if self.tiled:
            return self.tiled_region(region)
        for stmt in region.body:
            self.statement(stmt)

    def statement(self, stmt: Stmt) -> None:
        self._mark(stmt.where)
        method = _METHODS.get(stmt.row)
        if method is not None:
            getattr(self, method)(stmt)
        elif stmt.row in mem.ATOMICS:
            self._atomic(stmt)
        else:
            self.value_row(stmt)

    def _mark(self, where: Where | None) -> None:
        if where is not None and where.line != self.line:
            self.line = where.line
            text = where.text.strip().replace("*/", "* /").replace("/*", "/ *").replace("\\", "/")
            self.put(f"/* {where.line}: {text} */" if text else f"/* line {where.line} */")

    def value_row(self, stmt: Stmt) -> None:
        row, out = stmt.row, stmt.outs
        assert len(out) == 1, f"row {row.name} makes {len(out)} values"
        if self.tiled and (row.block is not None or isinstance(out[0].type, Tile)):
            return self.tile_row(stmt)
        types = [a.type for a in stmt.args]
        if row.fills:
            (whole,) = types
            made = self.names.new(out[0].name or "t")
            self.texts[out[0]] = made
            suffix = "f" if numeric(whole).scalar.bits == 32 else ""
            self.put(f"{type_name(out[0].type)} {made};")
            return self.put(f"{row.fills}{suffix}({self.text(stmt.args[0])}.c, {made}.c);")
        if row.expand is not None:
            text = self._expand(stmt, types)
        elif isinstance(out[0].type, Composite) and out[0].type.size > CHOSEN:
            return self.each_component(stmt, self._component_text(stmt, types, "wb_c"))
        elif isinstance(out[0].type, Composite):
            parts = [self._component_text(stmt, types, k) for k in range(out[0].type.size)]
            text = "{{" + ", ".join(parts) + "}}"
        else:
            text = self.scalar_text(row, types, out[0].type, [self.text(a) for a in stmt.args], stmt.attr)
        if text.startswith("(") and text.endswith(")") and _closes_at_end(text):
            text = text[1:-1]
        self.declare(out[0], text)

    def _component_text(self, stmt: Stmt, types: list[Type], k: int | str) -> str:
        texts = [component(self.text(a), a.type, k) for a in stmt.args]
        scalars = [numeric(t).scalar for t in types]
        return self.scalar_text(stmt.row, scalars, numeric(stmt.outs[0]).scalar, texts, stmt.attr)

    def _expand(self, stmt: Stmt, types: list[Type]) -> str:
        out = stmt.outs[0].type
        args = [self._parts(a) for a in stmt.args]
        assert stmt.row.expand is not None
        result = stmt.row.expand(*args, types=types, out=out, **stmt.row.extra(stmt.attr))
        if isinstance(out, Composite):
            return "{{" + ", ".join(self._expr_text(r, out.scalar) for r in result) + "}}"
        return self._expr_text(result, type_as(out, Scalar))

    def _parts(self, value: Value) -> Any:
        text = self.text(value)
        if isinstance(value.type, Composite):
            return [Expr(self, f"{text}.c[{k}]", value.type.scalar) for k in range(value.type.size)]
        return Expr(self, text, type_as(value, Scalar))

    def _expr_text(self, result: Expr | float | np.generic, type: Scalar) -> str:
        return result.text if isinstance(result, Expr) else literal(type, result)

    # -- constants, grid

    def row_const(self, stmt: Stmt) -> None:
        out = stmt.outs[0]
        if isinstance(out.type, Tile):
            self.splats[out] = literal(out.type.scalar, stmt.attr)
        elif isinstance(out.type, Composite):
            if not np.any(stmt.attr) and not np.any(np.signbit(stmt.attr)):
                return self.declare(out, "{{0}}")
            parts = np.broadcast_to(np.ravel(np.array(stmt.attr, dtype=object)), (out.type.size,))
            self.declare(out, "{{" + ", ".join(literal(out.type.scalar, p) for p in parts) + "}}")
        else:
            self.texts[out] = literal(type_as(out, Scalar), stmt.attr)

    def row_tid(self, stmt: Stmt) -> None:
        self.texts[stmt.outs[0]] = self.axes[stmt.attr.axis] if stmt.attr.axis < self.function.rank else "0"

    def row_dim(self, stmt: Stmt) -> None:
        self.texts[stmt.outs[0]] = self.dims[stmt.attr.axis] if stmt.attr.axis < self.function.rank else "1"

    # -- control flow

    def row_if(self, stmt: Stmt) -> None:
        names = self.branch_names(stmt)
        then, other = stmt.regions
        lent = self.lend(stmt)
        with self.block(f"if ({self.text(stmt.args[0])})"):
            self._branch(then, names, lent)
        if other.body or other.results:
            with self.block("else", behind=True):
                self._branch(other, names, lent)
        self._made(stmt.outs, names)

    def _made(self, outs: Sequence[Value], names: list[str]) -> None:
        for out, name in zip(outs, names, strict=True):
            self.texts[out] = name
            if isinstance(out.type, Tile):
                self.fixed.discard(name)
                self.own(out, name)

    def _branch(self, region: Region, names: list[str], lent: Iterable[Value] = ()) -> None:
        self.owned.update(dict.fromkeys(lent, region))
        self.region(region)
        self.assign_tiles(names, region.results)
        for name, value in zip(names, region.results, strict=True):
            if not isinstance(value.type, Tile):
                self.put(f"{name} = {self.text(value)};")

    def _carry(self, stmt: Stmt, init: Sequence[Value], params: Sequence[Value]) -> list[str]:
        """Mutable variables for what a loop carries; the loop's results are read from them afterwards."""
        names = []
        for out, value, param in zip(stmt.outs, init, params, strict=True):
            if isinstance(value.type, Tile):
                names.append(self.carry_tile(stmt, value, param.name or out.name, init))
                self.texts[param] = names[-1]
                self.holder[names[-1]] = param
                self.owned[param] = stmt.regions[-1]
                continue
            names.append(self.variable(value.type, self.text(value), param.name or out.name or "c"))
            self.texts[param] = self.texts[out] = names[-1]
        return names

    def _next(self, names: list[str], results: Sequence[Value]) -> None:
        """Parallel assignment of carried variables: a result that reads one assigned before it uses a temporary."""
        self.assign_tiles(names, results)
        scalars = [(n, r) for n, r in zip(names, results, strict=True) if not isinstance(r.type, Tile)]
        moves = [(n, t, r) for n, r in scalars if n != (t := self.text(r))]
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
        inside = nested(stmt) or stmt.attr.breaks
        with self.turns(start, stop, step, region.params[0]):
            if inside:
                self.ask()
            self._turn(stmt, region, names)
        self._made(stmt.outs, names)
        if not inside:
            self.count(stmt)

    def count(self, loop: Stmt) -> None:
        """Add the turns of a loop without constant count to `wb_turn`, which decides when the stop flag is polled."""
        if self.asks and loop.attr.trips is None:
            self.asking = True
            self.put(f"wb_turn += wb_turns({', '.join(self.text(v) for v in loop.args[:3])});")

    def ask(self) -> None:
        """Emit a poll of the stop flag, in loops that may not end."""
        if self.asks:
            self.asking = True
            self.put("WB_ASK")

    @contextmanager
    def turns(self, start: Value, stop: Value, step: Value, counter: Value):
        """The head of a `for`; inside, `counter` is the number of the turn."""
        i = self.names.new(counter.name or "i")
        self.texts[counter] = i
        with self.block(self._for_head(start, stop, step, i)):
            if self._unit(step) == 0:
                first = self.text(start)
                T = type_as(start, Scalar).c
                self.put(f"{T} {i} = ({T})({first} + {i}_k * (int64_t){self.text(step)});")
            yield

    @staticmethod
    def _unit(step: Value) -> int:
        """1 or -1 where the step is that constant, else 0: only then the loop variable cannot overflow."""
        made = step.stmt
        return int(made.attr) if made is not None and made.row is control.CONST and made.attr in (1, -1) else 0

    def _for_head(self, start: Value, stop: Value, step: Value, i: str) -> str:
        a, b, s = self.text(start), self.text(stop), self.text(step)
        unit = self._unit(step)
        if unit:
            compare, move = ("<", f"++{i}") if unit == 1 else (">", f"--{i}")
            return f"for ({type_as(start, Scalar).c} {i} = {a}; {i} {compare} {b}; {move})"
        turns = self.names.new(f"{i}_turns")
        self.names.used.add(f"{i}_k")
        self.put(f"const int64_t {turns} = wb_turns({a}, {b}, {s});")
        return f"for (int64_t {i}_k = 0; {i}_k < {turns}; ++{i}_k)"

    def row_while(self, stmt: Stmt) -> None:
        test, body = stmt.regions
        names = self._carry(stmt, stmt.args, test.params)
        for param, name in zip(body.params, names, strict=True):
            self.texts[param] = name
            if isinstance(param.type, Tile):
                self.holder[name], self.owned[param] = param, body
        with self.block("for (;;)"):
            self.region(test)
            self.put(f"if (!({self.text(test.results[0])})) break;")
            self.ask()
            self._turn(stmt, body, names)
        self._made(stmt.outs, names)

    def row_call(self, stmt: Stmt) -> None:
        (region,) = stmt.regions
        for param, value in zip(region.params, stmt.args, strict=True):
            table: dict[Value, Any]
            for table in (self.texts, self.memory, self.stacks, self.splats):
                if value in table:
                    table[param] = table[value]
        names = self.branch_names(stmt)
        with self.block():
            self._branch(region, names)
        self._made(stmt.outs, names)

    # -- memory

    def row_components(self, stmt: Stmt) -> None:
        m = self.memory[stmt.args[0]]
        inner = numeric(m.type.dtype).shape
        self.memory[stmt.outs[0]] = ArrayNames(m.param, m.pointer, m.type, m.shape, m.strides, m.contiguous, inner)

    def row_shape(self, stmt: Stmt) -> None:
        text = self._extents(self.memory[stmt.args[0]])[stmt.attr]
        self.texts[stmt.outs[0]] = text if text.isdigit() else f"(int32_t){text}" if self.index == "int64_t" else text

    @staticmethod
    def _extents(m: ArrayNames) -> list[str]:
        return [*m.shape, *map(str, m.inner)]

    def place(self, m: ArrayNames, indices: list[str]) -> str:
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
    def _inside(self, stmt: Stmt, m: ArrayNames, indices: list[str]):
        """Guard what is written in the block by the bounds, where this variant checks them."""
        if not self.checks(stmt):
            yield
            return
        extents = self._extents(m)
        tests = [f"wb_in({i}, {n})" for i, n in zip(indices, extents, strict=True)]
        with self.block(f"if ({' && '.join(tests)})"):
            yield
        self.lines[-1] += f" else {self.outside(stmt, indices, extents)}"

    def checks(self, stmt: Stmt) -> bool:
        """True if this variant tests the index, or the claim, of a statement."""
        return self.access_ids[id(stmt)] in self.variant.checked

    def outside(self, stmt: Stmt, indices: Sequence[str], extents: Sequence[object]) -> str:
        """The C statement that reports an index outside of these extents."""
        fill = ["0"] * (6 - len(indices))
        numbers = ", ".join([*indices, *fill, *map(str, extents), *fill])
        return self.fail(f"{BOUNDS}, {self.access_ids[id(stmt)]}, {self.thread}, {len(indices)}, {numbers}")

    def fail(self, failure: str) -> str:
        """The C statement that reports a failure; threads that this worker has not begun are not run."""
        if not self.asks or self.logs:  # a log must be undone
            return f"wb_fail(status, {failure});"
        self.leaving = True
        return f"{{ wb_fail(status, {failure}); goto wb_end; }}"

    def target_of(self, stmt: Stmt, values: int) -> tuple[ArrayNames, list[str], list[str]]:
        count = len(stmt.args) - values
        m = self.memory[stmt.args[0]]
        return m, [self._index(a) for a in stmt.args[1:count]], [self.text(a) for a in stmt.args[count:]]

    def _index(self, value: Value) -> str:
        """An index of memory: a number beside that of the thread in 64 bits, or compilers take it that it may wrap."""
        made, far = value.stmt, 1 << 16 if self.variant.index32 else 1
        if self.index == "int64_t" and made is not None and made.row in (scalar.ADD, scalar.SUB):
            of, by = (a.stmt for a in made.args)
            if of and by and of.row is control.TID and by.row is control.CONST and abs(by.attr) <= far:
                return f"((int64_t){'+-'[made.row is scalar.SUB].join(map(self.text, made.args))})"
        return self.text(value)

    def row_load(self, stmt: Stmt) -> None:
        m, indices, _ = self.target_of(stmt, 0)
        if not self.checks(stmt):
            self.declare(stmt.outs[0], self.loaded(m, indices))
            return
        self.declare(stmt.outs[0], zero(stmt.outs[0].type))
        with self._inside(stmt, m, indices):
            self.put(f"{self.text(stmt.outs[0])} = {self.loaded(m, indices)};")

    def loaded(self, m: ArrayNames, indices: list[str]) -> str:
        """The C expression of an element."""
        return self.place(m, indices)

    def row_store(self, stmt: Stmt) -> None:
        m, indices, (value,) = self.target_of(stmt, 1)
        with self._inside(stmt, m, indices):
            self.put(self.stored(m, indices, value))

    def stored(self, m: ArrayNames, indices: list[str], value: str) -> str:
        """The C statement that sets an element."""
        return f"{self.place(m, indices)} = {value};"

    def row_log_store(self, stmt: Stmt) -> None:
        m, indices, (value,) = self.target_of(stmt, 1)
        with self._inside(stmt, m, indices):
            place, size = self.place(m, indices), f"sizeof({type_name(stmt.args[-1].type)})"
            self.put(f"if (wb_keep(&wb_log, &{place}, {size})) {place} = {value}; else {self._full(stmt)}")

    def row_mark(self, stmt: Stmt) -> None:
        self.declare(stmt.outs[0], "wb_mark(&wb_log)")

    def row_rollback(self, stmt: Stmt) -> None:
        self.put(f"wb_rollback(&wb_log, {self.text(stmt.args[0])});")

    def row_accumulate(self, stmt: Stmt) -> None:
        m, indices, (value,) = self.target_of(stmt, 1)
        place, type = self.place(m, indices), stmt.args[-1].type
        with self._inside(stmt, m, indices):
            if m.param in self.variant.atomic:
                self._update(stmt, mem.ATOMIC_ADD, place, type, [value], "")
            elif isinstance(type, Composite):
                self.put(f"for (int32_t wb_c = 0; wb_c < {type.size}; ++wb_c) {place}.c[wb_c] += {value}.c[wb_c];")
            else:
                wide, T = type_as(type, Scalar).bits >= 32, type_as(type, Scalar).c
                self.put(f"{place} += {value};" if wide else f"{place} = ({T})({place} + {value});")

    def _atomic(self, stmt: Stmt) -> None:
        m, indices, values = self.target_of(stmt, 2 if stmt.row is mem.ATOMIC_CAS else 1)
        out = stmt.outs[0]
        self.declare(out, zero(out.type))
        with self._inside(stmt, m, indices):
            self._update(stmt, stmt.row, self.place(m, indices), out.type, values, self.text(out))

    def _update(self, stmt: Stmt, row: Row, place: str, type: Type, values: list[str], old: str) -> None:
        """One read-modify-write, component by component; `old` receives what was there."""
        scalar = numeric(type).scalar
        shared = self.memory[stmt.args[0]].param in self.variant.atomic
        name = f"wb_{row.name if shared else row.name.replace('atomic', 'plain')}_{scalar.name}"
        self.helper(name, self.update(name, row, scalar, shared, stmt.where))
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
        if isinstance(stmt.args[1].type, Tile):
            return self.push_tile(stmt)
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
        if isinstance(out.type, Tile):
            return self.pop_tile(stmt)
        self.declare(out, zero(out.type))
        name, type = self.text(out), type_name(out.type)
        if stack.data:
            self.put(f"if ({stack.top} > 0) {name} = {stack.data}[--{stack.top}];")
        else:
            self.put(f"if (wb_left(&wb_stack, sizeof({type}))) WB_POP({type}, {name});")

    # -- printing, claims

    def row_assert(self, stmt: Stmt) -> None:
        if isinstance(stmt.attr, control.Convention):
            self.note(self.text(stmt.args[0]), min(stmt.attr.number, 31))
        elif self.checks(stmt) or stmt.attr.always:
            failure = f"{CLAIM}, {self.access_ids[id(stmt)]}, {self.thread}, {', '.join(['0'] * 13)}"
            self.put(f"if (!({self.text(stmt.args[0])})) wb_fail(status, {failure});")

    def note(self, holds: str, bit: int) -> None:
        """Note a convention in a variable of the worker: without a branch, so that compilers still vectorise."""
        self.put(f"wb_noted |= {holds} ? 0 : {1 << bit}u;")

    def row_printf(self, stmt: Stmt) -> None:
        def conversion(flags: str, kind: str) -> str:
            return f"%{flags}{'ll' * (kind in 'diuxXo')}{kind}"

        text, kinds = control.printed(stmt.attr[0], conversion)
        parts = [component(self.text(a), a.type, k) for a in stmt.args for k in range(numeric(a).size)]
        values = "".join(f", ({_PRINTED[k]})({p})" for k, p in zip(kinds, parts, strict=True))
        self.put(f"printf({_c_string(text)}{values});")


# How statements of these rows are written; those on a GPU are partly written otherwise.
_METHODS = {
    control.CONST: "row_const",
    control.TID: "row_tid",
    control.DIM: "row_dim",
    control.IF: "row_if",
    control.FOR: "row_for",
    control.EACH: "row_each",
    control.WHILE: "row_while",
    control.CALL: "row_call",
    mem.COMPONENTS: "row_components",
    mem.SHAPE: "row_shape",
    mem.LOAD: "row_load",
    mem.STORE: "row_store",
    mem.LOG_STORE: "row_log_store",
    mem.MARK: "row_mark",
    mem.ROLLBACK: "row_rollback",
    mem.ACCUMULATE: "row_accumulate",
    control.STACK: "row_stack",
    control.PUSH: "row_push",
    control.POP: "row_pop",
    control.PRINTF: "row_printf",
    control.ASSERT: "row_assert",
    **dict.fromkeys(vectors.AT_RUN_TIME, "row_component"),
}


_PRINTED = {"d": "long long", "u": "unsigned long long", "f": "double", "c": "int"}


def nested(loop: Stmt) -> bool:
    """True for a `for` of many turns with loops in them, or of turns that are counted in more than 32 bits."""
    if loop.attr.trips is not None and loop.attr.trips < 1000:
        return False
    loops = any(s.row in (control.FOR, control.WHILE) for s in walk(loop.regions[0]))
    return loops or numeric(loop.args[0]).scalar.bits > 32


def _c_string(text: str) -> str:
    out = "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\?*' else f"\\{b:03o}" for b in text.encode())
    return f'"{out}"'


def _closes_at_end(text: str) -> bool:
    """True if the last character closes the first parenthesis."""
    if text.find(")") == len(text) - 1 and text.startswith("("):
        return True
    depth = 0
    for k, ch in enumerate(text):
        depth += (ch == "(") - (ch == ")")
        if depth == 0:
            return k == len(text) - 1
    return False
