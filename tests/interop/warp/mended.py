"""Programs of the collection after the change that the watch names: each remedy is proved by a gradient that agrees.

`MENDED` maps the name of a program to what its row says is to be done (words of the remedy), and the mended program.
"""
# ruff: noqa: UP018  `float(0.0)` declares a variable in Warp, `0.0` a constant

from itertools import pairwise

import numpy as np
import warp as wp

from tests.interop.warp.declare import Outcome, Program
from tests.interop.warp.programs import arguments, between
from tests.interop.warp.programs.loops import through
from tests.interop.warp.programs.memory import counted_twice, grown
from tests.interop.warp.programs.passes import halve, scattered
from tests.interop.warp.programs.structs import State, into_state, read_state
from tests.interop.warp.programs.subtle import addsq, cond_sum, descend, gather
from tests.interop.warp.shared import fresh, linear_drag, square, weighted_sum

MENDED: dict[str, tuple[str, Program]] = {}


def mends(name, words):
    """`run` is the program `name` after what the remedy says, of which these words are part."""

    def note(run):
        MENDED[name] = words, run
        return run

    return note


def leaf(x):
    return wp.array(x, dtype=float, requires_grad=True)


# ---- kernels


@wp.kernel
def product(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    p = float(1.0)
    for k in range(3):
        p = p * x[k]
    y[i] = p


@mends("product_in_a_dynamic_loop", "turns whose number stands in the text (range(8)")
def product_in_a_loop_of_the_text(x):
    return through(product, x)


@wp.func
def sum_of(x: wp.array(dtype=float), n: int):
    s = float(0.0)
    for k in range(n):
        s = s + x[k]
    return s


@wp.kernel
def sum_times(x: wp.array(dtype=float), n: int, y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = sum_of(x, n) * x[i]


@mends("sum_used_behind_its_loop", "the loop in a wp.func that returns `s`")
def sum_in_a_func(x):
    return through(sum_times, x, 3)


@wp.kernel
def newton_root(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    r = x[i]
    for _ in range(8):
        r = 0.5 * (r + x[i] / r)
    y[i] = r * x[i]


@mends("while_loop", "turns whose number stands in the text (range(8)")
def eight_turns(x):
    return through(newton_root, x)


@wp.kernel
def largest(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    m = float(-1.0e6)
    for k in range(3):
        m = wp.max(m, x[k])
    y[i] = m * x[i]


@mends("maximum_in_a_dynamic_loop", "turns whose number stands in the text (range(8)")
def maximum_in_a_loop_of_the_text(x):
    return through(largest, x)


@wp.kernel
def euler_step(
    p: wp.array(dtype=float), v: wp.array(dtype=float), p1: wp.array(dtype=float), v1: wp.array(dtype=float)
):
    i = wp.tid()
    v1[i] = v[i] - 0.1 * wp.sin(p[i])
    p1[i] = p[i] + 0.1 * (v[i] - 0.1 * wp.sin(p[i]))


@mends("steps_in_a_dynamic_loop", "a launch and an array per turn")
def a_launch_per_turn(x):
    x = leaf(x)
    p, v, loss = [x, *(fresh() for _ in range(20))], [fresh() for _ in range(21)], fresh(1)
    with wp.Tape() as tape:
        for t in range(20):
            wp.launch(euler_step, dim=3, inputs=[p[t], v[t]], outputs=[p[t + 1], v[t + 1]])
        wp.launch(weighted_sum, dim=3, inputs=[p[20]], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wp.kernel
def first_above(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    s = float(0.0)
    going = 1
    for k in range(4):
        if x[k] < 0.0:
            going = 0
        if going == 1:
            s += x[k] * x[k]
    y[i] = s


@mends("sum_with_break", "`if` around what they do in place of `break`")
def sum_without_break(x):
    return through(first_above, x)


@wp.kernel
def renamed(x: wp.array(dtype=float), n: int, y: wp.array(dtype=float)):
    i = wp.tid()
    a = x[i]
    changed = a * x[i]
    b = float(0.0)
    for k in range(n):
        if k >= 1:
            b += changed * changed
        else:
            b += a * a
    y[i] = b


@mends("re_assigned_inside_a_loop", "a new name for the new value")
def a_name_for_each_value(x):
    return through(renamed, x, 3)


@wp.func
def quartic(x: float):
    return x * x * x * x


@wp.func_grad(quartic)
def adj_quartic(x: float, adj_ret: float):
    wp.adjoint[x] += 4.0 * x * x * x * adj_ret


@wp.kernel
def quartics(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = quartic(x[i])


@mends("custom_adjoint_with_a_slip", "the func_grad of `quartic` mended")
def custom_adjoint_mended(x):
    return through(quartics, x)


@wp.kernel(enable_backward=True)
def with_adjoint(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = x[i] * x[i]


@mends("kernel_without_adjoint", "@wp.kernel(enable_backward=True)")
def kernel_with_adjoint(x):
    return through(with_adjoint, x)


@wp.kernel
def without_large_terms(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = x[i] * x[i]


@mends("cancelling_terms", "a formula without the large terms")
def without_cancelling_terms(x):
    return through(without_large_terms, x)


@wp.kernel
def numbers_of_their_own(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    first = x[i] * x[i]
    second = first * x[i]
    v = wp.vec3(second * first, second, 1.0)
    y[i] = v[0] + v[1]


@mends("component_written_again", "a local number in place of `v[0]`")
def component_written_once(x):
    return through(numbers_of_their_own, x)


@wp.kernel
def powers_in_numbers(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    t0 = x[i]
    t1 = t0 * x[i]
    t2 = t1 * x[i]
    t3 = t2 * x[i]
    y[i] = t3


@mends("fixed_array", "a local number in place of `t[0]`")
def numbers_for_cells(x):
    return through(powers_in_numbers, x)


@wp.kernel
def one_store(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    value = x[i] * 3.0
    y[i] = value * value * x[i]


@mends("stored_and_reloaded", "a local variable instead of `y[i]`, and one store at the end")
def stored_once(x):
    return through(one_store, x)


@wp.func
def power(x: float):
    p = float(1.0)
    for _ in range(4):
        p = p * x
    return p


@wp.kernel
def powers(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = power(x[i])


@mends("loop_in_func", "turns whose number stands in the text (range(8)")
def loop_of_the_text_in_func(x):
    return through(powers, x)


# ---- memory


def squared(x, before=None, after=None, number=None):
    """Squares of x, summed; `before` and `after` the walk back something happens to x."""
    n = len(x)
    x = leaf(x)
    y, loss = fresh(n), fresh(1)
    with wp.Tape() as tape:
        given = x if before is None else before(x)
        wp.launch(square, dim=n, inputs=[given], outputs=[y])
        wp.launch(weighted_sum, dim=n, inputs=[y], outputs=[loss])
        if before is not None:
            after(x)
    tape.backward(loss)
    if before is None:
        after(x)
    return Outcome(loss, {"x": x})


@mends("zeroed_before_backward", "zero_ behind tape.backward(...)")
def zeroed_after_backward(x):
    return squared(x, after=lambda x: x.zero_())


@mends("partly_overwritten", "wp.clone(`x`) as argument of #0 square")
def overwritten_behind_a_clone(x):
    return squared(x, wp.clone, lambda x: x[1:2].fill_(9.0))


@mends("assigned_by_the_host", "wp.clone(`x`) first")
def assigned_behind_a_clone(x):
    return squared(x, wp.clone, lambda x: x.assign(np.zeros(3)))


@mends("written_through_numpy", "tape.backward(...) before the host writes `x`")
def written_through_numpy_later(x):
    return squared(x, after=lambda x: x.numpy().fill(0.0))


@mends("scaled_by_torch", "tape.backward(...) before the host writes `x`")
def scaled_by_torch_later(x):
    return squared(x, after=lambda x: wp.to_torch(x, requires_grad=False).mul_(0.5))


@mends("step_before_backward", "descend behind tape.backward(...)")
def step_after_backward(x):
    return squared(x, after=lambda x: wp.launch(descend, dim=3, inputs=[x, x.grad, 0.1]))


@mends("copied_over_its_input", "an array of its own for what #2 copy writes")
def copied_elsewhere(x):
    x = leaf(x)
    state, y, new, loss = fresh(), fresh(), fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.copy(state, x)
        wp.launch(square, dim=3, inputs=[state], outputs=[y])
        wp.copy(new, y)
        wp.launch(weighted_sum, dim=3, inputs=[new], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@mends("squared_in_place", "an output of its own for `square_in_place`")
def squared_into_another(x):
    x = leaf(x)
    state, y, loss = fresh(), fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.copy(state, x)
        wp.launch(square, dim=3, inputs=[state], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


def steps(x, kernel, count):
    """A kernel from array to array, one array per step."""
    x = leaf(x)
    n = len(x)
    states, loss = [x, *(fresh(n) for _ in range(count))], fresh(1)
    with wp.Tape() as tape:
        for now, then in pairwise(states):
            wp.launch(kernel, dim=n, inputs=[now], outputs=[then])
        wp.launch(weighted_sum, dim=n, inputs=[states[-1]], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@mends("twenty_steps_in_two_buffers", "one per step, not one for all")
def twenty_steps_in_arrays_of_their_own(x):
    return steps(x, grown, 20)


@mends("capture_while", "one per step, not one for all")
def turns_in_arrays_of_their_own(x):
    return steps(x, halve, 3)


@mends("second_array_on_the_same_memory", "`y` itself, or a view of it")
def view_of_the_same_memory(x):
    x = leaf(x)
    y, loss = fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y[:]], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@mends("step_without_requires_grad", "`y` made with requires_grad=True")
def step_with_requires_grad(x):
    return steps(x, square, 1)


@mends("struct_without_requires_grad", "`s.x` made with requires_grad=True")
def struct_with_requires_grad(x):
    x = leaf(x)
    y, loss = fresh(), fresh(1)
    s = State()
    s.x, s.v = fresh(), fresh()
    with wp.Tape() as tape:
        wp.launch(into_state, dim=3, inputs=[x], outputs=[s])
        wp.launch(read_state, dim=3, inputs=[s], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@mends("index_overwritten", "wp.clone(`idx`) first")
def index_kept(x):
    x = leaf(x)
    idx = wp.array([2, 0, 1], dtype=int)
    y, loss = fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.launch(gather, dim=3, inputs=[x, wp.clone(idx)], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
        idx.assign(np.array([0, 0, 0]))
    tape.backward(loss)
    return Outcome(loss, {"x": x})


# ---- passes and tapes


@mends("passes_without_zero", "tape.zero() before the next tape.backward(...)")
def passes_with_zero(x):
    x = leaf(x)
    y, z = fresh(), fresh()
    with wp.Tape() as tape:
        wp.launch(scattered, dim=3, inputs=[x], outputs=[y])
        wp.launch(scattered, dim=3, inputs=[x], outputs=[z])
    tape.backward(grads={y: wp.array([1.0, 1.0, 1.0], dtype=float)})
    tape.zero()
    tape.backward(grads={z: wp.array([1.0, 0.0, 0.0], dtype=float)})
    return Outcome([(z, [1.0, 0.0, 0.0])], {"x": x})


@mends("recorded_launch", "wp.launch(square, ...) inside `with tape:`")
def launched_under_the_tape(x):
    return steps(x, square, 1)


def twice(x, y, z):
    """Two sums, of y and of what another kernel leaves in z."""
    x, loss = leaf(x), fresh(1)
    with wp.Tape() as tape:
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
        wp.launch(cond_sum, dim=3, inputs=[x, 3], outputs=[z])
        wp.launch(weighted_sum, dim=3, inputs=[z], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@mends("retained_and_reused", "retain_grad=False")
def reused_and_not_retained(x):
    y = fresh()
    return twice(x, y, y)


@mends("filled_output_between", "an array of its own for what `y` holds after #1 fill_")
def filled_elsewhere(x):
    x = leaf(x)
    y, filled, loss = fresh(), fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
        filled.fill_(2.0)
        wp.launch(weighted_sum, dim=3, inputs=[filled], outputs=[loss])
        wp.launch(weighted_sum, dim=3, inputs=[x], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@mends("accumulated_scratch", "an array of its own for what `s` holds after #2 zero_")
def scratch_for_each_sum(x):
    x, loss = leaf(x), fresh(1)
    with wp.Tape() as tape:
        for _ in range(2):
            s = fresh()
            wp.launch(addsq, dim=3, inputs=[x], outputs=[s])
            wp.launch(weighted_sum, dim=3, inputs=[s], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@mends("several_writers", "a cell for each thread, or wp.atomic_add")
def a_cell_for_each_thread(x):
    x, y = leaf(x), fresh()
    with wp.Tape() as tape:
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
    tape.backward(grads={y: wp.array([0.0, 0.0, 1.0], dtype=float)})
    return Outcome([(y, [0.0, 0.0, 1.0])], {"x": x})


@wp.kernel
def squared_and_counted(x: wp.array(dtype=float), count: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    wp.atomic_add(count, 0, 1.0)
    y[i] = x[i] * x[i]


@mends("count_in_a_func", "the writing to `count` in the kernel itself")
def counted_in_the_kernel(x):
    return counted_twice(squared_and_counted, x)


# ---- arguments


@mends("number_in_a_struct_changed", "a struct of its own for each launch")
def a_struct_for_each_launch(x):
    x, loss = leaf(x), fresh(1)
    with wp.Tape() as tape:
        for n in range(3):
            spring, y = arguments.Spring(), fresh()
            spring.x, spring.stiffness = x, 1.0 + n
            wp.launch(arguments.pulled, dim=3, inputs=[spring], outputs=[y])
            wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


def steps_of_structs(x, v, count):
    x, v = leaf(x), leaf(v)
    now, loss = arguments.body(x, v), fresh(1)
    with wp.Tape() as tape:
        for _ in range(count):
            then = arguments.body(fresh(2), fresh(2))
            wp.launch(arguments.moved, dim=2, inputs=[now, then, 0.4])
            now = then
        wp.launch(arguments.reached, dim=2, inputs=[now], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x, "v": v})


@mends("arrays_in_structs_change_places", "a struct of its own for each launch")
def two_steps_of_structs(x, v):
    return steps_of_structs(x, v, 2)


@mends("arrays_in_structs_replaced", "a struct of its own for each launch")
def three_steps_of_structs(x, v):
    return steps_of_structs(x, v, 3)


@mends("list_of_arguments_changed", "list of arguments, of its own for each launch")
def a_list_for_each_launch(x):
    x, loss = leaf(x), fresh(1)
    with wp.Tape() as tape:
        for n in range(3):
            y = fresh()
            wp.launch(arguments.scaled, dim=3, inputs=[x, 1.0 + n], outputs=[y])
            wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@mends("vector_changed", "a vector, or list of arguments, of its own")
def a_vector_for_each_launch(x):
    x = wp.array(x, dtype=wp.vec3, requires_grad=True)
    loss = fresh(1)
    with wp.Tape() as tape:
        for g in (wp.vec3(1.0, 0.0, 0.0), wp.vec3(1.0, 5.0, 0.0)):
            y = fresh(1)
            wp.launch(arguments.along, dim=1, inputs=[x, g], outputs=[y])
            wp.launch(weighted_sum, dim=1, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wp.kernel
def gathered(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    v = wp.vec3()
    for k in range(3):
        v[k] = x[k] * x[i]
    y[i] = wp.dot(v, v)


@mends("vector_filled_in_a_loop", "turns whose number stands in the text")
def vector_filled_in_a_loop_of_the_text(x):
    return through(gathered, x)


@wp.kernel
def pushed(p: wp.array(dtype=arguments.Point), dt: float, q: wp.array(dtype=arguments.Point)):
    i = wp.tid()
    made = arguments.Point()
    made.m = p[i].m
    made.p = p[i].p + p[i].p * (dt * p[i].m)
    q[i] = made


@mends("field_moved_in_place", "an output of its own for `pushed`")
def points_moved_to_others(x):
    x, y, loss = leaf(x), fresh(), fresh(1)
    p, q = (wp.zeros(3, dtype=arguments.Point, requires_grad=True) for _ in range(2))
    with wp.Tape() as tape:
        wp.launch(arguments.placed, dim=3, inputs=[x], outputs=[p])
        wp.launch(pushed, dim=3, inputs=[p, 0.3], outputs=[q])
        wp.launch(arguments.measured, dim=3, inputs=[q], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wp.kernel
def largest_times(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    most = wp.max(wp.max(x[4 * i], x[4 * i + 1]), wp.max(x[4 * i + 2], x[4 * i + 3]))
    y[i] = most * (x[4 * i] + x[4 * i + 1] + x[4 * i + 2] + x[4 * i + 3])


@mends("largest_of_a_tile", "`tile_max` written out with builtins that have an adjoint")
def largest_of_four(x):
    x, y, loss = leaf(x), fresh(2), fresh(1)
    with wp.Tape() as tape:
        wp.launch(largest_times, dim=2, inputs=[x], outputs=[y])
        wp.launch(weighted_sum, dim=2, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wp.kernel
def product_added(x: wp.array(dtype=float), y: wp.array(dtype=float), total: wp.array(dtype=float)):
    i = wp.tid()
    wp.atomic_add(total, 0, x[i] * y[i])


@mends("seed_in_a_result_that_is_not_recorded", "a kernel in place of array_inner")
def inner_product_by_a_kernel(x):
    x, y, loss = leaf(x), fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
        wp.launch(product_added, dim=3, inputs=[x, y], outputs=[loss])
    loss.grad.fill_(1.0)
    tape.backward()
    return Outcome(loss, {"x": x})


@wp.kernel
def blended(x: wp.array(dtype=float), n: int, y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = 0.5 * (x[i] + x[(i + 1) % n]) * x[i]


@mends("neighbours_in_place", "an output of its own, of which no thread of the launch reads")
def neighbours_blended_into_others(x):
    x, y, loss = leaf(x), fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.launch(blended, dim=3, inputs=[x, 3], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@mends("seed_in_a_result_behind_the_tape", "wp.launch(square, ...) inside `with tape:`")
def all_launches_on_the_tape(x):
    x, y, z = leaf(x), fresh(), fresh()
    with wp.Tape() as tape:
        wp.launch(arguments.scaled, dim=3, inputs=[x, 2.0], outputs=[y])
        wp.launch(square, dim=3, inputs=[y], outputs=[z])
    z.grad.fill_(1.0)
    tape.backward()
    return Outcome(z, {"x": x})


@mends("cloned_with_its_gradient", "`x.grad.zero_()` behind the copy")
def cloned_then_cleared(x):
    before = leaf(x)
    between.walked(before)
    x = wp.clone(before)
    x.grad.zero_()
    return Outcome(between.walked(x), {"x": x})


MENDED["copied_with_its_gradient"] = MENDED["cloned_with_its_gradient"]


@mends("grad_of_torch_set_to_none", "zero_grad(set_to_none=False)")
def grad_of_torch_set_to_zero(x):
    import torch

    tensor = torch.tensor(x, requires_grad=True)
    x = wp.from_torch(tensor)
    between.walked(x)
    torch.optim.SGD([tensor]).zero_grad(set_to_none=False)
    return Outcome(between.walked(x), {"x": x})


@mends("seed_put_again", "tape.backward(grads={y: seed})")
def seed_given_again(x):
    x, y, seed = leaf(x), fresh(), wp.array(np.array([1.0, -2.0, 0.5]), dtype=float)
    with wp.Tape() as tape:
        wp.launch(square, dim=3, inputs=[x], outputs=[y])
    for _ in range(2):
        x.grad.zero_()
        tape.backward(grads={y: seed})
    return Outcome([(y, [1.0, -2.0, 0.5])], {"x": x})


@wp.kernel
def roots_by_if(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    if x[i] > 0.0:
        y[i] = wp.sqrt(x[i])
    else:
        y[i] = 2.0 * x[i]


@mends("root_that_is_left_out", "`if` in place of wp.where")
def root_in_a_branch(x):
    return between.by_kernel(roots_by_if, x, float)


@mends("drag_at_rest", "-k * v in place of -k * wp.length(v) * wp.normalize(v)")
def drag_without_a_direction(v):
    return between.by_kernel(linear_drag, v, wp.vec3)
