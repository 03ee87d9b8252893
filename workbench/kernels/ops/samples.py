"""Random points: uniform in a shape or on it, from a state that the reader rebinds, as `randf` has it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from ..row import Operand
from ..types import Composite, float32, vector
from .random import randf, randi, randn, randu
from .scalar import ACOS, COS, POW, SIN, SQRT
from .signatures import called_by_users
from .vectors import CONSTRUCT

_VEC2, _VEC3, _VEC4 = (vector(n, float32) for n in (2, 3, 4))
Drawn = tuple[Any, Any]


def _box(state: Operand, type: Composite) -> Drawn:
    parts = []
    for _ in range(type.size):
        u, state = randf(state)
        parts.append(u - 0.5)
    return CONSTRUCT(*parts, attr=type), state


def _turned(state: Operand) -> tuple[Any, Any, Any]:
    angle, state = randf(state)
    angle = angle * (2.0 * math.pi)
    return COS(angle), SIN(angle), state


def _polar(state: Operand, whole: float, filled: bool) -> Drawn:
    """On a sphere or, filled, in it: `whole` is 2 for all of it, 1 for its upper half."""
    height, state = randf(state)
    slope = ACOS(1.0 - whole * height)
    x, y, state = _turned(state)
    parts = [x * SIN(slope), y * SIN(slope), COS(slope)]
    if filled:
        size, state = randf(state)
        size = POW(size, 1.0 / 3.0)
        parts = [p * size for p in parts]
    return CONSTRUCT(*parts, attr=_VEC3), state


def sample_triangle(state: Operand) -> Drawn:
    """sample_triangle(state) -> vec2: the first two barycentric coordinates of a point of a triangle."""
    u, state = randf(state)
    v, state = randf(state)
    r = SQRT(u)
    return CONSTRUCT(1.0 - r, v * r, attr=_VEC2), state


def sample_unit_ring(state: Operand) -> Drawn:
    """sample_unit_ring(state) -> vec2 of length 1."""
    x, y, state = _turned(state)
    return CONSTRUCT(x, y, attr=_VEC2), state


def sample_unit_disk(state: Operand) -> Drawn:
    """sample_unit_disk(state) -> vec2 of length up to 1."""
    u, state = randf(state)
    x, y, state = _turned(state)
    r = SQRT(u)
    return CONSTRUCT(r * x, r * y, attr=_VEC2), state


def _sample(name: str, what: str, draw: Any) -> Any:
    draw.__name__ = draw.__qualname__ = name
    draw.__doc__ = f"{name}(state) -> {what}."
    return draw


_INSIDE = "with components from -1/2 to 1/2"
_DRAWN: dict[str, tuple[str, Callable[[Operand], Drawn]]] = {  # what they give, and how
    "sample_unit_sphere_surface": ("vec3 of length 1", lambda state: _polar(state, 2.0, False)),
    "sample_unit_sphere": ("vec3 of length up to 1", lambda state: _polar(state, 2.0, True)),
    "sample_unit_hemisphere_surface": ("vec3 of length 1 with z >= 0", lambda state: _polar(state, 1.0, False)),
    "sample_unit_hemisphere": ("vec3 of length up to 1 with z >= 0", lambda state: _polar(state, 1.0, True)),
    "sample_unit_square": (f"vec2 {_INSIDE}", lambda state: _box(state, _VEC2)),
    "sample_unit_cube": (f"vec3 {_INSIDE}", lambda state: _box(state, _VEC3)),
    "sample_unit_hypercube": (f"vec4 {_INSIDE}", lambda state: _box(state, _VEC4)),
}
globals().update({name: _sample(name, *how) for name, how in _DRAWN.items()})  # found there again by pickle
_SAMPLES = called_by_users(__name__)
for _name, _drawn in _SAMPLES.items():
    _size = re.search(r"-> vec(\d)", _drawn.__doc__ or "")
    assert _size is not None, f"{_name} does not say what it gives"
    _drawn.__doc__ = f"""{_drawn.__doc__} On the host: the point and the next state.

>>> point, state = wb.{_name}(wb.rand_init(42))
>>> len(point)
{_size[1]}"""

STATEFUL: dict[str, Callable[..., Any]] = {f.__name__: f for f in (randf, randi, randn, randu)} | _SAMPLES
