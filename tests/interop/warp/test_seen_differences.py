"""Where a result is not Warp's to the bit: the table names the event, the number and what may round otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import workbench as wb

pytestmark = [pytest.mark.needs_warp, pytest.mark.needs_cc]


@pytest.fixture(scope="module")
def seen() -> Any:
    import doubtful as k

    wp = k.wp
    x, y = (wp.array(np.array([0.5, 0.25, 2.0], np.float32), dtype=float) for _ in range(2))
    with wb.interop.warp.watch() as seen:
        wp.launch(k.added, 3, [x], [y])
        wp.launch(k.waved, 3, [x], [y])
    return seen


def off(seen: Any, n: int, share: float) -> Any:
    """The step with a difference, as if Warp had rounded otherwise."""
    from workbench.warp.watch.session import ForwardDifference

    region = next(iter(seen.session.twins.buffers))
    seen.steps[n].difference = ForwardDifference(region, 2, 1.0, 1.0 + share, share * 2**23, share)
    return seen.steps[n]


def test_equal_bits_are_said_to_be_equal(seen: Any) -> None:
    assert "0 with results that differ from Warp's," in seen.summary()
    assert repr(seen.differences()) == "every result has the same bits as Warp's"


def test_what_may_round_otherwise_is_named_with_its_line(seen: Any) -> None:
    import doubtful as k

    first, second = off(seen, 0, 2**-22), off(seen, 1, 2**-20)
    try:
        table = seen.differences()
        assert [row.step for row in table] == [second, first]  # the farthest first
        line = k.added.adj.fun_lineno + 3
        assert table[1].why == f"`atomic_add` in line {line}: the order of the sum"
        line = k.waved.adj.fun_lineno + 3
        assert table[0].why.startswith(f"`exp` in line {line}, `sin` in line {line}: each C library rounds it")
        assert f"a product and a sum in line {line}: a compiler may round them at once" in table[0].why
        assert table[0].array == "x" and "test_seen_differences.py" in table[0].texts()[1]
        assert "2 with results that differ from Warp's (by 8 units in the last place at most" in seen.summary()
    finally:
        first.difference = second.difference = None


def test_what_rounding_does_not_explain_is_told(seen: Any) -> None:
    step = off(seen, 0, 0.25)
    try:
        assert seen.differences()[0].why.startswith("farther apart than rounding goes")
    finally:
        step.difference = None


def test_a_copy_among_the_launches_of_an_earlier_tape_is_compared(k: Any) -> None:
    wp = k.wp
    with wb.interop.warp.watch() as seen:
        z = wp.array(np.linspace(0.5, 1.2, 4), dtype=float, requires_grad=True)
        s, u = (wp.zeros(4, dtype=float, requires_grad=True) for _ in range(2))
        loss = wp.zeros(1, dtype=float, requires_grad=True)
        first, second = wp.Tape(), wp.Tape()
        with first:
            wp.launch(k.square, 4, [z, s])
            wp.launch(k.square, 4, [s, s])  # over what its adjoint reads: wrong in Warp
            wp.copy(u, s, 0, 0, 3)
        with second:
            wp.launch(k.square, 1, [u, loss])
        second.backward(loss)
        first.backward()
    assert any(row.verdict == "wrong" for one in seen.passes for row in one.rows)
    assert "wrong" in str(seen.compare())
