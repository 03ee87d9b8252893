"""The choice of what a film shows: what the user named, or what a tape has that can be drawn."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from ...arrays.array import array, read_values
from ...errors import LaunchError
from ...kernels.types import Composite, Struct, is_float
from ...tapes.tape import Tape
from .snapshot import full_shape
from .text import clean

LEAST_GRID = 8  # cells each way from which a 2-D array is taken for a grid
POSITIONS = ("x", "pos", "position", "positions", "points", "particles", "q", "particle_q", "body_q", "p")
DRAWN = ("points", "colour", "arrows")  # what a function may draw
WIDTHS = {"lines": 2, "mesh": 3}  # numbers of points of each


@dataclasses.dataclass(eq=False)
class FilmChoice:
    """Arrays by what they are drawn as: each a list, of which the one written last before a moment is shown.

    arrows_of, colour_of   True if it is the adjoint of `arrows`, of `colour`, that is drawn.
    drawn                  by role, "points", "colour" or "arrows", the function that returns what is drawn of a frame.
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
    drawn: dict[str, Callable[..., Any]] = dataclasses.field(default_factory=dict)
    names: dict[str, str] = dataclasses.field(default_factory=dict)
    remarks: list[str] = dataclasses.field(default_factory=list)

    def tracks(self) -> dict[str, tuple[str, list[array]]]:
        """By role (name, arrays) of everything with values of its own."""
        found = {role: getattr(self, role) for role in ("points", "field", "colour", "arrows")}
        return {role: (self.names[role], arrays) for role, arrays in found.items() if isinstance(arrays, list)}

    @property
    def count(self) -> int:
        """The number of points."""
        return 0 if self.points is None else int(np.prod(full_shape(self.points[0])[:-1]))

    def put(self, tape: Tape, role: str, arrays: list[array]) -> None:
        """Take arrays for a role, with their names."""
        names = list(dict.fromkeys(clean(tape.names.given(a) or a.label) for a in arrays[:3]))  # a search each
        setattr(self, role, arrays)
        lists = {name.rpartition("[")[0] for name in names}
        if len(names) > 1 and len(lists) == 1 and "" not in lists:
            names = [*lists]  # `x`, of x[0], x[1] and so on
        self.names[role] = ", ".join(names[:2]) + ", …" * (len(names) > 2)


def choose(tape: Tape, given: Mapping[str, Any]) -> FilmChoice:
    """The choice of a user, checked; of `{}` what the tape has. Raises LaunchError [film-layer] for what does not fit.

    Arrays in `given`: an array, or several (a ring of buffers, a history); ("adjoint", a), or a.grad, for adjoints.
    """
    arrows, made = given.get("arrows", "adjoint"), FilmChoice(view=given.get("view") or "")
    made.drawn = {role: draw for role in DRAWN if callable(draw := given.get(role))}
    made.names |= {role: getattr(draw, "__name__", "a function") for role, draw in made.drawn.items()}
    arrows = "adjoint" if "arrows" in made.drawn else arrows
    given = {k: v for k, v in given.items() if v is not None and k not in ("arrows", "view", *made.drawn)}
    if made.view not in ("", "2d", "3d"):
        raise refused(f"view is '2d' or '3d', not {made.view!r}.")
    if not given and "points" not in made.drawn:
        _find(tape, made)
    if "mesh" in given:
        if not (isinstance(given["mesh"], Sequence) and len(given["mesh"]) == 2):
            raise refused("mesh takes (points, triangles).")
        given = {"points": given["mesh"][0], **given, "mesh": given["mesh"][1]}
    for role in ("points", "field"):
        if role in given:
            arrays = _arrays(tape, given[role])
            if not _is_drawable(a := arrays[0], role):
                need = "vec2 or vec3" if role == "points" else "an array of 2 or 3 axes of numbers"
                raise refused(f"{role} is {need}, not {a.dtype} of shape {a.shape}.")
            made.put(tape, role, arrays)
    if made.points is None and made.field is None and "points" not in made.drawn:
        raise refused("nothing to draw: it takes points=, mesh= or field=.")
    for role in WIDTHS:
        if role in given:
            _put_indices(tape, made, role, given[role])
    if "colour" in given:
        made.colour_of, arrays = _meant(tape, given["colour"])
        if isinstance(arrays[0].dtype, Composite):
            raise refused(f"colour takes numbers, not {arrays[0].dtype}.")
        made.put(tape, "colour", arrays)
    if arrows is None or isinstance(arrows, str):
        made.arrows = arrows and "adjoint"
        return made
    made.arrows_of, arrays = _meant(tape, arrows)
    made.put(tape, "arrows", arrays)
    return made


def refused(text: str) -> LaunchError:
    """The error of a layer that cannot be drawn."""
    return LaunchError(f"film: {text}", slug="film-layer", instead="tape.film(x, lines=ends), or tape.film(field=u)")


def _is_drawable(a: array, role: str) -> bool:
    shape, vectors = full_shape(a), isinstance(a.dtype, Composite)
    if isinstance(a.dtype, Struct) or not is_float(a.dtype):
        return False
    return len(shape) > 1 and shape[-1] in (2, 3) if role == "points" else len(shape) in (2, 3) and not vectors


def _arrays(tape: Tape, given: object) -> list[array]:
    found: list[Any] = list(given) if isinstance(given, Sequence) else [given]
    for a in found:
        if not isinstance(a, array) or isinstance(a.dtype, Struct):
            said = f"an array of {a.dtype}" if isinstance(a, array) else f"a {type(a).__name__}"
            raise refused(f"it takes arrays of numbers or vectors that the tape has touched, not {said}.")
        if not tape.log.has_touched(a.span):
            raise refused(f"{a.label} was neither read nor written while the tape recorded.")
    if len({(full_shape(a), a.dtype) for a in found}) != 1:
        raise refused("arrays that take turns have one shape and dtype.")
    return found


def _meant(tape: Tape, given: object) -> tuple[bool, list[array]]:
    """(True for an adjoint, arrays): of ("adjoint", a), of a gradient, or of values."""
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str):
        return True, _arrays(tape, given[1])
    if isinstance(given, array) and (primal := getattr(given.allocation, "of", None)) is not None:
        same = (a for a in tape.arrays.values() if a.allocation is primal)
        return True, [a for a in same if a.grad is not None and a.grad.span == given.span][:1] or _arrays(tape, given)
    return False, _arrays(tape, given)


def _put_indices(tape: Tape, made: FilmChoice, role: str, given: object) -> None:
    """Take pairs or triples of numbers of points, (count, width)."""
    name, width = role, WIDTHS[role]
    if isinstance(given, array):
        name = clean(tape.names.given(given) or given.label)
        if tape.needed.has_changed(given.span):
            raise refused(f"{role} was changed since the tape recorded: it can be a NumPy array of then.")
        given = read_values(given)
    index = np.asarray(given)
    if index.dtype.kind not in "iu" or index.size % width:
        raise refused(f"{role} takes integers, {width} for each.")
    if index.size and "points" not in made.drawn and not 0 <= index.min() <= index.max() < made.count:
        raise refused(f"{role} has the number of a point that is none of {made.count}.")
    setattr(made, role, index.reshape(-1, width).astype(np.int32))
    made.names[role] = name


# ---- what there is


def _find(tape: Tape, made: FilmChoice) -> None:
    """Find what changes over the tape and can be drawn: points, else a grid."""
    changing = [family for family in _changing(tape) if family[0].size > 1]
    points = [f for f in changing if _is_drawable(f[0], "points") and isinstance(f[0].dtype, Composite)]
    grids = [f for f in changing if _is_drawable(f[0], "field") and min(f[0].shape) >= LEAST_GRID]
    if not points and not grids:
        raise refused("found nothing to draw: no vec2, vec3 or grid changes over this tape.")
    best = max(points or grids, key=lambda family: _likeness(tape, family[0]))
    made.put(tape, "points" if points else "field", best)
    if points:
        _find_indices(tape, made)
    left = [*(("points", f) for f in points), *(("field", f) for f in grids)]
    others = [f"{role}={clean(tape.names.given(f[0]) or f[0].label)}" for role, f in left if f is not best]
    if others:
        made.remarks.append(f"Found by itself; there is also {', '.join(dict.fromkeys(others[:6]))}.")


def _changing(tape: Tape) -> list[list[array]]:
    """Arrays that are written again and again: each alone, or those that one argument of one launch goes through.

    Of those the first is the one that the loop starts from, if each turn goes on from what the last one wrote.
    """
    families: dict[Any, dict[Any, array]] = {}
    times: dict[Any, int] = {}
    before: dict[Any, array | None] = {}
    for event in tape.events:
        written = [0] if event.command is None else [k for k, _ in event.command.plan.writes]
        for k in written[: len(event.places)]:
            a, key = event.places[k], (event.kind, event.label, event.line, k)
            if not isinstance(a, array) or isinstance(a.dtype, Struct):
                continue
            known, times[key] = families.setdefault(key, {}), times.get(key, 0) + 1
            if times[key] <= 2:
                like = (b for b in event.places if isinstance(b, array) and (b.dtype, b.shape) == (a.dtype, a.shape))
                read = next((b for b in like if b.span in event.reads and b.span != a.span), None)
                goes_on = times[key] == 1 or (read is not None and (read.span, read.dtype) in known)
                before[key] = before.get(key, read) if goes_on else None
            known.setdefault((a.span, a.dtype), a)
    found: dict[Any, list[array]] = {}
    for key, known in families.items():
        first, family = before[key], list(known.values())
        if len(family) > 1 and first is not None:
            family = [first, *(a for a in family if a.span != first.span)]
        if times[key] > 1 and len({(full_shape(a), a.dtype) for a in family}) == 1:
            found.setdefault(frozenset(a.span for a in family), family)
    return [family for spans, family in found.items() if not any(spans < more for more in found)]


def _likeness(tape: Tape, a: array) -> tuple[bool, bool, float, int]:
    """The likeness of an array to positions: a name, a gradient, how many of its numbers are apart, its size."""
    names = [tape.names.given(b) or b.label for b in tape.arrays.values() if b.span == a.span]
    names += [leaf.name for e in tape.events for leaf, b in e.arguments if isinstance(b, array) and b.span == a.span]
    named = any(name.rpartition(".")[2].partition("[")[0].lower() in POSITIONS for name in names)
    numbers = read_values(a)
    return named, a.allocation in tape.active, len(np.unique(numbers)) / numbers.size, a.size


def _find_indices(tape: Tape, made: FilmChoice) -> None:
    """Take the integers that a launch reads together with the points: pairs as lines, triples as a mesh."""
    spans, together = {a.allocation for a in made.points or ()}, dict[Any, array]()
    for event in tape.events:
        arrays = [a for a in event.places if isinstance(a, array)]
        if any(a.allocation in spans for a in arrays):
            together.update((a.span, a) for a in arrays if not isinstance(a.dtype, Struct) and not is_float(a.dtype))
    for a in together.values():
        for role, width in WIDTHS.items():
            if len(full_shape(a)) == 2 and full_shape(a)[-1] == width and getattr(made, role) is None:
                with suppress(LaunchError):  # they may be no numbers of these points
                    _put_indices(tape, made, role, a)
