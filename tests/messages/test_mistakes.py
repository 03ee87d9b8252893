"""What is refused, and what the message says: every row of the table in `mistakes`, and what stands beside it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import workbench as wb
from tests.messages.mistakes import MISTAKES, Mistake, Scene, four, gather, square

PACKAGE = Path(wb.__file__).parent


def rows() -> list:
    """Each mistake on each of its backends."""
    marks = {"c": [pytest.mark.needs_cc]}
    return [
        pytest.param(mistake, backend, marks=marks.get(backend, []), id=f"{mistake.name} {backend}".rstrip())
        for mistake in MISTAKES
        for backend in mistake.backends
    ]


@pytest.mark.parametrize("mistake, on", rows())
def test_a_mistake_is_refused_with_the_way_out(mistake: Mistake, on: str) -> None:
    if on:
        wb.config.backend = on
    with pytest.raises(mistake.kind) as caught:
        mistake.run()
    error, text = caught.value, str(caught.value)
    assert not [word for word in mistake.words if word not in text], text
    if mistake.slug:
        assert error.slug == mistake.slug and text.endswith(f"[{mistake.slug}]")
    if mistake.line:
        assert error.where.text.partition("#")[0].strip() == mistake.line and mistake.line in text


def test_the_table_has_a_row_for_each_message_once() -> None:
    names = [mistake.name for mistake in MISTAKES]
    assert len(names) == len(set(names)) and len(names) > 150
    assert all(mistake.slug or mistake.words for mistake in MISTAKES)


@pytest.mark.parametrize(
    "line",
    [
        "wb.launch(lengths, 4, [p.view(wb.vec3)], [wb.zeros(4)])",
        "tape.backward(grads={y: wb.ones_like(y)})",
        "wb.launch(k, 3, [wb.from_numpy(np.ones(3, np.float32))], [y])",
        "wb.launch(k, 3, [np.ones(3, np.float32)], [y])",
        "wb.launch(k, 3, (x,), (y,))",
        "wb.launch(k, 3, [x, y])",
        "wb.jacobian(tape, y, x)",
        "float(wb.ones(1))",
        "wb.launch(k, 12, [wb.zeros(4, dtype=wb.vec3).view(wb.float32).flatten()], [wb.zeros(12)])",
        "wb.launch(k, 3, inputs=(a for a in (x, y)))",
        "assert x is x and (x == None) is False and x in [x]",
        "wb.launch(k, x.shape, [x], [y])",
        "assert {x: 1}[x] == 1 and hash(x) != hash(y)",
    ],
)
def test_the_way_out_works(backend, line):
    Scene().run(line)


def test_negative_indices_count_from_the_end(backend):
    wb.config.check_bounds = True
    y = wb.zeros(4, dtype=wb.float32)
    wb.launch(gather, dim=4, inputs=[four(), wb.array([-1, -2, -4, 3], dtype=wb.int32), y])
    np.testing.assert_array_equal(y.numpy(), [16, 9, 1, 16])


def test_a_failed_launch_under_a_tape_leaves_no_event(backend):
    x, y, tape = four(requires_grad=True), four(), wb.Tape()
    with tape:
        wb.launch(square, dim=4, inputs=[x, y])
        with pytest.raises(wb.BoundsError):
            wb.launch(square, dim=5, inputs=[x, y])
    assert len(tape.events) == 1
    tape.backward(grads={y: wb.ones(4, dtype=wb.float32)})
    np.testing.assert_array_equal(x.grad.numpy(), 2 * x.numpy())


# ---- all texts after "Write instead:"

_VERBS = "it use set check define import move wrap pass make give write leave do try see change copy".split()


def test_what_stands_after_write_instead_can_be_written():
    """No text goes on in the imperative, or with a pronoun whose noun stands elsewhere."""
    texts = [(path.name, path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))]
    found = [(name, first) for name, text in texts for first in re.findall(r"""instead=\(?\s*f?["'](\w+) """, text)]
    assert len(found) > 50 and [(name, first) for name, first in found if first in _VERBS] == []
