"""Live views of two passes (`tape.explore(against=...)`), and with a film above the lanes.

Of two passes the other one is outline; panels are about this one. Columns that only the other tape has stand between
those of this one, so a column is not always the event of its number: `column_of` and `event_of` go from one to the
other, and only what crosses to the page does. A film and its lanes have one cursor, and one choice.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import traitlets

from ...derivatives.pitfalls import Wrong
from ...diagnose import Finding
from ...errors import LaunchError
from ...tapes.tape import Tape
from ..data.against import Against, Parting, PassComparison, compare
from ..data.columns import Columns, levels_of, scale_of_levels
from ..data.headline import Verdict, verdict
from ..data.text import clean
from ..picture.figure import TapeFigure
from .film import STAGE, film_reel, packed
from .view import SCRIPTS, SIZE, View, module, quiet_memory, style
from .what_if import WhatIf

TOLD = 2000  # columns whose differences the table has


class AgainstView(View):
    """The live view of a comparison. Questions about launches that only the other tape has are refused."""

    def __init__(self, made: PassComparison, findings: Sequence[Finding] = ()):
        self.made = made
        self._here = [k for k, (n, _) in enumerate(made.places) if n is not None]
        super().__init__(made.here.tape, made.here.wrong, findings)
        first = made.first
        numbers = [e.index for e in made.trace.events]
        lanes = self._columns.lanes
        meta: dict[str, Any] = self.meta
        told = {
            "here": clean(made.here.title),
            "there": clean(made.there.title),
            "said": [clean(s) for s in made.said],
            "first": None if first is None else self._first(first, lanes[first.allocation]),
            "differences": {k: made.differences(k) for k in range(min(len(made.places), TOLD))},
            "numbers": None if numbers == list(range(len(numbers))) else numbers,
        }
        self.meta = {**meta, "against": told}

    def _first(self, first: Parting, lane: int) -> dict[str, Any]:
        """The flag on the first difference: its column and lane, its text, and where to look."""
        place = first.allocation, (first.lo, first.hi)
        k = next((k for k, a in enumerate(self.arrays) if (str(a.allocation), a.span.hull()) == place), -1)
        element: list[int] = []
        if k >= 0 and first.index and first.kind == "adjoint" and self.wrong is None:  # whose ledger there is
            *cell, component = first.index
            shape = getattr(self.arrays[k].dtype, "shape", ())
            element = [*cell, *(int(i) for i in np.unravel_index(component, shape))] if shape else cell
        late = first.kind == "value" and not first.found
        said = {"kind": first.kind, "text": clean(f"{first.cell}: {first.numbers}"), "title": clean(first.text)}
        return {"e": first.position, "lane": lane, **said, "array": k, "element": element, "late": late}

    # ---- columns and events

    def column_of(self, event: int) -> int:
        """The column of an event of this tape; for the count of events the end of the columns."""
        return self._here[event] if event < len(self._here) else len(self.made.places)

    def event_of(self, column: int) -> int:
        """The first event of this tape at or after a column."""
        return bisect_left(self._here, column)

    def _columns_of(self) -> Columns:
        numbers = self._grid_numbers()
        grids = [-1 if n is None else numbers[n] for n, _ in self.made.places]
        return Columns(self.made.trace, self.made.trace.folds, grids, self.made)

    def _level_traits(self) -> dict[str, Any]:
        ours, theirs = levels_of(self.made.trace), self.made.other
        scale = scale_of_levels(ours, theirs)
        meta, data, *_ = self._columns.side(ours, scale)
        other_meta, other, *_ = self._columns.side(theirs, scale, second=True)
        return {"levels_meta": meta, "levels": data, "other_meta": other_meta, "other": other}

    # ---- questions

    def answer(self, content: Mapping[str, Any]) -> tuple[Any, list[bytes]]:
        """`View.answer`, with positions as columns."""
        asked = dict(content)
        if "launch" in asked and self.made.places[int(asked["launch"])][0] is None:
            raise ValueError("only the other pass has this launch: its own view shows it")
        asked |= {k: self.event_of(int(asked[k])) for k in ("cursor", "launch") if k in asked}
        found, blobs = super().answer(asked)
        if isinstance(found, dict):
            found = {**found, **({"cursor": content["cursor"]} if "cursor" in found else {})}
            if "rows" in found:
                at = ((row, row.get("position", -1)) for row in found["rows"])
                found["rows"] = [{**row, "position": self.column_of(n)} if n >= 0 else row for row, n in at]
        return found, blobs

    def still(self, most: int = SIZE) -> tuple[str, str]:
        """The picture of both passes, for readers without a kernel."""
        return TapeFigure(self.made.trace, against=self.made, verdict=self._said).within(most)

    def _verdict(self, limit: int | None) -> Verdict:
        """Of two tapes the finding about the first launch at which they differ."""
        other = self.made.there.tape
        if other is self.tape or self.findings:
            return super()._verdict(limit)
        runs, self.made.runs = self.made.runs, None
        return verdict(self.tape, other, runs=runs)


ABOVE = (*SCRIPTS[:-1], *STAGE, "film_above.js", SCRIPTS[-1])


class FilmView(View):
    """The live view of a tape, with its film: `film` is True, points, or the arguments of `Tape.film` by name."""

    scripts, styles, buffers = ABOVE, (*View.styles, "film.css"), ("film_data",)
    _esm = module(*ABOVE)
    _css = style(*styles)
    film_meta = traitlets.Dict().tag(sync=True)
    film_data = traitlets.Bytes().tag(sync=True)

    def __init__(self, tape: Tape, film: object, findings: Sequence[Finding] = ()):
        given = {} if film is True else film if isinstance(film, Mapping) else {"points": film}
        made = film_reel(tape, given)
        super().__init__(tape, None, findings)
        self.what_if, (meta, data) = WhatIf(made, lambda: self.trust), packed(made)
        numbers = {role: [self.number_of(t.arrays[k]) for k in t.places] for role, t in made.tracks.items()}
        self.film_data = data
        self.film_meta = {**meta, "arrays": numbers, "what_if": self.what_if.meta}

    def answer(self, content: Mapping[str, Any]) -> tuple[Any, list[bytes]]:
        """`View.answer`, and what if."""
        if content["ask"] != "what_if":
            return super().answer(content)
        with quiet_memory():
            found = self.what_if.answer(content)
            if "pulls" in content:
                self.show_seeds(self.what_if.seeds, found[0]["note"])
            return found


def view_of(tape: Tape, wrong: Wrong | None, against: Against, findings: Sequence[Finding], film: object) -> View:
    """The live view of a tape, of two passes over each other, or with its film. Raises LaunchError for both at once."""
    if film and against is not None:
        text = "a film over another pass cannot be drawn: it shows one."
        raise LaunchError(text, slug="film-layer", instead="tape.explore(film=True), and tape.explore(against=other)")
    if film:
        return FilmView(tape, film, findings)
    return View(tape, wrong, findings) if against is None else AgainstView(compare(tape, wrong, against), findings)
