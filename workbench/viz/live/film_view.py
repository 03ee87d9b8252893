"""The live view with the film above its lanes: one cursor for both, and what is picked on one is chosen on both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import traitlets

from ...derivatives.pitfalls import Wrong
from ...diagnose import Finding
from ...errors import LaunchError
from ...tapes.tape import Tape
from ..data.against import Against, compare
from .against import AgainstView
from .film import STAGE, film_reel, packed
from .view import SCRIPTS, View, module, quiet_memory, style
from .what_if import WhatIf

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
