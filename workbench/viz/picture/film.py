"""Frames of a film drawn by matplotlib: the poster of a notebook, PNG, GIF, MP4. 3-D is seen as by camera.js."""

from __future__ import annotations

from math import cos, sin
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.animation import FFMpegWriter, PillowWriter
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import LinearSegmentedColormap

from ...display import png
from ...errors import LaunchError
from ..data.film import FilmReel, arrow_scale, bounds, largest
from ..data.marks import LIGHT, scale_marks
from .chart import Chart

FRAMES, RATE = 60, 12  # of a GIF or MP4, there and back; of them in a second
REACH = 0.13  # of the stage, of the arrow of the scale
SIGNED = LinearSegmentedColormap.from_list("wb", [LIGHT["minus"], LIGHT["blank"], LIGHT["plus"]])


def film_chart(reel: FilmReel, k: int) -> Chart:
    """One frame of a film as a figure."""
    figure = Chart(figsize=(7.2, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    draw_film(figure, reel, k)
    return figure


def draw_film(figure: Chart, reel: FilmReel, k: int, forward: bool = False) -> None:
    """Draw a frame into a figure, from which all else goes; `forward`: without adjoints."""
    figure.clear()
    grid = reel.tracks.get("field")
    panels = [*(["points"] if "points" in reel.tracks else []), *(["value"] if grid else [])]
    panels += ["ghost"] if "field" in reel.ghosts else []
    panels += ["adjoint"] if grid is not None and grid.adjoint is not None and not forward else []
    axes: Any = figure.subplots(1, len(panels), squeeze=False)[0]
    for ax, panel in zip(axes, panels, strict=True):
        ax.tick_params(labelsize=7, colors=LIGHT["muted"])
        if panel == "points":
            _points(ax, reel, k, forward)
        else:
            _field(figure, ax, reel, k, panel)
    figure.suptitle(f"{reel.said(k)}\n{reel.caption[0]}", fontsize=9, color=LIGHT["ink"])


def _points(ax: Axes, reel: FilmReel, k: int, forward: bool) -> None:
    track = reel.tracks["points"]
    place, box = _seen(track.values[k], reel.dims), bounds(_seen(reel.places, reel.dims))
    if track.known is not None:
        place = np.where(track.known[k], place, np.nan)
    wide = max(high - low for low, high in box) or 1.0
    colours = None if forward and reel.choice.colour_of else reel.colours
    if "points" in reel.ghosts:  # the other run, in outline
        ghost = _seen(reel.ghosts["points"][k], reel.dims)
        if reel.choice.lines is not None:
            ax.add_collection(LineCollection(list(ghost[reel.choice.lines]), colors=LIGHT["absent"], linewidths=1))
        ax.scatter(*ghost.T, s=_size(ghost), facecolors="none", edgecolors=LIGHT["muted"], linewidths=0.8)
    if (mesh := reel.choice.mesh) is not None:
        face = _inks(colours, k, len(mesh), LIGHT["tint"])[0]
        ax.add_collection(PolyCollection(list(place[mesh]), facecolors=face, edgecolors=LIGHT["line"], linewidths=0.5))
    if (lines := reel.choice.lines) is not None:
        inks, widths = _inks(colours, k, len(lines), LIGHT["muted"])
        ax.add_collection(LineCollection(list(place[lines]), colors=LIGHT["absent"], linewidths=0.8))
        ax.add_collection(LineCollection(list(place[lines]), colors=inks, linewidths=widths))
    inks, edges = _inks(colours, k, len(place), LIGHT["value"])[0], LIGHT["muted"]
    rim = 0.0 if isinstance(inks, str) else 0.5
    ax.scatter(*place.T, s=_size(place), c=inks, zorder=3, linewidths=rim, edgecolors=edges)
    adjoint = reel.choice.arrows_of or "arrows" not in reel.tracks
    if reel.arrows is not None and not (forward and adjoint):
        _arrows(ax, reel, k, place, wide, LIGHT["hot"] if adjoint else LIGHT["value"])
    (left, right), (low, high) = box
    pad = 0.12 * wide
    ax.set(xlim=(left - pad, right + pad), ylim=(low - pad, high + pad), aspect="equal")
    if reel.dims == 3:
        ax.set(xticks=(), yticks=())


def _size(place: np.ndarray) -> int:
    """The area of a point, in square points."""
    return 40 if len(place) < 50 else 14 if len(place) < 400 else 3


def _seen(vectors: np.ndarray, dims: int) -> np.ndarray:
    """Vectors as the two components that are seen."""
    if dims == 2 or vectors.shape[-1] == 2:
        return vectors[..., :2]
    (x, y, z), (yaw, pitch) = np.moveaxis(vectors, -1, 0), (0.6, 0.4)
    back = cos(yaw) * z - sin(yaw) * x
    return np.stack([cos(yaw) * x + sin(yaw) * z, cos(pitch) * y - sin(pitch) * back], -1)


def _inks(colours: np.ndarray | None, k: int, count: int, plain: str) -> tuple[Any, Any]:
    """Colours and widths, by numbers if there are as many."""
    if colours is None or colours.shape[1] != count:
        return plain, 1.0
    shades = shaded(colours[k], largest(colours))
    return SIGNED((shades + 1) / 2), np.where(shades == 0, 0, 1.0 + 2.5 * np.abs(np.nan_to_num(shades)))


def shaded(numbers: np.ndarray, most: float) -> np.ndarray:
    """The share of full colour of numbers, signed: it grows with the root of the size."""
    return np.sign(numbers) * np.sqrt(np.minimum(np.abs(numbers) / (most or 1.0), 1))


def _arrows(ax: Axes, reel: FilmReel, k: int, place: np.ndarray, wide: float, ink: str) -> None:
    arrows = reel.arrows
    assert arrows is not None
    unit, sound = arrow_scale(arrows), np.isfinite(arrows[k]).all(-1)
    long = _seen(arrows[k], reel.dims)[sound] / unit * REACH * wide
    flat: dict[str, Any] = {"angles": "xy", "scale_units": "xy", "scale": 1, "zorder": 4}
    flat["width"] = 0.004 if len(place) < 300 else 0.0015
    ax.quiver(*place[sound].T, *long.T, color=ink, **flat)
    ax.scatter(*place[~sound].T, marker="x", color=LIGHT["bad"], s=40, zorder=5)
    said = "|adjoint|" if ink == LIGHT["hot"] else f"|{reel.tracks['arrows'].name}|"
    text = f"{said} = {unit:g}: an arrow of {REACH:.0%} of the stage"
    ax.text(0.02, 0.02, text, transform=ax.transAxes, color=ink, fontsize=8)


def _field(figure: Chart, ax: Axes, reel: FilmReel, k: int, panel: str) -> None:
    """A plane of numbers in signed colours; NaN is a hole with a rim, what was not kept is grey."""
    track = reel.tracks["field"]
    numbers = {"value": track.values, "adjoint": track.adjoint, "ghost": reel.ghosts.get("field")}[panel]
    assert numbers is not None
    most, ill = largest(numbers), ~np.isfinite(numbers[k])
    image = ax.imshow(shaded(numbers[k], most), cmap=SIGNED, vmin=-1, vmax=1, interpolation="nearest")
    if track.known is not None and panel == "value":
        ax.imshow(np.where(track.known[k], np.nan, 0.5), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    if ill.any():
        edges = np.arange(-1, ill.shape[1] + 1), np.arange(-1, ill.shape[0] + 1)
        ax.contour(*edges, np.pad(ill, 1), levels=[0.5], colors=LIGHT["bad"])
    said = {"value": track.name, "adjoint": f"adjoint of {track.name}", "ghost": f"{track.name} of the other run"}
    ax.set_title(said[panel], fontsize=9, color=LIGHT["ink"])
    marks = scale_marks(-most, most)
    bar = figure.colorbar(image, ax=ax, shrink=0.7, ticks=[2 * at - 1 for at, _ in marks])
    bar.ax.set_yticklabels([f"{value:.2g}" for _, value in marks], fontsize=7)


def save_film(reel: FilmReel, path: Path) -> Path:
    """Write a PNG of one frame, or a GIF or MP4: forward, then back with the adjoints. Returns the path.

    Raises LaunchError [film-file] for another ending, and for an MP4 where there is no ffmpeg.
    """
    ending, figure = path.suffix.lower(), film_chart(reel, reel.poster)
    if ending == ".png":
        path.write_bytes(png(figure))
        return path
    if ending not in (".gif", ".mp4"):
        text = f"film.save({path.name!r}) has an ending that is none of .html, .gif, .mp4 and .png."
        raise LaunchError(text, slug="film-file", instead='film.save("film.html")')
    if ending == ".mp4" and not FFMpegWriter.isAvailable():
        why = "MP4 is written by ffmpeg, which is not installed."
        raise LaunchError("no ffmpeg.", slug="film-file", why=why, instead='film.save("film.gif")   or "film.html"')
    writer: Any = PillowWriter(fps=RATE) if ending == ".gif" else FFMpegWriter(fps=RATE)
    picked = [int(k) for k in np.unique(np.linspace(0, len(reel.moments) - 1, FRAMES // 2).round())]
    with writer.saving(figure, str(path), 100):
        for k, forward in [*((k, True) for k in picked), *((k, False) for k in reversed(picked))]:
            draw_film(figure, reel, k, forward)
            writer.grab_frame()
    return path
