"""Threads taken a block at a time, so that C compilers can vectorise what they do alike.

The one idea is strip-mining and interchange (Allen and Kennedy, Optimizing Compilers for Modern Architectures, 2001):
each thread does its own statements in their own order, but the loop over the threads of a block is the innermost one.
A loop with the same bounds for all of them turns around it; what they add to one cell for all is summed for the block
and added after it. Every other value is what it would be, to the last bit. A function takes this form when it has such
a loop, and nothing in it could tell the difference, or keep a compiler from using it. In large launches a function
without loops takes it too where it adds to cells of other threads: after the block, in the order of the threads.

In an adjoint, 0 times what is infinite is 0. Plain products make a NaN of that, which stays in sums: turns that add up
what they make are taken by those, and again if there is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ..ir import Function, Region, Stmt, Value, numeric, root, used, walk
from ..ops import control, memory as rows, scalar, vectors
from ..ops.row import calls_library
from ..passes import simplify
from ..row import Effect
from ..types import Array, Composite, Type, is_float
from .body import Body, nested
from .c_names import type_name
from .components import component
from .signature import Variant

_NAMES = (control.CONST, control.TID, control.DIM, rows.SHAPE, rows.COMPONENTS)
_ADDS = (rows.ACCUMULATE, rows.ATOMIC_ADD)
_NO = (control.WHILE, control.CALL, control.EACH, rows.LOG_STORE)  # nor what has to do with stacks, logs and printing
BLOCK_BYTES = 1024  # of the widest float of a block: what is done once for it costs little beside it
KEPT_BYTES = 1 << 16  # of all threads of a block: more falls out of the nearest cache, and takes compilers very long
WORTH = 8  # float operations without which additions are not worth arrays of what is added


@dataclass(eq=False)
class UniformLoop:
    """A loop that all threads run alike, and the parts of its turn."""

    stmt: Stmt
    parts: list[Part]


Part = list[Stmt] | UniformLoop


@dataclass(eq=False)
class ThreadStretches:
    """The division of a thread's statements into straight stretches, and loops of those.

    `uniform`: values that are the same for all threads; `own`: the indices of the thread, `last` the innermost of them;
    `width`: threads of a block; `scattered`: there are no loops, and the second part adds to
    cells of other threads."""

    parts: list[Part]
    uniform: set[Value]
    own: set[Value]
    last: set[Value]
    width: int
    scattered: bool = False

    def summed(self, s: Stmt) -> bool:
        """True if all threads add to one cell here: what they add is summed, and added after the block."""
        alike = not self.scattered and all(v in self.uniform for v in s.args[1:-1])
        return alike and s.row in _ADDS and not self.of_the_thread(s)

    def of_the_thread(self, s: Stmt) -> bool:
        """True for an addition to a cell at the indices of the thread."""
        return all(v in self.own for v in s.args[1:-1])

    def apart(self, stmts: Iterable[Stmt]) -> bool:
        """True if for each thread of a block these statements certainly write to cells of its own."""
        inner = [s for s in walk(Region(body=list(stmts))) if not s.regions and not _silent(s)]
        writing = [s for s in inner if s.row.effect not in (Effect.PURE, Effect.READS)]
        return all(s.args[-2] in self.last and self.of_the_thread(s) for s in writing)


def lanes(function: Function, variant: Variant) -> tuple[Function, ThreadStretches | None]:
    """The function to emit, short loops written out if that helps, and its form in blocks.

    The form is None where blocks are not possible or would not pay."""
    if not _possible(function, variant):
        return function, None
    written_out = simplify.unrolled(function)
    facts = _Facts(written_out)
    if facts.added & (facts.loaded | facts.stored):  # adds come behind what follows them
        return function, None
    form = _blocks(written_out, facts, variant.many)
    alike = form is not None or all(facts.clean(s) for s in written_out.body.body)
    return (written_out if alike else function), form


def _blocks(function: Function, facts: _Facts, many: bool) -> ThreadStretches | None:
    stmts = list(walk(function.body))
    form = ThreadStretches(facts.parts(function.body), facts.uniform, facts.own, facts.last, 0)
    form.scattered = not any(isinstance(part, UniformLoop) for part in form.parts)
    adds = [s for s in _straight(form.parts) if s.row in _ADDS]
    spread = {root(s.args[0]) for s in adds if not (form.summed(s) or form.of_the_thread(s))}
    if form.scattered:
        working = sum(s.row.effect is Effect.PURE and any(_floats(v.type) for v in s.outs) for s in stmts)
        if not many or not spread or working < WORTH or not all(facts.clean(s) for s in function.body.body):
            return None
        behind = [s for s in adds if root(s.args[0]) in spread]
        before = [s for s in function.body.body if s not in behind]
        asked = used(Region(body=before))
        negated = [s for s in before if s.row is scalar.NEG and s.outs[0] not in asked]  # behind it costs no memory
        form.parts = [[s for s in before if s not in negated], negated + behind]
    elif spread:
        return None
    sizes = [numeric(v).scalar.itemsize for s in stmts for v in s.outs if _floats(v.type)]
    form.width = BLOCK_BYTES // max(sizes, default=4)
    return form if form.width * _kept(form, stmts) <= KEPT_BYTES else None


def _straight(parts: list[Part]) -> Iterator[Stmt]:
    """The statements of all stretches."""
    for part in parts:
        yield from _straight(part.parts) if isinstance(part, UniformLoop) else part


def _possible(function: Function, variant: Variant) -> bool:
    """True unless the variant or a row of the function rules blocks out."""
    if not variant.restrict or variant.checked or variant.atomic or variant.inner is not None:
        return False
    return not any(
        (s.row.effect is Effect.IO and not _silent(s))
        or s.row in _NO
        or s.row.block is not None
        or (s.row in rows.ATOMICS and (s.row is not rows.ATOMIC_ADD or s.outs[0] in used(function.body)))
        for s in walk(function.body)
    )


def _silent(stmt: Stmt) -> bool:
    """True for a claim that is tested by variants that test indices alone."""
    return stmt.row is control.ASSERT and not stmt.attr.always


def _floats(type: Type) -> bool:
    return not isinstance(type, Array) and is_float(type)


class _Facts:
    """Facts that decide about blocks: values uniform over all threads; arrays loaded, added to and stored to."""

    def __init__(self, function: Function):
        stmts = list(walk(function.body))
        self.own = {v for s in stmts if s.row is control.TID for v in s.outs}
        self.last = {v for s in stmts if s.row is control.TID and s.attr.axis == function.rank - 1 for v in s.outs}
        self.uniform = {p for p in function.params if not isinstance(p.type, Array)}
        self._see(function.body)
        touched = [s for s in stmts if s.args and isinstance(s.args[0].type, Array)]
        self.loaded = {root(s.args[0]) for s in touched if s.row is rows.LOAD}
        self.added = {root(s.args[0]) for s in touched if s.row.effect is Effect.ACCUMULATES}
        self.stored = {root(s.args[0]) for s in touched if s.row.effect is Effect.WRITES}

    def _see(self, region: Region) -> None:
        """Collect the uniform values: constants, numbers of the launch, loop counters, what is computed from those."""
        for s in region.body:
            if s.row in (control.CONST, control.DIM, rows.SHAPE):
                self.uniform.update(s.outs)
            elif s.row is control.FOR and self._alike(s):
                self.uniform.add(s.regions[0].params[0])
            elif s.row.effect is Effect.PURE and s.args and not s.regions and all(v in self.uniform for v in s.args):
                self.uniform.update(s.outs)
            for inner in s.regions:
                self._see(inner)

    def _alike(self, s: Stmt) -> bool:
        """True for a loop with uniform bounds: the same turns in all threads."""
        if s.row is not control.FOR or (s.attr is not None and s.attr.breaks):
            return False
        return all(v in self.uniform for v in s.args[:3])

    def parts(self, region: Region) -> list[Part]:
        straight: list[Stmt] = []
        found: list[Part] = [straight]
        for s in region.body:
            if self._alike(s) and self._turns(s):
                straight = []
                found += [UniformLoop(s, self.parts(s.regions[0])), straight]
            else:
                straight.append(s)
        return [part for part in found if part]

    def _turns(self, loop: Stmt) -> bool:
        """True if a block of threads can take each turn of this loop together, with a gain."""
        some = False
        for s in loop.regions[0].body:
            if self._alike(s) and self._turns(s):
                some = True
            elif s.row is rows.STORE or not self.clean(s) or not self._near(s):
                return False
            some = some or any(_floats(v.type) and v not in self.uniform for v in s.outs)
        return some

    def _near(self, s: Stmt) -> bool:
        """True if the threads of a block touch one cell or adjacent ones: else their turn jumps about in memory."""
        if s.row is not rows.LOAD and s.row not in _ADDS:
            return True
        *outer, last = s.args[1 : len(s.args) - (s.row is not rows.LOAD)]
        beside = last in self.uniform or (s.row is rows.LOAD and last in self.last)
        return beside and all(v in self.uniform for v in outer)

    def clean(self, s: Stmt) -> bool:
        """True if a C compiler can vectorise this statement over threads."""
        if s.row in _NAMES:
            return True
        if s.regions:
            return s.row is control.IF and all(
                t.row.effect is Effect.PURE and self.clean(t) for region in s.regions for t in region.body
            )
        whole = s.outs and not _floats(s.outs[0].type) and s.outs[0] not in self.uniform
        if calls_library(s) or (whole and s.row in (scalar.MOD, scalar.FLOORDIV)):
            return False
        if _silent(s):
            return True
        mine = all(v in self.own for v in s.args[1 : len(s.args) - (s.row is rows.STORE)])
        if s.row is rows.LOAD:
            return root(s.args[0]) not in self.stored or mine
        return s.row.effect is Effect.PURE or s.row in _ADDS or (s.row is rows.STORE and mine)


def _tells(turn: list[Stmt], sums: list[Stmt], carried: list[tuple[Value, ...]]) -> bool:
    """True if plain products of adjoints make the same of a turn as those that keep a 0, unless some of `sums` is NaN.

    They may make 0 of -0, and -0 of 0: that is nothing to sums from 0 on, nor to what is `carried` from 0 on, of which
    there are (what it begins with, parameter, result of a turn, of all).
    """
    doubtful: set[Value] = set()
    for s in turn:
        of = [k for k, v in enumerate(s.args) if v in doubtful]
        kept = s.row.linear or s.row.bilinear or (of == [0] and s.row in (scalar.DIV, scalar.OVER, vectors.UNSCALE))
        if s not in sums and (s.regions or s.row.effect not in (Effect.PURE, Effect.READS) or (of and not kept)):
            return False
        if of or s.row.shown is not None:
            doubtful.update(s.outs)
    seen = {s.args[-1] for s in sums}
    opposite = [(*s.args, *s.outs) for s in turn if s.row is scalar.NEG]
    seen = seen.union(*[both for both in opposite if not seen.isdisjoint(both)])
    for first, param, result, _ in carried:
        if result in doubtful:
            zero, made = first.stmt, result.stmt
            if zero is None or zero.row is not control.CONST or str(zero.attr) not in ("0", "0.0"):
                return False
            if made is None or made.row is not scalar.ADD or made.args[0] is not param or made.args[1] not in seen:
                return False
    return not doubtful.isdisjoint(seen) and all(_floats(v.type) for v in doubtful)


# ---- the text


def write(body: Body, form: ThreadStretches, low: str, high: str) -> None:
    """The loop over the innermost axis, in blocks of threads: a wide number counts them, it may pass 2**31."""
    at = body.names.new(f"{body.axes[-1]}_block")
    with body.block(f"for (int64_t {at} = {low}; {at} < {high}; {at} += {form.width})"):
        _Writer(body, form, at, high).parts(form.parts)
        if body.asking:
            body.ask()


class _Writer:
    """Writes one block of threads. `kept`: the arrays that hold a value of each of them, per component."""

    def __init__(self, body: Body, form: ThreadStretches, at: str, high: str):
        self.body, self.form, self.at = body, form, at
        self.lane, self.end = "", body.names.new("stop")
        self.kept: dict[Value, list[str]] = {}
        self.lasting = _lasting(form)
        body.put(f"const int32_t {self.end} = (int32_t)({high} - {at} < {form.width} ? {high} : {at} + {form.width});")

    def parts(self, parts: list[Part], carried: Sequence[tuple[Value, Value]] = (), told: bool = False) -> None:
        """`carried`: what a turn leaves to the next one, (result of the loop, of the turn). `told`: see `_tells`."""
        alone = len(parts) == 1 and isinstance(parts[0], list)
        for part in parts:
            if isinstance(part, UniformLoop):
                self.loop(part)
            else:
                self.stretch(part, carried if alone else (), told)
        if carried and not alone:
            with self.lanes({value for _, value in carried}):
                self.pass_on(carried)

    def stretch(self, stmts: list[Stmt], carried: Sequence[tuple[Value, Value]], told: bool) -> None:
        body, rest = self.body, self.names(stmts)
        adds = [s for s in rest if self.form.summed(s)]
        sums = [(s, [body.names.new("sum") for _ in range(numeric(s.args[-1]).size)]) for s in adds]
        summed = [name for _, names in sums for name in names]
        for s, names in sums:  # what the block adds to one cell, per component
            for name in names:
                body.put(f"{numeric(s.args[-1]).scalar.c} {name} = 0;")
        made = [v for s in rest for v in s.outs if v in self.lasting]
        for v in made:
            self.kept[v] = self.array(v.type, v.name or "kept")
        if not rest and not carried:
            return
        free = summed if self.form.apart(s for s in rest if s not in adds) else []

        def turn(plain: bool) -> None:
            with self.lanes(used(Region(body=rest)) - {*made} | {value for _, value in carried}, free):
                for s in rest:
                    if s not in adds:
                        body.statement(replace(s, row=s.row.shown) if plain and s.row.shown else s)
                for v in made:
                    self.keep(self.kept[v], v)
                for s, names in sums:
                    for k, name in enumerate(names):
                        body.put(f"{name} += {component(body.text(s.args[-1]), s.args[-1].type, k)};")
                self.pass_on(carried)

        turn(told)
        if told:
            with body.block(f"if ({' || '.join(f'{name} != {name}' for name in summed)})"):
                body.put(" = ".join([*summed, "0;"]))
                turn(False)
        for s, names in sums:
            m, indices, _ = body.target_of(s, 1)
            for k, name in enumerate(names):
                body.put(f"{component(body.place(m, indices), s.args[-1].type, k)} += {name};")

    def names(self, stmts: list[Stmt]) -> list[Stmt]:
        """Emit statements that need no loop over threads, once; returns the others."""
        rest = []
        for s in stmts:
            if s.row in _NAMES or (s.outs and not s.regions and all(v in self.form.uniform for v in s.outs)):
                self.body.statement(s)
            else:
                rest.append(s)
        return rest

    def loop(self, loop: UniformLoop) -> None:
        (start, stop, step, *init), (region,) = loop.stmt.args, loop.stmt.regions
        carried = list(zip(init, region.params[1:], region.results, loop.stmt.outs, strict=True))
        (turn, *more), now = loop.parts, ""
        if not more and isinstance(turn, list) and _tells(turn, [s for s in turn if self.form.summed(s)], carried):
            now = self.body.names.new("now")
            self.body.put(f"int32_t {now} = 0;")
        for _, param, result, out in carried:
            self.kept[param] = self.array(param.type, param.name or "carried", "" if param is result else now)
            self.kept[out] = [place.replace(f"[{now}]", f"[!{now}]") for place in self.kept[param]]
        if carried:
            with self.lanes(set(init)):
                self.pass_on([(out, first) for first, _, _, out in carried])
        inside = nested(loop.stmt)
        with self.body.turns(start, stop, step, region.params[0]):
            if inside:
                self.body.ask()
            if now:
                self.body.put(f"{now} = !{now};")
            self.parts(loop.parts, [(out, r) for _, p, r, out in carried if p is not r], bool(now))
        if not inside:
            self.body.count(loop.stmt)

    # ---- values of all threads of the block

    @contextmanager
    def lanes(self, used: set[Value], sums: Sequence[str] = ()) -> Iterator[None]:
        """The loop over the threads of the block, with the values that are used in it read from their arrays.

        The innermost index counts the threads, so that compilers see contiguous memory; a wide number beside it counts
        the lanes. Compilers may take `sums` in the order that suits them: one part per lane of a vector register. They
        take it then that no two threads of the block write to one cell.
        """
        body, i = self.body, self.body.axes[-1]
        asks, body.asks = body.asks, False  # nobody may leave a loop that compilers turn into vectors
        self.lane = body.names.new("lane")
        if sums:
            body.put(f'_Pragma("omp simd reduction(+ : {", ".join(sums)})")')
            head = f"for (int64_t {self.lane} = 0; {self.lane} < {self.end} - {self.at}; ++{self.lane})"
        else:
            body.put(f"int64_t {self.lane} = 0;")
            head = f"for (int32_t {i} = wb_first({self.at}); {i} < {self.end}; ++{i}, ++{self.lane})"
        with body.block(head):
            if sums:
                body.put(f"const int32_t {i} = (int32_t){self.at} + (int32_t){self.lane};")
            for v in [v for v in self.kept if v in used]:
                self.read(v, self.kept[v])
            yield
        body.asks = asks

    def array(self, type: Type, wish: str, now: str = "") -> list[str]:
        """Declare arrays of a value of each thread; returns the place of each component, `%s` for the lane.

        There are two of each, and `now` says which holds it, if that is given. Two or four components that are read
        back thread by thread lie together.
        """
        count = numeric(type).size
        whole = self.form.scattered and count in (2, 4)
        names = [self.body.names.new(wish) for _ in range(1 if whole else count)]
        kind, two, row = type_name(type) if whole else numeric(type).scalar.c, "[2]" * bool(now), f"[{now}]" * bool(now)
        for name in names:
            self.body.put(f"{kind} {name}{two}[{self.form.width}];")
        return [f"{names[0]}[%s].c[{k}]" for k in range(count)] if whole else [f"{name}{row}[%s]" for name in names]

    def keep(self, places: list[str], value: Value) -> None:
        for k, place in enumerate(places):
            self.body.put(f"{place % self.lane} = {component(self.body.text(value), value.type, k)};")

    def pass_on(self, carried: Iterable[tuple[Value, Value]]) -> None:
        for out, value in carried:
            self.keep(self.kept[out], value)

    def read(self, v: Value, places: list[str]) -> None:
        parts = [place % self.lane for place in places]
        text = "{{" + ", ".join(parts) + "}}" if isinstance(v.type, Composite) else parts[0]
        name = self.body.names.new(v.name or "t")
        self.body.texts[v] = name
        self.body.put(f"const {type_name(v.type)} {name} = {text};")


def _lasting(form: ThreadStretches) -> set[Value]:
    """Values live across stretches: used in another one than where they are defined."""
    found: list[tuple[set[Value], set[Value]]] = []  # of each stretch: what it makes and what it uses

    def see(parts: list[Part], results: tuple[Value, ...]) -> None:
        for part in parts:
            if isinstance(part, UniformLoop):
                found.append((set(), set(part.stmt.args[3:])))
                see(part.parts, part.stmt.regions[0].results)
            else:
                found.append(({v for s in part for v in s.outs}, used(Region(body=part))))
        if len(parts) != 1:  # else a turn passes on in its only part what it leaves to the next
            found.append((set(), set()))
        found[-1][1].update(results)

    see(form.parts, ())
    made = set[Value]().union(*[own for own, _ in found])
    return {v for own, uses in found for v in (uses & made) - own} - form.uniform - form.own


def _kept(form: ThreadStretches, stmts: list[Stmt]) -> int:
    """Bytes per thread that a block stores: values live across stretches, and results of loops."""
    kept = [v.type for v in _lasting(form) if not isinstance(v.type, Array)]
    kept += [v.type for s in stmts if s.row is control.FOR for v in s.outs]
    return sum(numeric(t).itemsize for t in kept)
