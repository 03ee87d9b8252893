"""Another seed of a film: arrows that are pulled, and the adjoints of one walk from there."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from tests.support.backends import BACKENDS
from tests.viz.test_film import PAIRS, STEPS, N, by_hand, far, move, springs, start
from workbench.errors import LaunchError


@pytest.mark.parametrize("backend", BACKENDS)
def test_another_seed_is_walked_from_once_and_its_adjoints_are_those_of_the_sum(backend: str, monkeypatch) -> None:
    tape, a, _ = springs(backend)
    film = tape.film(a["x"], lines=PAIRS, colour=a["rest"].grad)
    gradient, pulls = a["x0"].grad.numpy().copy(), [[6, 0.25], [11, -0.5]]
    walks, retrace = [], wb.Tape.retrace
    monkeypatch.setattr(wb.Tape, "retrace", lambda *given, **named: walks.append(1) or retrace(*given, **named))
    said, blobs = film.what_if.answer({"pulls": pulls})
    assert len(walks) == 1 and said["layers"] == ["points", "colour"]
    assert film.what_if.meta["seed"] == "" and "+0.25 a['x'][3, 0] -0.5 a['x'][5, 1]" in said["note"]
    points = np.frombuffer(blobs[0], np.float32).reshape(film.adjoints("points").shape)
    rest = np.frombuffer(blobs[1], np.float32).reshape(film.adjoints("colour").shape)[..., 0]
    more = np.zeros((N, 2), np.float32)
    more.reshape(-1)[[n for n, _ in pulls]] = [by for _, by in pulls]
    assert np.array_equal(points[-1], film.adjoints("points")[-1] + more)

    def aim(place: np.ndarray, length: np.ndarray) -> float:
        end = by_hand(place, length, STEPS)[-1]
        return float((end**2).sum() + (more * end).sum())

    places, lengths, h = start().astype(np.float64), np.full(N - 1, 0.8), 1e-6
    for k in range(N - 1):
        up, down = lengths.copy(), lengths.copy()
        up[k], down[k] = 0.8 + h, 0.8 - h
        slope = (aim(places, up) - aim(places, down)) / (2 * h)
        assert rest[0, k] == pytest.approx(slope, rel=2e-4, abs=2e-4)
    for n in range(2 * N):
        step = h * np.eye(2 * N)[n].reshape(N, 2)
        slope = (aim(places + step, lengths) - aim(places - step, lengths)) / (2 * h)
        assert points[0].reshape(-1)[n] == pytest.approx(slope, rel=2e-4, abs=2e-4)
    back, old = film.what_if.answer({"pulls": []})
    assert old[0] == film.adjoints("points").tobytes() and back["note"] == ""
    assert np.array_equal(a["x0"].grad.numpy(), gradient), "nothing of the user's changes"


def test_the_seed_of_a_film_stays_that_of_its_backward() -> None:
    tape, a, _ = springs("numpy", "all")
    film, loss = tape.film(a["x"]), float(a["loss"].numpy()[0])
    tape.zero()
    tape.backward(grads={a["loss"]: 3.0 * wb.ones(1)})
    assert film.what_if.answer({"pulls": []})[1][0] == film.adjoints("points").tobytes()
    assert film.what_if.answer({"changes": []})[0]["loss"] == pytest.approx(loss, rel=1e-6)


def test_arrows_of_another_array_are_the_seed_of_that_one() -> None:
    tape, a, _ = springs("numpy")
    film = tape.film(a["x"], arrows=("adjoint", a["v"]))
    said, blobs = film.what_if.answer({"pulls": [[2, 1.5]]})
    found = dict(zip(said["layers"], blobs, strict=True))
    arrows = np.frombuffer(found["arrows"], np.float32).reshape(film.adjoints("arrows").shape)
    more = np.zeros((N, 2), np.float32)
    more[1, 0] = 1.5
    assert np.array_equal(arrows[-1], -(film.adjoints("arrows")[-1] + more))
    assert not np.array_equal(found["points"], film.adjoints("points").tobytes())


def test_arrows_that_are_no_seed_say_why() -> None:
    tape, a, _ = springs("numpy")
    x, v = a["x"], a["v"]
    for film in (tape.film(x, arrows=v), tape.film(x, arrows=None), tape.film(lambda s: s["a['x']"])):
        assert "no adjoints of an array on the stage" in film.what_if.meta["seed"]
        with pytest.raises(LaunchError, match="the seed stays: the arrows are no adjoints"):
            film.what_if.answer({"pulls": [[0, 1.0]]})
    y = wb.ones(3, dtype=wb.vec2, requires_grad=True)
    out = wb.zeros(1)
    with wb.Tape() as tape:
        for _ in range(4):
            wb.launch(move, 3, [y, y, 0.5])
        wb.launch(far, 3, [y, out])
        y.zero_()
    tape.backward(out)
    assert "written again behind the last frame" in tape.film(y).what_if.meta["seed"]


def test_the_lanes_have_the_seed_of_the_stage() -> None:
    tape, a, _ = springs("numpy", steps=3)
    view = tape.explore(film={"points": a["x"]})
    was = view.levels
    said = view.answer({"ask": "what_if", "pulls": [[0, 4.0]]})[0]
    assert view.levels != was and view.levels_meta["seed"] == said["note"] != ""
    with pytest.raises(ValueError, match="seeds of the last backward"):
        view.answer({"ask": "ledger", "array": view.number_of(a["x"]), "cursor": 0, "element": [0, 0]})
    view.answer({"ask": "what_if", "pulls": []})
    assert view.levels == was
    view.close()
