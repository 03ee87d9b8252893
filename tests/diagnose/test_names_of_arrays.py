"""Findings, errors, ledger and pictures call arrays what the user calls them, never what a kernel calls them."""

from __future__ import annotations

import collections
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

import workbench as wb
from workbench.arrays import names
from workbench.tapes import naming

pytestmark = pytest.mark.usefixtures("backend")

N = 3


@wb.struct
class Pair:
    u: wb.array[float]
    k: float


@wb.struct
class Grain:
    mass: float
    speed: float


@wb.kernel
def flat(inside: wb.array[float], outside: wb.array[float]):
    i = wb.tid()
    outside[i] = float(int(inside[i])) * 2.0


@wb.kernel
def double(inside: wb.array[float], outside: wb.array[float]):
    i = wb.tid()
    outside[i] = 2.0 * inside[i]


@wb.kernel
def of_pair(inside: Pair, outside: wb.array[float]):
    i = wb.tid()
    outside[i] = inside.k * float(int(inside.u[i]))


@wb.kernel
def of_grains(inside: wb.array[Grain], outside: wb.array[float]):
    i = wb.tid()
    outside[i] = float(int(inside[i].speed))


def leaf():
    return wb.array(np.float32([1.5, 2.5, 3.5]), requires_grad=True)


def dead(tape, y):
    """The name in the finding about the leaf whose gradient died, which no kernel calls so."""
    (found,) = tape.diagnose(grads={y: wb.ones(N)}).problems
    assert found.slug == "died" and "inside" not in found.sentence and found.arrays[0] in found.sentence
    return found.arrays


def through(kernel, x, y):
    with wb.Tape() as tape:
        wb.launch(kernel, dim=N, inputs=[x], outputs=[y])
    return tape


class Slotted:
    __slots__ = ("_x", "empty")

    def __init__(self):
        self._x = leaf()


class Body:
    def __init__(self):
        self.f = leaf()


class Simulation:
    def __init__(self):
        self.x, self.y = leaf(), wb.zeros(N)
        self.body = [Body() for _ in range(4)]
        self.parts = {"left": leaf(), 3: [[leaf()]]}

    def step(self):
        with wb.Tape() as tape:
            self.advance()
        return dead(tape, self.y)

    def advance(self):
        wb.launch(flat, dim=N, inputs=[self.x], outputs=[self.y])

    @property
    def trap(self):
        raise AssertionError("a property was run to find a name")

    def __getattr__(self, name):
        raise AssertionError(f"__getattr__({name!r}) was run to find a name")


def test_variables_lists_dicts_structs_and_attributes_name_an_array():
    y, plain, sim = wb.zeros(N), leaf(), Simulation()
    many, state, slotted = [leaf(), (leaf(), leaf())], SimpleNamespace(q=leaf()), Slotted()
    point = collections.namedtuple("Point", "a b")(leaf(), 1)
    for expected, x in {
        "plain": plain,
        "many[0]": many[0],
        "many[1][1]": many[1][1],
        "sim.x": sim.x,
        "state.q": state.q,
        "sim.body[3].f": sim.body[3].f,
        "sim.parts['left']": sim.parts["left"],
        "sim.parts[3][0][0]": sim.parts[3][0][0],
        "slotted._x": slotted._x,
        "point.a": point.a,
    }.items():
        tape = through(flat, x, y)
        del x
        assert dead(tape, y) == (expected,)


def test_a_method_names_the_attributes_of_its_object():
    assert Simulation().step() == ("self.x",)


def test_the_field_of_a_struct_is_named_by_the_struct():
    pair, y = Pair(u=leaf(), k=2.0), wb.zeros(N)
    assert dead(through(of_pair, pair, y), y) == ("pair.u",)


def test_a_field_of_an_array_of_structs_is_named_by_the_array():
    grains, y = wb.array([Grain(1.0, 2.0)] * N, dtype=Grain, requires_grad=True), wb.zeros(N)
    assert dead(through(of_grains, grains, y), y) == ("grains.speed",)


def test_a_view_is_named_by_its_array_with_the_part_it_is():
    x, table, y = leaf(), wb.array(np.ones((4, N), np.float32), requires_grad=True), wb.zeros(N)
    parts = [lambda: table[2], lambda: table[1:, 1], lambda: x[:]]
    for part, expected in zip(parts, ("table[2]", "table[1:,1]", "x"), strict=True):
        with wb.Tape() as tape:
            wb.launch(flat, dim=N, inputs=[part()], outputs=[y])
        assert dead(tape, y) == (expected,)


def test_locals_of_a_function_that_has_returned_are_named_by_the_line_of_the_launch():
    def run(start, end):
        between = wb.zeros(N)
        with_more = [wb.zeros(N)]
        wb.launch(double, N, [start], [between])
        wb.launch(flat, dim=N, inputs=[between], outputs=[with_more[-1]])
        wb.launch(double, N, inputs=[with_more[-1]], outputs=[end])

    x, y = leaf(), wb.zeros(N)
    with wb.Tape() as tape:
        run(x, y)
    found = tape.diagnose(grads={y: wb.ones(N)})
    assert found.named("died")[0].arrays == ("x",)
    assert list(tape.names.noted.values()).count("between") == 1 and "with_more[-1]" in tape.names.noted.values()


def test_a_closure_and_the_callers_variables_name_an_array():
    field = leaf()

    def close():
        y = wb.zeros(N)
        return dead(through(flat, field, y), y)

    def deeper(a, y):
        with wb.Tape() as tape:
            wb.launch(flat, dim=N, inputs=[*a], outputs=[y])
        del a
        return tape

    y, held = wb.zeros(N), Body()
    assert close() == ("field",)
    assert dead(deeper([held.f], y), y) == ("held.f",)


def test_an_error_of_backward_names_the_users_array_and_not_the_parameter():
    sim, y = Simulation(), wb.zeros(N)
    tape = through(square_of, sim.x, y)
    sim.x.fill_(0.0)
    with pytest.raises(wb.GradientError, match=r"'sim\.x' was changed"):
        tape.backward(grads={y: wb.ones(N)})


@wb.kernel
def square_of(inside: wb.array[float], outside: wb.array[float]):
    i = wb.tid()
    outside[i] = inside[i] * inside[i]


def test_an_array_that_got_requires_grad_too_late_is_named():
    later, x, y = wb.ones(N), leaf(), wb.zeros(N)
    with wb.Tape() as tape:
        wb.launch(double, dim=N, inputs=[x], outputs=[y])
        wb.launch(double, dim=N, inputs=[later], outputs=[y])
    later.requires_grad = True
    with pytest.raises(wb.GradientError, match="'later' was not yet on an active path"):
        tape.backward(grads={y: wb.ones(N)})


def test_what_is_kept_is_told_with_the_users_names():
    pressure = leaf()
    with wb.Tape() as tape:
        wb.launch(square_of, dim=N, inputs=[pressure], outputs=[pressure])
        wb.launch(square_of, dim=N, inputs=[pressure], outputs=[pressure])
    found = tape.diagnose(grads={pressure: wb.ones(N)}).named("overwritten-kept")
    assert all("reads pressure" in f.sentence and f.arrays == ("pressure",) for f in found) and found
    assert "reads pressure" in str(tape.memory()) and "inside" not in str(tape.memory())


def test_the_ledger_and_the_picture_name_the_users_arrays():
    sim, y = Simulation(), wb.zeros(N)
    tape = through(square_of, sim.body[1].f, y)
    tape.backward(grads={y: wb.ones(N)})
    assert "sim.body[1].f" in str(tape.ledger(sim.body[1].f, 0))
    assert "sim.body[1].f" in tape.show().text and "inside" not in tape.show().text


def test_two_arrays_of_one_name_are_both_checked():
    y = wb.zeros(N)
    pair = [wb.array(np.float32([1.5, 2.5, 3.5]), requires_grad=True, name="theta") for _ in range(2)]
    with wb.Tape(keep="all") as tape:
        for x in pair:
            wb.launch(adding, dim=N, inputs=[x], outputs=[y])
    rows = [r.input for r in wb.gradcheck(tape).rows if r.launch == "end to end"]
    assert sorted(rows)[:2] == ["theta", "theta (2)"]


@wb.kernel
def adding(inside: wb.array[float], outside: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(outside, i, inside[i] * inside[i])


# ---- one array, one name


def test_one_array_under_several_names_is_no_alias():
    sim, h = Simulation(), wb.zeros(N)
    x = sim.x
    with wb.Tape() as tape:
        wb.launch(double, dim=N, inputs=[x], outputs=[h])
        wb.launch(double, dim=N, inputs=[h], outputs=[sim.x])
        wb.launch(double, dim=2, inputs=[h[1:]], outputs=[sim.x[:2]])
    assert tape.diagnose().named("aliased") == []
    assert tape.names.noted[id(x)] == "x"


def simulate(n):
    a, b = wb.zeros(N, requires_grad=True), wb.zeros(N)
    for _ in range(n):
        wb.launch(double, dim=N, inputs=[a], outputs=[b])
        a, b = b, a
    return a


def test_a_time_loop_with_swapped_buffers_has_no_alias():
    with wb.Tape() as tape:
        end = simulate(7)
    assert tape.diagnose(grads={end: wb.ones(N)}).named("aliased") == []
    a, b = wb.zeros(N, requires_grad=True), wb.zeros(N)
    with wb.Tape() as tape:
        for _ in range(7):
            wb.launch(double, dim=N, inputs=[a], outputs=[b])
            a, b = b, a
    assert tape.diagnose(grads={a: wb.ones(N)}).named("aliased") == []


def test_two_arrays_on_one_memory_are_an_alias():
    h, y = wb.zeros(N, requires_grad=True), wb.zeros(N)
    twin = h[:]
    with wb.Tape() as tape:
        wb.launch(double, dim=N, inputs=[h], outputs=[y])
        wb.launch(double, dim=N, inputs=[y], outputs=[twin])
    (found,) = tape.diagnose().named("aliased")
    assert found.arrays == ("h", "twin")


@pytest.mark.parametrize("of", ["variable", "attribute", "arrays", "dict"])
def test_what_a_loop_leaves_in_its_variable_is_called_as_its_neighbours_are(of):
    bodies = [Body() for _ in range(5)]
    sim = SimpleNamespace(bodies=bodies)
    pieces = [leaf() for _ in range(5)]
    named = dict(zip("abcde", bodies, strict=True))
    y = wb.zeros(N)
    with wb.Tape() as tape:
        if of == "variable":
            del sim, named
            for z in bodies:
                wb.launch(double, dim=N, inputs=[z.f], outputs=[y])
        elif of == "attribute":
            del bodies, named
            for z in sim.bodies:
                wb.launch(double, dim=N, inputs=[z.f], outputs=[y])
        elif of == "dict":
            del bodies, sim
            for z in named.values():
                wb.launch(double, dim=N, inputs=[z.f], outputs=[y])
        else:
            for z in pieces:
                wb.launch(double, dim=N, inputs=[z], outputs=[y])
    lanes = wb.viz.gather(tape).allocations
    each = {
        "variable": "bodies[{}].f",
        "attribute": "sim.bodies[{}].f",
        "arrays": "pieces[{}]",
        "dict": "named[{!r}].f",
    }
    wanted = [each[of].format(k) for k in (list("abcde") if of == "dict" else range(5))]
    assert [lane.names[0].name for lane in lanes if lane.names[0].name != "y"] == wanted


def test_a_variable_of_its_own_keeps_its_name_in_a_short_list():
    x, y = leaf(), wb.zeros(N)
    both = [x, y, wb.zeros(N)]
    with wb.Tape() as tape:
        wb.launch(double, dim=N, inputs=[x], outputs=[both[1]])
    assert [lane.names[0].name for lane in wb.viz.gather(tape).allocations] == ["x", "y"]


# ---- the search


def test_the_search_is_bounded_and_ends_in_circles():
    held = Body()
    held.me = held
    assert [n for n, _ in names.names_in({"held": held}, wb.array)] == ["held.f"]
    far = {"junk": [[1.5] * 900 for _ in range(90)], "held": held}
    assert [n for n, _ in names.names_in(far, wb.array, most=10**6)] == ["held.f"]
    assert [n for n, _ in names.names_in(far, wb.array, most=5000)] == []
    assert [n for n, _ in names.names_in({"xs": [held.f] * 5000}, wb.array)][-1] == "xs[999]"


def test_looking_for_names_keeps_nothing_alive():
    x, large = leaf(), Body()
    gone = weakref.ref(large)
    part = x[1:]
    assert part.label == "part" and x[::2].label == "x[::2]"
    del large
    assert gone() is None
    mine = locals()
    part.label  # noqa: B018
    assert mine["x"] is x, "what the program itself has asked for is left alone"


def test_launches_on_one_line_have_each_their_own_text():
    x, held = wb.array([1.0, 2.0, 3.0]), SimpleNamespace(y=wb.zeros(N))
    with wb.Tape() as tape:
        # fmt: off
        wb.launch(double, N, [x, held.y]); wb.launch(flat, N, inputs=[held.y], outputs=[wb.zeros(N)])  # noqa: E702
        # fmt: on
    assert [naming.argument_texts(event) for event in tape.events] == [["x", "held.y"], ["held.y", "wb.zeros(N)"]]


def test_a_near_name_further_in_is_taken_before_a_far_one_further_out():
    deep = SimpleNamespace(parts=[SimpleNamespace(of=[leaf()])])

    def step(x, y):
        with wb.Tape() as tape:
            wb.launch(double, dim=N, inputs=[x], outputs=[y])
        return wb.viz.gather(tape)

    found = step(deep.parts[0].of[0], wb.zeros(N))
    assert [lane.names[0].name for lane in found.allocations] == ["x", "y"]
