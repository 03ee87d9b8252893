"""What arrays refuse: one request for each arm of a condition, and what stands just beside it and is taken."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb

F, V = wb.float64, wb.vec3d


@wb.struct
class Ball:
    q: wb.vec3d
    m: F


def pointer(n: int = 8) -> wb.array:
    return wb.zeros(n, dtype=F)


def nested():
    with wb.capture(), wb.capture():
        pass


class Typed:
    """Something with a dtype that is no array."""

    dtype = np.dtype(float)


REFUSED = {
    "item of two": ("shape", lambda: wb.zeros(2).item()),
    "item of none": ("shape", lambda: wb.zeros(0).item()),
    "an axis twice": ("shape", lambda: wb.zeros((2, 3)).transpose((0, 0))),
    "an axis left out": ("shape", lambda: wb.zeros((2, 3)).transpose((1,))),
    "a pointer without a dtype": ("shape", lambda: wb.array(ptr=pointer().ptr, shape=3)),
    "a pointer without a shape": ("shape", lambda: wb.array(ptr=pointer().ptr, dtype=F)),
    "strides of another number of axes": (
        "shape",
        lambda: wb.array(ptr=pointer().ptr, shape=3, strides=(8, 8), dtype=F),
    ),
    "a list shared": ("layout", lambda: wb.array([1.0, 2.0], dtype=F, copy=False)),
    "something with a dtype shared": ("layout", lambda: wb.array(Typed(), dtype=F, copy=False)),
    "a buffer shared": ("layout", lambda: wb.array(memoryview(bytearray(8)), dtype=F, copy=False)),
    "a number as a vector": ("components", lambda: wb.array(np.zeros(()), dtype=V, copy=False)),
    "two numbers as a vector": ("components", lambda: wb.array(np.zeros(2), dtype=V, copy=False)),
    "components apart": ("layout", lambda: wb.array(np.zeros((4, 6))[:, ::2], dtype=V, copy=False)),
    "a capture in a capture": ("capture", nested),
    "copied behind the end": ("bounds", lambda: wb.copy(wb.zeros(3), wb.zeros(3), dest_offset=2, count=2)),
    "copied from behind the end": ("bounds", lambda: wb.copy(wb.zeros(3), wb.zeros(3), src_offset=2, count=2)),
    "copied from before the start": ("bounds", lambda: wb.copy(wb.zeros(3), wb.zeros(3), src_offset=-1, count=2)),
    "copied to before the start": ("bounds", lambda: wb.copy(wb.zeros(3), wb.zeros(3), dest_offset=-1, count=2)),
    "fewer than none copied": ("bounds", lambda: wb.copy(wb.zeros(3), wb.zeros(3), count=-2)),
    "an array as a dtype": ("dtype", lambda: wb.zeros(3, dtype=wb.array(dtype=float))),
    "records of other names": ("field", lambda: wb.array(np.zeros(2, [("a", "f8"), ("m", "f8")]), dtype=Ball)),
    "a struct as a scalar": ("dtype", lambda: wb.scalar(1.0, dtype=Ball)),
    "parts of a number": ("components", lambda: wb.zeros(3).view(wb.types.vector(3, wb.float16))),
    "four numbers as vectors": ("components", lambda: wb.zeros(4, dtype=F).view(V)),
    "every other number as vectors": ("components", lambda: wb.zeros(12, dtype=F)[::2].view(V)),
    "a field of a number in a struct": ("field", lambda: wb.zeros(2, dtype=Ball).field("m.x")),
    "a field of a number": ("field", lambda: wb.zeros(2, dtype=F).field("m")),
    "an unknown field": ("field", lambda: wb.zeros(2, dtype=Ball).field("w")),
}
TAKEN = {
    "item of one": lambda: wb.zeros((1, 1)).item(),
    "axes in another order": lambda: wb.zeros((2, 3)).transpose((1, 0)),
    "a pointer": lambda: wb.array(ptr=pointer().ptr, shape=(2, 3), strides=(24, 8), dtype=F),
    "a pointer to nothing of an array": lambda: wb.array(ptr=(of := pointer()).ptr, shape=0, dtype=of.dtype),
    "a pointer to nothing": lambda: wb.array(ptr=0, shape=(0, 3), dtype=F),
    "no components apart": lambda: wb.array(np.zeros((0, 6))[:, ::2], dtype=V, copy=False),
    "one vector": lambda: wb.array(np.zeros(3), dtype=V, copy=False),
    "copied up to the end": lambda: wb.copy(wb.zeros(3), wb.zeros(3), dest_offset=1, src_offset=1, count=2),
    "six numbers as vectors": lambda: wb.zeros((2, 6), dtype=F).view(V),
    "a field in a struct": lambda: wb.zeros(2, dtype=Ball).field("q"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_an_array_cannot_do_is_refused(what):
    slug, ask = REFUSED[what]
    with pytest.raises((wb.LaunchError, wb.BoundsError)) as found:
        ask()
    assert found.value.slug == slug


@pytest.mark.parametrize("what", TAKEN)
def test_what_is_close_to_a_refusal_is_taken(what):
    TAKEN[what]()
