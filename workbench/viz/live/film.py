"""The film as a widget, and as a page of its own: the same stage in JavaScript, played from the same bytes.

The page has all frames. It asks the kernel only what if: `{ask: "what_if", ...}`, answered as by `View`.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import traitlets

from ...arrays import allocation as memory
from ...errors import LaunchError
from ...tables import png
from ...tapes.tape import Tape
from ..data.film import FilmReel, FilmTrack, arrow_scale, bounds, largest, reel
from ..data.film_choice import choose
from ..data.text import clean, clean_lines
from ..picture.film import film_chart, poster_of, save_film
from ..picture.svg import quoted
from .saved import SIZE, Saved
from .view import Busy, cells, module, quiet_memory, style
from .what_if import WhatIf
from .widget import Widget

STAGE = tuple(f"{name}.js" for name in "film_frames camera film_paint film_bar film_what_if film_stage".split())
FILM = ("elements.js", "ask.js", "late_messages.js", *STAGE, "film.js")
PAGE_BYTES = 1 << 24  # of the frames of a page
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'">
<title>{title}</title><style>:root{{color-scheme:light dark}}body{{margin:16px;background:Canvas}}
{css}</style></head>
<body><main id="view"><h1 style="position:absolute;clip-path:inset(50%)">{title}</h1></main><noscript>{title}</noscript>
<script type="application/octet-stream" id="data">{data}</script>
<script type="module">
{module}
const packed = Uint8Array.from(atob(document.getElementById("data").textContent), (c) => c.charCodeAt(0));
const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
const film_data = new DataView(await new Response(stream).arrayBuffer());
const state = {{ film_meta: {meta}, film_data, cursor: {cursor} }};
const missing = async () => ({{ error: "To run the program again takes a kernel: tape.film() in a notebook." }});
film(offlineModel(state, missing), document.getElementById("view"), new AbortController().signal);
</script></body></html>
"""


class _FilmBytes:
    """Numbers one behind the other in one buffer, each at a multiple of four bytes."""

    def __init__(self) -> None:
        self.buffers: list[bytes] = []
        self.size = 0

    def put(self, numbers: np.ndarray | None, dtype: type = np.float32) -> int:
        """The place of these numbers; -1 for none."""
        if numbers is None:
            return -1
        data = np.ascontiguousarray(numbers, dtype).tobytes()
        self.buffers.append(data + bytes(-len(data) % 4))
        self.size += len(self.buffers[-1])
        return self.size - len(self.buffers[-1])


def packed(made: FilmReel) -> tuple[dict[str, Any], bytes]:
    """A reel as plain data and one buffer of float32, int32 and bytes, each at its place."""
    choice, tracks, packer = made.choice, made.tracks, _FilmBytes()
    meta: dict[str, Any] = {
        "caption": made.caption,
        "moments": made.moments,
        "steps": made.steps,
        "says": [made.said(k) for k in range(len(made.moments))],
        "unit": made.unit,
        "count": made.count,
        "events": len(made.tape.events),
        "dims": made.dims,
        "poster": poster_of(made),
    }
    if points := tracks.get("points"):
        meta["points"] = {
            "name": points.name,
            "count": points.values.shape[1],
            "width": points.values.shape[2],
            "shape": list(points.arrays[0].shape),
            "box": bounds(points.values),
            **_places(packer, points),
        }
    for role, index in (("lines", choice.lines), ("mesh", choice.mesh)):
        if index is not None:
            meta[role] = {"name": choice.names[role], "count": len(index), "at": packer.put(index, np.int32)}
    if (arrows := made.arrows) is not None:
        own = tracks.get("arrows")
        name = points.name if own is None and points else own.name if own else ""
        shown = {"name": name, "adjoint": own is None or choice.arrows_of, "scale": arrow_scale(arrows)}
        meta["arrows"] = {**shown, "at": -1 if own is None else packer.put(arrows)}
    if (colours := made.colours) is not None:
        shown = {"name": tracks["colour"].name, "adjoint": choice.colour_of, "most": largest(colours)}
        meta["colour"] = {**shown, "count": colours.shape[1], "at": packer.put(colours)}
    if grid := tracks.get("field"):
        meta["field"] = {
            "name": grid.name,
            "rows": grid.values.shape[1],
            "columns": grid.values.shape[2],
            "block": list(grid.block),
            "part": list(grid.part),
            "most": largest(grid.values),
            "most_adjoint": 0.0 if grid.adjoint is None else largest(grid.adjoint),
            **_places(packer, grid),
        }
    return meta, b"".join(packer.buffers)


def _places(packer: _FilmBytes, track: FilmTrack) -> dict[str, int]:
    return {
        "at": packer.put(track.values),
        "known": packer.put(track.known, np.uint8),
        "adjoint": packer.put(track.adjoint),
    }


def thinned(made: FilmReel, most: int) -> FilmReel:
    """The film with as many frames, evenly, as `most` bytes have room for."""
    size = sum(t.values.nbytes + (0 if t.adjoint is None else t.adjoint.nbytes) for t in made.tracks.values())
    by = -(-size // most)
    if by <= 1:
        return made
    last = len(made.moments) - 1
    kept = [*range(0, last, by), last]

    def part(numbers: np.ndarray | None) -> np.ndarray | None:
        return None if numbers is None else numbers[kept]

    tracks = {
        role: replace(t, values=t.values[kept], known=part(t.known), adjoint=part(t.adjoint))
        for role, t in made.tracks.items()
    }
    moments, steps = [made.moments[k] for k in kept], [made.steps[k] for k in kept]
    return replace(made, moments=moments, steps=steps, every=made.every * by, tracks=tracks)


class Film(Saved, Widget):
    """The film of a tape; see `Tape.film`.

    cursor   the position of an event: what is before it has been computed, it and all behind it have been reversed.
    chosen   the number of the particle that is picked, -1 for none.
    """

    _esm = module(*FILM)
    _css = style("../picture/marks.css", "view.css", "film.css")
    film_meta = traitlets.Dict().tag(sync=True)
    film_data = traitlets.Bytes().tag(sync=True)
    cursor = traitlets.Int(0).tag(sync=True)
    chosen = traitlets.Int(-1).tag(sync=True)

    def __init__(self, made: FilmReel):
        cells.listen()
        self.reel = made
        with memory.LOCK, memory.unrecorded():
            self.what_if = WhatIf(made)
        meta, data = packed(made)
        start = made.moments[poster_of(made)]
        super().__init__(film_meta={**meta, "what_if": self.what_if.meta}, film_data=data, cursor=start)
        self.on_msg(self._heard)

    def _heard(self, _: object, content: object, buffers: object) -> None:
        del buffers
        if isinstance(content, dict) and content.get("ask") == "what_if":
            self.send(*answered(self.what_if, content))

    # ---- from Python

    def __dir__(self) -> list[str]:
        return ["adjoints", "caption", "moments", "save", "step", "steps", "values"]

    @property
    def caption(self) -> str:
        """Sentences: the layers, the source of their numbers, and what is not to be had."""
        return "\n".join(self.reel.caption)

    @property
    def moments(self) -> list[int]:
        """Per frame the position in `tape.events` of the event that it is before."""
        return list(self.reel.moments)

    @property
    def steps(self) -> list[int]:
        """Per frame the number of steps that are behind it."""
        return list(self.reel.steps)

    def values(self, layer: str) -> np.ndarray:
        """The values of "points", "field", "colour" or "arrows", float32: a frame along the first axis."""
        return self._track(layer).values.copy()

    def adjoints(self, layer: str) -> np.ndarray:
        """The adjoints of a layer, as `values`. Raises LaunchError where it has none."""
        found = self._track(layer).adjoint
        if found is None:
            raise LaunchError(f"film: there are no adjoints of {layer!r}.", slug="film-layer", why=self.caption)
        return found.copy()

    def _track(self, layer: str) -> Any:
        if layer not in self.reel.tracks:
            text = f"film: it has no {layer!r}, only {', '.join(self.reel.tracks)}."
            raise LaunchError(text, slug="film-layer", instead='film.values("points")')
        return self.reel.tracks[layer]

    def step(self, number: int) -> None:
        """Put the cursor before this step of the loop, or the last frame before that."""
        behind = [k for k, n in enumerate(self.reel.steps) if n <= number]
        self.cursor = self.reel.moments[behind[-1] if behind else 0]

    def save(self, path: str | Path) -> Path:
        """Write the film: .html plays without kernel and network, .gif and .mp4 go forth and back, .png is one frame.

        Returns the path. Raises LaunchError for another ending, and for .mp4 without ffmpeg.
        """
        path = Path(path)
        if path.suffix.lower() != ".html":
            return save_film(self.reel, path)
        path.write_text(film_page(thinned(self.reel, PAGE_BYTES), self.cursor), "utf-8")
        return path

    # ---- without a kernel

    def still(self, most: int = SIZE) -> tuple[str, str]:
        """The caption, and the poster of the film, for readers without a kernel."""
        made = self.reel
        data = png(film_chart(made, poster_of(made)))
        picture = base64.b64encode(data).decode("ascii") if len(data) <= most else ""
        said = quoted(f"{made.said(poster_of(made))}: {made.caption[0]}")
        image = f'<img alt="{said}" src="data:image/png;base64,{picture}" style="max-width:100%">' if picture else ""
        return self.caption, f"<figure>{image}<figcaption>{quoted(self.caption)}</figcaption></figure>"


def film_page(made: FilmReel, cursor: int) -> str:
    """The film as the text of a page that needs no kernel and no network."""
    meta, data = packed(made)
    return PAGE.format(
        title=quoted(clean(made.caption[0])),
        css=style("../picture/marks.css", "view.css", "film.css"),
        data=base64.b64encode(zlib.compress(data, 6)).decode("ascii"),
        meta=json.dumps(meta).replace("</", "<\\/"),
        cursor=int(cursor),
        module=module(*FILM).replace("</", "<\\/"),
    )


def answered(what_if: WhatIf, content: Mapping[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
    """The reply to one question of the page, and its buffers; whatever goes wrong is text in it."""
    number = content.get("id")
    try:
        with quiet_memory():
            if cells.beside:
                raise Busy("busy: a cell is running")
            found, blobs = what_if.answer(content)
        return {"id": number, "ok": found}, blobs
    except Busy as error:
        return {"id": number, "busy": str(error)}, []
    except Exception as error:  # shown in the film: a callback has nobody else to tell
        return {"id": number, "error": clean_lines(str(error) or type(error).__name__)}, []


def film(tape: Tape, points: object = None, **choices: object) -> Film:
    """The film of a tape; see `Tape.film`."""
    return Film(film_reel(tape, {"points": points, **choices}))


def film_reel(tape: Tape, given: Mapping[str, Any]) -> FilmReel:
    """The reel of these arguments of `Tape.film`. Raises LaunchError for one that it does not take."""
    known = ("points", "lines", "mesh", "field", "arrows", "colour", "view", "every")
    for name in given:
        if name not in known:
            text = f"tape.film() has no argument {name!r}."
            raise LaunchError(text, slug="film-layer", instead=f"one of {', '.join(known)}")
    rest = {name: value for name, value in given.items() if name != "every"}
    return reel(tape, choose(tape, rest), given.get("every"))
