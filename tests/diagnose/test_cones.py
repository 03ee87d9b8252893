"""How much is looked at to find out where gradients ended: what depends on a leaf, not the whole tape for each."""

from __future__ import annotations

import workbench as wb
from tests.support import view_samples as samples
from workbench.diagnose.walk_step import WalkStep


def looked_at(chains: int, monkeypatch) -> int:
    """How often the findings of a tape look at a step that has this many chains, of which one leads to the seed."""
    xs = [wb.ones(2, dtype=float, requires_grad=True, name=f"x{k}") for k in range(chains)]
    ys = [wb.zeros(2, dtype=float, name=f"y{k}") for k in range(chains)]
    with wb.Tape() as tape:
        for _ in range(4):
            for x, y in zip(xs, ys, strict=True):
                wb.launch(samples.step, dim=2, inputs=[y, x, 0.5])
    tape.backward(grads={ys[0]: wb.ones_like(ys[0])})
    seen = []

    def accesses(step):
        seen.append(1)
        return vars(step)["accesses"]

    monkeypatch.setattr(
        WalkStep, "accesses", property(accesses, lambda s, found: vars(s).update(accesses=found)), False
    )
    found = tape.diagnose()
    monkeypatch.undo()
    assert any(f.slug == "not-on-path" for f in found)
    return len(seen)


def test_what_depends_on_nothing_else_is_compared_with_nothing_else(monkeypatch):
    few, many = looked_at(10, monkeypatch), looked_at(40, monkeypatch)
    assert many < 5 * few
