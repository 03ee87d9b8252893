"""Motion: how far another number in the indices of a kernel moves what a launch touches, changing nothing else.

That holds for a number that all accesses to an array add to an axis alike (`x[t + 1, i] = x[t, i]`), and that is in no
condition and no trip count: which threads meet is then the same, while all indices stay inside and no integer
overflows. So a launch with another number has the plan of the first, moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .. import ir
from ..lru import once_for_each
from ..ops import memory
from .accesses import Access, accesses_of, components_of, decisions
from .affine import Affine, forms_in, symbols_in
from .hulls import Hull
from .launch_form import LaunchForm
from .launch_ranges import Box

Steps = tuple[int, ...]  # by how much each of the moving numbers adds to a form
Distances = dict[Steps, int]
Limits = dict[Steps, tuple[int, int]]  # for each kind of step: the least and the largest sum of step * change


@dataclass(eq=False)
class Motion:
    """The axes of arrays that the numbers `names` move, and the limits of the sums of their changes."""

    names: tuple[str, ...]
    axes: dict[str, tuple[Steps, ...]]
    limits: Limits

    def by(self, change: Sequence[int]) -> Distances | None:
        """Returns how far each kind of step leads if the numbers change so; None if an index may then be outside."""
        found = {}
        for steps, (least, most) in self.limits.items():
            n = found[steps] = sum([step * by for step, by in zip(steps, change, strict=True)])
            if not least <= n <= most:
                return None
        return found

    def moved(self, name: str, box: Box, by: Distances) -> Box:
        """A box of an array, moved."""
        axes = self.axes[name]
        return tuple([(lo + by.get(s, 0), hi + by.get(s, 0)) for (lo, hi), s in zip(box, axes, strict=True)])


def moving_numbers(function: ir.Function) -> set[str]:
    """The integer parameters that do nothing but move accesses."""
    moving, fixed = _uses(function)
    return moving - fixed


def may_move(function: ir.Function, names: Sequence[str]) -> bool:
    """True if these parameters do nothing but move accesses, if anything."""
    return _uses(function)[1].isdisjoint(names)


@once_for_each
def _uses(function: ir.Function) -> tuple[set[str], set[str]]:
    """The numbers that are added to indices, and those on which something else depends."""
    accesses = accesses_of(function)
    fixed = {n for _, guards in decisions(function) for guard in guards for n in _named(guard.form)}
    first: dict[str, tuple[dict[str, int] | None, ...]] = {}
    for access in accesses:
        fixed.update(n for guard in access.guards for n in _named(guard.form))
        fixed.update(n for form in access.wraps if form is not None for n in _named(form))
        forms = [*(f for f in access.indices if f), *(g.form for g in access.guards)]
        for core in [*forms, *(need[0] for form in forms for need in form.needs)]:
            fixed.update(n for symbol, _ in core.terms if symbol[0] != "param" for n in _named(Affine(((symbol, 1),))))
        axes = tuple([None if form is None else _added(form) for form in access.indices])
        for one, other in zip(axes, first.setdefault(access.name, axes), strict=False):
            if one != other:
                fixed.update(one or (), other or ())
    for access in (*accesses, *components_of(function)):
        for place in access.places:  # that they stay inside was proven for these numbers
            counted = place.row is memory.WRAP and place.args[0].form is not None and access.param >= 0
            if place.form is None and not counted:
                fixed.update(n for form in forms_in(place) for n in _named(form))
    used = {n for access in accesses for form in access.indices if form is not None for n in _added(form)}
    return used, fixed


def _added(form: Affine) -> dict[str, int]:
    """The numbers that are added to a form, and how often."""
    return {symbol[1]: c for symbol, c in form.terms if symbol[0] == "param"}


def _named(form: Affine) -> Iterator[str]:
    """The numbers anywhere in a form, apart from its needs."""
    return (symbol[1] for symbol in symbols_in(Affine(form.terms)) if symbol[0] == "param")


def motion(function: ir.Function, launch: LaunchForm) -> Motion | None:
    """The motion of the launches of this form; None where no number moves them, or an index may be outside."""
    names = tuple(sorted(moving_numbers(function)))
    if not names or launch.groups or launch.overlapping or 0 in launch.dims:
        return None
    limits: Limits = {}
    axes: dict[str, tuple[Steps, ...]] = {}
    for access in accesses_of(function):
        if access.name not in launch.shapes or not _enter_limits(limits, access, Hull(access, launch), names):
            return None
        steps = [_steps(form, names) if form is not None else (0,) * len(names) for form in access.indices]
        axes[access.name] = tuple(steps[: len(launch.shapes[access.name])])
    return Motion(names, axes, limits)


def _steps(form: Affine, names: Sequence[str]) -> Steps:
    added = _added(form)
    return tuple([added.get(name, 0) for name in names])


def _enter_limits(limits: Limits, access: Access, hull: Hull, names: Sequence[str]) -> bool:
    """Narrow the limits to what keeps an access inside of its array; False if that is not known to be so now."""
    if hull.empty:
        return True
    ranges = [(form, hull.range(axis), (hull.extent(axis) or 0) - 1) for axis, form in enumerate(access.indices)]
    known = [(form, found, (0, last)) for form, found, last in ranges if form is not None]
    needs = [need for form in (*(f for f, _, _ in known), *(g.form for g in access.guards)) for need in form.needs]
    for core, least, most in needs:
        line = hull.launch.line(core)
        known.append((core, line and line.hull(hull.box), (least, most)))
    for form, found, (least, most) in known:
        steps = _steps(form, names)
        if any(steps):
            if found is None or found[0] < least or found[1] > most:
                return False
            below, above = limits.get(steps, (least - found[0], most - found[1]))
            limits[steps] = max(below, least - found[0]), min(above, most - found[1])
    return True
