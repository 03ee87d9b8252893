"""Columns that are described once for all events alike are those that are made one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import workbench as wb
from tests.support import view_samples as samples
from workbench.viz.data import columns as columns_module
from workbench.viz.data.columns import Columns, levels_of
from workbench.viz.data.event_kinds import UniqueEvents, excerpt
from workbench.viz.data.gather import Gather, gather
from workbench.viz.data.lanes import cut_memory
from workbench.viz.data.trace import Trace


@wb.kernel
def collect(x: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(out, 0, x[i])  # type: ignore[operator]


def random_tape(seed: int, steps: int = 90) -> wb.Tape:
    """Launches, copies and fills of whole memory, of overlapping parts and of strided ones, in scopes and loops."""
    rng = np.random.default_rng(seed)
    whole = [wb.array(rng.random(12), dtype=float, requires_grad=bool(k % 2)) for k in range(4)]
    views = [*whole, whole[0][2:6], whole[0][4:12], whole[1][::2], whole[2].reshape((3, 4)), whole[3][0:12]]
    loss = wb.zeros(1, dtype=float)
    with wb.Tape(keep="all" if seed % 3 == 0 else "needed") as tape:
        for k in range(steps):
            flat = [v for v in views if len(v.shape) == 1]
            a, b = (flat[int(rng.integers(len(flat)))] for _ in range(2))
            what, size = rng.random(), min(a.shape[0], b.shape[0])
            with tape.scope(f"part {k % 3}") if rng.random() < 0.5 else tape.scope("rest"):
                if what < 0.55:
                    wb.launch(samples.step, dim=size, inputs=[a, b, 0.1 * (k % 2)])
                elif what < 0.7:
                    wb.launch(samples.double, dim=a.shape[0], inputs=[a])
                elif what < 0.8:
                    wb.launch(collect, dim=a.shape[0], inputs=[a], outputs=[loss])
                elif what < 0.9:
                    whole[int(rng.integers(4))].assign(whole[int(rng.integers(4))])
                else:
                    a.zero_()
    return tape


def many_pieces() -> wb.Tape:
    """More ranges of one memory than it is cut into."""
    x, y = wb.ones(200, dtype=float), wb.zeros(2, dtype=float)
    with wb.Tape() as tape:
        for k in range(120):
            wb.launch(samples.step, dim=2, inputs=[x[k : k + 2], y, 0.5])
    return tape


TAPES: dict[str, Any] = {
    **{f"random {seed}": lambda seed=seed: random_tape(seed) for seed in range(12)},
    "pieces": many_pieces,
    "empty": wb.Tape,
}


def one_by_one(tape: wb.Tape) -> Trace:
    """The trace where no two events count as alike."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Gather, "likeness", lambda self, event, scope: (event.id,))
        return Gather(tape).structure()


@pytest.mark.parametrize("name", TAPES)
def test_events_described_together_are_those_described_alone(name: str) -> None:
    tape = TAPES[name]()
    plain, alike = one_by_one(tape), Gather(tape).structure()
    assert isinstance(alike.events, UniqueEvents)
    assert list(alike.events) == list(plain.events) and len(alike.events) == len(tape.events)
    assert list(gather(tape).events) == list(plain.events)  # nobody asked for a gradient: there is no adjoint
    assert (alike.allocations, alike.folds, alike.summary) == (plain.allocations, plain.folds, plain.summary)
    assert list(alike.events[3:-2]) == list(plain.events)[3:-2]
    assert sum(number for _, number in alike.events.kinds()) == len(tape.events)
    versions: dict[str, int] = {}
    for event in alike.events:
        for touch in event.touches:
            before = versions.get(touch.allocation, 0)
            versions[touch.allocation] = before + (touch.how != "read")
            assert (touch.version_before, touch.version_after) == (before, versions[touch.allocation])


@pytest.mark.parametrize("name", TAPES)
def test_columns_made_at_once_are_those_made_event_by_event(name: str) -> None:
    tape = TAPES[name]()
    alike, grids = Gather(tape).structure(), list(range(len(tape.events)))
    plain = replace(alike, events=list(alike.events))
    one, other = Columns(plain, plain.folds, grids), Columns(alike, alike.folds, grids)
    assert one.meta == other.meta and one.data == other.data
    assert one.order == other.order and one.side(levels_of(plain))[:2] == other.side(levels_of(plain))[:2]


@pytest.mark.parametrize("name", TAPES)
def test_a_tape_cut_short_is_the_same_of_events_alike(name: str) -> None:
    alike = Gather(TAPES[name]()).structure()
    plain = replace(alike, events=list(alike.events))
    short, long = (replace(s, events=list(s.events), values=()) for s in (excerpt(alike, 10), excerpt(plain, 10)))
    assert short == long and (len(short.events) < len(alike.events) or len(alike.events) <= 20)


def test_a_long_loop_is_described_by_few_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    tape, _ = samples.crowd(3000, 20)
    made: list[int] = []
    real = UniqueEvents._made
    monkeypatch.setattr(UniqueEvents, "_made", lambda self, n: made.append(n) or real(self, n))
    monkeypatch.setattr(columns_module, "versions_of", None)  # not asked for before there are adjoints
    trace = Gather(tape).structure()
    Columns(trace, trace.folds)
    short = excerpt(trace, 80)
    assert isinstance(trace.events, UniqueEvents) and len(trace.events.firsts) <= 40
    assert len(made) < 400 and short.summary == trace.summary


def test_memory_in_one_piece_and_in_several_is_there() -> None:
    """The random tapes try what they are to try."""
    pieces = {len(c) > 2 for seed in range(12) for c in _cuts(Gather(random_tape(seed)).structure())}
    assert pieces == {True, False}


def _cuts(trace: Trace) -> list[tuple[int, ...]]:
    return list(cut_memory(trace, trace.events).values())
