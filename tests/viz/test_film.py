"""The film: every number is that of the tape at that moment, and every adjoint that of `tape.adjoint` there."""

from __future__ import annotations

import base64
import json
import re
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import workbench as wb
from tests.support.backends import BACKENDS
from workbench.errors import LaunchError
from workbench.viz.data.film import arrow_scale, nice
from workbench.viz.live import view as view_module, what_if as what_if_module
from workbench.viz.live.film import packed

STEPS, N, DT = 12, 6, 0.05
PAIRS = np.array([[k, k + 1] for k in range(N - 1)], np.int32)


@wb.kernel
def pull(x: wb.array[wb.vec2], ends: wb.array[wb.vec2i], rest: wb.array[float], v: wb.array[wb.vec2], dt: float):
    s = wb.tid()
    a, b = ends[s][0], ends[s][1]
    d = x[a] - x[b]
    force = 20.0 * (wb.length(d) - rest[s]) * wb.normalize(d)
    wb.atomic_sub(v, a, dt * force)
    wb.atomic_add(v, b, dt * force)


@wb.kernel
def move(x: wb.array[wb.vec2], v: wb.array[wb.vec2], dt: float):
    i = wb.tid()
    x[i] = x[i] + dt * v[i]


@wb.kernel
def far(x: wb.array[wb.vec2], loss: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(loss, 0, wb.dot(x[i], x[i]))


@wb.kernel
def wave(u: wb.array2d[float], old: wb.array2d[float]):
    i, j = wb.tid()
    i, j = i + 1, j + 1
    bend = u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - 4.0 * u[i, j]
    old[i, j] = 2.0 * u[i, j] - old[i, j] + 0.2 * bend + 0.01 * u[i, j] * u[i, j]


@wb.kernel
def square(u: wb.array2d[float], loss: wb.array[float]):
    i, j = wb.tid()
    wb.atomic_add(loss, 0, u[i, j] * u[i, j])


@wb.kernel
def hop(x: wb.array[wb.vec2], y: wb.array[wb.vec2]):
    i = wb.tid()
    y[i] = x[i] + 0.1 * wb.vec2(x[i][1], -x[i][0] * x[i][0])


@wb.kernel
def root(x: wb.array[wb.vec2], y: wb.array[wb.vec2]):
    i = wb.tid()
    y[i] = wb.vec2(wb.sqrt(x[i][0] - 0.2), x[i][1])


def start() -> np.ndarray:
    return np.c_[np.arange(N), 0.1 * np.sin(np.arange(N))].astype(np.float32)


def springs(backend: str, keep: str = "needed", steps: int = STEPS):
    """In place. Returns the tape, its arrays by name, and what the positions were before each step, and at last."""
    seen = []
    wb.config.backend = backend
    x0 = wb.array(start(), dtype=wb.vec2, requires_grad=True)
    x, v = wb.zeros(N, dtype=wb.vec2), wb.zeros(N, dtype=wb.vec2)
    ends, rest = wb.array(PAIRS, dtype=wb.vec2i), wb.full(N - 1, 0.8, dtype=float, requires_grad=True)
    loss = wb.zeros(1)
    with wb.Tape(keep=keep) as tape:
        x.assign(x0)
        for _ in range(steps):
            wb.launch(pull, N - 1, [x, ends, rest, v, DT])
            wb.launch(move, N, [x, v, DT])
        wb.launch(far, N, [x, loss])
    tape.backward(loss)
    for n in [*range(1, 2 * steps, 2), len(tape.events) - 1]:
        seen.append(n)
    return tape, {"x0": x0, "x": x, "v": v, "ends": ends, "rest": rest, "loss": loss}, seen


def by_hand(positions: np.ndarray, rest: np.ndarray, steps: int) -> list[np.ndarray]:
    """The positions before each step and behind the last one, in float64."""
    x, v = positions.astype(np.float64), np.zeros((N, 2))
    found = [x.copy()]
    for _ in range(steps):
        d = x[PAIRS[:, 0]] - x[PAIRS[:, 1]]
        length = np.linalg.norm(d, axis=1)
        force = (20.0 * (length - rest) / length)[:, None] * d
        np.add.at(v, PAIRS[:, 0], -DT * force)
        np.add.at(v, PAIRS[:, 1], DT * force)
        x = x + DT * v
        found.append(x.copy())
    return found


# --- values and adjoints


@pytest.mark.parametrize("keep", ["needed", "all"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_frames_of_a_program_in_place_are_its_past(backend: str, keep: str) -> None:
    tape, a, moments = springs(backend, keep)
    film = tape.film(a["x"], lines=a["ends"], colour=a["rest"].grad)
    assert film.moments == moments and film.steps == [*range(STEPS + 1)]
    truth = by_hand(start(), np.full(N - 1, 0.8), STEPS)
    np.testing.assert_allclose(film.values("points"), truth, atol=2e-5)
    assert np.array_equal(film.values("points")[-1], a["x"].numpy())
    for k, n in enumerate(moments):
        assert np.array_equal(film.adjoints("points")[k], tape.adjoint(a["x"], at=tape.events[n])), k
        assert np.array_equal(film.adjoints("colour")[k, :, 0], tape.adjoint(a["rest"], at=tape.events[n])), k
    assert np.abs(film.adjoints("points")).max() > 0.1
    assert "ran again" not in film.caption, "the tape has kept all of it"
    film.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_frame_of_swapped_buffers_is_the_buffer_written_last(backend: str) -> None:
    wb.config.backend = backend
    first = np.random.default_rng(0).normal(0, 0.1, size=(10, 9)).astype(np.float32)
    now, before = wb.array(first, requires_grad=True), wb.array(first.copy())
    u, old, loss, seen = now, before, wb.zeros(1), [first]
    with wb.Tape() as tape:
        for _ in range(5):
            wb.launch(wave, (8, 7), [now, before])
            now, before = before, now
            seen.append(now.numpy().copy())
        wb.launch(square, (10, 9), [now, loss])
    tape.backward(loss)
    for film in (tape.film(field=[u, old]), tape.film()):
        assert np.array_equal(film.values("field"), seen)
        for k, n in enumerate(film.moments):
            shown = (u, old)[k % 2]
            assert np.array_equal(film.adjoints("field")[k], tape.adjoint(shown, at=tape.events[n])), k
        film.close()
        assert re.match(r"field \w+, \w+ \(10, 9\) · 5 steps", film.caption)
    alone = tape.film(field=u)
    assert np.array_equal(alone.values("field")[2], seen[2]) and np.array_equal(alone.values("field")[3], seen[2])
    alone.close()


def test_a_history_is_drawn_from_the_array_that_each_step_wrote() -> None:
    state = [wb.array(start(), dtype=wb.vec2, requires_grad=True), *(wb.zeros(N, dtype=wb.vec2) for _ in range(4))]
    with wb.Tape() as tape:
        for k in range(4):
            wb.launch(hop, N, [state[k], state[k + 1]])
    tape.backward(grads={state[-1]: wb.ones(N, dtype=wb.vec2)})
    film = tape.film(state)
    assert film.moments == [0, 1, 2, 3, 4] and film.caption.startswith(f"points state ({N}) · ")
    for k, a in enumerate(state):
        at = tape.events[k] if k < 4 else None
        assert np.array_equal(film.values("points")[k], a.numpy())
        assert np.array_equal(film.adjoints("points")[k], tape.adjoint(a, at=at))
    film.close()


def test_every_so_many_steps_are_the_same_numbers() -> None:
    tape, a, _ = springs("numpy")
    whole, few = tape.film(a["x"]), tape.film(a["x"], every=5)
    assert few.steps == [0, 5, 10, 12]
    assert np.array_equal(few.values("points"), whole.values("points")[[0, 5, 10, 12]])
    assert np.array_equal(few.adjoints("points"), whole.adjoints("points")[[0, 5, 10, 12]])
    with pytest.raises(LaunchError, match="every=0"):
        tape.film(a["x"], every=0)


def test_all_adjoints_come_from_one_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench.viz.data import film as data
    from workbench.viz.data.film_choice import choose

    tape, a, _ = springs("numpy")
    walks = []
    retrace = wb.Tape.retrace
    monkeypatch.setattr(wb.Tape, "retrace", lambda *given, **named: walks.append(1) or retrace(*given, **named))
    made = data.reel(tape, choose(tape, {"points": a["x"], "lines": PAIRS, "colour": a["rest"].grad}))
    assert len(walks) == 1 and made.tracks["colour"].adjoint is not None


def test_nan_stays_nan_and_has_no_part_in_the_scales() -> None:
    x = wb.array([[0.21, 0.0], [2.0, 1.0]], dtype=wb.vec2, requires_grad=True)
    state = [x, wb.zeros(2, dtype=wb.vec2), wb.zeros(2, dtype=wb.vec2), wb.zeros(2, dtype=wb.vec2)]
    with wb.Tape() as tape:
        for k in range(3):
            wb.launch(root, 2, [state[k], state[k + 1]])
    tape.backward(grads={state[-1]: wb.ones(2, dtype=wb.vec2)})
    film = tape.film(state)
    for k, a in enumerate(state):
        assert np.array_equal(film.values("points")[k], a.numpy(), equal_nan=True)
    assert np.isnan(film.values("points")).any() and np.isnan(film.adjoints("points")).any()
    assert np.isfinite(film.film_meta["points"]["box"]).all() and np.isfinite(film.film_meta["arrows"]["scale"])
    json.dumps(film.film_meta, allow_nan=False)
    assert "<img" in film.still()[1]
    film.close()


# --- never from present memory


def test_what_is_gone_is_said_and_never_taken_from_present_memory() -> None:
    tape, a, _ = springs("numpy")
    exact = tape.film(a["x"]).values("points")
    a["x"].fill_(77.0)  # as the next round of an optimizer does
    again = tape.film(a["x"])
    assert np.array_equal(again.values("points"), exact)


def test_a_program_that_cannot_run_again_leaves_holes_that_are_said() -> None:
    x, v = wb.ones(4, dtype=wb.vec2), wb.ones(4, dtype=wb.vec2)
    with wb.Tape() as tape:  # nothing asks for a gradient: it watches nothing
        for _ in range(4):
            wb.launch(move, 4, [x, v, 0.5])
    film = tape.film(x)
    known = film.reel.tracks["points"].known
    assert known is not None and not known[1:].any()
    assert "could not run again: what 'x' held when the tape started was not kept" in film.caption
    assert "x was not kept in" in film.caption
    assert not film.values("points")[1:].any()


def test_a_linear_program_of_which_the_tape_keeps_nothing_runs_again() -> None:
    x, v = wb.ones(4, dtype=wb.vec2), wb.ones(4, dtype=wb.vec2, requires_grad=True)
    with wb.Tape() as tape:
        for _ in range(4):
            wb.launch(move, 4, [x, v, 0.5])
    film = tape.film(x)
    np.testing.assert_allclose(film.values("points")[:, 0, 0], [1, 1.5, 2, 2.5, 3])
    assert "The recorded program ran again for the values of x." in film.caption
    assert "tape.backward(loss) comes first" in film.caption and film.reel.arrows is None
    with pytest.raises(LaunchError, match="no adjoints"):
        film.adjoints("points")


# --- what is drawn


def test_a_film_without_arguments_finds_positions_and_pairs_and_says_so() -> None:
    tape, a, moments = springs("numpy")
    x, v, ends = a["x"], a["v"], a["ends"]  # names that the caption can know
    film = tape.film()
    assert film.reel.choice.points == [x] and np.array_equal(film.reel.choice.lines, PAIRS)
    assert film.moments == moments and v is a["v"] and ends is a["ends"]
    assert film.caption.startswith(
        "points x (6) · lines ends (5) · arrows −adjoint of x (where the loss falls) · 12 steps"
    )
    assert "there is also points=v" in film.caption


def test_arrows_are_minus_the_adjoint_or_the_values_of_vectors() -> None:
    tape, a, moments = springs("numpy")
    film = tape.film(a["x"])
    assert np.array_equal(film.reel.arrows, -film.adjoints("points"))
    by_values = tape.film(a["x"], arrows=a["v"])
    assert np.array_equal(by_values.reel.arrows[-1], a["v"].numpy())
    by_adjoint = tape.film(a["x"], arrows=("adjoint", a["v"]))
    assert np.array_equal(by_adjoint.reel.arrows[3], -tape.adjoint(a["v"], at=tape.events[moments[3]]))
    assert tape.film(a["x"], arrows=None).reel.arrows is None


def test_the_scale_of_the_arrows_is_a_round_number_that_few_are_longer_than() -> None:
    assert [nice(n) for n in (0.37, 9.99, 1.0, 0.05, 0.0, float("inf"))] == [0.2, 5.0, 1.0, 0.05, 1.0, 1.0]
    arrows = np.zeros((2, 50, 2))
    arrows[..., 0] = np.linspace(0.01, 0.3, 100).reshape(2, 50)
    arrows[0, 0, 0] = np.nan
    assert arrow_scale(arrows) == 0.2


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"lines": [[0, 9]]}, "none of 6"),
        ({"colour": np.ones(4)}, "not a ndarray"),
        ({"points": 3}, "not a int"),
        ({"view": "4d"}, "'2d' or '3d'"),
        ({"paint": 3}, "no argument 'paint'"),
    ],
)
def test_what_cannot_be_drawn_is_refused(choices: dict, said: str) -> None:
    tape, a, _ = springs("numpy", steps=3)
    with pytest.raises(LaunchError, match=said):
        tape.film(**{"points": a["x"], **choices})


# --- the bytes of the page, and files


def test_the_bytes_of_the_page_are_the_numbers_of_the_film() -> None:
    tape, a, _ = springs("numpy")
    film = tape.film(a["x"], lines=a["ends"], colour=a["rest"].grad)
    meta, data = packed(film.reel)
    shape = len(meta["moments"]), meta["points"]["count"], 2

    def numbers(at: int, count: int, dtype: type = np.float32) -> np.ndarray:
        return np.frombuffer(data, dtype, count, at)

    assert np.array_equal(numbers(meta["points"]["at"], np.prod(shape)).reshape(shape), film.values("points"))
    assert np.array_equal(numbers(meta["points"]["adjoint"], np.prod(shape)).reshape(shape), film.adjoints("points"))
    assert np.array_equal(numbers(meta["lines"]["at"], 2 * (N - 1), np.int32).reshape(-1, 2), PAIRS)
    assert meta["arrows"] == {
        "name": film.reel.tracks["points"].name,
        "adjoint": True,
        "scale": meta["arrows"]["scale"],
        "at": -1,
    }
    assert meta["says"][3] == "before step 3 · #7 pull" and meta["says"][-1] == f"after step 11 · #{2 * STEPS + 1} far"


def test_a_film_is_saved_as_gif_png_and_page(tmp_path: Path) -> None:
    tape, a, _ = springs("numpy")
    film = tape.film(a["x"], lines=a["ends"])
    with Image.open(film.save(tmp_path / "film.gif")) as gif:
        assert gif.n_frames == 2 * (STEPS + 1)
    with Image.open(film.save(str(tmp_path / "film.png"))) as png:
        assert png.size[0] > 600 and len(png.convert("RGB").getcolors(1 << 20)) > 10
    page = film.save(tmp_path / "film.html").read_text("utf-8")
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    with pytest.raises(LaunchError, match=r"none of \.html"):
        film.save(tmp_path / "film.avi")


def test_an_mp4_without_ffmpeg_is_refused_with_what_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.animation import FFMpegWriter

    tape, a, _ = springs("numpy", steps=3)
    monkeypatch.setattr(FFMpegWriter, "isAvailable", classmethod(lambda cls: False))
    with pytest.raises(LaunchError, match=r"film\.gif"):
        tape.film(a["x"]).save(tmp_path / "film.mp4")


def test_a_saved_notebook_has_a_poster_the_caption_and_a_film_that_is_not_too_large(monkeypatch) -> None:
    tape, a, _ = springs("numpy")
    film = tape.film(a["x"])
    data = film._repr_mimebundle_()[0]
    assert data["text/plain"] == film.caption and "data:image/png;base64," in data["text/html"]
    assert "where the loss falls" in data["text/html"]
    (page,) = re.findall("srcdoc='([^']*)'", data["text/html"])
    assert unescape(page) == film.page()
    monkeypatch.setattr("workbench.viz.live.film.PLAYED_MOST", len(page) - 1)
    assert "data:image/png;base64," in film.still()[1] and "iframe" not in film.still()[1]


def test_what_others_write_behind_the_program_is_no_frame() -> None:
    tape, a, moments = springs("numpy", "all")
    before = tape.film(a["x"], lines=a["ends"])
    for _ in range(STEPS + 3):  # another run on the same memory: the tape keeps what it held
        a["v"].zero_()
        a["x"].assign(start() + 3.0)
    assert len(tape.events) > moments[-1] + 2 * STEPS
    film = tape.film(a["x"], lines=a["ends"])
    assert film.moments == moments and film.caption == before.caption
    assert np.array_equal(film.values("points"), before.values("points"))
    assert np.array_equal(film.adjoints("points"), before.adjoints("points"))
    assert film.what_if.answer({"changes": [], "frame": 0})[0]["loss"] == pytest.approx(tape_loss(before), rel=1e-6)


def tape_loss(film) -> float:
    return float((film.values("points")[-1].astype(np.float64) ** 2).sum())


# --- functions


@pytest.mark.parametrize("backend", BACKENDS)
def test_functions_draw_from_the_values_of_each_frame(backend: str) -> None:
    tape, a, _ = springs(backend)
    x, v, rest, loss = a["x"], a["v"], a["rest"], a["loss"]  # the names by which a function asks
    middle = np.c_[PAIRS.mean(1), np.zeros(N - 1)]

    def stretch(s) -> np.ndarray:
        d = s.x[PAIRS[:, 0]] - s.x[PAIRS[:, 1]]
        return np.linalg.norm(d, axis=1) - s["rest"]

    film = tape.film(x, lines=PAIRS, colour=stretch, arrows=lambda s: s.step * s.v)
    truth = by_hand(start(), np.full(N - 1, 0.8), STEPS)
    for k, place in enumerate(truth):
        length = np.linalg.norm(place[PAIRS[:, 0]] - place[PAIRS[:, 1]], axis=1)
        np.testing.assert_allclose(film.values("colour")[k, :, 0], length - 0.8, atol=5e-5)
        if k:
            moved = k * (place - truth[k - 1]) / DT
            np.testing.assert_allclose(film.values("arrows")[k], moved, atol=2e-3)
    assert film.caption.startswith("points x (6) · lines (5) · colour stretch · arrows <lambda> · 12 steps")
    assert "The recorded program ran again for the values of v." in film.caption
    drawn = tape.film(lambda s: middle + s.step * np.array([0.0, 1.0]), every=4)
    assert np.array_equal(drawn.values("points")[:, :, 1].T, [[0, 4, 8, 12]] * (N - 1))
    assert packed(drawn.reel)[0]["points"]["shape"] == [N - 1] and "arrows" not in packed(drawn.reel)[0]
    changed = film.what_if.answer({"changes": [[0, 3, 0.25]], "frame": -1})[1][0]
    assert np.array_equal(
        np.frombuffer(changed, np.float32)[:4], [0, start()[0, 1], 1, np.float32(start()[1, 1] + 0.25)]
    )
    assert v is not None and rest is not None and loss is not None


def test_a_run_with_other_inputs_is_drawn_by_the_function_too() -> None:
    tape, a, _ = springs("numpy", "all")
    x = a["x"]
    film = tape.film(lambda s: 2.0 * s["a['x']"], against=tape)  # what the tape calls it
    assert np.array_equal(film.values("points")[-1], 2.0 * x.numpy()) and film.parted is None
    assert np.array_equal(film.ghost("points"), film.values("points"))
    asked = next(k for k, one in enumerate(film.what_if.inputs) if one.a is a["x0"])
    found, blobs = film.what_if.answer({"changes": [[asked, 3, 0.25]], "frame": -1})
    moved = start()
    moved[1, 1] += 0.25
    again = tape.replay({a["x0"]: moved})
    shown = np.frombuffer(blobs[0], np.float32).reshape(STEPS + 1, N, 2)
    assert np.array_equal(shown[-1], 2.0 * again[x].numpy()) and len(blobs) == 1  # no prediction of what is drawn
    assert found["loss"] == pytest.approx(float(again[a["loss"]].numpy()[0]), rel=1e-6)


@pytest.mark.parametrize(
    "choices, said",
    [
        ({"points": lambda s: s.nowhere}, "there is no array 'nowhere' on the tape, only"),
        ({"points": lambda s: np.zeros((s.step + 1, 2))}, "as many in each frame"),
        ({"points": lambda s: np.zeros(3)}, "rows of 2 or 3 numbers"),
        ({"points": lambda s: np.zeros((3, 2)), "lines": [[0, 3]]}, "a point that is none of 3"),
        (
            {"points": lambda s: np.zeros((3, 2)), "colour": lambda s: np.zeros(4)},
            "colour has 4 numbers, for [3] points",
        ),
        ({"points": lambda s: np.zeros((3, 2)), "arrows": lambda s: np.zeros((2, 2))}, "one vector for each point"),
    ],
)
def test_what_a_function_cannot_draw_is_refused(choices: dict, said: str) -> None:
    tape, _ = spun([])
    with pytest.raises(LaunchError, match=re.escape(said)):
        tape.film(**choices)


# --- two runs


def spun(kicks: list[float], steps: int = 10, keep: str = "all") -> tuple[wb.Tape, list[np.ndarray]]:
    """Points on a circle, step by step in other arrays. `kicks[k]` is added in step k. Returns what they were, too."""
    x = wb.array(start(), dtype=wb.vec2, requires_grad=True)
    seen = [x.numpy().copy()]
    with wb.Tape(keep=keep) as tape:
        for k in range(steps):
            moved = wb.zeros_like(x)
            wb.launch(nudge, N, [x, moved, kicks[k] if k < len(kicks) else 0.0])
            x = moved
            seen.append(x.numpy().copy())
    tape.backward(grads={x: wb.ones_like(x)})
    return tape, seen


@wb.kernel
def nudge(x: wb.array[wb.vec2], y: wb.array[wb.vec2], kick: float):
    i = wb.tid()
    y[i] = x[i] + 0.1 * wb.vec2(x[i][1], -x[i][0])
    if i == 3:
        y[i] += wb.vec2(0.0, kick)


@pytest.mark.parametrize("backend", BACKENDS)
def test_another_run_is_a_ghost_and_the_first_number_that_parts_is_said(backend: str) -> None:
    wb.config.backend = backend
    (tape, here), (other, there) = spun([]), spun([0.0, 0.0, 0.0, 0.25])
    film = tape.film(against=other)
    assert np.array_equal(film.values("points"), here) and np.array_equal(film.ghost("points"), there)
    assert np.array_equal(film.ghost("points")[:4], here[:4])
    frame, said = film.parted
    assert frame == 4 and said.startswith(f"{film.reel.tracks['points'].name}[3, 1]: ")
    ours, theirs = map(float, re.findall(r"(-?[\d.]+) instead of (-?[\d.]+)", said)[0])
    assert (ours, theirs) == (pytest.approx(here[4][3, 1], rel=1e-3), pytest.approx(there[4][3, 1], rel=1e-3))
    assert f"They part before step 4 · #4 nudge: {said}." in film.caption
    meta, data = packed(film.reel)
    at, count = meta["points"]["ghost"], 11 * N * 2
    assert np.array_equal(np.frombuffer(data, np.float32, count, at).reshape(11, N, 2), there)
    assert meta["points"]["box"] == pytest.approx(
        np.stack([np.min([here, there], (0, 1, 2)), np.max([here, there], (0, 1, 2))], 1)
    )


def test_a_run_of_the_same_is_said_to_be_the_same_and_rounding_does_not_part() -> None:
    tape, _ = spun([])
    for other in (spun([])[0], spun([0.0, 1e-8])[0]):
        film = tape.film(against=other)
        assert film.parted is None and "The ghost is the other run. Both are the same." in film.caption


def test_a_ghost_in_place_is_run_again_and_one_of_fewer_steps_ends_earlier() -> None:
    tape, a, _ = springs("numpy")
    other, b, _ = springs("numpy", steps=STEPS - 4)
    film = tape.film(a["x"], against=other, every=2)
    truth = by_hand(start(), np.full(N - 1, 0.8), STEPS)[::2]
    np.testing.assert_allclose(film.ghost("points")[:5], truth[:5], atol=2e-5)
    assert np.isnan(film.ghost("points")[5:]).all() and film.parted is None
    assert "It has 8 steps, not 12. Both are the same." in film.caption
    assert "Of the ghost" not in film.caption


def test_a_field_has_its_ghost_beside_it(tmp_path: Path) -> None:
    def run(bump: float) -> tuple[wb.Tape, np.ndarray]:
        u = wb.array(np.zeros((12, 10)), dtype=float, requires_grad=True)
        old = wb.zeros((12, 10), dtype=float)
        with wb.Tape(keep="all") as tape:
            for k in range(4):
                u.fill_(float(k) if k < 2 else k + bump)
                old.assign(u)
        tape.backward(grads={u: wb.ones_like(u)})
        return tape, u

    (tape, u), (other, _) = run(0.0), run(0.5)
    film = tape.film(field=u, against=other)
    assert film.moments == [0, 2, 4, 6, 8] and film.ghost("field")[:, 5, 5].tolist() == [0.0, 0.0, 1.0, 2.5, 3.5]
    frame, said = film.parted
    assert frame == 3 and said.endswith("[0, 0]: 2 instead of 2.5") and film.values("field")[3, 0, 0] == 2.0
    assert packed(film.reel)[0]["field"]["most"] == 3.5, "the colours have room for both"
    assert film.save(tmp_path / "two.png").stat().st_size > 5000


@pytest.mark.parametrize("other", [3, "springs"])
def test_what_is_no_other_run_is_refused(other: object) -> None:
    tape, _ = spun([])
    with pytest.raises(LaunchError, match="film-layer") as caught:
        tape.film(against=springs("numpy")[0] if other == "springs" else other)
    assert ("another tape, not a int" if other == 3 else "has no array like") in str(caught.value)
    with pytest.raises(LaunchError, match="no ghost of 'points'"):
        tape.film().ghost("points")


# --- what if


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_if_runs_the_program_again_beside_what_the_gradient_says(backend: str) -> None:
    tape, a, _ = springs(backend, "all")
    film = tape.film(a["x"])
    what_if, step = film.what_if, 1e-3
    assert what_if.inputs[what_if.points].a is a["x0"]
    found, (run, ghost) = what_if.answer({"changes": [[what_if.points, 4, step]]})
    moved = start()
    moved[2, 0] += np.float32(step)
    again = tape.replay({a["x0"]: moved})
    shape = film.values("points").shape
    run, ghost = (np.frombuffer(part, np.float32).reshape(shape) for part in (run, ghost))
    assert np.array_equal(run[-1], again[a["x"]].numpy()) and found["loss"] == float(again[a["loss"]].numpy()[0])
    assert found["before"] == float(a["loss"].numpy()[0])
    by_gradient = float(tape.adjoint(a["x0"], at=tape.events[0])[2, 0])
    assert found["predicted"] == pytest.approx(found["before"] + step * by_gradient, rel=1e-6)
    tangent = wb.jvp(tape, {a["x0"]: (moved - start()) / np.float32(step)})[a["x"]]
    np.testing.assert_allclose(ghost[-1], film.values("points")[-1] + step * tangent, atol=1e-6)
    truth = by_hand(moved, np.full(N - 1, 0.8), STEPS)
    np.testing.assert_allclose(run, truth, atol=2e-5)
    one = what_if.answer({"changes": [[what_if.points, 4, step]], "frame": 5})[1][0]
    assert np.array_equal(np.frombuffer(one, np.float32).reshape(N, 2), run[5])
    assert np.array_equal(a["x0"].numpy(), start()), "nothing of the user's changes"


def test_a_start_that_the_tape_writes_over_cannot_be_dragged() -> None:
    x, v = wb.zeros(4, dtype=wb.vec2), wb.ones(4, dtype=wb.vec2, requires_grad=True)
    with wb.Tape(keep="all") as tape:
        x.assign(np.ones((4, 2), np.float32))
        for _ in range(4):
            wb.launch(move, 4, [x, v, 0.5])
    tape.backward(grads={x: wb.ones(4, dtype=wb.vec2)})
    meta = tape.film(x).what_if.meta
    assert meta["points"] == -1 and [i["name"] for i in meta["inputs"]] == ["v"]


# --- above the lanes


def test_the_live_view_carries_the_film_and_answers_what_if() -> None:
    tape, a, moments = springs("numpy")
    view = tape.explore(film={"points": a["x"], "lines": a["ends"]})
    film = tape.film(a["x"], lines=a["ends"])
    assert view.film_data == film.film_data and view.film_meta["moments"] == moments
    shown = {view.arrays[k].span for k in view.film_meta["arrays"]["points"]}
    assert shown == {a["x"].span} and view._esm.count("export default") == 1
    asked = {"ask": "what_if", "changes": [[0, 0, 0.01]], "frame": 2}
    assert view.answer(asked)[0] == film.what_if.answer(asked)[0]
    assert view.answer({"ask": "findings", "id": 1})[0]["rows"] is not None
    with pytest.raises(LaunchError, match="film over another pass"):
        tape.explore(film=True, against={a["loss"]: np.ones(1)})
    view.close()


def test_a_film_of_three_axes_and_triangles_is_seen_turned(tmp_path: Path) -> None:
    corners = np.float32([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    state = [wb.array(corners + 0.1 * k, dtype=wb.vec3, requires_grad=True) for k in range(3)]
    with wb.Tape(keep="all") as tape:
        for k in range(2):
            state[k + 1].assign(state[k])
    tape.backward(grads={state[-1]: wb.ones(4, dtype=wb.vec3)})
    film = tape.film(mesh=(state, [[0, 1, 2], [0, 1, 3]]))
    assert film.film_meta["dims"] == 3 and film.film_meta["mesh"]["count"] == 2
    assert np.array_equal(film.values("points")[2], state[2].numpy())
    assert film.save(tmp_path / "solid.png").stat().st_size > 5000
    assert tape.film(state, view="2d").film_meta["dims"] == 2


def test_what_if_shows_how_far_the_gradient_is_good(monkeypatch: pytest.MonkeyPatch) -> None:
    tape, a, _ = springs("numpy", "all")
    found = tape.trust(a["loss"])
    asked = {"ask": "what_if", "curve": True, "all": False}
    answer, blobs = tape.film(a["x"]).what_if.answer(asked)
    assert answer["said"] == found.sentence and not answer["ask"] and not blobs
    assert base64.b64decode(answer["picture"].removeprefix("data:image/png;base64,")) == found._repr_png_()
    view = tape.explore(film={"points": a["x"]})
    assert view.answer(asked)[0] == answer
    assert view.answer({"ask": "trust", "id": 1})[0]["rows"][0]["headline"] in found.sentence
    view.close()
    monkeypatch.setattr(what_if_module, "SOON", 3)
    film = tape.film(a["x"])
    assert film.what_if.answer(asked) == ({"ask": True}, [])
    assert film.what_if.answer({**asked, "all": True})[0]["said"] == found.sentence


def test_what_if_goes_through_a_cut_as_the_program_does() -> None:
    x, v = wb.ones(3, dtype=wb.vec2, requires_grad=True), wb.ones(3, dtype=wb.vec2)
    with wb.Tape(keep="all") as tape:
        wb.launch(move, 3, [x, v, 0.5])
        held = wb.detach(x)
        for _ in range(3):
            wb.launch(move, 3, [x, held, 0.5])
    tape.backward(grads={x: wb.ones(3, dtype=wb.vec2)})
    film = tape.film(x)
    run = np.frombuffer(film.what_if.answer({"changes": [[0, 0, 0.25]]})[1][0], np.float32)
    moved = np.ones((3, 2), np.float32)
    moved[0, 0] = 1.25
    assert np.array_equal(run.reshape(film.values("points").shape)[-1], tape.replay({x: moved})[x].numpy())


def test_above_the_lanes_the_strip_and_the_curve_ask_for_one_trust(monkeypatch):
    tape, a, _ = springs("numpy", "all")
    view, asked = tape.explore(film={"points": a["x"]}), []
    look = view_module.trusted
    monkeypatch.setattr(view_module, "trusted", lambda *given: asked.append(given) or look(*given))
    rows, _ = view.answer({"ask": "trust"})
    curve, _ = view.answer({"ask": "what_if", "curve": True})
    assert len(asked) == 1 and rows["rows"][0]["sentence"] in curve["said"]
    view.close()
