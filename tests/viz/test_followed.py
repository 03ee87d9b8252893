"""How far a gradient can be followed, as the view tells it: the sentence of `tape.trust`, and what ends it."""

from __future__ import annotations

import workbench as wb
from tests.support.trust_programs import staircase
from workbench.diagnose.flow import trusted
from workbench.diagnose.walk_record import seeded_number
from workbench.viz.data.headline import followed
from workbench.viz.live.view import SOON, View


@wb.kernel
def squares(x: wb.array[float], out: wb.array[float]):
    wb.atomic_add(out, 0, x[wb.tid()] * x[wb.tid()])


@wb.kernel
def halve(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = 0.5 * x[i]


def stairs(turns: int = 0):
    x, out = wb.array([0.55], requires_grad=True), wb.zeros(1)
    with wb.Tape() as tape:
        for _ in range(turns):
            y = wb.zeros(1)
            wb.launch(halve, 1, [x], [y])
        wb.launch(staircase, 1, [x], [out])
    tape.backward(out)
    return tape, out


def test_what_ends_it_is_led_to():
    tape, out = stairs(2)
    said, found = followed(tape, trusted(tape, seeded_number(tape))), tape.trust(out)
    assert said is not None and found.kind == "jump"
    assert said.headline == found.sentence.partition(" What helps")[0] and said.fix in found.sentence
    assert said.position == 2 and said.thread == (0,) and said.place is not None
    assert said.place["line"] == found.line.line and said.severity == "info"


def test_a_smooth_one_leads_nowhere():
    x, out = wb.array([3.0, 4.0], requires_grad=True), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(squares, 2, [x], [out])
    tape.backward(out)
    said = followed(tape, trusted(tape, seeded_number(tape)))
    assert said is not None and said.headline.startswith("exact, and good for steps up to") and said.position == -1


def test_nothing_is_said_without_one_seeded_number():
    x, y = wb.ones(2, requires_grad=True), wb.zeros(2)
    with wb.Tape() as tape:
        wb.launch(halve, 2, [x], [y])
    assert followed(tape, trusted(tape, seeded_number(tape))) is None
    tape.backward(grads={y: wb.ones(2)})
    assert followed(tape, trusted(tape, seeded_number(tape))) is None
    tape.backward(grads={y: wb.array([0.0, 1.0])})
    assert followed(tape, trusted(tape, seeded_number(tape))) is None


def test_a_long_tape_is_asked_first():
    short, long = View(stairs()[0]), View(stairs(SOON)[0])
    assert [row["slug"] for row in short.answer({"ask": "trust"})[0]["rows"]] == ["trust"]
    assert long.answer({"ask": "trust"})[0] == {"rows": [], "ask": True}
    found = long.answer({"ask": "trust", "all": True})[0]
    assert not found["ask"] and found["rows"][0]["position"] == SOON
