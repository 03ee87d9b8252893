"""The choice of what a film shows: what the user named, or what a tape has that can be drawn."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays.array import array, read_values
from ...errors import LaunchError
from ...kernels.types import Composite, Struct, is_float
from ...tapes.events import Event
from ...tapes.tape import Tape
from .snapshot import full_shape
from .text import clean

LEAST_GRID = 8  # cells each way from which a 2-D array is taken for a grid
POSITIONS = ("x", "pos", "position", "positions", "points", "particles", "q", "particle_q", "body_q", "p")


@dataclasses.dataclass(eq=False)
class FilmChoice:
    """Arrays by what they are drawn as: each a list, of which the one written last before a moment is shown.

    arrows_of, colour_of   True if it is the adjoint of `arrows`, of `colour`, that is drawn.
    names                  by role the name of what is drawn; remarks: sentences for the caption.
    """

    points: list[array] | None = None
    lines: np.ndarray | None = None
    mesh: np.ndarray | None = None
    field: list[array] | None = None
    arrows: list[array] | str | None = "adjoint"
    arrows_of: bool = False
    colour: list[array] | None = None
    colour_of: bool = False
    view: str = ""
    names: dict[str, str] = dataclasses.field(default_factory=dict)
    remarks: list[str] = dataclasses.field(default_factory=list)

    def tracks(self) -> dict[str, tuple[str, list[array]]]:
        """By role (name, arrays) of everything with values of its own."""
        roles = ("points", "field", "colour", "arrows")
        found = {role: getattr(self, role) for role in roles}
        return {role: (self.names[role], arrays) for role, arrays in found.items() if isinstance(arrays, list)}


def choose(tape: Tape, given: dict[str, Any]) -> FilmChoice:
    """The choice of a user, checked; of `{}` what the tape has. Raises LaunchError for what cannot be drawn.

    Arrays in `given`: an array, or several (a ring of buffers, a history); ("adjoint", a), or a.grad, for adjoints.
    """
    arrows = given.get("arrows", "adjoint")
    given = {name: value for name, value in given.items() if value is not None and name != "arrows"}
    made = FilmChoice(view=_view(given.pop("view", "")))
    if not given:
        _find(tape, made)
    mesh = given.get("mesh")
    if mesh is not None:
        if not (isinstance(mesh, Sequence) and len(mesh) == 2):
            raise _refused("mesh takes (points, triangles).", "mesh=(x, triangles)")
        given["points"] = given.get("points", mesh[0])
    for role in ("points", "field"):
        if role in given:
            _put(tape, made, role, _arrays(given[role]))
    _check(made)
    if "lines" in given:
        made.lines = _indices(tape, made, "lines", given["lines"], 2)
    if mesh is not None:
        made.mesh = _indices(tape, made, "mesh", mesh[1], 3)
    if "colour" in given:
        made.colour_of, arrays = _meant(tape, given["colour"])
        _put(tape, made, "colour", arrays)
        _check_colour(made)
    if arrows is None or isinstance(arrows, str):
        made.arrows = arrows and "adjoint"
    else:
        made.arrows_of, arrays = _meant(tape, arrows)
        _put(tape, made, "arrows", arrays)
        if made.points is None or full_shape(arrays[0]) != full_shape(made.points[0]):
            raise _refused("arrows need one vector for each point.", 'arrows="adjoint"')
    return made


def _refused(text: str, instead: str) -> LaunchError:
    return LaunchError(f"film: {text}", slug="film-layer", instead=f"tape.film({instead})")


def _view(view: object) -> str:
    if view not in ("", "2d", "3d"):
        raise _refused(f"view is '2d' or '3d', not {view!r}.", 'view="3d"')
    return str(view)


def _arrays(given: object) -> list[array]:
    found: list[Any] = list(given) if isinstance(given, Sequence) else [given]
    for a in found:
        if not isinstance(a, array) or isinstance(a.dtype, Struct):
            said = f"an array of {a.dtype}" if isinstance(a, array) else f"a {type(a).__name__}"
            raise _refused(f"it takes arrays of numbers or vectors that the tape has touched, not {said}.", "points=x")
    if len({(full_shape(a), a.dtype) for a in found}) != 1:
        raise _refused("arrays that take turns have one shape and dtype.", "points=[x, x_next]")
    return found


def _meant(tape: Tape, given: object) -> tuple[bool, list[array]]:
    """(True for an adjoint, arrays): of ("adjoint", a), of a gradient, or of values."""
    if isinstance(given, tuple) and len(given) == 2 and given[0] == "adjoint":
        return True, _arrays(given[1])
    arrays = _arrays(given)
    primal = getattr(arrays[0].allocation, "of", None)
    if primal is None:
        return False, arrays
    for a in tape.arrays.values():
        if a.allocation is primal and a.grad is not None and a.grad.span == arrays[0].span:
            return True, [a]
    raise _refused("that gradient belongs to no array of this tape.", 'colour=("adjoint", a)')


def _put(tape: Tape, made: FilmChoice, role: str, arrays: list[array]) -> None:
    for a in arrays:
        if not tape.log.has_touched(a.span):
            raise _refused(f"{a.label} was neither read nor written while the tape recorded.", "points=x")
    setattr(made, role, arrays)
    names = [clean(tape.names.given(a) or a.label) for a in arrays]
    made.names[role] = names[0] if len(set(names)) == 1 else ", ".join(names[:2]) + ("" if len(names) == 2 else ", …")


def _check(made: FilmChoice) -> None:
    if made.points is None and made.field is None:
        raise _refused("nothing to draw: it takes points=, mesh= or field=.", "points=x")
    if made.points is not None:
        shape = full_shape(made.points[0])
        if len(shape) < 2 or shape[-1] not in (2, 3) or not is_float(made.points[0].dtype):
            raise _refused(f"points are vec2 or vec3, not {made.points[0].dtype} of shape {shape}.", "points=x")
    if made.field is not None:
        shape = full_shape(made.field[0])
        if len(shape) not in (2, 3) or isinstance(made.field[0].dtype, Composite):
            raise _refused(f"a field is a 2-D or 3-D array of numbers, not of shape {shape}.", "field=u")


def _check_colour(made: FilmChoice) -> None:
    assert made.colour is not None
    count, fits = made.colour[0].size, [n for n in (_count(made), _length(made.lines), _length(made.mesh)) if n]
    if isinstance(made.colour[0].dtype, Composite) or count not in fits:
        raise _refused(f"colour has {count} numbers, for {fits} points, lines or triangles.", "points=x, colour=c")


def _length(index: np.ndarray | None) -> int:
    return 0 if index is None else len(index)


def _count(made: FilmChoice) -> int:
    return 0 if made.points is None else int(np.prod(full_shape(made.points[0])[:-1]))


def _indices(tape: Tape, made: FilmChoice, role: str, given: object, width: int) -> np.ndarray:
    """Pairs or triples of numbers of points, (count, width)."""
    if isinstance(given, array):
        made.names[role] = clean(tape.names.given(given) or given.label)
        changed = tape.needed.changed.get(given.allocation, ())
        if any(s.overlaps(given.span) is not False for s in changed):
            raise _refused(f"{role} was changed since the tape recorded.", f"points=x, {role}=a NumPy array of then")
        given = read_values(given)
    made.names.setdefault(role, role)
    index = np.asarray(given)
    if index.dtype.kind not in "iu" or index.size % width:
        raise _refused(f"{role} takes integers, {width} for each.", f"points=x, {role}=ends")
    index = index.reshape(-1, width).astype(np.int32)
    if made.points is None or (index.size and not 0 <= index.min() <= index.max() < _count(made)):
        raise _refused(f"{role} has the number of a point that is none of {_count(made)}.", f"points=x, {role}=ends")
    return index


# ---- what there is


def _find(tape: Tape, made: FilmChoice) -> None:
    """Find what changes over the tape and can be drawn."""
    changing = _changing(tape)
    points = [family for family in changing if _is_points(family[0])]
    grids = [family for family in changing if _is_grid(family[0])]
    if points:
        best = max(points, key=lambda family: _likeness(tape, family[0]))
        _put(tape, made, "points", [_best_named(tape, a) for a in best])
        _find_indices(tape, made)
        left = [("points", f) for f in points if f is not best] + [("field", f) for f in grids]
    elif grids:
        best = max(grids, key=lambda family: (family[0].allocation in tape.active, family[0].size))
        _put(tape, made, "field", best)
        left = [("field", f) for f in grids if f is not best]
    else:
        text = "found nothing to draw: no vec2, vec3 or grid changes over this tape."
        raise _refused(text, "points=x")
    others = dict.fromkeys(f"{role}={clean(tape.names.given(f[0]) or f[0].label)}" for role, f in left)
    if others:
        made.remarks.append(f"Found by itself; there is also {', '.join([*others][:6])}.")


def _changing(tape: Tape) -> list[list[array]]:
    """Arrays that are written again and again: each alone, or those that one argument of one launch goes through."""
    places: dict[Any, dict[Any, array]] = {}
    times: dict[Any, int] = {}
    before: dict[Any, array | None] = {}
    for event in tape.events:
        for k, a in _written(event):
            key = event.kind, event.label, event.line, k
            times[key] = times.get(key, 0) + 1
            if times[key] == 1:
                before[key] = _read_like(event, a)
            elif times[key] == 2:  # one that goes on from what the first one wrote
                read = _read_like(event, a)
                before[key] = before[key] if read is not None and (read.span, read.dtype) in places[key] else None
            places.setdefault(key, {}).setdefault((a.span, a.dtype), a)
    found: dict[Any, list[array]] = {}
    for key, arrays in places.items():
        family = list(arrays.values())
        if times[key] > 1 and len({(full_shape(a), a.dtype) for a in family}) == 1:
            first = before.get(key)
            if len(family) > 1 and first is not None:  # at first it holds what is written only later, if at all
                family = [first, *(a for a in family if a.span != first.span)]
            found.setdefault(frozenset(arrays), family)
    whole = list(found.values())
    return [f for f in whole if not any(len(f) < len(g) and {a.span for a in f} <= {a.span for a in g} for g in whole)]


def _read_like(event: Event, a: array) -> array | None:
    """The first array that an event reads of the same kind as one that it writes."""
    spans = set(event.reads)
    like = (b for b in event.places if isinstance(b, array) and b.dtype == a.dtype and b.shape == a.shape)
    return next((b for b in like if b.span in spans and b.span != a.span), None)


def _written(event: Event) -> list[tuple[int, array]]:
    if event.command is None:
        return [(0, a) for a in event.arrays[:1] if isinstance(a, array) and not isinstance(a.dtype, Struct)]
    places = event.command.places
    pairs = ((k, places[k]) for k, _ in event.command.plan.writes)
    return [(k, a) for k, a in pairs if isinstance(a, array) and not isinstance(a.dtype, Struct)]


def _is_points(a: array) -> bool:
    return isinstance(a.dtype, Composite) and a.dtype.shape in ((2,), (3,)) and is_float(a.dtype) and a.size > 1


def _is_grid(a: array) -> bool:
    large = len(a.shape) in (2, 3) and min(a.shape) >= LEAST_GRID
    return large and not isinstance(a.dtype, Composite) and is_float(a.dtype)


def _likeness(tape: Tape, a: array) -> tuple[bool, bool, float, int]:
    """The likeness of an array to positions: a name, a gradient, how many of its vectors are apart, its size."""
    points = read_values(a).reshape(-1, full_shape(a)[-1])
    apart = len(np.unique(points[np.isfinite(points).all(-1)], axis=0)) / max(len(points), 1)
    return _is_named(tape, _best_named(tape, a)), a.allocation in tape.active, apart, a.size


def _is_named(tape: Tape, a: array) -> bool:
    name = (tape.names.given(a) or a.label).rpartition(".")[2].partition("[")[0].lower()
    return name in POSITIONS or name.startswith("pos")


def _best_named(tape: Tape, a: array) -> array:
    """An array of the same memory and shape that is called like positions; else this one."""
    same = (b for b in tape.arrays.values() if b.span == a.span and b.dtype == a.dtype and b.shape == a.shape)
    return next((b for b in same if _is_named(tape, b)), a)


def _find_indices(tape: Tape, made: FilmChoice) -> None:
    """Take the integers that a launch reads together with the points, as pairs, else as triples."""
    assert made.points is not None
    spans = {a.span.allocation for a in made.points}
    together: dict[Any, array] = {}
    for event in tape.events:
        arrays = [a for a in event.places if isinstance(a, array)]
        if any(a.allocation in spans for a in arrays):
            together.update((a.span, a) for a in arrays if not isinstance(a.dtype, Struct) and not is_float(a.dtype))
    for role, width in (("lines", 2), ("mesh", 3)):
        for a in together.values():
            if len(full_shape(a)) == 2 and full_shape(a)[-1] == width and getattr(made, role) is None:
                try:
                    setattr(made, role, _indices(tape, made, role, a, width))
                except LaunchError:
                    made.names.pop(role, None)
