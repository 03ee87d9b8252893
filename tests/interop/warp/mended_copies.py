"""More of `mended`: copies, and other arrays on the memory of an input."""

import warp as wp

from tests.interop.warp.declare import Outcome
from tests.interop.warp.mended import leaf, mends
from tests.interop.warp.shared import fresh, square, weighted_sum


@mends("input_read_through_a_second_array", "`x` itself, or a view of it")
def view_of_the_input(x):
    x = leaf(x)
    y, copied, loss = fresh(), fresh(), fresh(1)
    with wp.Tape() as tape:
        wp.copy(copied, x)
        wp.launch(square, dim=3, inputs=[x[:]], outputs=[y])
        wp.launch(weighted_sum, dim=3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    return Outcome(loss, {"x": x})


@mends("copied_and_overwritten_on_the_first_of_two_tapes", "an output of its own for `square_in_place`")
def squared_into_another_array_on_the_first_of_two_tapes(x):
    x = leaf(x)
    y, z, loss = fresh(), fresh(), fresh(1)
    first, second = wp.Tape(), wp.Tape()
    with first:
        wp.copy(y, x)
        wp.launch(square, dim=3, inputs=[y], outputs=[z])
    with second:
        wp.launch(weighted_sum, dim=3, inputs=[z], outputs=[loss])
    second.backward(loss)
    first.backward()
    return Outcome(loss, {"x": x})
