"""The index of live memories by address: against a plain list, and how often it meets what has gone."""

from __future__ import annotations

import random

import pytest

from workbench.arrays.span import AddressRanges


class Memory:
    def __init__(self, address: int, nbytes: int):
        self.address, self.nbytes = address, nbytes


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("outlived", [False, True])
def test_what_meets_a_range_is_what_a_plain_list_says(seed, outlived):
    """Also where a bare pointer lives on behind its memory: what lies there now is what was added last."""
    rng, index, alive, before = random.Random(seed), AddressRanges(), [], []
    for _ in range(400):
        what = rng.random()
        if what < 0.4:
            new = Memory(rng.randrange(300), rng.randrange(1, 12))
            meets = [m for m in alive if m.address < new.address + new.nbytes and new.address < m.address + m.nbytes]
            if not meets or outlived:
                index.add(new)
                alive = [m for m in alive if m not in meets] + [new]
                before += meets
            del new, meets
        elif what < 0.7 and alive:
            alive.pop(rng.randrange(len(alive)))
        low = rng.randrange(300)
        high = low + rng.randrange(1, 60)
        wanted = sorted((m for m in alive if m.address < high and low < m.address + m.nbytes), key=lambda m: m.address)
        assert index.meeting(low, high) == wanted
        assert index.starts == sorted(index.entries)
        assert all(index.entries[m.address]() is m for m in alive)


def test_what_has_gone_is_met_once():
    index = AddressRanges()
    kept = Memory(0, 1)
    index.add(kept)
    gone = [Memory(10 * k, 5) for k in range(1, 200)]
    for memory in gone:
        index.add(memory)
    del gone, memory
    assert index.meeting(5000, 5001) == []  # past all that has gone, back to the first that lives
    assert index.starts == [0]
