"""The pictures and tools of a watched program: its exact adjoints, Warp's around them, and what is not known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import workbench as wb

pytestmark = [pytest.mark.needs_warp, pytest.mark.needs_cc]
X = np.array([1.0, 2.0, 3.0], np.float32)


def arrays(wp: Any) -> SimpleNamespace:
    x = wp.array(X, dtype=float, requires_grad=True)
    return SimpleNamespace(x=x, y=wp.zeros(3, requires_grad=True), loss=wp.zeros(1, requires_grad=True))


@pytest.fixture(scope="module")
def wrong(k: Any) -> Any:
    """Read, then overwritten in place; and what was seen of it."""
    a, wp = arrays(k.wp), k.wp
    x, y, loss = a.x, a.y, a.loss
    with wb.interop.warp.watch(keep="all") as seen:
        with wp.Tape() as tape:
            wp.launch(k.square, 3, inputs=[x], outputs=[y])
            wp.launch(k.total, 3, inputs=[y], outputs=[loss])
            wp.launch(k.descend, 3, inputs=[x, x, 1.0])
        tape.backward(loss)
    return seen, a


@pytest.fixture(scope="module")
def right(k: Any) -> Any:
    a, wp = arrays(k.wp), k.wp
    x, y, loss = a.x, a.y, a.loss
    with wb.interop.warp.watch(keep="all") as seen:
        with wp.Tape() as tape:
            wp.launch(k.cubed, 3, inputs=[x], outputs=[y])
            wp.launch(k.total, 3, inputs=[y], outputs=[loss])
        tape.backward(loss)
    return seen, a


@pytest.fixture(scope="module")
def opaque(k: Any) -> Any:
    """A launch with a volume, which has no twin, on the way of one gradient of two."""
    a, wp = arrays(k.wp), k.wp
    x, y, loss, w = a.x, a.y, a.loss, wp.array(X, dtype=float, requires_grad=True)
    with wb.interop.warp.watch(keep="all") as seen:
        with wp.Tape() as tape:
            wp.launch(k.texture_like, 3, inputs=[x, wp.uint64(0)], outputs=[y])
            wp.launch(k.total, 3, inputs=[y], outputs=[loss])
            wp.launch(k.total, 3, inputs=[w], outputs=[loss])
        tape.backward(loss)
    return seen, SimpleNamespace(**vars(a), w=w)


def twin(seen: Any, a: Any) -> Any:
    return seen.twin_of(a)


def lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line]


def test_the_verdict_comes_first_and_both_gradients_stand_in_one_picture(wrong):
    seen, _ = wrong
    figure = seen.show()
    first, parted = lines(figure.text)[1], figure.against.first
    assert first.startswith("✕ Warp's gradient by `x` is wrong by 100%; it begins in #0 square, line")
    assert "overwritten by #2 descend" in first
    assert (parted.position, parted.cell, parted.here, parted.there) == (0, "x[0]", 2.0, 0.0)
    assert parted.numbers == "exact 2, Warp 0" and parted.most == 6.0
    assert "x 6" in figure.text and "x 0 exactly" in figure.text  # the exact adjoint beside Warp's
    assert "the exact gradient, where it differs" in figure.svg and "outline" in figure.svg
    assert "No backward has run" not in figure.text
    page = seen._repr_mimebundle_()["text/html"]
    assert page.index("Gradients of Warp") < page.index("data:image/svg+xml")
    assert "2 more: launches overwrite them" in page  # y and loss are not asked


def test_a_right_gradient_has_no_second_one_over_it(right):
    seen, _ = right
    figure = seen.show()
    assert figure.against is None
    assert "• Warp's gradient by `x` is the exact one" in figure.text
    assert "x 27" in figure.text  # 3 x²


def test_what_depends_on_an_opaque_event_is_unverified_and_not_drawn(opaque):
    seen, _ = opaque
    text = seen.show().text
    said = [line for line in lines(text) if line.startswith("▲")]
    assert said[0].startswith("▲ Warp's gradient by `x`, `y` is unverified: texture_like is opaque: ")
    assert said[1].startswith("▲ #0 texture_like, line ") and "are unverified, and not drawn" in said[1]
    assert "(opaque)" in text
    (row,) = [line for line in lines(text) if line.startswith("#0 texture_like")]
    assert row.rstrip().endswith("x none")
    (row,) = [line for line in lines(text) if line.startswith("#2 total")]
    assert row.rstrip().endswith("w 1")  # what does not depend on it is drawn
    assert seen.compare()["w"].verdict == "agrees"
    assert "opaque" in seen.show().svg


def test_an_opaque_launch_that_no_gradient_comes_to_hides_nothing(k):
    a, wp = arrays(k.wp), k.wp
    with wb.interop.warp.watch(keep="all") as seen:
        with wp.Tape() as tape:
            wp.launch(k.texture_like, 3, inputs=[a.x, wp.uint64(0)], outputs=[a.y])
            wp.launch(k.total, 3, inputs=[a.x], outputs=[a.loss])
        tape.backward(a.loss)
    (row,) = [line for line in lines(seen.show().text) if line.startswith("#0 texture_like")]
    assert row.rstrip().endswith("x 1")


def test_one_file_holds_the_table_and_both_gradients(wrong, tmp_path):
    seen, _ = wrong
    page = seen.to_html(tmp_path / "seen.html").read_text("utf-8")
    assert page.index("Gradients of Warp beside") < page.index('id="view"')
    assert "http://" not in page.replace("http://www.w3.org", "") and "src=" not in page.partition("<script")[0]


def test_the_live_view_is_about_the_backward_of_warp(wrong):
    seen, _ = wrong
    view = seen.explore()
    first = view.meta["against"]["first"]
    assert (first["e"], first["text"]) == (0, "x[0]: exact 2, Warp 0")
    found, _ = view.answer({"ask": "findings"})
    assert (found["rows"][0]["slug"], found["rows"][0]["severity"]) == ("warp-gradient", "error")
    ledger, _ = view.answer({"ask": "ledger", "array": first["array"], "element": [1], "cursor": 0})
    assert ledger["total"] == 4.0
    view.close()


@pytest.mark.parametrize(("name", "gradient"), [("wrong", 2 * X), ("right", 3 * X**2)])
def test_every_tool_works_on_the_tape_of_a_watched_program(name, gradient, request, tmp_path):
    seen, a = request.getfixturevalue(name)
    tape, x, loss = seen.tape, twin(seen, a.x), twin(seen, a.loss)
    assert "x" in tape.show().text and tape.to_html(tmp_path / "tape.html").exists()
    assert tape.ledger(x, 2, at="start").total == gradient[2]
    np.testing.assert_array_equal(tape.adjoint(x, at=tape.events[0]), gradient)
    label = tape.events[0].label
    assert tape.microscope(tape.events[0], 1).heading == f"#0 {label}"
    assert not tape.diagnose().problems
    assert tape.memory().total > 0
    np.testing.assert_allclose(wb.jacobian(tape, loss, x).reshape(-1), gradient)
    np.testing.assert_allclose(wb.jvp(tape, {x: wb.array(X)})[loss], [gradient @ X], rtol=1e-6)
    assert wb.gradcheck(tape, loss, x)
    assert tape.seeds(loss) is not None
    seen.backward(grads={a.loss: np.full(1, 2.0)})
    np.testing.assert_array_equal(seen.gradients[a.x], 2 * gradient)
    assert tape.ledger(x, 2, at="start").total == 2 * gradient[2]  # the tools are about the last backward
    before = seen.show().text
    assert tape.ledger(x, 2, at="start").total == 2 * gradient[2]  # and a picture does not change that
    assert "exact one" in before or "exact 2, Warp 0" in before
    seen.passes[0].show()


def test_tools_refuse_where_an_opaque_event_is_in_the_way(opaque):
    seen, a = opaque
    tape, x, w, loss = seen.tape, *(twin(seen, v) for v in (a.x, a.w, a.loss))
    for ask in (
        lambda: tape.ledger(x, 0, at="start"),
        lambda: tape.adjoint(x, at=tape.events[0]),
        lambda: seen.backward(grads={a.loss: np.ones(1)}),
        lambda: wb.jacobian(tape, loss, x),
        lambda: wb.jvp(tape, {x: wb.array(X)}),
    ):
        with pytest.raises(wb.GradientError, match="texture_like") as refused:
            ask()
        assert refused.value.slug == "opaque"
    np.testing.assert_array_equal(wb.jvp(tape, {w: wb.array(X)})[loss], [X.sum()])  # it does not come there
    assert "not checked end to end: texture_like" in repr(wb.gradcheck(tape, loss, x))
    with pytest.raises(wb.GradientError, match="an opaque event"):
        tape.replay({x: X})
    with pytest.raises(wb.LaunchError):
        tape.microscope(tape.events[0], 0)
    assert [f.slug for f in tape.diagnose().problems] == ["opaque"]
    assert tape.memory().total > 0


def test_a_second_backward_has_a_picture_of_its_own(k):
    """Steps of a descent in one watch: the picture is of the backward that is wrong, and of its events alone."""
    wp, a = k.wp, arrays(k.wp)
    x, y, loss = a.x, a.y, a.loss
    with wb.interop.warp.watch() as seen:
        for step in range(2):
            loss.zero_()
            with wp.Tape() as tape:
                wp.launch(k.cubed, 3, inputs=[x], outputs=[y])
                wp.launch(k.total, 3, inputs=[y], outputs=[loss])
                if step:
                    wp.launch(k.in_place, 3, inputs=[x, 2.0])
            tape.backward(loss)
            if not step:
                wp.launch(k.descend, 3, inputs=[x, x.grad, 0.01])
            tape.zero()
    assert [row.verdict for row in seen.compare() if row.array == "x"] == ["agrees", "wrong"]
    now = X - 0.01 * 3 * X**2
    figure = seen.show()
    first = figure.against.first
    assert figure.trace.events[first.position].label == "cubed" and first.position > 1
    np.testing.assert_allclose(first.here, 3 * now[0] ** 2, rtol=1e-6)
    known = [level for e in figure.trace.events[: first.position] for level in e.adjoint if not level.unknown]
    assert not known  # what Warp's tape has not recorded is not gone through


def test_a_copy_of_the_script_is_in_no_block_of_a_package() -> None:
    from workbench.warp.watch.pictures import by_module

    files = ["engine/solver.py", "engine/solver.py", "script.py", "engine/solver.py", "engine/solver.py"]
    events: list[Any] = [SimpleNamespace(where=SimpleNamespace(file=file)) for file in files]
    kernel = SimpleNamespace(func=SimpleNamespace(__module__="engine.solver"))
    steps: list[Any] = [SimpleNamespace(event=events[n], kernel=kernel) for n in (0, 3)]  # others copy, or fill
    found = [(block.name, block.first, block.last) for block in by_module(steps, events)]
    assert found == [("solver", 0, 2), ("solver", 3, 5)]
