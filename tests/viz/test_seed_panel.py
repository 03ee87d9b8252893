"""The seeding panel without a browser: its numbers, what it leaves alone, and how it answers when it cannot."""

from __future__ import annotations

import base64
import io
import re
import threading
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.image import imread

import workbench as wb
from workbench.arrays import allocation
from workbench.errors import GradientError
from workbench.viz.data.seed_runs import Seeds
from workbench.viz.data.text import text_width
from workbench.viz.live import jacobian_html
from workbench.viz.live.seed_panel import SeedPanel
from workbench.viz.picture.svg import quoted

pytestmark = pytest.mark.filterwarnings("ignore:.*overw:UserWarning")


@wb.kernel
def mix(x: wb.array(dtype=float), k: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = x[i] * x[i] * k[i] + wb.sin(x[(i + 1) % 4])


@wb.kernel
def bend(p: wb.array(dtype=wb.vec2), q: wb.array(dtype=wb.vec2)):
    i = wb.tid()
    q[i] = wb.vec2(p[i][0] * p[i][1], p[i][0] + 3.0 * p[i][1])


@wb.kernel
def double(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = 2.0 * x[i]


@wb.kernel
def add_up(x: wb.array(dtype=float), total: wb.array(dtype=float)):
    i = wb.tid()
    wb.atomic_add(total, 0, x[i] * x[i])


X, K = np.array([0.5, -1.0, 2.0, 1.5], np.float32), np.array([1.0, 2.0, -1.0, 0.5], np.float32)


def mixed(keep="all"):
    x, k, y = wb.array(X, requires_grad=True), wb.array(K, requires_grad=True), wb.zeros(4)
    with wb.Tape(keep=keep) as tape:
        wb.launch(mix, 4, inputs=[x, k], outputs=[y])
    return tape, x, k, y


def closed(x=X, k=K):
    """The derivative of `mix` by x and by k."""
    by_x = np.diag(2 * x * k) + np.roll(np.diag(np.cos(x)), -1, axis=0)
    return np.hstack([by_x, np.diag(x * x)])


# ---- the engine


def test_all_rows_are_the_jacobian_by_every_leaf():
    tape, x, k, y = mixed()
    found = [run.row for run in Seeds(tape, y).walk()]
    want = np.hstack([wb.jacobian(tape, y, x), wb.jacobian(tape, y, k)])
    np.testing.assert_array_equal(found, want)
    np.testing.assert_allclose(found, closed(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("kind", "weights"),
    [
        ("ones", lambda y: np.ones(4)),
        ("half norm", lambda y: y),
        ("random", lambda y: np.random.default_rng(7).standard_normal(4)),
    ],
)
def test_a_seed_of_many_elements_gives_the_weighted_sum_of_the_rows(kind, weights):
    tape, _, _, y = mixed()
    run = Seeds(tape, y).run(kind, number=7)
    np.testing.assert_allclose(run.row, weights(y.numpy()) @ closed(), rtol=2e-6, atol=1e-6)


def test_no_gradient_of_the_user_s_and_no_array_changes_by_a_bit():
    tape, x, k, y = mixed()
    tape.backward(grads={y: wb.ones(4)})
    held = [a.numpy().tobytes() for a in (x, k, y, x.grad, k.grad)]
    events, seeds = list(tape.events), {a: d.tobytes() for a, d in tape.last_seeds.items()}
    engine = Seeds(tape, y)
    list(engine.walk())
    engine.run("half norm")
    list(engine.differences())
    engine.set("x", 1, 4.0)
    engine.run("ones")
    assert [a.numpy().tobytes() for a in (x, k, y, x.grad, k.grad)] == held
    assert tape.events == events
    assert {a: d.tobytes() for a, d in tape.last_seeds.items()} == seeds


def test_components_of_vectors_are_seeded_one_by_one():
    p, q = wb.array(np.array([[2, 3], [4, 5]], np.float32), dtype=wb.vec2, requires_grad=True), wb.zeros(2, wb.vec2)
    with wb.Tape(keep="all") as tape:
        wb.launch(bend, 2, inputs=[p], outputs=[q])
    engine = Seeds(tape, q)
    assert engine.count == 4 and engine.name_of(3) == "q[1, 1]" and engine.column_name(2) == "p[1, 0]"
    np.testing.assert_array_equal(engine.run("one-hot", 0).row, [3, 2, 0, 0])
    np.testing.assert_array_equal(engine.run("one-hot", 3).row, [0, 0, 1, 3])


def test_every_output_on_an_active_path_can_be_chosen_and_has_a_jacobian_of_its_own():
    tape, x, _, y = mixed()
    total = wb.zeros(1)
    with tape:
        wb.launch(add_up, 4, inputs=[y], outputs=[total])
    engine = Seeds(tape, total)
    assert list(engine.outputs) == ["y", "total"] or set(engine.outputs) == {"y", "total"}
    np.testing.assert_allclose(engine.run().row, 2 * y.numpy() @ closed(), rtol=1e-5, atol=1e-5)
    engine.choose("y")
    assert engine.rows == {}
    np.testing.assert_allclose(engine.run("one-hot", 2).row, closed()[2], rtol=1e-6, atol=1e-7)
    del x


def test_the_walk_of_rows_can_be_stopped_and_goes_on_where_it_was():
    tape, _, _, y = mixed()
    engine = Seeds(tape, y)
    calls = iter([False, False, True])
    assert [run.element for run in engine.walk(2, lambda: next(calls))] == [2, 3]
    assert sorted(engine.rows) == [2, 3]
    assert [run.element for run in engine.walk(2)] == [0, 1]


def test_differences_agree_with_the_rows():
    tape, _, _, y = mixed()
    engine = Seeds(tape, y)
    assert list(engine.differences()) == list(range(8))
    for run in (engine.run("one-hot", 1), engine.run("half norm")):
        np.testing.assert_allclose(engine.measure(run), run.row, rtol=2e-3, atol=2e-3)


def test_a_changed_input_gives_the_rows_at_that_input():
    tape, _, _, y = mixed()
    engine = Seeds(tape, y)
    list(engine.walk())
    engine.set("x", 2, -0.75)
    assert engine.rows == {}
    moved = X.copy()
    moved[2] = -0.75
    np.testing.assert_allclose([run.row for run in engine.walk()], closed(moved), rtol=1e-6, atol=1e-7)
    engine.reset()
    np.testing.assert_allclose(engine.run("one-hot", 2).row, closed()[2], rtol=1e-6, atol=1e-7)


def test_half_norm_refuses_an_output_that_was_changed_after_the_tape():
    tape, _, _, y = mixed()
    engine = Seeds(tape, y)
    y.fill_(3.0)
    with pytest.raises(GradientError) as caught:
        engine.run("half norm")
    assert caught.value.slug == "overwritten"


def test_a_tape_with_a_function_of_the_user_s_or_without_leaves_is_refused():
    tape, _, _, y = mixed()
    tape.record_func(lambda: None, [y])
    with pytest.raises(GradientError) as caught:
        tape.seeds(y)
    assert caught.value.slug == "func-replay"
    x, y = wb.array(X), wb.zeros(4)
    with wb.Tape() as tape:
        wb.launch(mix, 4, inputs=[x, x], outputs=[y])
    with pytest.raises(GradientError):
        tape.seeds(y)


# ---- the panel


@pytest.fixture
def panel():
    tape, _, _, y = mixed()
    made = tape.seeds(y)
    yield made
    made._halt.set()
    made.wait(60)


def test_controls_choose_the_seed_and_each_one_hot_seed_fills_a_row(panel):
    assert isinstance(panel, SeedPanel) and panel.run.label == "y[0]"
    panel.element.value = 2
    assert panel.run.label == "y[2]" and panel.picker.picked == [2]
    panel.picker.picked = [1]
    assert panel.run.label == "y[1]" and panel.element.value == 1
    panel.kind.value = "half norm"
    assert panel.run.label == "½‖y‖²"
    assert sorted(panel.engine.rows) == [0, 1, 2]
    panel.next.click()
    assert panel.run.label == "y[3]" and panel.kind.value == "one-hot"
    panel.next.click()
    assert "every component" in panel.message
    assert "4 of 4 rows" in panel.matrix.value


def test_filling_walks_all_elements_with_progress(panel):
    panel.fill.click()
    panel.wait(60)
    assert panel.message == "4 of 4 rows" and panel.progress.value == 4 == panel.progress.max
    found = np.stack([panel.engine.rows[k] for k in range(4)])
    np.testing.assert_allclose(found, closed(), rtol=1e-6, atol=1e-7)
    assert panel.stop.disabled


def test_filling_can_be_stopped_and_other_requests_are_turned_away_meanwhile(panel):
    gate, reached, walk = threading.Event(), threading.Event(), panel.engine.run

    def slow(*args, **choices):
        made = walk(*args, **choices)
        reached.set()
        gate.wait(60)
        return made

    panel.engine.run = slow
    panel.fill.click()
    assert reached.wait(60) and not panel.stop.disabled
    panel.kind.value = "ones"
    assert "busy: filling rows" in panel.message
    panel.stop.click()
    gate.set()
    panel.wait(60)
    assert panel.message == "2 of 4 rows: stopped"


def test_a_request_while_another_thread_holds_the_lock_is_busy_and_answered_later(panel):
    hold, held = threading.Event(), threading.Event()

    def record():
        with allocation.LOCK:
            held.set()
            hold.wait(60)

    thread = threading.Thread(target=record)
    thread.start()
    assert held.wait(60)
    panel.element.value = 3
    assert panel.message == "busy: recording" and panel.run.label == "y[0]"
    hold.set()
    thread.join(60)
    for waiting in [t for t in threading.enumerate() if t.name.endswith("(_later)")]:
        waiting.join(60)
    assert panel.run.label == "y[3]" and panel.message == ""


def test_an_error_is_shown_and_not_raised_and_the_panel_works_on(panel):
    panel.engine.recorded.needed.conflicts.append(GradientError("<b>gone</b>", slug="overwritten"))
    panel.kind.value = "ones"
    assert "GradientError: &lt;b&gt;gone&lt;/b&gt;" in panel.message and "wb-wrong" in panel.status.value
    panel.engine.recorded.needed.conflicts.clear()
    panel.kind.value = "half norm"
    assert panel.message == "" and panel.run.kind == "half norm"
    panel.picker.picked = [99]
    assert "IndexError" in panel.message


def test_callbacks_append_nothing_to_an_open_tape(panel):
    with wb.Tape() as mine:
        panel.element.value = 2
        panel.value.value = panel.value.value + 1
    assert len(mine) == 0 and panel.message == ""


def test_the_slider_answers_what_if(panel):
    assert panel.value.value == 0.5
    panel.component.value = 1
    assert panel.value.value == -1.0
    panel.value.value = 0.75
    moved = X.copy()
    moved[1] = 0.75
    np.testing.assert_allclose(panel.run.row, closed(moved)[0], rtol=1e-6, atol=1e-7)
    assert "inputs changed" in panel.title.value
    panel.reset.click()
    np.testing.assert_allclose(panel.run.row, closed()[0], rtol=1e-6, atol=1e-7)
    assert panel.value.value == -1.0


def test_the_curve_of_an_element_is_that_of_trust(panel):
    assert panel.curve.value == ""
    panel.follow.value = True
    panel.wait(60)
    tape, y = panel.engine.tape, panel.engine.y
    assert quoted(tape.trust(y[0:1]).sentence) in panel.curve.value and "y[0] along its gradient" in panel.curve.value
    panel.element.value = 2
    panel.wait(60)
    found = tape.trust(y[2:3])
    assert quoted(found.sentence) in panel.curve.value and found.slope == pytest.approx(np.linalg.norm(closed()[2]))
    picture = base64.b64decode(re.search(r"base64,([^\"]+)", panel.curve.value)[1])
    assert imread(io.BytesIO(picture)).shape == imread(io.BytesIO(found._repr_png_())).shape
    panel.follow.value = False
    assert panel.curve.value == "" and panel.message == ""


def test_the_slider_never_holds_what_json_cannot_say(panel):
    sent = []
    panel.value.observe(lambda change: sent.append(change["new"]), ["min", "max", "value", "step"])
    for component in (3, 0, 2, 1):
        panel.component.value = component
        assert panel.value.value == X[component] and panel.value.min < X[component] < panel.value.max
    assert len(sent) > 4 and np.isfinite(sent).all()


def test_differences_stand_beside_the_gradient(panel):
    assert "wb-tick" not in panel.row.value
    panel.measure.value = True
    panel.wait(60)
    assert panel.row.value.count("wb-tick") == 8 and "relative error" in panel.row.value
    panel.value.value = 2.0
    panel.wait(60)
    assert panel.row.value.count("wb-tick") == 8


def test_a_tape_that_cannot_be_replayed_is_seeded_all_the_same():
    x, total = wb.array(X, requires_grad=True), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(add_up, 4, inputs=[x], outputs=[total])
    panel = tape.seeds(total)
    np.testing.assert_allclose(panel.run.row, 2 * X)
    assert panel.value.disabled
    panel.measure.value = True
    panel.wait(60)
    assert "keep=&quot;all&quot;" in panel.message


def test_a_pinned_seed_is_drawn_beside_the_next_one(panel):
    panel.pin.click()
    panel.element.value = 3
    assert "wb-other" in panel.row.value and "pinned: y[0]" in panel.row.value
    assert "minus" in panel.view.levels_meta["seed"]
    panel.unpin.click()
    assert "wb-other" not in panel.row.value


def test_without_a_widget_there_is_a_picture_and_names_are_no_html():
    x, y = wb.array(X, requires_grad=True, name="<script>x</script>"), wb.zeros(4, name='"><img src=q>')
    with wb.Tape(keep="all") as tape:
        wb.launch(mix, 4, inputs=[x, x], outputs=[y])
    tape.names.noted = dict.fromkeys(tape.names.noted, "<i>n</i>")
    bundle, _ = tape.seeds(y)._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle and "seeding panel" in bundle["text/plain"]
    html = bundle["text/html"]
    assert html.count("<img alt=") == 3 and "Jacobian" in html
    assert "<script>" not in html and "<i>n</i>" not in html and "<img src=q>" not in html


# ---- pictures


LIGHT = jacobian_html.THEMES["light"]


def ink(name: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(LIGHT[name][1:]))


def drawn(rows: dict[int, np.ndarray], count: int, width: int, cell: tuple[int, int] = (1, 1)) -> np.ndarray:
    return jacobian_html.pixels(*jacobian_html.cells(rows, count, width), cell, LIGHT)


def test_the_matrix_tells_sign_size_unknown_and_nan_apart():
    known = {0: np.array([0.0, 4.0, -1.0]), 2: np.array([np.nan, 0.0, 0.0])}
    assert jacobian_html.largest(jacobian_html.cells(known, 3, 3)[0]) == 4.0
    made = drawn(known, 3, 3)
    assert tuple(made[0, 0])[3] == 0 and tuple(made[0, 1]) == (*ink("plus"), 255)
    assert tuple(made[0, 2][:3]) == ink("minus") and 0 < made[0, 2][3] < 255
    assert tuple(made[1, 1]) == jacobian_html.UNKNOWN and tuple(made[2, 0]) == (*ink("sign"), 255)
    large = drawn(known, 3, 3, (12, 12))
    assert tuple(large[6, 30]) == (*ink("cursor"), 255), "a number below 0 has a dash"
    assert tuple(large[26, 6]) == (*ink("ill"), 255) and tuple(large[24, 0]) == (*ink("sign"), 255)


def test_a_large_matrix_keeps_its_largest_number_and_its_nan():
    row = np.zeros(10_000)
    row[7_777] = -3.0
    made = drawn({4_000: row}, 8_000, 10_000)
    assert made.shape == (jacobian_html.TALL, jacobian_html.WIDE, 4)
    assert (made[..., 3] == 255).sum() == 1
    row[10] = np.nan
    assert (drawn({4_000: row}, 8_000, 10_000) == (*ink("sign"), 255)).all(-1).sum() == 1


def test_rows_have_names_and_the_colours_have_numbers(panel):
    list(panel.engine.walk())
    text = jacobian_html.matrix(panel.engine, 0)
    names = re.findall(r'class="wb-rowname"[^>]*>([^<]*)<', text)
    assert names == [panel.engine.name_of(k) for k in range(panel.engine.count)]
    most = max(float(np.abs(row).max()) for row in panel.engine.rows.values())
    ticks = re.findall(r'class="wb-tickmark"[^>]*>([^<]*)<', text)
    assert ticks[-1] == f"{most:.2g}" and "0" in ticks


@pytest.mark.parametrize("count", [3, 12, 64])
@pytest.mark.parametrize("name", ["x", "a_rather_long_name_of_an_array"])
def test_labels_of_both_axes_do_not_overlap(count: int, name: str):
    x = wb.array(np.linspace(-1, 1, count), dtype=float, requires_grad=True, name=name)
    y = wb.zeros(count, dtype=float, name=f"of_{name}")
    with wb.Tape() as tape:
        wb.launch(double, dim=count, inputs=[x], outputs=[y])
    engine = Seeds(tape, y)
    list(engine.walk())
    tops = [
        float(top) for top in re.findall(r'class="wb-rowname" style="top:([-\d.]+)px', jacobian_html.matrix(engine))
    ]
    assert len(tops) > 2 and min(b - a for a, b in pairwise(tops)) >= jacobian_html.LABEL
    svg = ElementTree.fromstring(jacobian_html.bars(engine, engine.run("ones"), None).partition("</svg>")[0] + "</svg>")
    boxes = []
    for node in svg.iter("text"):
        if node.get("class") == "wb-name":
            at, wide = float(node.get("x", 0)), text_width(node.text or "", jacobian_html.LABEL, True)
            half = jacobian_html.LABEL / 2 if node.get("transform") else wide / 2
            boxes.append((at - half, at + half))
            deep = float(node.get("y", 0)) + (wide if node.get("transform") else 0)
            assert deep <= float(svg.get("height", 0)) + 1, "inside the picture"
    assert len(boxes) > 2 and all(a[1] <= b[0] + 0.5 for a, b in pairwise(boxes)), boxes


def test_sliders_say_what_they_stand_for(panel):
    panel.element.value = 2
    assert panel.engine.name_of(2) in panel.element_says.value
    held = panel.engine.start()[panel.input.value].reshape(-1)
    assert f"[0] = {held[0]:.4g}" in panel.value_says.value
    panel.value.value = float(held[0]) + 0.5
    assert f"[0] = {float(held[0]) + 0.5:.4g}" in panel.value_says.value


def test_the_image_is_a_png_of_these_pixels():
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    data = base64.b64decode(jacobian_html.image(pixels).partition(",")[2])
    read = imread(io.BytesIO(data), format="png")
    np.testing.assert_array_equal(np.round(255 * read), pixels)


def test_the_bars_are_valid_xml_and_say_every_number(panel):
    text = re.search(r"<svg class=\"wb-bars\".*?</svg>", panel.row.value, re.S)
    assert text is not None
    tree = ElementTree.fromstring(text.group())
    titles = [node.text for node in tree.iter("title")]
    assert len(titles) == 8 and titles[0] is not None and titles[0].startswith("x[0] = 1")
