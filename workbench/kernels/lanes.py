"""Lanes: threads taken a block at a time through a loop that they all run alike, so that C compilers can vectorise it.

The one idea: in `for j in range(n)` with the same bounds for every thread, the loop over the threads of a block can be
the inner one. Each thread still does its own statements in their own order: every value is what it would be, to the
last bit. Only sums into a cell that all threads of a block share are formed apart, pairwise, and added at once.
A function takes this form when nothing in it could tell the difference or keep a compiler from using it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .emit import MATH1, MATH2, Body, Variant, type_name
from .ir import Function, Region, Stmt, Value, root, walk
from .ops import control
from .ops import memory as rows
from .ops.row import Effect
from .types import Array, Composite, Type, is_float

_NAMES = (control.CONST, control.TID, control.DIM, rows.SHAPE, rows.COMPONENTS)
_CALLS = {*MATH1, *MATH2} - {"sqrt", "fabs", "floor", "ceil", "trunc", "rint", "nearbyint", "fmin", "fmax", "copysign"}
_ADDS = (rows.ACCUMULATE, rows.ATOMIC_ADD)
_NO = {"while", "stack", "push", "pop", "log_store", "mark", "rollback", "printf", "call"}
BLOCK_BYTES = 512  # of the widest float of a block: a sum over the block costs little beside it


@dataclass(eq=False)
class Lanes:
    """How the statements of a thread fall apart: plain stretches, and loops that all threads run alike."""

    parts: list[list[Stmt] | Stmt]
    uniform: set[Value]
    width: int


def lanes(function: Function, variant: Variant) -> Lanes | None:
    """The form in blocks, or None where it does not apply or would not pay."""
    if not variant.restrict or variant.check_bounds or variant.atomic or variant.inner is not None:
        return None
    if any(s.row.name in _NO or _returns(s, function) for s in walk(function.body)):
        return None
    uniform = _uniform(function)
    parts: list[list[Stmt] | Stmt] = [[]]
    for s in function.body.body:
        if s.row is control.FOR and all(v in uniform for v in s.args[:3]) and _fits(s, function, uniform):
            parts += [s, []]
        else:
            parts[-1].append(s)  # type: ignore[union-attr]
    if len(parts) == 1:
        return None
    sizes = [v.type.scalar.itemsize for s in walk(function.body) for v in s.outs if _floats(v.type)]  # type: ignore[attr-defined]
    return Lanes(parts, uniform, BLOCK_BYTES // max(sizes, default=4))


def _floats(type: Type) -> bool:
    return not isinstance(type, Array) and is_float(type)


def _returns(s: Stmt, function: Function) -> bool:
    """Does the statement hand out what an atomic found, or change memory otherwise than by plain stores and adds."""
    if s.row not in rows.ATOMICS:
        return False
    return s.row is not rows.ATOMIC_ADD or any(s.outs[0] in t.args for t in walk(function.body))


def _uniform(function: Function) -> set[Value]:
    """Values that are the same in all threads, as far as constants, numbers of the launch and loops can tell."""
    found = {p for p in function.params if not isinstance(p.type, Array)}

    def see(region: Region) -> None:
        for s in region.body:
            if s.row in (control.CONST, control.DIM, rows.SHAPE):
                found.update(s.outs)
            elif s.row is control.FOR and all(v in found for v in s.args[:3]):
                found.add(s.regions[0].params[0])
            elif s.row.effect is Effect.PURE and s.args and not s.regions and all(v in found for v in s.args):
                found.update(s.outs)
            for inner in s.regions:
                see(inner)

    see(function.body)
    return found - {v for s in walk(function.body) if s.row is control.TID for v in s.outs}


def _fits(loop: Stmt, function: Function, uniform: set[Value]) -> bool:
    """Can the turns of this loop be done for a block of threads at once."""
    if loop.attr is not None and loop.attr.breaks:
        return False
    written = {root(s.args[0]) for s in walk(function.body) if s.row.effect in (Effect.WRITES, Effect.ACCUMULATES)}
    some = False
    for s in loop.regions[0].body:
        if (
            s.regions
            or s.row.name in _CALLS
            or (s.row.name in ("div", "mod", "floordiv") and not _floats(s.outs[0].type))
        ):
            return False
        if s.row is rows.LOAD and (root(s.args[0]) in written or not _all(s.args[1:], uniform)):
            return False
        if s.row.effect in (Effect.WRITES, Effect.IO):
            return False
        if s.row.effect is Effect.ACCUMULATES and not (s.row in _ADDS and _all(s.args[1:-1], uniform)):
            return False
        some = some or any(_floats(v.type) and v not in uniform for v in s.outs)
    return some


def _all(values: tuple[Value, ...], found: set[Value]) -> bool:
    return all(v in found for v in values)


# ---- the text


def write(body: Body, form: Lanes, low: str, high: str) -> None:
    """The loop over the innermost axis, in blocks of threads."""
    at = body.names.new(f"{body.axes[-1]}_block")
    with body.block(f"for (int32_t {at} = {low}; {at} < {high}; {at} += {form.width})"):
        _Writer(body, form, at, high).write()


class _Writer:
    """Writes one block of threads. `kept`: the arrays that hold a value of each of them, per component."""

    def __init__(self, body: Body, form: Lanes, at: str, high: str):
        self.body, self.form, self.at = body, form, at
        self.lane, self.here = body.names.new("lane"), body.names.new("here")
        rest = f"{high} - {at}"
        body.put(f"const int32_t {self.here} = {rest} < {form.width} ? {rest} : {form.width};")
        self.kept: dict[Value, list[str]] = {}

    def write(self) -> None:
        later = self._used_later()
        for k, part in enumerate(self.form.parts):
            if isinstance(part, Stmt):
                self._loop(part)
            else:
                self._stretch(part, later[k])

    def _used_later(self) -> list[set[Value]]:
        """Per part: what the parts after it use."""
        found: list[set[Value]] = []
        seen: set[Value] = set()
        for part in reversed(self.form.parts):
            found.append(set(seen))
            seen.update(_uses(part if isinstance(part, list) else [part]))
        return found[::-1]

    def _stretch(self, stmts: list[Stmt], later: set[Value]) -> None:
        rest = self._names(stmts)
        if not rest:
            return
        made = [v for s in rest for v in s.outs if v in later]
        for v in made:
            self._room(v)
        with self._lanes(_uses(rest)):
            for s in rest:
                self.body.statement(s)
            for v in made:
                self._keep(v, v)

    def _names(self, stmts: list[Stmt]) -> list[Stmt]:
        """Write what is the same for all threads, once; the rest is left."""
        rest = []
        for s in stmts:
            if s.row in _NAMES or (s.outs and not s.regions and all(v in self.form.uniform for v in s.outs)):
                self.body.statement(s)
            else:
                rest.append(s)
        return rest

    def _loop(self, loop: Stmt) -> None:
        body, (region,) = self.body, loop.regions
        start, stop, step, *init = loop.args
        for param, out in zip(region.params[1:], loop.outs, strict=True):
            self._room(param)
            self.kept[out] = self.kept[param]
        with self._lanes(set(init)):
            for value, param in zip(init, region.params[1:], strict=True):
                self._keep(param, value)
        sums = {s: self._sums(s.args[-1].type) for s in region.body if s.row in _ADDS}
        with body.turns(start, stop, step, region.params[0]):
            self._turn(region, sums)

    def _sums(self, type: Type) -> list[str]:
        """Arrays for what a block adds to one cell; zeros where it has no threads."""
        names = self._array(type, "sum")
        with self.body.block(
            f"for (int32_t {self.lane} = {self.here}; {self.lane} < {self.form.width}; ++{self.lane})"
        ):
            for name in names:
                self.body.put(f"{name}[{self.lane}] = 0;")
        return names

    def _turn(self, region: Region, sums: dict[Stmt, list[str]]) -> None:
        body, rest = self.body, self._names(region.body)
        with self._lanes(_uses(rest) | set(region.results)):
            for s in rest:
                if s in sums:
                    for k, name in enumerate(sums[s]):
                        body.put(f"{name}[{self.lane}] = {_part(body.text(s.args[-1]), s.args[-1].type, k)};")
                else:
                    body.statement(s)
            for param, value in zip(region.params[1:], region.results, strict=True):
                if param is not value:
                    self._keep(param, value)
        for s, names in sums.items():
            self._add(s, names)

    def _add(self, s: Stmt, names: list[str]) -> None:
        body = self.body
        m, indices, _ = body._target(s, 1)
        half = self.form.width // 2
        while half >= 8:
            with body.block(f"for (int32_t {self.lane} = 0; {self.lane} < {half}; ++{self.lane})"):
                for name in names:
                    body.put(f"{name}[{self.lane}] += {name}[{self.lane} + {half}];")
            half //= 2
        for k, name in enumerate(names):
            pairs = [f"({name}[{n}] + {name}[{n + 4}])" for n in range(4)]
            whole = f"({pairs[0]} + {pairs[2]}) + ({pairs[1]} + {pairs[3]})"
            body.put(f"{_part(body.place(m, indices), s.args[-1].type, k)} += {whole};")

    # ---- values of all threads of the block

    def _lanes(self, used: set[Value]):
        """The loop over the threads of the block, with the values that are used in it read from their arrays."""
        return _Each(self, [v for v in self.kept if v in used])

    def _array(self, type: Type, wish: str) -> list[str]:
        scalar = type.scalar if isinstance(type, Composite) else type
        names = [self.body.names.new(wish) for _ in range(type.size)]  # type: ignore[attr-defined]
        for name in names:
            self.body.put(f"{scalar.c} {name}[{self.form.width}];")  # type: ignore[attr-defined]
        return names

    def _room(self, v: Value) -> None:
        self.kept[v] = self._array(v.type, v.name or "kept")

    def _keep(self, v: Value, value: Value) -> None:
        for k, name in enumerate(self.kept[v]):
            self.body.put(f"{name}[{self.lane}] = {_part(self.body.text(value), v.type, k)};")


class _Each:
    def __init__(self, writer: _Writer, read: list[Value]):
        self.writer, self.read = writer, read

    def __enter__(self) -> None:
        w = self.writer
        body, i = w.body, w.body.axes[-1]
        self.block = body.block(f"for (int32_t {w.lane} = 0; {w.lane} < {w.here}; ++{w.lane})")
        self.block.__enter__()
        body.put(f"const int32_t {i} = {w.at} + {w.lane};")
        for v in self.read:
            parts = [f"{name}[{w.lane}]" for name in w.kept[v]]
            text = "{{" + ", ".join(parts) + "}}" if isinstance(v.type, Composite) else parts[0]
            name = body.names.new(v.name or "t")
            body.texts[v] = name
            body.put(f"const {type_name(v.type)} {name} = {text};")

    def __exit__(self, *error: object) -> None:
        self.block.__exit__(None, None, None)


def _part(text: str, type: Type, k: int) -> str:
    return f"{text}.c[{k}]" if isinstance(type, Composite) else text


def _uses(stmts: list[Stmt]) -> set[Value]:
    def every(stmts: list[Stmt]) -> Iterator[Value]:
        for s in stmts:
            yield from s.args
            for region in s.regions:
                yield from every(region.body)
                yield from region.results

    return set(every(stmts))
