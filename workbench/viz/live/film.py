"""The film as a widget, and as a page of its own: the same stage in JavaScript, played from the same bytes.

The page has all frames. It asks the kernel only what if: `{ask: "what_if", ...}`, answered as by `View`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import traitlets

from ...display import png
from ...errors import LaunchError
from ...tapes.tape import Tape
from ..data.film import FilmReel, FilmTrack, arrow_scale, bounds, largest, lay_beside, reel
from ..data.film_choice import choose
from ..picture.svg import data_uri, quoted
from .view import SIZE, Saved, Widget, cells, html_page, module, reply, style
from .what_if import WhatIf

STAGE = ("camera.js", *(f"film_{part}.js" for part in "frames paint bar seed what_if stage".split()))
FILM = ("elements.js", "ask.js", "late_messages.js", *STAGE, "film.js")
PLAYED_MOST = 1_500_000  # bytes of a film that a notebook keeps
PLAYED = """<style>.wb-poster:has(~.wb-played){{display:none}} .wb-played{{width:100%;height:680px;border:0}}
@media (scripting:none){{.wb-poster:has(~.wb-played){{display:block}} .wb-played{{display:none}}}}</style>
<iframe class="wb-played" title="film without a kernel" sandbox="allow-scripts" loading="lazy" srcdoc='{page}'></iframe>
"""
ARGUMENTS = ("points", "lines", "mesh", "field", "arrows", "colour", "view", "every", "against")
START = """
const answer = globalThis.kernel ?? (async () => ({ error: "tape.film() in a notebook runs the program again." }));
const model = offlineModel({ ...STATE, film_data: new DataView(whole) }, answer);
film(model, document.getElementById("view"), new AbortController().signal);
"""


class FilmBytes:
    """Numbers one behind the other in one buffer, each at a multiple of four bytes."""

    def __init__(self) -> None:
        self.data = bytearray()

    def put(self, numbers: np.ndarray | None, dtype: type = np.float32) -> int:
        """The place of these numbers; -1 for none."""
        if numbers is None:
            return -1
        at = len(self.data)
        self.data += np.ascontiguousarray(numbers, dtype).tobytes()
        self.data += bytes(-len(self.data) % 4)
        return at

    def track(self, track: FilmTrack, ghost: np.ndarray | None) -> dict[str, Any]:
        """The name and places of a track."""
        known = self.put(track.known, np.uint8)
        found = {"name": track.name, "at": self.put(track.values), "known": known, "adjoint": self.put(track.adjoint)}
        return {**found, "ghost": self.put(ghost)}


def packed(made: FilmReel) -> tuple[dict[str, Any], bytes]:
    """A reel as plain data and one buffer of float32, int32 and bytes, each at its place."""
    choice, tracks, ghosts, data = made.choice, made.tracks, made.ghosts, FilmBytes()
    names = "caption moments steps unit count dims parted".split()
    meta: dict[str, Any] = {name: getattr(made, name) for name in names}
    meta["says"] = [made.said(k) for k in range(len(made.moments))]
    points, grid, own = (tracks.get(role) for role in ("points", "field", "arrows"))
    if points is not None:
        _, count, width = points.values.shape
        shown = {"count": count, "width": width, "shape": list(points.shape)}
        meta["points"] = {**shown, "box": bounds(made.places), **data.track(points, ghosts.get("points"))}
    for role, index in (("lines", choice.lines), ("mesh", choice.mesh)):
        if index is not None:
            meta[role] = {"name": choice.names[role], "count": len(index), "at": data.put(index, np.int32)}
    if (arrows := made.arrows) is not None:
        track = own or tracks["points"]
        shown = {"name": track.name, "adjoint": own is None or choice.arrows_of, "scale": arrow_scale(arrows)}
        meta["arrows"] = {**shown, "at": data.put(None if own is None else arrows)}
    if (colours := made.colours) is not None:
        shown = {"name": tracks["colour"].name, "adjoint": choice.colour_of, "most": largest(colours)}
        meta["colour"] = {**shown, "count": colours.shape[1], "at": data.put(colours)}
    if grid is not None:
        _, rows, columns = grid.values.shape
        shown = {"rows": rows, "columns": columns, "block": list(grid.block), "part": list(grid.part)}
        sides = (grid.values, ghosts.get("field")), (grid.adjoint,)
        most, most_adjoint = (max((largest(one) for one in side if one is not None), default=0.0) for side in sides)
        own = data.track(grid, ghosts.get("field"))
        meta["field"] = {**shown, "most": most, "most_adjoint": most_adjoint, **own}
    return meta, bytes(data.data)


class Film(Saved, Widget):
    """The film of a tape; see `Tape.film`.

    cursor   the position of an event: what is before it has been computed, it and all behind it have been reversed.
    chosen   the number of the particle that is picked, -1 for none.
    caption  sentences: the layers, the source of their numbers, and what is not to be had.
    parted   (frame, number) of the first number that differs from the run in `against`, or None.
    moments  per frame the position in `tape.events` of the event that it is before; steps: how many are behind it.
    """

    _esm = module(*FILM)
    _css = style("../picture/marks.css", "view.css", "film.css")
    film_meta = traitlets.Dict().tag(sync=True)
    film_data = traitlets.Bytes().tag(sync=True)
    cursor = traitlets.Int(0).tag(sync=True)
    chosen = traitlets.Int(-1).tag(sync=True)

    def __init__(self, made: FilmReel):
        cells.listen()
        self.reel, self.caption, self.moments, self.steps = made, "\n".join(made.caption), made.moments, made.steps
        self.parted = made.parted
        self.what_if, (meta, data) = WhatIf(made), packed(made)
        start = made.moments[made.poster]
        super().__init__(film_meta={**meta, "what_if": self.what_if.meta}, film_data=data, cursor=start)
        self.on_msg(self._heard)

    def __dir__(self) -> list[str]:
        return ["adjoints", "caption", "ghost", "moments", "parted", "save", "steps", "values"]

    def _heard(self, _: object, content: object, buffers: object) -> None:
        if isinstance(content, dict) and content.get("ask") == "what_if":
            self.send(*reply(self.what_if.answer, content))

    def values(self, layer: str) -> np.ndarray:
        """The values of "points", "field", "colour" or "arrows", float32: a frame along the first axis."""
        return self._track(layer).values.copy()

    def adjoints(self, layer: str) -> np.ndarray:
        """The adjoints of a layer, as `values`. Raises LaunchError where it has none."""
        if (found := self._track(layer).adjoint) is None:
            raise LaunchError(f"film: there are no adjoints of {layer!r}.", slug="film-layer", why=self.caption)
        return found.copy()

    def ghost(self, layer: str) -> np.ndarray:
        """The values of "points" or "field" of the run in `against`, as `values`, NaN where it has no such step.

        Raises LaunchError without one.
        """
        if layer not in self.reel.ghosts:
            text = f"film: there is no ghost of {layer!r}."
            raise LaunchError(text, slug="film-layer", instead="tape.film(against=other_tape)")
        return self.reel.ghosts[layer].copy()

    def _track(self, layer: str) -> FilmTrack:
        if layer not in self.reel.tracks:
            text = f"film: it has no {layer!r}, only {', '.join(self.reel.tracks)}."
            raise LaunchError(text, slug="film-layer", instead='film.values("points")')
        return self.reel.tracks[layer]

    def save(self, path: str | Path) -> Path:
        """Write the film: .html plays without kernel and network, .gif and .mp4 go forth and back, .png is one frame.

        Returns the path. Raises LaunchError for another ending, and for .mp4 without ffmpeg.
        """
        path = Path(path)
        if path.suffix.lower() != ".html":
            from ..picture.film import save_film  # matplotlib takes its time

            return save_film(self.reel, path)
        path.write_text(self.page(), "utf-8")
        return path

    def page(self, what_if: bool = False) -> str:
        """The film as a page that needs no kernel and no network; `what_if`: with what it could ask a `kernel`."""
        meta = self.film_meta if what_if else {**self.film_meta, "what_if": None}
        state = json.dumps({"film_meta": meta, "cursor": self.cursor})
        start = START.replace("STATE", state.replace("</", "<\\/"))
        return html_page(self.reel.caption[0], self.caption, self._css, self.film_data, start, "", FILM)

    def still(self, most: int = SIZE) -> tuple[str, str]:
        """For readers without a kernel: the caption, the poster, and in its place the film if it is not too large."""
        from ..picture.film import film_chart  # matplotlib takes its time

        data = png(film_chart(self.reel, self.reel.poster))
        said, caption = quoted(f"{self.reel.said(self.reel.poster)}: {self.reel.caption[0]}"), quoted(self.caption)
        image = f'<img alt="{said}" src="{data_uri(data)}" style="max-width:100%">' if len(data) <= most else ""
        poster = f'<figure class="wb-poster">{image}<figcaption>{caption}</figcaption></figure>'
        page = self.page().replace("&", "&amp;").replace("'", "&#39;")
        return self.caption, poster + (PLAYED.format(page=page) if len(page) <= PLAYED_MOST else "")


def film(tape: Tape, points: object = None, **choices: object) -> Film:
    """The film of a tape; see `Tape.film`."""
    return Film(film_reel(tape, {"points": points, **choices}))


def film_reel(tape: Tape, given: Mapping[str, Any]) -> FilmReel:
    """The reel of these arguments of `Tape.film`. Raises LaunchError for one that it does not take."""
    if unknown := [name for name in given if name not in ARGUMENTS]:
        text = f"tape.film() has no argument {unknown[0]!r}."
        raise LaunchError(text, slug="film-layer", instead=f"one of {', '.join(ARGUMENTS)}")
    layers = {name: value for name, value in given.items() if name not in ("every", "against")}
    made = reel(tape, choose(tape, layers), given.get("every"))
    if given.get("against") is not None:
        lay_beside(made, given["against"])
    return made
