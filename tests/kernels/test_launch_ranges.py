"""Ranges against brute force: every thread of a small launch is run, and claims are held against what it touched."""

import itertools

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from workbench import errors
from workbench.kernels import ir, types
from workbench.kernels.analysis import accesses, launch_ranges
from workbench.kernels.analysis.accesses import accesses_by_array, accesses_of, relevant_scalars
from workbench.kernels.analysis.affine import limits_of
from workbench.kernels.analysis.launch_form import LaunchForm
from workbench.kernels.analysis.thread_conflicts import private, write_race
from workbench.kernels.ops import control, memory
from workbench.kernels.ops.row import ROWS
from workbench.kernels.row import Effect, Row

I32, BOOL, F32 = types.int32, types.bool_, types.float32
COMPARE = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}


def _machine(value, type):
    lo, hi = limits_of(type)
    return (value - lo) % (hi - lo + 1) + lo


class Kernel:
    """Builds a function: arrays x (1-d), y (2-d), v (1-d of vec3), integer n, and a way to run all of its threads."""

    def __init__(self, rank=1):
        x, y = ir.Value(types.Array(F32, 1), "x"), ir.Value(types.Array(F32, 2), "y")
        v, n = ir.Value(types.Array(types.vector(3, F32), 1), "v"), ir.Value(I32, "n")
        flags = ir.Value(types.Array(BOOL, 1), "flags")
        self.x, self.y, self.v, self.n, self.flags = x, y, v, n, flags
        self.b = ir.Builder(ir.Region([x, y, v, n, flags]))
        self.f = ir.Function("k", self.b.region, rank)
        self.b.where = errors.Where("cell.py", 3, text="x[i] = 1.0")

    def op(self, name, *args, type=I32, attr=None):
        args = [a if isinstance(a, ir.Value) else self.const(a) for a in args]
        row = ROWS.get(name) or Row(name, type=lambda *t: type)
        return self.b.append(row, args, (type,), attr=attr).outs[0]

    def const(self, value, type=I32):
        return self.b.append(control.CONST, (), (type,), attr=value).outs[0]

    def tid(self, axis=0):
        return self.b.append(control.TID, (), (I32,), attr=control.Tid(axis)).outs[0]

    def dim(self, axis=0):
        return self.b.append(control.DIM, (), (I32,), attr=control.Tid(axis)).outs[0]

    def shape(self, array, axis=0):
        return self.b.append(memory.SHAPE, (array,), (I32,), attr=axis).outs[0]

    def test(self, name, a, b):
        return self.op(name, a, b, type=BOOL)

    def wrap(self, i, array, axis=0):
        return self.op("wrap", i, self.shape(array, axis))

    def load(self, array, *i):
        i = [k if isinstance(k, ir.Value) else self.const(k) for k in i]
        return self.b.append(memory.LOAD, (array, *i), (array.type.dtype,)).outs[0]

    def store(self, array, *i, row=memory.STORE):
        i = [k if isinstance(k, ir.Value) else self.const(k) for k in i]
        value = self.const(0.0, array.type.dtype)
        return self.b.append(row, (array, *i, value), ())

    def when(self, condition, then=lambda: None, other=lambda: None):
        regions = ir.Region(), ir.Region()
        for region, write in zip(regions, (then, other), strict=True):
            with self.b.inside(region):
                write()
        self.b.append(control.IF, (condition,), (), regions)

    def both(self, a, b):
        """`a and b()` as the reader writes it."""
        return self._short(a, b, lambda: self.const(False, BOOL))

    def either(self, a, b):
        return self._short(a, lambda: self.const(True, BOOL), b)

    def _short(self, a, *writes):
        regions = ir.Region(), ir.Region()
        for region, write in zip(regions, writes, strict=True):
            with self.b.inside(region):
                region.results = (write(),)
        return self.b.append(control.IF, (a,), (BOOL,), regions).outs[0]

    def loop(self, start, stop, step, body, breaks=None):
        args = [a if isinstance(a, ir.Value) else self.const(a) for a in (start, stop, step)]
        region = ir.Region([ir.Value(I32, "k")])
        with self.b.inside(region):
            body(region.params[0])
            region.results = (breaks(),) if breaks else ()
        self.b.append(control.FOR, args, (), (region,), attr=control.Loop(breaks=breaks is not None))

    def run(self, dims, scalars, shapes):
        """[(statement, array name, index after wrapping, thread)] of the whole launch."""
        events = []
        for thread in itertools.product(*[range(d) for d in dims]):
            _Thread(self.f, thread, dims, scalars, shapes, events).run()
        return events


class _Thread:
    def __init__(self, function, thread, dims, scalars, shapes, events):
        self.function, self.thread, self.dims, self.shapes, self.events = function, thread, dims, shapes, events
        self.env = {p: scalars.get(p.name) for p in function.params}

    def run(self):
        self.region(self.function.body)

    def region(self, region):
        for stmt in region.body:
            out = self.statement(stmt, stmt.row.name, [self.env[a] for a in stmt.args])
            if len(stmt.outs) == 1:
                self.env[stmt.outs[0]] = out if stmt.outs[0].type == BOOL else self.fit(out, stmt.outs[0].type)
        return [self.env[r] for r in region.results]

    def fit(self, value, type):
        return _machine(value, type) if types.is_int(type) else value

    def statement(self, stmt, name, args):
        if name == "if":
            results = self.region(stmt.regions[0 if args[0] else 1])
            return results[0] if results else None
        if name == "for":
            body = stmt.regions[0]
            for i in range(*args) if args[2] else ():
                self.env[body.params[0]] = i
                results = self.region(body)
                if stmt.attr.breaks and not results[0]:
                    break
            return None
        if name in ("load", "store", "accumulate"):
            return self.touch(stmt, args)
        return self.value(stmt, name, args)

    def touch(self, stmt, args):
        array = stmt.args[0]
        rank = array.type.ndim
        root = array if array.stmt is None else array.stmt.args[0]
        self.events.append((stmt, root.name, tuple(args[1 : 1 + rank]), self.thread))
        seed = (sum(7 * k for k in args[1 : 1 + rank]) + 3 * sum(self.thread)) % 3
        return bool(seed) if array.type.dtype == BOOL else seed

    def value(self, stmt, name, args):
        table = {
            "const": lambda: stmt.attr,
            "components": lambda: None,
            "tid": lambda: self.thread[stmt.attr.axis],
            "dim": lambda: self.dims[stmt.attr.axis],
            "shape": lambda: self.shapes[stmt.args[0].name][stmt.attr],
            "add": lambda: args[0] + args[1],
            "sub": lambda: args[0] - args[1],
            "mul": lambda: args[0] * args[1],
            "neg": lambda: -args[0],
            "floordiv": lambda: args[0] // args[1],
            "cast": lambda: args[0],
            "min": lambda: min(args),
            "wrap": lambda: args[0] + args[1] if args[0] < 0 else args[0],
            "logical_not": lambda: not args[0],
            "logical_and": lambda: args[0] and args[1],
            "logical_or": lambda: args[0] or args[1],
            "pymod": lambda: args[0] % args[1],
        }
        return COMPARE[name](*args) if name in COMPARE else table[name]()


def only(k):
    (access,) = accesses_of(k.f)
    return access


X = {"x": (10,), "y": (4, 6), "v": (5,), "flags": (8,)}


# ---- boxes ----


def test_a_shifted_index_gives_a_shifted_box():
    k = Kernel()
    k.load(k.x, k.op("add", k.tid(), 2))
    assert launch_ranges.box(only(k), LaunchForm((5,), {}, X)) == ((2, 6),)


def test_a_guard_narrows_the_box_and_its_else_branch_gets_the_negation():
    k = Kernel()
    i = k.tid()
    k.when(k.test("lt", i, 3), lambda: k.load(k.x, i), lambda: k.store(k.x, i))
    then, other = accesses_of(k.f)
    assert launch_ranges.box(then, LaunchForm((8,), {}, X)) == ((0, 2),)
    assert launch_ranges.box(other, LaunchForm((8,), {}, X)) == ((3, 7),)
    assert then.effect is Effect.READS and other.effect is Effect.WRITES


def test_and_written_as_an_if_is_two_guards():
    k = Kernel()
    i = k.tid()
    k.when(k.both(k.test("ge", i, 2), lambda: k.test("lt", i, k.n)), lambda: k.load(k.x, i))
    assert launch_ranges.box(only(k), LaunchForm((9,), {"n": 5}, X)) == ((2, 4),)
    assert only(k).certain and len(only(k).guards) == 2


def test_or_is_two_guards_in_its_else_branch_only():
    k = Kernel()
    i = k.tid()
    c = k.either(k.test("lt", i, 2), lambda: k.test("ge", i, 6))
    k.when(c, lambda: k.load(k.x, i), lambda: k.store(k.x, i))
    then, other = accesses_of(k.f)
    assert not then.certain and launch_ranges.box(then, LaunchForm((9,), {}, X)) == ((0, 8),)
    assert other.certain and launch_ranges.box(other, LaunchForm((9,), {}, X)) == ((2, 5),)


def test_an_index_that_is_not_affine_covers_its_axis_only():
    k = Kernel(2)
    i = k.tid()
    k.load(k.y, k.op("floordiv", i, 2), i)
    assert launch_ranges.box(only(k), LaunchForm((3,), {}, X)) == ((0, 3), (0, 2))


def test_an_empty_launch_touches_nothing():
    k = Kernel()
    k.load(k.x, k.tid())
    assert launch_ranges.box(only(k), LaunchForm((0,), {}, X)) == launch_ranges.EMPTY
    launch_ranges.check(k.f, LaunchForm((0,), {}, {"x": (0,)}))


def test_negative_indices_that_wrap_are_shifted():
    k = Kernel()
    k.load(k.x, k.wrap(k.op("sub", k.tid(), 3), k.x))
    assert launch_ranges.box(only(k), LaunchForm((3,), {}, X)) == ((7, 9),)
    assert launch_ranges.box(only(k), LaunchForm((4,), {}, X)) == ((0, 9),)
    launch_ranges.check(k.f, LaunchForm((4,), {}, X))


def test_a_loop_that_depends_on_the_thread_has_a_tight_box():
    k = Kernel()
    i = k.tid()
    k.loop(0, i, 1, lambda t: k.load(k.x, k.op("sub", i, t)))
    assert launch_ranges.box(only(k), LaunchForm((6,), {}, X)) == ((1, 5),)


def test_a_loop_written_backwards_by_its_number_of_turns_is_followed():
    k = Kernel()
    trips = k.op("trips", 2, k.tid(), 1)
    k.loop(k.op("sub", trips, 1), -1, -1, lambda t: k.load(k.x, k.op("add", t, 2)))
    assert launch_ranges.box(only(k), LaunchForm((7,), {}, X)) == (
        (0, 9),
    )  # below thread 2 the form of `trips` is negative
    k = Kernel()
    trips = k.op("trips", 2, k.n, 3)
    back = k.op("sub", trips, 1)
    k.loop(back, -1, -1, lambda t: k.load(k.x, k.op("add", k.op("mul", t, 3), 2)))
    assert launch_ranges.box(only(k), LaunchForm((7,), {"n": 9}, X)) == ((2, 8),) and only(k).certain


def test_an_index_handed_out_of_a_branch_is_known_where_the_condition_is_asked_again():
    k = Kernel()
    i = k.tid()
    c = k.test("gt", i, 0)
    regions = ir.Region(), ir.Region()
    with k.b.inside(regions[0]):
        regions[0].results = (k.op("sub", i, 1),)
    with k.b.inside(regions[1]):
        regions[1].results = (k.const(0),)
    handed = k.b.append(control.IF, (c,), (I32,), regions).outs[0]
    k.when(c, lambda: k.store(k.x, handed))
    assert only(k).certain and launch_ranges.box(only(k), LaunchForm((5,), {}, X)) == ((0, 3),)
    assert private(k.f, "x", LaunchForm((5,), {}, X))
    k.store(k.x, handed)
    accesses._read.cache_clear()
    assert accesses_of(k.f)[1].indices == (None,)


def test_host_arithmetic_in_an_index_is_followed():
    k = Kernel()
    half = k.op("floordiv", k.n, 2)
    k.load(k.x, k.op("add", k.tid(), half))
    assert launch_ranges.box(only(k), LaunchForm((3,), {"n": 9}, X)) == ((4, 6),)
    assert relevant_scalars(k.f) == ("n",)


def test_components_are_accesses_of_the_root_array():
    k = Kernel()
    seen = types.Array(F32, 2)
    c = k.b.append(memory.COMPONENTS, (k.v,), (seen,)).outs[0]
    k.store(c, k.tid(), k.const(2), row=memory.ACCUMULATE)
    assert only(k).array is k.v and launch_ranges.box(only(k), LaunchForm((4,), {}, X)) == ((0, 3),)
    group = accesses_by_array(k.f)["v"]
    assert group.accumulates == group.writes == group.all == [only(k)] and group.reads == []


def test_an_index_that_may_overflow_is_not_trusted():
    k = Kernel()
    k.load(k.x, k.op("mul", k.op("mul", k.tid(), 1 << 20), 1 << 12))
    assert launch_ranges.box(only(k), LaunchForm((4,), {}, X)) == ((0, 9),)
    launch_ranges.check(k.f, LaunchForm((4,), {}, X))  # every thread reads x[0]


def test_widening_after_an_overflow_is_not_trusted():
    k = Kernel()
    always_zero = k.op("mul", k.op("mul", k.op("add", k.tid(), 1), 1 << 16), 1 << 16)
    k.load(k.x, k.op("cast", always_zero, type=types.int64))
    assert launch_ranges.box(only(k), LaunchForm((5,), {}, X)) == ((0, 9),)
    launch_ranges.check(k.f, LaunchForm((5,), {}, X))


# ---- refusals ----


def test_a_launch_larger_than_the_array_is_refused_and_the_message_names_everything():
    k = Kernel()
    k.load(k.x, k.tid())
    launch_ranges.check(k.f, LaunchForm((10,), {}, X))
    with pytest.raises(errors.BoundsError) as e:
        launch_ranges.check(k.f, LaunchForm((11,), {}, X), {"x": "mass"})
    text = str(e.value)
    assert e.value.slug == "bounds" and e.value.where.line == 3
    for part in ("'k'", "'mass'", "(10,)", "thread 10", "index 10", "cell.py:3", "[bounds]"):
        assert part in text


def test_a_component_out_of_range_is_refused():
    k = Kernel()
    c = k.b.append(memory.COMPONENTS, (k.v,), (types.Array(F32, 2),)).outs[0]
    k.store(c, k.tid(), k.const(3))
    with pytest.raises(errors.BoundsError, match="index 3 on axis 1"):
        launch_ranges.check(k.f, LaunchForm((1,), {}, X))


def test_a_guarded_neighbour_is_not_refused():
    k = Kernel()
    i = k.tid()
    k.when(k.test("lt", k.op("add", i, 1), k.shape(k.x)), lambda: k.load(k.x, k.op("add", i, 1)))
    launch_ranges.check(k.f, LaunchForm((10,), {}, X))
    k = Kernel()
    k.load(k.x, k.op("add", k.tid(), 1))
    with pytest.raises(errors.BoundsError):
        launch_ranges.check(k.f, LaunchForm((10,), {}, X))


def test_a_guard_over_two_thread_indices_is_never_overlooked():
    k = Kernel(2)
    i, j = k.tid(0), k.tid(1)
    k.when(k.test("lt", k.op("add", i, j), 10), lambda: k.load(k.x, k.op("add", i, j)))
    launch_ranges.check(k.f, LaunchForm((8, 8), {}, X))
    k = Kernel(2)
    i, j = k.tid(0), k.tid(1)
    k.when(k.test("eq", i, j), lambda: k.store(k.x, i))
    assert write_race(k.f, LaunchForm((3, 3), {}, X)) is None


# guards a * i + b * j + c >= 0
@pytest.mark.parametrize(
    ("index", "n", "guards", "thread", "value"),
    [
        ((1, 0), 2, [(-1, -1, 7), (-1, 1, 0)], (2, 5), 2),
        ((1, -4), 2, [(-1, -1, 5), (1, 1, -2)], (0, 5), -4),
        ((-1, 7), 6, [(-1, -1, 5), (1, 1, -2)], (0, 5), 7),
        ((-1, 1), 2, [(-1, -1, 9), (-1, 1, 0)], (4, 5), -3),
        ((1, 0), 5, [(1, -1, -1), (-1, -1, 5)], (5, 0), 5),
        ((1, 0), 2, [(-1, 1, 0), (1, 1, -8)], (5, 5), 5),
    ],
)
def test_the_thread_that_leaves_may_have_any_index_that_the_access_does_not_name(index, n, guards, thread, value):
    k = Kernel(2)
    i, j = k.tid(0), k.tid(1)
    forms = [k.op("add", k.op("add", k.op("mul", i, a), k.op("mul", j, b)), c) for a, b, c in guards]
    first, second = [k.test("ge", form, 0) for form in forms]
    at = k.op("add", k.op("mul", i, index[0]), index[1])
    k.when(first, lambda: k.when(second, lambda: k.load(k.x, k.wrap(at, k.x))))
    with pytest.raises(errors.BoundsError, match=rf"thread \({thread[0]}, {thread[1]}\) uses index {value} on"):
        launch_ranges.check(k.f, LaunchForm((6, 6), {}, X | {"x": (n,)}))


def test_a_data_dependent_guard_is_never_refused():
    k = Kernel()
    k.when(k.load(k.flags, 0), lambda: k.load(k.x, k.op("add", k.tid(), 50)))
    launch_ranges.check(k.f, LaunchForm((3,), {}, X))


def test_a_loop_without_turns_is_not_refused():
    k = Kernel()
    k.loop(0, k.n, 1, lambda t: k.load(k.x, k.op("add", t, 50)))
    launch_ranges.check(k.f, LaunchForm((3,), {"n": 0}, X))
    with pytest.raises(errors.BoundsError):
        launch_ranges.check(k.f, LaunchForm((3,), {"n": 1}, X))


def test_a_loop_that_may_break_and_a_while_are_not_refused():
    k = Kernel()
    k.loop(0, 20, 1, lambda t: k.load(k.x, t), breaks=lambda: k.load(k.flags, 0))
    body = ir.Region()
    with k.b.inside(body):
        k.load(k.x, k.const(99))
    k.b.append(control.WHILE, (), (), (ir.Region(), body), attr=control.Loop())
    assert not any(a.certain for a in accesses_of(k.f) if a.name == "x")
    launch_ranges.check(k.f, LaunchForm((1,), {}, X))


def test_a_triangular_loop_is_refused_by_a_thread_that_runs():
    k = Kernel()
    k.loop(0, k.tid(), 1, lambda t: k.load(k.x, t))
    launch_ranges.check(k.f, LaunchForm((11,), {}, X))
    with pytest.raises(errors.BoundsError, match="thread 11 uses index 10"):
        launch_ranges.check(k.f, LaunchForm((12,), {}, X))


# ---- threads against threads ----


def test_one_cell_a_thread_is_private_and_a_stencil_is_not():
    k = Kernel()
    i = k.tid()
    k.load(k.x, i)
    k.store(k.x, i, row=memory.ACCUMULATE)
    assert private(k.f, "x", LaunchForm((9,), {}, X))
    k.load(k.x, k.op("add", i, 1))
    accesses._read.cache_clear()
    assert not private(k.f, "x", LaunchForm((9,), {}, X))
    assert private(k.f, "x", LaunchForm((1,), {}, X))


def test_an_axis_of_extent_one_need_not_appear():
    k = Kernel(2)
    k.store(k.x, k.tid(1))
    assert private(k.f, "x", LaunchForm((1, 5), {}, X))
    assert not private(k.f, "x", LaunchForm((2, 5), {}, X))


def test_blocks_and_linear_indices_are_private():
    k = Kernel()
    i3 = k.op("mul", k.tid(), 3)
    k.loop(i3, k.op("add", i3, 3), 1, lambda t: k.store(k.x, t))
    assert private(k.f, "x", LaunchForm((3,), {}, X))
    k = Kernel(2)
    k.store(k.x, k.op("add", k.op("mul", k.tid(0), k.n), k.tid(1)))
    assert private(k.f, "x", LaunchForm((2, 4), {"n": 4}, X))
    assert not private(k.f, "x", LaunchForm((2, 4), {"n": 3}, X))


def test_two_different_strides_are_not_private():
    k = Kernel()
    i = k.tid()
    k.load(k.x, i)
    k.store(k.x, k.op("mul", i, 2))
    assert not private(k.f, "x", LaunchForm((5,), {}, X))


def test_a_guard_that_leaves_one_thread_makes_a_cell_private():
    k = Kernel()
    i = k.tid()
    k.when(k.test("eq", i, 0), lambda: k.store(k.x, 0))
    assert private(k.f, "x", LaunchForm((9,), {}, X))
    assert write_race(k.f, LaunchForm((9,), {}, X)) is None


def test_all_threads_storing_to_one_cell_is_a_race():
    k = Kernel()
    store = k.store(k.x, 0)
    assert write_race(k.f, LaunchForm((1,), {}, X)) is None
    assert write_race(k.f, LaunchForm((2,), {}, X))[:3] == (store, (0,), (1,))


def test_a_diagonal_index_and_neighbouring_stores_are_races():
    k = Kernel(2)
    k.store(k.x, k.op("add", k.tid(0), k.tid(1)))
    assert write_race(k.f, LaunchForm((2, 2), {}, X))[1:3] == ((0, 1), (1, 0))
    k = Kernel()
    k.store(k.x, k.tid())
    k.store(k.x, k.op("add", k.tid(), 1))
    assert write_race(k.f, LaunchForm((3,), {}, X)) is not None
    k = Kernel()
    k.loop(0, 3, 1, lambda t: k.store(k.x, k.op("add", k.tid(), t)))
    assert write_race(k.f, LaunchForm((3,), {}, X)) is not None


def test_atomics_and_data_dependent_stores_are_no_proven_race():
    k = Kernel()
    k.store(k.x, 0, row=memory.ACCUMULATE)
    k.when(k.load(k.flags, 0), lambda: k.store(k.x, 0))
    assert write_race(k.f, LaunchForm((3,), {}, X)) is None


# ---- against brute force ----


class Random:
    """Draws a kernel: affine indices, guards of every kind, loops."""

    def __init__(self, draw, control_flow):
        self.draw, self.k, self.control = draw, Kernel(2), control_flow
        self.turns = []
        self.block(2)

    def pick(self, *options):
        return self.draw(st.sampled_from(options))

    def affine(self, parts=2):
        k = self.k
        total = None
        for _ in range(self.draw(st.integers(1, parts))):
            kind = self.pick(
                "tid0", "tid0", "tid1", "tid1", "n", "const", "shape", "dim", *(["turn"] * 3 if self.turns else [])
            )
            term = {
                "tid0": lambda: k.tid(0),
                "tid1": lambda: k.tid(1),
                "n": lambda: k.n,
                "dim": lambda: k.dim(1),
                "shape": lambda: k.shape(k.x),
                "const": lambda: k.const(self.draw(st.integers(-2, 3))),
                "turn": lambda: self.pick(*self.turns),
            }[kind]()
            change = self.pick(None, None, "neg", 2, 3, "n")
            if change == "neg":
                term = k.op("neg", term)
            elif change is not None:
                term = k.op("mul", term, k.n if change == "n" else change)
            total = term if total is None else k.op(self.pick("add", "sub"), total, term)
        return total

    def condition(self, depth=1):
        k, kind = self.k, self.pick("compare", "compare", "compare", "load", "and", "or", "not", "rows")
        if kind == "load":
            return k.load(k.flags, k.tid(0))
        if kind == "compare" or depth == 0:
            return k.test(self.pick(*COMPARE), self.affine(1), self.affine(1))
        if kind == "not":
            return k.op("logical_not", self.condition(depth - 1), type=BOOL)
        if kind == "rows":
            name = self.pick("logical_and", "logical_or")
            return k.op(name, self.condition(depth - 1), self.condition(depth - 1), type=BOOL)
        first = self.condition(depth - 1)
        return (k.both if kind == "and" else k.either)(first, lambda: self.condition(depth - 1))

    def block(self, depth):
        for _ in range(self.draw(st.integers(1, 2))):
            kind = self.pick("access", "access", "if", "for") if depth and self.control else "access"
            if kind == "access":
                self.access()
            elif kind == "if":
                self.k.when(self.condition(), lambda: self.block(depth - 1), lambda: self.block(depth - 1))
            else:
                breaks = self.pick(None, None, None, lambda: self.k.load(self.k.flags, self.k.tid(1)))
                step = self.pick(1, 1, -1, 2, -2, 3, 0)
                self.k.loop(self.affine(1), self.affine(1), step, lambda t: self.turn(t, depth), breaks)

    def turn(self, t, depth):
        self.turns.append(t)
        self.block(depth - 1)
        self.turns.pop()

    def access(self):
        array = self.pick(self.k.x, self.k.y)
        i = [self.affine() for _ in range(array.type.ndim)]
        if self.pick(False, True):
            i = [self.k.wrap(a, array, axis) for axis, a in enumerate(i)]
        kind = self.pick("load", "store", "store", "accumulate")
        if kind == "load":
            self.k.load(array, *i)
        else:
            self.k.store(array, *i, row=memory.STORE if kind == "store" else memory.ACCUMULATE)


small = st.integers(0, 3)
launches = st.tuples(st.tuples(small, small), st.integers(-1, 3), st.tuples(*[st.integers(1, 6)] * 3))
thorough = settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def _launch(draw):
    dims, n, (a, b, c) = draw(launches)
    return dims, {"n": n}, {"x": (a,), "y": (b, c), "flags": (9,), "v": (1,)}


def _inside(index, shape):
    return all(0 <= i < n for i, n in zip(index, shape, strict=True))


@pytest.mark.slow
@thorough
@given(st.data())
def test_boxes_contain_all_that_was_touched(data):
    k, launch = Random(data.draw, True).k, _launch(data.draw)
    events = k.run(*launch)
    of = {a.stmt: launch_ranges.box(a, LaunchForm(*launch)) for a in accesses_of(k.f)}
    for stmt, name, index, _ in events:
        if _inside(index, launch[2][name]):
            assert of[stmt] and all(lo <= i <= hi for i, (lo, hi) in zip(index, of[stmt], strict=True))


@pytest.mark.slow
@thorough
@given(st.data())
def test_a_refusal_is_always_true(data):
    k, launch = Random(data.draw, True).k, _launch(data.draw)
    try:
        launch_ranges.check(k.f, LaunchForm(*launch))
    except errors.BoundsError:
        assert any(not _inside(index, launch[2][name]) for _, name, index, _ in k.run(*launch))


@pytest.mark.slow
@thorough
@given(st.data())
def test_straight_code_is_refused_exactly_when_it_leaves_an_array(data):
    k, launch = Random(data.draw, False).k, _launch(data.draw)
    leaves = any(not _inside(index, launch[2][name]) for _, name, index, _ in k.run(*launch))
    if not leaves:
        launch_ranges.check(k.f, LaunchForm(*launch))
    else:
        with pytest.raises(errors.BoundsError):
            launch_ranges.check(k.f, LaunchForm(*launch))


@pytest.mark.slow
@thorough
@given(st.data())
def test_private_means_that_no_address_has_two_threads(data):
    k, launch = Random(data.draw, data.draw(st.booleans())).k, _launch(data.draw)
    events = k.run(*launch)
    for array in ("x", "y"):
        if private(k.f, array, LaunchForm(*launch)):
            owner = {}
            for _, name, index, thread in events:
                assert name != array or owner.setdefault(index, thread) == thread


@pytest.mark.slow
@thorough
@given(st.data())
def test_a_write_race_is_always_true(data):
    k, launch = Random(data.draw, data.draw(st.booleans())).k, _launch(data.draw)
    found = write_race(k.f, LaunchForm(*launch))
    if found:
        stmt, a, b, *_ = found
        stores = [e for e in k.run(*launch) if e[0].row is memory.STORE]
        mine = {(name, index) for s, name, index, thread in stores if s is stmt and thread == a}
        theirs = {(name, index) for _, name, index, thread in stores if thread == b}
        assert a != b and mine & theirs
