"""One launch: the intervals of its thread indices and loop turns, and what affine forms are over them.

Intervals (`Hull.box`) are never too small; a thread (`Point`) that `Hull.runs` confirms is certain, by evaluation.
The extremes of an affine form over a box are those of Banerjee's dependence test.
"""

from __future__ import annotations

from .accesses import Access, component_axes
from .affine import Affine, AffineGuard, Point, Symbol
from .launch_form import Intervals, LaunchForm, Line, Unknown

_FAR = 1 << 66  # no turn of a loop gets there


class Hull:
    """One access in one launch: the interval of each variable, tightened by the guards, and forms over it."""

    def __init__(self, access: Access, launch: LaunchForm):
        self.access, self.launch = access, launch
        kept = launch.hulls.get(id(access.guards))
        if kept is None:
            self.intervals()
            kept = launch.hulls[id(access.guards)] = access.guards, self.box, self.empty
        _, self.box, self.empty = kept

    def intervals(self) -> None:
        access, launch = self.access, self.launch
        self.box: Intervals = {("tid", k): (0, d - 1) for k, d in enumerate(launch.dims)}
        for k in range(len(launch.dims), 8):
            self.box["tid", k] = (0, 0)
        for turn in access.loops:
            self.box[turn] = (0, _FAR)
        self.empty = any(d <= 0 for d in launch.dims)
        for _ in range(2 if len(access.guards) > 1 and access.loops else 1):
            for guard in access.guards:
                if self.empty:
                    return
                self.tighten(guard)

    def tighten(self, guard: AffineGuard) -> None:
        line = self.launch.line(guard.form)
        if line is None or not self.fits(guard.form):
            return
        if guard.op == "ne":
            self.exclude(line)
            return
        self.bound(line)
        if guard.op == "eq":
            self.bound(Line({v: -c for v, c in line.terms.items()}, -line.constant))

    def bound(self, line: Line) -> None:
        """Tighten the box by line >= 0: bound each variable by the maximum of the other terms."""
        _, most = line.hull(self.box)
        if most < 0:
            self.empty = True
            return
        for v, c in line.terms.items():
            lo, hi = self.box[v]
            rest = most - c * (hi if c > 0 else lo)
            if c > 0:
                self.box[v] = max(lo, -(rest // c)), hi
            else:
                self.box[v] = lo, min(hi, rest // -c)
            if self.box[v][0] > self.box[v][1]:
                self.empty = True

    def exclude(self, line: Line) -> None:
        """Tighten the box by line != 0: an interval whose end is the excluded point shrinks by one."""
        if not line.terms:
            self.empty = self.empty or line.constant == 0
        if len(line.terms) != 1:
            return
        ((v, c),) = line.terms.items()
        if line.constant % c:
            return
        lo, hi = self.box[v]
        hole = -line.constant // c
        lo, hi = (lo + 1 if lo == hole else lo), (hi - 1 if hi == hole else hi)
        self.box[v] = lo, hi
        self.empty = self.empty or lo > hi

    def fits(self, form: Affine) -> bool:
        """True if the form equals the machine's value in every thread of the hull (no integer overflow)."""
        return exact_in(form, self.launch, self.box)

    def extent(self, axis: int) -> int | None:
        """Elements (or components) along this axis of the array."""
        shape = self.launch.shapes.get(self.access.name)
        return None if shape is None else (*shape, *component_axes(self.access.array))[axis]

    def wrap(self, axis: int) -> int | None:
        """The extent added to a negative index on this axis, 0 where no wrap is done; None where it is not known."""
        form = self.access.wraps[axis]
        try:
            return 0 if form is None else self.launch.constant(form)
        except Unknown:
            return None

    def line(self, axis: int) -> Line | None:
        form = self.access.indices[axis]
        return None if form is None else self.launch.line(form)

    def range(self, axis: int) -> tuple[int, int] | None:
        """The hull of the raw index (before a negative one is wrapped); None where it is not known."""
        form = self.access.indices[axis]
        return None if form is None else self.interval(form)

    def interval(self, form: Affine) -> tuple[int, int] | None:
        """The hull of a form's values; None where it is not known."""
        line = self.launch.line(form) if self.fits(form) else None
        if line is None:
            return None
        lo, hi = line.hull(self.box)
        if self.access.loops:
            lo = max(lo, -self.extreme(line, -1)[0])
            hi = min(hi, self.extreme(line, 1)[0])
        return lo, hi

    def extreme(self, line: Line, sign: int) -> tuple[int, Point]:
        """The maximum of sign * line, a loop's last turn expressed in outer variables; and a thread that attains it."""
        terms = {v: sign * c for v, c in line.terms.items()}
        constant = sign * line.constant
        last: dict[Symbol, tuple[Line, int]] = {}
        for turn in reversed(self.access.loops):
            end = self.end(turn)
            c = terms.get(turn, 0)
            if end is None or c <= 0 or c % end[1]:
                continue
            del terms[turn]
            last[turn] = end
            for v, e in end[0].terms.items():
                terms[v] = terms.get(v, 0) + c // end[1] * e
            constant += c // end[1] * end[0].constant
        point = {v: (hi if terms.get(v, 0) > 0 else lo) for v, (lo, hi) in self.box.items()}
        for turn in self.access.loops:
            if turn in last:
                point[turn] = last[turn][0].at(point) // last[turn][1]
        return constant + sum(c * point[v] for v, c in terms.items()), point

    def end(self, turn: Symbol) -> tuple[Line, int] | None:
        """(form, step): step * turn <= form, from the guard that the loop made."""
        for guard in self.access.guards:
            line = self.launch.line(guard.form) if turn in (s for s, _ in guard.form.terms) else None
            if line is not None and turn in line.terms:  # the loop's own guard is the first one to name its turn
                if line.terms[turn] >= 0 or not self.fits(guard.form):
                    return None
                rest = {v: c for v, c in line.terms.items() if v != turn}
                return Line(rest, line.constant), -line.terms[turn]
        return None

    def touched(self, axis: int) -> tuple[int, int] | None:
        """The hull of the index after wrapping; None where only the whole axis is known."""
        raw = self.range(axis)
        if raw is None or self.access.wraps[axis] is None or raw[0] >= 0:
            return raw
        n = self.wrap(axis)
        return (raw[0] + n, raw[1] + n) if n is not None and raw[1] < 0 else None

    def runs(self, point: Point) -> bool:
        """True if this thread, in these turns of its loops, makes the access: exact, by evaluation."""
        if any(not 0 <= point["tid", k] < d for k, d in enumerate(self.launch.dims)):
            return False
        if any(point[turn] < 0 for turn in self.access.loops):
            return False
        return all(self.holds(guard, point) for guard in self.access.guards)

    def holds(self, guard: AffineGuard, point: Point) -> bool:
        line = self.launch.line(guard.form)
        if line is None or not self.true_form(guard.form, point):
            return False
        value = line.at(point)
        return value >= 0 if guard.op == "ge" else (value == 0) == (guard.op == "eq")

    def true_form(self, form: Affine, point: Point) -> bool:
        needs = [(self.launch.line(core), lo, hi) for core, lo, hi in form.needs]
        return all(line is not None and lo <= line.at(point) <= hi for line, lo, hi in needs)

    def index(self, axis: int, point: Point) -> int | None:
        """The raw index in this thread."""
        form = self.access.indices[axis]
        if form is None or not self.true_form(form, point):
            return None
        line = self.launch.line(form)
        return None if line is None else line.at(point)

    def thread(self, point: Point) -> tuple[int, ...]:
        return tuple(point["tid", k] for k in range(len(self.launch.dims)))


def exact_in(form: Affine, launch: LaunchForm, box: Intervals) -> bool:
    """True if the form is what the machine computes everywhere in the box."""
    for core, lo, hi in form.needs:
        line = launch.line(core)
        if line is None or any(v not in box for v in line.terms):
            return False
        a, b = line.hull(box)
        if a < lo or b > hi:
            return False
    return True
