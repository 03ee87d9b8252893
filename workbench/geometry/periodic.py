"""Distances in boxes that repeat."""

from __future__ import annotations

from typing import Any

from ..kernels.reading.library import library
from .language import wb


@library()
def minimum_image(d: Any, box: Any):
    """minimum_image(d: vec, box: vec) -> vec: the shortest of the differences `d` + whole multiples of the box's sides.

    Each component lies from -side/2 to side/2; a side of 0 does not repeat. Its derivative by `d` is the identity, by a
    side minus the number of sides taken off; exact but where a component is half a side, at which it jumps.

    >>> @wb.kernel
    ... def nearest(x: wb.array[wb.vec2], box: wb.vec2, d: wb.array[wb.vec2]):
    ...     d[0] = wb.minimum_image(x[1] - x[0], box)
    >>> d = wb.zeros(1, dtype=wb.vec2)
    >>> wb.launch(nearest, 1, [wb.array([[1.0, 1.0], [9.0, 4.0]], dtype=wb.vec2), wb.vec2(10.0, 0.0), d])
    >>> d.numpy().tolist()
    [[-2.0, 3.0]]
    """
    image = d
    for k in range(len(d)):
        if box[k] != type(box[k])(0):
            image[k] = d[k] - box[k] * wb.round(d[k] / box[k])
    return image
