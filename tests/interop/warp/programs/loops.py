"""Loops and assignments inside kernels."""
# ruff: noqa: UP018  `float(0.0)` declares a variable in Warp, `0.0` a constant

import warp as wp

from tests.interop.warp.declare import Outcome, agrees, wrong
from tests.interop.warp.shared import weighted_sum


def through(kernel, x, *more):
    """The gradient of the weighted sum of what `kernel` makes of x."""
    x = wp.array(x, dtype=float, requires_grad=True)
    y = wp.zeros_like(x)
    loss = wp.zeros(1, dtype=float, requires_grad=True)
    with wp.Tape() as tape:
        wp.launch(kernel, dim=x.shape, inputs=[x, *more], outputs=[y])
        wp.launch(weighted_sum, dim=x.shape, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@wp.kernel
def horner(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    p = float(1.0)
    for k in range(4):
        p = p * x[i] + float(k)
    y[i] = p


@agrees(x=[1.5, 0.7, -0.5])
def unrolled_loop(x):
    """The number of turns is in the text, so Warp writes the turns out one by one."""
    return through(horner, x)


@wp.kernel
def prefix_sum(x: wp.array(dtype=float), n: int, y: wp.array(dtype=float)):
    i = wp.tid()
    s = float(0.0)
    for k in range(n):
        s += x[k] * x[i]
    y[i] = s


@agrees(x=[1.5, 0.7, -0.5])
def sum_in_a_dynamic_loop(x):
    """A sum over n turns: no turn's adjoint needs the sum so far."""
    return through(prefix_sum, x, 3)


@wp.kernel
def sum_times(x: wp.array(dtype=float), n: int, y: wp.array(dtype=float)):
    i = wp.tid()
    s = float(0.0)
    for k in range(n):
        s = s + x[k]
    y[i] = s * x[i]


@wrong("dynamic loop in the kernel", launch="sum_times", x=[1.5, 0.7, -0.5])
def sum_used_behind_its_loop(x):
    """Warp's adjoint does not run the loop before it reverses what uses the sum, which it takes for 0."""
    return through(sum_times, x, 3)


@wp.kernel
def product(x: wp.array(dtype=float), n: int, y: wp.array(dtype=float)):
    i = wp.tid()
    p = float(1.0)
    for k in range(n):
        p = p * x[k]
    y[i] = p


@wrong("dynamic loop in the kernel", launch="product", x=[1.5, 0.7, -0.5])
def product_in_a_dynamic_loop(x):
    """Each turn's adjoint needs the product so far, and Warp has the last one only."""
    return through(product, x, 3)


@wp.kernel
def newton_root(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    r = x[i]
    while wp.abs(r * r - x[i]) > 1.0e-3:
        r = 0.5 * (r + x[i] / r)
    y[i] = r * x[i]


@wrong("dynamic loop in the kernel", launch="newton_root", x=[2.0, 3.5, 0.4])
def while_loop(x):
    """Newton's method for a root: as many turns as it takes, each from the estimate before."""
    return through(newton_root, x)


@wp.kernel
def largest(x: wp.array(dtype=float), n: int, y: wp.array(dtype=float)):
    i = wp.tid()
    m = float(-1.0e6)
    for k in range(n):
        m = wp.max(m, x[k])
    y[i] = m * x[i]


@wrong("dynamic loop in the kernel", launch="largest", x=[1.5, 0.7, -0.5])
def maximum_in_a_dynamic_loop(x):
    """The adjoint of `max` asks again who was larger, with the maximum of the end."""
    return through(largest, x, 3)


@wp.kernel
def euler_steps(x: wp.array(dtype=float), n: int, y: wp.array(dtype=float)):
    i = wp.tid()
    v = float(0.0)
    p = x[i]
    for _ in range(n):
        v = v - 0.1 * wp.sin(p)
        p = p + 0.1 * v
    y[i] = p


@wrong("dynamic loop in the kernel", launch="euler_steps", x=[1.5, 0.7, -0.5])
def steps_in_a_dynamic_loop(x):
    """A pendulum integrated inside a kernel: `sin` is differentiated at the last angle in every turn."""
    return through(euler_steps, x, 20)


@wp.kernel
def first_above(x: wp.array(dtype=float), n: int, y: wp.array(dtype=float)):
    i = wp.tid()
    s = float(0.0)
    for k in range(n):
        if x[k] < 0.0:
            break
        s += x[k] * x[k]
    y[i] = s


@wrong("dynamic loop in the kernel", launch="first_above", x=[1.5, 0.7, -0.5, 2.0])
def sum_with_break(x):
    """A dynamic loop that is left early: Warp's adjoint comes from the other end, to turns that never were."""
    return through(first_above, x, 4)


@wp.kernel
def assigned_in_branch(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    a = x[i]
    if a > 0.0:
        a = a * a
    else:
        a = -2.0 * a
    y[i] = a * x[i]


@agrees(x=[1.5, -0.7, 0.5])
def assigned_in_a_branch(x):
    """A local name with another value on each path."""
    return through(assigned_in_branch, x)


@wp.kernel
def reused_name(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    a = x[i]
    a = a * a
    a = wp.sin(a) + a
    y[i] = a


@agrees(x=[1.5, -0.7, 0.5])
def one_name_for_three_values(x):
    """In straight code each assignment makes a new variable."""
    return through(reused_name, x)


@wp.kernel
def vector_product(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    a = wp.vec2(x[i], 1.0)
    a *= x[i]
    b = a[0] * a[0]
    a += wp.vec2(b, b)
    y[i] = wp.dot(a, a)


@agrees(x=[1.5, -0.7, 0.5])
def vector_updated_as_a_whole(x):
    """`a *= s` and `a += b` on a whole local vector."""
    return through(vector_product, x)


@wp.kernel
def condition_reassigned(x: wp.array(dtype=float), n: int, y: wp.array(dtype=float)):
    i = wp.tid()
    a = x[i]
    b = float(0.0)
    for k in range(n):
        if k == 1:
            a = a * x[i]
        b += a * a
    y[i] = b


@wrong("local re-assignment in the kernel", launch="condition_reassigned", x=[1.5, -0.7, 0.5])
def re_assigned_inside_a_loop(x):
    """`a` gets a new value in one turn of a dynamic loop; the turns before it are differentiated with the last one."""
    return through(condition_reassigned, x, 3)


@wp.func
def clipped(x: float):
    return wp.min(wp.max(x, -1.0), 1.0)


@wp.func
def cube(x: float):
    return x * x * x


@wp.func_grad(cube)
def adj_cube(x: float, adj_ret: float):
    wp.adjoint[x] += 3.0 * x * x * adj_ret


@wp.kernel
def cubes(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = cube(x[i])


@agrees(x=[1.5, -0.7, 0.5])
def custom_adjoint(x):
    """A func with an adjoint of its own, which is right."""
    return through(cubes, x)


@wp.func
def quartic(x: float):
    return x * x * x * x


@wp.func_grad(quartic)
def adj_quartic(x: float, adj_ret: float):
    wp.adjoint[x] += 3.0 * x * x * x * adj_ret


@wp.kernel
def quartics(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = quartic(x[i])


@wrong("custom adjoint", launch="quartics", x=[1.5, -0.7, 0.5])
def custom_adjoint_with_a_slip(x):
    """The adjoint that the user wrote has 3 where 4 is right."""
    return through(quartics, x)


@wp.kernel
def saturated(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = clipped(x[i]) * x[i]


@agrees(x=[1.5, -0.7, 0.5])
def clipped_values(x):
    """`min` and `max`, away from their kinks."""
    return through(saturated, x)


@wp.kernel(enable_backward=False)
def without_adjoint(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = x[i] * x[i]


@wrong("adjoint switched off", launch="without_adjoint", x=[1.5, -0.7, 0.5])
def kernel_without_adjoint(x):
    """The adjoint of the kernel is switched off: the walk back passes it by, with a line in the log."""
    return through(without_adjoint, x)


@wp.kernel
def cancelled(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = 1.0e9 * x[i] + x[i] * x[i] - 1.0e9 * x[i]


@wrong("precision", launch="cancelled", exact={"x": [3.0, -2.8, 3.0]}, x=[1.5, -0.7, 0.5])
def cancelling_terms(x):
    """A billion comes and goes: in float32 the derivative of what is left drowns in it."""
    return through(cancelled, x)
