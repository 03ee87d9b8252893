"""Perlin's gradient noise in one to four dimensions, and the curl of it, as NVIDIA Warp makes them.

At every corner of a cell stands a random gradient, drawn from a hash of the corner; between corners weights of degree
five lead over, so value, gradient and curvature are continuous (Perlin, Improving noise, 2002).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir import kind, numeric
from ..row import Operand, refuse
from ..types import Composite, Scalar, Type, Vector, float32, float64, int32, is_int, uint32, vector
from .composite import curved
from .conversions import Whole, convert, static_number
from .random import PCG, rand_init
from .row import ROWS, row, stop, zero
from .scalar import ADD, BIT_XOR, CAST, FLOOR, MOVES, MUL, NE, NEG, PYMOD, RSHIFT, SQRT, SUB, TIMES, WHERE
from .vectors import CONSTRUCT, EXTRACT, SCALE, total

_PRIMES = (73856093, 19349663, 53471161, 10000019)


def _noise_type(state: Type, x: Type, *periods: Type) -> Type:
    many = x.length if isinstance(x, Vector) else 1
    if not 1 <= many <= 4 or getattr(x, "scalar", None) not in (float32, float64) or state is not uint32:
        text = f"noise takes a uint32 state and a float, vec2, vec3 or vec4, not {state} and {x}"
        raise refuse(text, slug="operand-type", instead="noise(rand_init(seed), x)")
    if len(periods) not in (0, many) or not all(is_int(p) for p in periods):
        raise refuse(f"pnoise takes one integer period for each of {many} axes", slug="operand-type")
    return x


def _unit(state: Operand, type: Scalar) -> Any:
    """A number in [0, 1) of a state."""
    return CAST(RSHIFT(state, np.uint32(8)), attr=type) * (1.0 / 16777216.0)


def _corner(state: Operand, cell: list, type: Scalar) -> list:
    """The gradient at a corner: of length 1, or in one dimension between -1 and 1."""
    *first, last = [MUL(CAST(c, attr=uint32), np.uint32(p)) for c, p in zip(cell, _PRIMES, strict=False)]
    seed = ADD(last, state)
    for f in reversed(first):
        seed = BIT_XOR(f, seed)
    if not first:
        return [_unit(PCG(seed), type) * 2.0 - 1.0]
    parts = []
    for _ in cell:
        seed = PCG(seed)
        parts.append(_unit(seed, type) - 0.5)
    size = SQRT(total(p * p for p in parts))
    return [WHERE(NE(size, 0.0), p / size, p) for p in parts]


def _cell(x: list, periods: tuple) -> tuple[list, list]:
    """The two whole numbers around each coordinate, and how far it lies above the lower one."""
    floors = [FLOOR(c) for c in x]
    ends = []
    for k, f in enumerate(floors):
        low = CAST(f, attr=int32)
        high = ADD(low, np.int32(1))
        ends.append([PYMOD(e, periods[k]) for e in (low, high)] if periods else [low, high])
    return ends, [SUB(c, f) for c, f in zip(x, floors, strict=True)]


def _blended(state: Operand, x: list, periods: tuple, type: Scalar, slopes: bool) -> tuple[Any, list]:
    """The value; and with `slopes` its gradient."""
    ends, inside = _cell(x, periods)
    values: list[tuple[Any, list]] = []
    for back in itertools.product((0, 1), repeat=len(x)):  # neighbours along the first axis stand side by side
        sides = back[::-1]
        gradient = _corner(state, [ends[k][s] for k, s in enumerate(sides)], type)
        away = [inside[k] - 1.0 if s else inside[k] for k, s in enumerate(sides)]
        values.append((total(a * g for a, g in zip(away, gradient, strict=True)), gradient))
    for k in range(len(x)):
        t = inside[k]
        weight = t * t * t * (t * (t * 6.0 - 15.0) + 10.0)
        slope = 30.0 * t * t * (t * (t - 2.0) + 1.0) if slopes else None
        values = [_between(*pair, k, weight, slope) for pair in zip(values[::2], values[1::2], strict=True)]
    return values[0]


def _between(low: tuple, high: tuple, axis: int, weight: Operand, slope: Operand | None) -> tuple[Any, list]:
    """(value, gradient) interpolated along an axis between two corners, edges or faces; gradient [] without slope."""
    change = high[0] - low[0]
    made = change * weight + low[0]
    if slope is None:
        return made, []
    gradient = [(b - a) * weight + a for a, b in zip(low[1], high[1], strict=True)]
    gradient[axis] = gradient[axis] + change * slope
    return made, gradient


def _coordinates(x: list[Any] | Operand) -> list:
    return x if isinstance(x, list) else [x]


def _noise_gradient(state, x, *periods, types, out):
    made = _blended(state, _coordinates(x), periods, out.scalar, True)[1]
    return made if isinstance(x, list) else made[0]


def _adjoint_gradient(g, y, state, x, *periods):
    """The Jacobian of a gradient is symmetric: its transpose is its derivative in a direction."""
    nothing = [zero(p) for p in periods]
    return None, ROWS["d_noise_gradient"](state, x, *periods, zero(state), g, *nothing), *[None] * len(periods)


def _tangent_noise(ts, y, state, x, *periods):
    slope = NOISE_GRADIENT(state, x, *periods)
    return ROWS["dot_both"](ts[1], slope) if isinstance(kind(x), Composite) else MOVES(ts[1], slope)


NOISE_GRADIENT = curved("noise_gradient", type=_noise_type, expand=_noise_gradient, adjoint=_adjoint_gradient, cost=64)
NOISE = row(
    "noise",
    type=lambda state, x, *p: numeric(_noise_type(state, x, *p)).scalar,
    expand=lambda state, x, *periods, types, out: _blended(state, _coordinates(x), periods, out, False)[0],
    adjoint=lambda g, y, state, x, *periods: (
        None,
        TIMES(g, NOISE_GRADIENT(state, x, *periods)),
        *[None] * len(periods),
    ),
    tangent=_tangent_noise,
    cost=64,
)


def noise(state: Operand, x: Operand) -> Any:
    """noise(state: uint32, x: float or vec2 to vec4) -> float: smooth noise, 0 where all coordinates are whole."""
    return NOISE(state, x)


def pnoise(state: Operand, x: Operand, *periods: Operand) -> Any:
    """pnoise(state: uint32, x: float or vec2 to vec4, *periods: int) -> float: noise that repeats itself.

    There is one period for each axis. Other than in Warp it repeats itself below zero too.
    """
    if not periods:
        text = "`pnoise` takes an integer period for each axis"
        raise stop((x,), text, slug="arguments", instead="noise(state, x)")
    return NOISE(state, x, *[convert(int32, p) for p in periods])


def _curl(fields: list[Any], type: Vector) -> Any:
    """Of the gradients of three fields."""
    a, b, c = fields

    def part(g: Operand, k: int) -> Any:
        return EXTRACT(g, attr=(k,))

    parts = [part(c, 1) - part(b, 2), part(a, 2) - part(c, 0), part(b, 0) - part(a, 1)]
    return CONSTRUCT(*parts, attr=vector(3, type.scalar))


def curlnoise(state: Operand, x: Operand, octaves: Whole = 1, lacunarity: Operand = 2.0, gain: Operand = 0.5) -> Any:
    """curlnoise(state: uint32, x: vec2 to vec4, octaves = 1, lacunarity = 2, gain = 0.5) -> vec2 or vec3.

    A field without divergence: the curl of noise by the first two or three coordinates; the fourth is time. Each octave
    is finer by lacunarity and weaker by gain than the one before; how many there are is a constant.
    """
    type = kind(x)
    if not isinstance(type, Vector) or type.length not in (2, 3, 4):
        raise stop((x,), f"`curlnoise` takes a vec2, vec3 or vec4, not {type}", slug="operand-type")
    count, many = static_number(octaves), 1 if type.length == 2 else 3
    fields: list[Any] = [None] * many
    finer, weaker = None, None
    for _ in range(count):
        place = x if finer is None else SCALE(x, finer)
        for k in range(many):
            if k:
                state = rand_init(state, (10019689, 13112221)[k - 1])
            slope = NOISE_GRADIENT(state, place)
            slope = slope if weaker is None else SCALE(slope, weaker)
            fields[k] = slope if fields[k] is None else ADD(fields[k], slope)
        finer, weaker = (lacunarity, gain) if finer is None else (finer * lacunarity, weaker * gain)
    if many == 3:
        return _curl(fields, type)
    return CONSTRUCT(NEG(EXTRACT(fields[0], attr=(1,))), EXTRACT(fields[0], attr=(0,)), attr=type)


NOISES: dict[str, Callable[..., Any]] = {f.__name__: f for f in (noise, pnoise, curlnoise)}
