"""Launches of a watched program, and the functions of `wp.utils` that Warp computes in C++."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from types import FrameType, FunctionType
from typing import Any

import numpy as np
from warp._src import context, types as warp_types, utils as warp_utils

from ...arrays import allocation as memory
from ...display import ProgressBar
from ...errors import GradientError, KernelError, WorkbenchError
from ...kernels.ir import Function, Region, Stmt, Value, root, walk
from ...kernels.ops import control as c, matrices, memory as mem, scalar, vectors
from ...kernels.ops.row import constant
from ...kernels.passes.named import named_pass
from ...kernels.passes.simplify import Rewrite, ValueFacts
from ...kernels.program import Program
from ...kernels.row import Effect
from ...kernels.types import Composite, int32, is_float
from ...launches.command import Command
from ...launches.launch import launch as our_launch
from ...launches.plan import plan
from ...launches.race_check import find_races, races_of
from .adjoint_launches import AdjointLaunch, Pair
from .builtin_calls import NATIVE, given_to
from .hooks import Hooks, Theirs, caller, first_line
from .memory import Untranslated, arrays_in
from .recorder import EventRecorder
from .session import CallSite, Session
from .snapshots import Snapshots

IN_CAPTURE = "an adjoint that the program launches itself, in a capture"
Dims = tuple[int, ...]
Call = Callable[[], Any]
_NAMES = tuple(inspect.signature(context.launch).parameters)
MOST = 1 << 16  # threads that are run one by one


class LaunchCalls:
    """Handles launches, whichever API makes them. `adjoints`: those with `adjoint=True` so far."""

    def __init__(self, session: Session, recorder: EventRecorder):
        self.session, self.recorder = session, recorder
        self.twins, self.programs = session.twins, session.programs
        self.progress = ProgressBar(None, "reading kernels")  # some hundred for an engine
        self.adjoints: list[AdjointLaunch] = []

    def install(self, hooks: Hooks) -> None:
        hooks.put(context.launch, self.launch, always=True)
        hooks.put(context.Launch.launch, self.command)
        for name in NATIVE:
            if isinstance(function := getattr(warp_utils, name, None), FunctionType):
                hooks.put(function, self.native)

    def launch(self, theirs: Theirs, *args: object, **kwargs: object) -> Any:
        """Handle `wp.launch`, also where a backward of Warp's makes it."""
        if self.session.inside:
            if self.session.backward is not None and kwargs.get("adjoint"):
                return self.session.backward.adjoint_launch(theirs, kwargs)
            return theirs()
        frame = caller()
        g: dict[str, Any] = dict(zip(_NAMES, args, strict=False)) | kwargs
        kernel, values = g.get("kernel"), [*g.get("inputs", ()), *g.get("outputs", ())]
        if g.get("record_cmd") or not isinstance(kernel, context.Kernel) or "dim" not in g:
            return theirs()
        tape = context.runtime.tape
        before = 0 if tape is None else len(tape.launches)

        def placed() -> Any:
            result = theirs()
            if tape is not None and len(tape.launches) > before and isinstance(entry := tape.launches[-1], list):
                code = frame.f_code
                entry[7]["caller"] = {"file": code.co_filename, "lineno": frame.f_lineno, "func": code.co_name}
            return result

        if g.get("adjoint"):
            adjoints = [*g.get("adj_inputs", ()), *g.get("adj_outputs", ())]
            return self.launched_back(kernel, _dims(g["dim"]), values, adjoints, placed, frame)
        return self.launched(kernel, _dims(g["dim"]), values, placed, frame)

    def command(self, theirs: Theirs, command: Any, *_: object, **__: object) -> Any:
        """Handle `Launch.launch()` of a `record_cmd=True` launch."""
        frame, kernel, bounds = caller(), command.kernel, command.bounds
        rank, values, adjoints = int(kernel.adj.kernel_dim), list(command.fwd_args or ()), list(command.adj_args or ())
        dims = tuple(int(bounds.shape[k]) for k in range(rank)) if rank else (int(bounds.size),)
        refused = "its arguments are not known" if command.fwd_args is None else ""
        if getattr(bounds, "coord_mult", 1) != 1:
            refused = "a grid with more axes than its kernel tells apart"
        if refused:
            arrays, label = list(arrays_in([*values, *adjoints])), kernel.func.__name__
            return self.recorder.event("opaque", label, arrays, theirs, kernel=kernel, refused=refused)
        if command.adjoint:
            return self.launched_back(kernel, dims, values, adjoints, theirs, frame)
        return self.launched(kernel, dims, values, theirs, frame)

    def launched(self, kernel: Any, dims: Dims, values: list[Any], theirs: Call, frame: FrameType) -> Any:
        """Handle one launch of Warp's."""
        session, recorder = self.session, self.recorder
        label, place = kernel.func.__name__, session.place_of(frame)
        if 0 in dims and recorder.captured is None:
            _, tape, entries = made = session.run(theirs)
            recorder.note_entries(tape, entries, None)
            return made[0]
        held, given = list(values), session.twins.arrays_of(values)
        twins: list[Any] = []
        ours = lambda: self.run(kernel, dims, held, place, twins)  # noqa: E731
        return recorder.event("launch", label, given, theirs, ours, kernel, values=values)

    def launched_back(
        self, kernel: Any, dims: Dims, values: list[Any], adjoints: list[Any], theirs: Call, frame: FrameType
    ) -> Any:
        """One launch with `adjoint=True`. Returns what Warp's call returns."""
        session, recorder = self.session, self.recorder
        label = f"adjoint of {kernel.func.__name__}"
        pairs = list({(id(a), id(g)): (a, g) for a, g in _pairs(values, adjoints)}.values())
        arrays = [*session.twins.arrays_of(values), *(g for _, g in pairs)]
        if recorder.captured is not None:
            return recorder.event("opaque", label, arrays, theirs, kernel=kernel, refused=IN_CAPTURE)
        place = session.place_of(frame)
        regions, reason = recorder.reach(arrays, place)
        if any(id(twin) not in session.tape.names.noted for a, _ in pairs for twin in session.twins.behind(a)):
            session.tape.names.note(frame)
        first = {id(a): np.array(g.numpy()) for a, g in pairs}
        result, tape, entries = session.run(theirs)
        step = recorder.step("adjoint", label, tape, entries, kernel, reason)
        back = None
        if not reason and session.check == "gradient":
            moment = Snapshots(first, {id(a): np.array(g.numpy()) for a, g in pairs})
            try:
                command = serialised(self.planned(kernel, dims, values, []))
                back = AdjointLaunch(session, step, command, pairs, moment, self.adjoints)
                back.judge()
            except Exception as error:  # noqa: BLE001  whatever ours cannot do is opaque, and the program goes on
                step.reason, step.kind, back = first_line(error), "opaque", None
        changed = None if step.reason else [region for region in regions if region.changed()]
        step.event = recorder.opaque(step, arrays, regions, place, changed)
        if back is not None:
            self.adjoints.append(back)
        session.steps.append(step)
        recorder.note_entries(tape, entries, step)
        return result

    # ---- twins

    def run(self, kernel: Any, dims: Dims, values: list[Any], place: CallSite, given: list[Any]) -> None:
        """Run the twin of a launch, with the progress bar if the kernel is new. Raises what the workbench says of it.

        `given`: the arguments on the twins; empty at the first run, which fills it for those that repeat it.
        """
        new = id(kernel) not in self.programs.met and self.progress
        serialised(without_skips(self.planned(kernel, dims, values, given))).launch(True, place)
        if new and new.update():
            new.say(kernel.func.__name__)

    def planned(self, kernel: object, dims: Dims, values: list[Any], given: list[Any]) -> Command:
        """Our launch for one of Warp's, not run. Raises what the workbench says of it."""
        ours, dims = self.programs.twin(kernel), _grid(kernel, dims)
        self.twins.handles.prepare(values)
        given[:] = given or [self.twins.value(v) for v in values]
        try:
            return our_launch(ours, dims, given, record_cmd=True).command
        except KernelError as failure:
            if not ours.generic and id(kernel) in self.programs.met:
                self.programs.failed(kernel, failure)
            raise

    # ---- functions in C++

    def native(self, theirs: Theirs, *args: object, **kwargs: object) -> Any:
        """Handle a function of `wp.utils` that Warp computes in C++."""
        name, given = theirs.func.__name__, given_to(theirs.func, args, kwargs)
        call: Call = theirs
        if "out" in given and given["out"] is None:  # it is made by the call
            result = self.session.quietly(theirs)
            if not warp_types.is_array(result):
                return result  # a number of the host
            given["out"], call = result, lambda: result
        ours = lambda: NATIVE[name](self.session.twins, given)  # noqa: E731
        return self.recorder.event("native", name, list(arrays_in(given.values())), call, ours)


def _dims(dim: Any) -> Dims:
    return tuple([int(n) for n in (dim if type(dim) is tuple or np.ndim(dim) else (dim,))])


def _grid(kernel: Any, dims: Dims) -> Dims:
    """The launch grid, cut or padded with 1 to the rank of its kernel. Raises Untranslated if an axis would be lost."""
    rank = int(kernel.adj.kernel_dim) if hasattr(kernel.adj, "kernel_dim") else len(dims)
    dims = (*dims, *[1] * (rank - len(dims)))
    if rank and any(n != 1 for n in dims[rank:]):
        raise Untranslated(f"a grid of {len(dims)} axes for a kernel that tells {rank} of them apart")
    return dims[:rank] if rank else dims


def _pairs(values: list[Any], adjoints: list[Any]) -> Iterator[Pair]:
    """The arrays among the arguments, those in structs too, each with the array that holds its adjoint.

    Without one of its own Warp takes the array's gradient, and always of an array in a struct.
    """
    for value, adjoint in zip(values, adjoints, strict=False):
        own = warp_types.is_array(value) and warp_types.is_array(adjoint) and adjoint.ptr
        for a in arrays_in([value]):
            held = adjoint if own else a.grad
            if held is not None:
                yield a, held


# ---- launches that are recorded in another form than they were made, with the same results
# A launch of which several threads store equal values to one element, or read a counter that they increment, is
# recorded as one thread that runs all in Warp's order: on a CPU Warp runs them in order, so its result and adjoint are
# then deterministic. MuJoCo Warp has a thread per branch of a body tree, which all store what the bodies near the root
# share. Work that is skipped on zeros (`if force == 0.0: continue`) is done where it adds nothing for them: sums in
# which `force` is a factor. The derivative at 0 is then that of the formula, not that of the branch that a zero takes.


def serialised(command: Command) -> Command:
    """The launch to record: `command`, or its threads serialised if they race only in equal stores or in counters.

    A launch whose result depends on the order of its threads is returned as it is: backward refuses it [race]. Memory
    must be as the launch sees it, and is restored.
    """
    races, dims = races_of(command.plan), command.plan.form.dims
    if races is None or math.prod(dims) > MOST or command.declared:
        return command
    with memory.LOCK:
        try:
            races.check(command)
        except GradientError:
            program = command.program
            orders = [program.once(in_order, program.function, dims, backwards) for backwards in (False, True)]
            first, last = (of_program(command, program.once(program.with_function, f), (1,)) for f in orders)
            if _only_counts(command) or all(map(np.array_equal, results(first), results(last))):
                return first
    return command


def _only_counts(command: Command) -> bool:
    """True if threads race only on integer counters that they add to and read."""
    others = find_races(command.plan, counts=False)
    try:
        if others is not None:
            others.check(command)
    except GradientError:
        return False
    return True


def of_program(command: Command, program: Program, dims: tuple[int, ...], bounds: bool | None = None) -> Command:
    """A launch of another program on grid `dims`, with the arguments of `command`. `bounds`: see `launches.plan`."""
    return Command(program, plan(program, dims, list(command.flat), None, bounds), command.flat)


def results(command: Command) -> list[Any]:
    """The bytes of all memory that a launch writes, after it; memory is restored."""
    places = list({command.flat[k].allocation: None for k, _ in command.plan.writes})
    before = [place.bytes.copy() for place in places]
    try:
        command.plan.forward.run(command.values, command.views)
        return [place.bytes.copy() for place in places]
    finally:
        for place, content in zip(places, before, strict=True):
            place.bytes[...] = content


@named_pass("threads in order")
def in_order(function: Function, dims: tuple[int, ...], backwards: bool = False) -> Function:
    """The program for one thread that does what the threads of the grid `dims` do, each after the one before.

    backwards   from the last thread to the first.
    """
    return _InOrder(dims, backwards).function(function)


class _InOrder(Rewrite):
    def __init__(self, dims: tuple[int, ...], backwards: bool):
        super().__init__(None)
        self.dims, self.backwards = dims, backwards
        self.thread: list[Value] = []

    def function(self, function: Function) -> Function:
        scope = ValueFacts()
        for p in function.params:
            scope.values[p] = p.copied()
            self.builder.region.params.append(scope.values[p])
        with self.builder.open():
            self.loops(function.body, scope, self.dims)
        return function.with_body(self.builder.region, rank=1)

    def loops(self, body: Region, scope: ValueFacts, dims: tuple[int, ...]) -> None:
        """A loop for each of these axes, and the thread inside."""
        if not dims:
            self.region(body, scope)
            return
        n, *rest = dims
        turns = (n - 1, -1, -1) if self.backwards else (0, n, 1)
        bounds = [constant(int32, k) for k in turns]
        region, counter = Region(), Value(int32, f"thread_{len(self.thread)}")
        region.params.append(counter)
        self.thread.append(counter)
        with self.builder.inside(region):
            self.loops(body, scope, tuple(rest))
        self.builder.append(c.FOR, tuple(bounds), (), (region,), attr=c.Loop(trips=n))

    def stmt(self, stmt: Stmt, scope: ValueFacts) -> None:
        if stmt.row is c.TID:
            scope.values[stmt.outs[0]] = self.thread[stmt.attr.axis]
        elif stmt.row is c.DIM:
            scope.values[stmt.outs[0]] = constant(int32, self.dims[stmt.attr.axis])
        else:
            super().stmt(stmt, scope)


_PRODUCTS = vectors.CROSS, matrices.MATVEC, matrices.MATMUL, matrices.OUTER  # beside what is bilinear
_SUMS = scalar.ADD, scalar.SUB
_MOVES = scalar.CAST, vectors.CONSTRUCT  # 0 where all operands are, beside what is linear
_ADDERS = mem.ACCUMULATE, mem.ATOMIC_ADD, mem.ATOMIC_SUB


def without_skips(command: Command) -> Command:
    """The launch to record: `command`, or, if it skips work on zeros, the one that does that work.

    `command` too if that work would leave an array's bounds or give another result (0 times infinity). Memory must be
    as the launch sees it, and is restored.
    """
    program = command.program.once(_without, command.program)
    if program is None or command.declared:
        return command
    with memory.LOCK:
        try:
            made = of_program(command, program, command.plan.form.dims, bounds=True)
            found = results(made)
        except WorkbenchError:
            return command
        pairs = zip(found, results(command), strict=False)
        return made if all(a.tobytes() == b.tobytes() for a, b in pairs) else command


def _without(program: Program) -> Program | None:
    """The program with the skipped work done; None if it skips none."""
    function = without_zero_skips(program.function)
    return None if function is program.function else program.with_function(function)


# ---- the program with the skipped work done


@named_pass("zero skips")
def without_zero_skips(function: Function) -> Function:
    """The function without tests that skip work on zeros; the function itself if there are none.

    The work then loads, and adds 0, at indices that may be out of bounds: the caller has to check.
    """
    found = skips(function)
    return _Without(found).function(function) if found else function


def skips(function: Function) -> dict[Stmt, Region]:
    """Each `if` whose one branch is idle where the other would have no effect, given the zeros -> that region."""
    found, stmts = {}, list(walk(function.body))
    written = {root(s.args[0]).name for s in stmts if s.row.writes}
    for stmt in (s for s in stmts if s.row is c.IF):
        for holds in (True, False):
            idle, work = stmt.regions if holds else stmt.regions[::-1]
            zeros = _zeros(stmt.args[0], holds)
            plain = zeros and all(s.row is c.CONST for s in idle.body)
            if plain and _ZeroFacts(zeros, written).has_no_effect(work, idle.results):
                found[stmt] = work
    return found


def _zeros(test: Value, holds: bool) -> set[Value]:
    """The float values that are 0 where a test holds (or fails: `holds` False)."""
    stmt = test.stmt
    if stmt is None:
        return set()
    if stmt.row is scalar.LOGICAL_NOT:
        return _zeros(stmt.args[0], not holds)
    if stmt.row is (scalar.LOGICAL_AND if holds else scalar.LOGICAL_OR):
        return _zeros(stmt.args[0], holds) | _zeros(stmt.args[1], holds)
    if stmt.row is c.IF and len(stmt.outs) == 1:  # `a and b`, of which b is worked out where it is asked for
        then, otherwise = stmt.regions
        asked, other = (then, otherwise) if holds else (otherwise, then)
        last = other.results[0].stmt
        if last is not None and last.row is c.CONST and last.attr is not holds:
            return _zeros(stmt.args[0], holds) | _zeros(asked.results[0], holds)
    if stmt.row in ((scalar.EQ, scalar.ALL_EQ) if holds else (scalar.NE, scalar.ALL_NE)):
        a, b = stmt.args
        return {v for v, other in ((a, b), (b, a)) if is_float(v.type) and is_zero(other)}
    return set()


def is_zero(value: Value) -> bool:
    """True for the float constant 0, or a composite of it."""
    stmt = value.stmt
    if stmt is None or not is_float(value.type):
        return False
    if stmt.row is c.CONST:
        numbers = stmt.attr if isinstance(stmt.attr, tuple) else (stmt.attr,)
        return all(number == 0 for number in numbers)
    return isinstance(value.type, Composite) and stmt.row in _MOVES and all(map(is_zero, stmt.args))


class _ZeroFacts:
    """Facts under the assumption that some values are 0: other zeros, and values equal to an earlier one."""

    def __init__(self, zeros: set[Value], written: set[str]):
        self.zeros = set(zeros)
        self.same: dict[Value, Value] = {}
        loads = [z.stmt.args for z in zeros if z.stmt is not None and z.stmt.row is mem.LOAD]
        self.cells = {args for args in loads if root(args[0]).name not in written}  # read again they are the same

    def has_no_effect(self, region: Region, results: tuple[Value, ...]) -> bool:
        """True if a region adds nothing to any array, and yields these results."""
        return all(map(self.learn, region.body)) and all(map(self.equal, region.results, results))

    def first(self, value: Value) -> Value:
        while value in self.same:
            value = self.same[value]
        return value

    def none(self, value: Value) -> bool:
        return self.first(value) in self.zeros or is_zero(value)

    def equal(self, one: Value, other: Value) -> bool:
        return self.first(one) is self.first(other) or (self.none(one) and self.none(other))

    def learn(self, stmt: Stmt) -> bool:
        """Take note of a statement. False for one that may do something, or that is not understood."""
        if stmt.row in _ADDERS:
            return self.none(stmt.args[-1])
        if stmt.row is c.IF:
            then, otherwise = stmt.regions
            return all(map(self.learn, (*then.body, *otherwise.body))) and self.joins(stmt, then, otherwise)
        if stmt.row is c.FOR:
            return self.loop(stmt)
        if stmt.row is mem.LOAD or (stmt.row.effect is Effect.PURE and not stmt.regions):
            return self.computes(stmt)
        return False

    def computes(self, stmt: Stmt) -> bool:
        if not stmt.outs or not is_float(stmt.outs[0].type):
            return True
        (out,), args = stmt.outs, stmt.args
        known = [self.none(a) for a in args]
        if stmt.row is mem.LOAD:
            self.zeros.update((out,) if args in self.cells else ())
        elif _vanishes(stmt, known):
            self.zeros.add(out)
        elif stmt.row in _SUMS and known[1] and args[0].type == out.type:
            self.same[out] = args[0]
        elif stmt.row is scalar.ADD and known[0] and args[1].type == out.type:
            self.same[out] = args[1]
        return True

    def joins(self, stmt: Stmt, then: Region, otherwise: Region) -> bool:
        """Learn the facts about results of an `if` that are true of both regions. Returns True."""
        for out, a, b in zip(stmt.outs, then.results, otherwise.results, strict=True):
            if self.none(a) and self.none(b):
                self.zeros.add(out)
            elif self.first(a) is self.first(b):
                self.same[out] = a
        return True

    def loop(self, stmt: Stmt) -> bool:
        """A loop whose turns leave what they carry as it is."""
        (region,), carried = stmt.regions, stmt.args[3:]
        if stmt.attr is not None and getattr(stmt.attr, "breaks", False):
            return False
        self.same.update(zip(region.params[1:], carried, strict=True))
        if not self.has_no_effect(region, tuple(region.params[1:])):
            return False
        self.same.update(zip(stmt.outs, carried, strict=True))
        return True


def _vanishes(stmt: Stmt, known: list[bool]) -> bool:
    """True if the result is 0 given the operands that are zero (flags `known`)."""
    if stmt.row.bilinear or stmt.row in _PRODUCTS:
        return any(known)
    return bool(known) and all(known) and (stmt.row.linear or stmt.row in (*_SUMS, *_MOVES))


class _Without(Rewrite):
    def __init__(self, found: dict[Stmt, Region]):
        super().__init__(None)
        self.found = found

    def regions(self, stmt: Stmt, args: tuple[Value, ...], scope: ValueFacts) -> None:
        work = self.found.get(stmt)
        if work is None:
            super().regions(stmt, args, scope)
            return
        self.region(work, scope)
        scope.values.update(zip(stmt.outs, [scope.values[r] for r in work.results], strict=True))
