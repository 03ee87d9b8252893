"""The verdict on each gradient that Warp has computed: it agrees, is wrong, or is unverified.

Rounding, kinks and non-finite numbers are told from wrong ones by further walks over the same events. `WarpBackward`
(one `wp.Tape.backward`) and `AdjointLaunch` (one adjoint launch of the program) implement the walks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...arrays.workspace import Workspace
from ...tapes.events import Event
from ...tapes.reverse import reverse
from .causes import NOTEBOOKS, explain
from .compare import SLIGHT, SMALL, Verdict, VerdictRow, accuracy
from .session import RACE, WarpStep
from .snapshots import digest, leaves_behind, shares_gradient
from .walks import SCALES, GradientWalks, OtherSlopes, PublishedGradient, floats, is_choosing

NO_SEED = "this backward starts from no seed: no loss=, no grads=, and nothing in .grad of what launches have written"
UNHEARD = "Warp's tape has events that the watch has not heard: from before it, or of another thread"
APART = f"an output of its own, of which no thread of the launch reads (notebooks/{NOTEBOOKS['race']})"
NO_RACE = f"a cell for each thread, or wp.atomic_add (notebooks/{NOTEBOOKS['race']})"


class Verdicts(GradientWalks):
    """The verdicts on the gradients of some events, as `rows`."""

    def _row(self, one: PublishedGradient, error: str, wrong_at: dict[int, WarpStep]) -> VerdictRow:
        theirs = self.moment.after(one.theirs)
        name = self.session.tape.names.of(one.twin)
        row = VerdictRow(name, "not asked", backward=self.number, theirs=theirs, subject=one)
        if theirs.dtype.names is not None or (one.at is None and self.complete and not error):
            row.cause = "launches overwrite it, so that its gradient has no one meaning"
            return row
        if not self.complete or error:
            step = None if self.stopped is None else self._step_behind(self.stopped)
            row.becomes("unverified", error or UNHEARD, APART if error.startswith(RACE) else "", step)
            return row
        exact = self.exact.get(id(one.twin))
        if exact is None:
            exact = np.zeros_like(theirs)
        row.exact = whole = one.whole(exact)
        if self.reached and np.isnan(exact).any():
            doubt = "; ".join(dict.fromkeys(self._doubt(e) for e in self.reached))
            remedy = NO_RACE if doubt.startswith(RACE) else ""
            row.becomes("unverified", doubt, remedy, self._step_behind(self.reached[0]))
            return row
        row.verdict, row.difference = self._judged(one, row, whole)
        added = not one.written
        if row.verdict == "wrong" and one.written and np.any(one.before):
            verdict, difference = self._judged(one, row, exact + one.before)
            if verdict == "agrees":
                added, row.verdict, row.difference, row.exact = True, verdict, difference, exact + one.before
        if row.verdict == "agrees" and not self.seeds:
            row.verdict, row.cause = "not asked", NO_SEED
            self._used_up(one, row)
        elif row.verdict == "agrees" and self.again and self._rests_on_left(one, exact):
            name = self.session.tape.names.of(self.again[0].twin)
            cause = f"leaked seed: `{name}.grad` holds what an earlier backward has left, and is a seed once more"
            remedy = f"tape.zero(), or `{name}.grad.zero_()`, before the new seeds; or tape.backward(grads={{...}})"
            row.becomes("unverified", cause, remedy)
        elif row.verdict == "agrees" and added and np.any(one.before):
            self._accumulated(one, row, exact)
        elif row.verdict == "wrong":
            self._excused(one, row, wrong_at)
        elif self.met and row.verdict == "agrees":
            row.cause = f"by convention: {self._met_said()}"
        return row

    def _explain(self, wrong_at: dict[int, WarpStep]) -> None:
        """Set the step, cause and remedy of wrong rows.

        `wrong_at`: the step where Warp's buffer of each array first differs; not used of rows that turned out right,
        but where launches overwrite the array, whose row is of the one gradient at its start.
        """
        fine = [row.subject for row in self.rows if row.verdict in ("agrees", "unverified")]
        right = {id(one.twin) for one in fine if not one.written}
        first = max((s for key, s in wrong_at.items() if key not in right), key=lambda s: s.number, default=None)
        for row in self.rows:
            if row.verdict == "wrong" and not row.cause:
                at = row.subject.at
                row.step = first or (None if at is None else self._step_behind(at))
                row.cause, row.remedy = explain(self, row)

    def _excused(self, one: PublishedGradient, row: VerdictRow, wrong_at: dict[int, WarpStep]) -> bool:
        """True if a wrong row may be right as well; it is then made "unverified", with the cause."""
        return (
            self._meant(one, row)
            or self._not_finite(one, row)
            or self._kink(one, row, wrong_at)
            or self._may_be_seeded(one, row)
            or self._is_rounding(one, row)
            or self._is_slight(row)
            or self._chosen(row)
        )

    def look_at_views(self) -> None:
        """Make a row wrong if the program keeps its numbers in a view that a later backward has written to.

        One view alone is what a loop leaves behind; of two, one shows the numbers of the other.
        """
        for row in self.rows if self.session.views else ():
            subject = row.subject
            known = self.session.views.get(subject.theirs.grad, []) if row.verdict == "agrees" else []
            alive = [(number, view) for number, ref in known if (view := ref()) is not None]
            own = [view for number, view in alive if number == self.number]
            if not own or len({number for number, _ in alive}) < 2:
                continue
            now = np.array(own[0]).reshape(row.theirs.shape)
            if np.array_equal(now, row.theirs, equal_nan=True):
                continue
            row.difference = accuracy(now, row.theirs, None).difference
            cause = (
                f"alias: what `{row.array}.grad.numpy()` has given after backward {self.number} is a view, and shows"
                " what a later one has written"
            )
            row.becomes("wrong", cause, f"`{row.array}.grad.numpy().copy()`", self._step_behind(self.events[-1]))

    def look_at_torch(self) -> None:
        """Make a row unverified if torch has computed its tensor from leaves, and none of these has a gradient."""
        for row in self.rows if not self.moment.in_torch else ():
            leaves = leaves_behind(row.subject.theirs) if row.verdict == "agrees" else []
            if leaves and all(leaf.grad is None for leaf in leaves):
                cause = (
                    f"not on the tape: `{row.array}` lies in a tensor that torch has computed, and its gradient was not"
                    " carried on to the leaves of torch behind it, which have none"
                )
                row.becomes("unverified", cause, f"tensor.backward(wp.to_torch({row.array}.grad)) once Warp is back")

    def _used_up(self, one: PublishedGradient, row: VerdictRow) -> None:
        """Make a row wrong if an earlier backward has used up the seed in `.grad` from which this one starts again."""
        left = [(p, self.session.left.get(p.theirs.grad)) for p in self.published if p.written]
        spent = [(p, earlier) for p, earlier in left if earlier is not None and earlier.seed is not None]
        if not spent:
            return
        exact = self.with_seeds([(p.twin, earlier.seed) for p, earlier in spent if earlier.seed is not None])
        made = exact.get(id(one.twin))
        if made is None or not np.any(made):
            return
        name, earlier = self.session.tape.names.of(spent[0][0].twin), spent[0][1]
        row.exact = one.whole(made)
        row.difference = accuracy(row.theirs, row.exact, None).difference
        cause = (
            f"used-up seed: backward {earlier.number} has set `{name}.grad` to 0 as it walked back over it, and this"
            " one starts from it again"
        )
        remedy = f"tape.backward(grads={{{name}: seed}}), which copies the seed, or `{name}.grad` filled anew"
        row.becomes("wrong", cause, remedy, self._step_behind(self.events[-1]))

    def _meant(self, one: PublishedGradient, row: VerdictRow) -> bool:
        """True if the row is right with gradients that end at clones made with requires_grad=False."""
        touched = {span.allocation for e in self.events for span in (*e.reads, *e.writes)}
        cuts = (twin for a in list(self.session.cuts) for twin in self.session.twins.behind(a))
        ends = [twin for twin in cuts if twin.allocation in touched]
        if not ends:
            return False
        exact = one.whole(self.without(*ends)[id(one.twin)])
        verdict, difference = self._judged(one, row, exact)
        if verdict == "wrong":
            return False
        row.difference, row.exact = difference, exact
        names = ", ".join(f"`{self.session.tape.names.of(twin)}`" for twin in ends)
        return row.becomes("meant", f"the gradient ends at {names}, a clone with requires_grad=False")

    def _not_finite(self, one: PublishedGradient, row: VerdictRow) -> bool:
        """True if the exact gradient has infinities or NaN, and Warp's agrees elsewhere."""
        assert row.exact is not None
        odd = ~np.isfinite(row.exact)
        if not odd.any():
            return False
        rest = replace(row, theirs=np.where(odd, row.exact, row.theirs))
        if self._judged(one, rest, row.exact)[0] == "wrong":
            return False
        if self.met:
            behind = (s for s in reversed(self.steps) if s.event is not None and s.event.reverse is not None)
            step = next((s for s in behind if self.met[0] in s.event.reverse.executable.conventions.values()), None)  # type: ignore[union-attr]
            cause = f"no derivative: {self._met_said()}; a finite number there, as Warp may give, is a convention"
            return row.becomes("unverified", cause, self.met[0].attr.instead.replace("wb.", "wp."), step)
        event = self._first_not_finite()
        step = None if event is None else self._step_behind(event)
        cause = f"not finite: {odd.sum()} of {odd.size} numbers of the exact gradient are infinite or NaN"
        if step is not None:
            cause += f"; {step!r} is the first to meet such numbers in memory"
        remedy = "values where slopes are finite; wp.zeros, not wp.empty, for what is read before all of it is written"
        return row.becomes("unverified", cause, remedy, step)

    def _met_said(self) -> str:
        """The places without a derivative that the walk has met, in words."""
        said = (f"{s.attr.text}{'' if s.where is None else f' ({s.where})'}" for s in self.met)
        return "; ".join(dict.fromkeys(said))

    def _first_not_finite(self) -> Event | None:
        """The first event of the pass that touches non-finite memory."""
        found: list[Event] = []

        def look(tape: Any, event: Event, space: Workspace, after: dict) -> None:
            if any(not np.isfinite(part.data).all() for part in floats(event)):
                found.append(event)
            reverse(tape, event, space, after)

        self._walk(SCALES[0], look)
        return found[-1] if found else None

    def _chosen(self, row: VerdictRow) -> bool:
        """True if a query returned another, equally close face than Warp's, which may have another slope."""
        step = next((s for s in self.steps if s.chosen and s.difference is not None and s.difference.far), None)
        if step is None or (np.any(row.exact) and not np.any(row.theirs)):  # nothing at all is no slope
            return False
        cause = f"kink: {step!r} has several faces that are as close, and Warp's query takes another of them"
        return row.becomes("unverified", cause, "values a little off the edge between them", step)

    def _judged(self, one: PublishedGradient, row: VerdictRow, exact: np.ndarray) -> tuple[Verdict, float]:
        """(verdict, distance from the exact gradient); "agrees" if rounding explains the distance."""
        found = accuracy(row.theirs, exact, None)
        fine = (
            found.fine
            or (found.close and accuracy(row.theirs, exact, self.noise_of(one)).fine)
            or (found.difference <= SMALL and accuracy(row.theirs, exact, self._rounding_of(one), 1).fine)
        )
        return ("agrees" if fine else "wrong"), found.difference

    def _is_rounding(self, one: PublishedGradient, row: VerdictRow) -> bool:
        """True if rounding alone moves the gradient as far as Warp's is off.

        Always False at a kink: there the least movement gives the whole difference of its slopes.
        """
        assert row.exact is not None
        exact = self.exact.get(id(one.twin))
        if exact is None or not np.array_equal(exact, self.other.get(id(one.twin), exact), equal_nan=True):
            return False
        if not accuracy(row.theirs, row.exact, self._rounding_of(one), 1).fine:
            return False
        cause = "precision: numbers cancel, or a comparison is so close, that rounding alone moves it as far"
        return row.becomes("unverified", cause, "wp.float64, or a formula without the large terms")

    def _is_slight(self, row: VerdictRow) -> bool:
        """True if every number is within SLIGHT of the exact one, as by a slope rounded in another way."""
        assert row.exact is not None
        exact = row.exact.reshape(row.theirs.shape).astype(np.float64)
        with np.errstate(all="ignore"):
            if not (np.abs(row.theirs - exact) <= SLIGHT * np.abs(exact)).all():
                return False
        cause = "precision: off by more than the sums in it are rounded, and by less than single slopes may be"
        return row.becomes("unverified", cause, "wp.float64, or a formula without large terms that cancel")

    def _may_be_seeded(self, one: PublishedGradient, row: VerdictRow) -> bool:
        """True if the row is right with seeds that backwards of other tapes have left, which may be meant."""
        left, told = self.session.left, {id(twin) for twin, _ in self.seeds}
        more = [p for p in self.published if p.written and p.holds and id(p.twin) not in told]
        more = [p for p in more if (earlier := left.get(p.theirs.grad)) is not None and not earlier.computed]
        exact = self.with_seeds([*self.seeds, *((p.twin, p.before) for p in more)]).get(id(one.twin)) if more else None
        if exact is None or self._judged(one, row, one.whole(exact))[0] == "wrong":
            return False
        name, number = self.session.tape.names.of(more[0].twin), left[more[0].theirs.grad].number
        cause = f"leaked seed: `{name}.grad` holds what backward {number} has left, and is walked back as well"
        remedy = f"`{name}.grad.zero_()`, or tape.backward(grads={{...}}) with all seeds if it is meant"
        return row.becomes("unverified", cause, remedy)

    def _rests_on_left(self, one: PublishedGradient, exact: np.ndarray) -> bool:
        """True if the gradient changes without the seeds that an earlier pass has left."""
        new = [seed for seed in self.seeds if all(seed[0] is not left.twin for left in self.again)]
        return not np.array_equal(self.with_seeds(new).get(id(one.twin), np.zeros_like(exact)), exact)

    def _accumulated(self, one: PublishedGradient, row: VerdictRow, exact: np.ndarray) -> None:
        """Set the cause of a row that agrees by accumulation; make it wrong if its array has changed in between."""
        row.cause = "with what it held before this backward, which has been added to"
        earlier = self.session.left.get(one.theirs.grad)
        if earlier is None or not np.array_equal(earlier.gradient, one.before):
            return
        let_go = earlier.shared and not shares_gradient(one.theirs)
        same = earlier.at == digest(self.moment.held(one.theirs))
        if earlier.source is None and same and not let_go:
            return
        found = accuracy(row.theirs, exact, None)
        if found.fine:
            return
        row.difference, row.exact = found.difference, exact
        if earlier.source is not None:
            held = (
                f"a copy, or clone, has brought along: the gradient of `{self.session.tape.names.of(earlier.source)}`"
                f" that backward {earlier.number} had left there"
            )
            remedy = f"`{row.array}.grad.zero_()` behind the copy"
        elif same:
            held = f"backward {earlier.number} had left (`grad = None` of its tensor clears nothing), and was added to"
            remedy = f"`{row.array}.grad.zero_()` beside it, or zero_grad(set_to_none=False)"
        else:
            held = (
                f"backward {earlier.number} had left, the gradient at values that `{row.array}` no longer has, and was"
                " added to"
            )
            remedy = f"tape.zero(), or `{row.array}.grad.zero_()`, once `{row.array}` has been changed"
        cause = f"leaked seed: `{row.array}.grad` still held what {held}"
        step = next((s for s in self.steps if s.event is one.at), None)
        row.becomes("wrong", cause, f"{remedy} (notebooks/{NOTEBOOKS['leaked seed']})", step)

    def _kink(self, one: PublishedGradient, row: VerdictRow, wrong_at: dict[int, WarpStep]) -> bool:
        """True if a wrong row is right with the other slope at a tie.

        Otherwise `wrong_at` becomes the comparison with that gradient, if there is a kink at all.
        """
        if not any(is_choosing(e) for e in self.events):
            return False
        if self.slopes is None:
            self.slopes = OtherSlopes()
            self.other, steps = self._walk(SCALES[0], self.slopes)
            if any(not np.array_equal(v, self.exact[k], equal_nan=True) for k, v in self.other.items()):
                wrong_at.clear()
                wrong_at.update(steps)
                self.slopes = OtherSlopes(looks=True)
                self._walk(SCALES[0], self.slopes)
        other = self.other.get(id(one.twin))
        if other is None or row.exact is None:
            return False
        if self._judged(one, row, one.whole(other))[0] == "wrong":
            return False
        step = next((s for s in self.steps if self.slopes.tie and s.event is self.slopes.tie[1]), None)
        cause = f"{self.slopes.sentence()}, where two slopes are right: Warp's gradient has the other one"
        return row.becomes("unverified", cause, "values a little off the kink, or a smooth formula", step)

    def _step_behind(self, event: Event) -> WarpStep | None:
        return next((s for s in reversed(self.session.steps) if s.event is event), None)

    def _doubt(self, event: Event) -> str:
        step = self._step_behind(event)
        if step is not None and not step.reason and step.difference is not None:
            return f"the result of {step!r} is not Warp's{_may_choose(event)}"
        if event.reason.startswith(RACE):
            return event.reason
        what = "" if step is not None and step.kind == "adjoint" else " is opaque"
        return f"{event.label}{what}: {event.reason}"


def _may_choose(event: Event) -> str:
    """A clause on why a launch that queries a mesh or BVH may have another result; "" if it queries none."""
    opened = () if event.command is None else {leaf.opened.name for leaf in event.command.program.leaves if leaf.opened}
    if "Mesh" in opened:
        return ": of faces that are as close, or in what order they come, its query may choose otherwise"
    if "Bvh" in opened:
        return ": its query gives boxes in another order, of which none is promised"
    return ""
