"""A loop of many turns in the table of the microscope."""

from __future__ import annotations

import workbench as wb


@wb.kernel
def wandering(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    s = x[i]
    for k in range(300):
        s = s + 0.01 * wb.sin(s) * x[i] / float(200 - k)
    y[i] = s


def test_the_table_of_a_long_loop_has_its_ends_and_the_turn_in_which_a_number_is_none():
    x, y = wb.array([1.0], dtype=float, requires_grad=True), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(wandering, 1, [x], [y])
    tape.backward(grads={y: wb.ones(1)})
    found = tape.microscope(0, 0)
    assert max(step.iteration[0] for step in found.steps if step.iteration) == 299
    turns = {row[5] for row in found.table()[1:] if row[0] == "↓"} - {""}
    assert turns == {"0", "1", "2", "200", "297", "298", "299"}
    assert "more steps, in the turns between" in repr(found)
    assert len(repr(found)) + len(found._repr_html_()) < 150_000
