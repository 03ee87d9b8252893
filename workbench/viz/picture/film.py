"""Frames of a film drawn by matplotlib: the poster of a notebook, PNG, GIF and MP4."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.animation import FFMpegWriter, PillowWriter
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import LinearSegmentedColormap

from ...errors import LaunchError
from ...tables import png
from ..data.film import FilmReel, arrow_scale, bounds, largest
from ..data.marks import LIGHT, scale_marks
from .chart import Chart

FRAMES = 60  # of a GIF or MP4, there and back
RATE = 12  # of them in a second
REACH = 0.13  # of the stage, of the arrow of the scale
SIGNED = LinearSegmentedColormap.from_list("wb", [LIGHT["minus"], LIGHT["blank"], LIGHT["plus"]])


def film_chart(reel: FilmReel, k: int, forward: bool = False, size: tuple[float, float] = (7.2, 4.2)) -> Chart:
    """One frame of a film; `forward`: without adjoints, as on the way forward."""
    figure = Chart(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    draw_film(figure, reel, k, forward)
    return figure


def draw_film(figure: Chart, reel: FilmReel, k: int, forward: bool = False) -> None:
    """Draw a frame into a figure, from which all else goes."""
    figure.clear()
    points, grid = reel.tracks.get("points"), reel.tracks.get("field")
    panels = [*(["points"] if points else []), *(["value"] if grid else [])]
    panels += ["adjoint"] if grid is not None and grid.adjoint is not None and not forward else []
    for n, panel in enumerate(panels):
        solid = panel == "points" and reel.dims == 3
        ax: Any = figure.add_subplot(1, len(panels), n + 1, projection="3d" if solid else None)
        if panel == "points":
            _points(ax, reel, k, forward)
        else:
            _field(figure, ax, reel, k, panel)
    figure.suptitle(f"{reel.said(k)}\n{reel.caption[0]}", fontsize=9, color=LIGHT["ink"])


def _points(ax: Any, reel: FilmReel, k: int, forward: bool) -> None:
    track = reel.tracks["points"]
    place = _placed(track.values[k], reel.dims)
    known = np.ones(len(place), bool) if track.known is None else track.known[k]
    place = np.where(known[:, None], place, np.nan)
    box = bounds(_placed(track.values, reel.dims))
    wide = max(high - low for low, high in box) or 1.0
    colours = None if reel.colours is None or (forward and reel.choice.colour_of) else reel.colours
    for index, kind in ((reel.choice.mesh, "mesh"), (reel.choice.lines, "lines")):
        if index is not None:
            inks, widths = _inks(colours, k, len(index), LIGHT["muted"])
            _strokes(ax, place[index], kind, inks, widths, reel.dims)
    inks, _ = _inks(colours, k, len(place), LIGHT["value"])
    small = 14 if len(place) < 400 else 3
    ax.scatter(*place.T, s=small, color=inks, zorder=3, linewidths=0)
    adjoint = reel.choice.arrows_of or "arrows" not in reel.tracks
    if reel.arrows is not None and not (forward and adjoint):
        _arrows(ax, reel, k, place, wide, LIGHT["hot"] if adjoint else LIGHT["value"])
    pads = [max(0.12 * wide, 0.04 * (high - low)) for low, high in box]
    for axis, (low, high), pad in zip("xyz", box, pads, strict=False):
        getattr(ax, f"set_{axis}lim")(low - pad, high + pad)
    ax.set_aspect("equal")
    ax.tick_params(labelsize=7, colors=LIGHT["muted"])


def _placed(points: np.ndarray, dims: int) -> np.ndarray:
    """The points with as many components as the stage has axes."""
    lack = dims - points.shape[-1]
    return points[..., :dims] if lack <= 0 else np.concatenate([points, np.zeros((*points.shape[:-1], lack))], -1)


def _inks(colours: np.ndarray | None, k: int, count: int, plain: str) -> tuple[Any, Any]:
    """Colours and widths, by numbers if there are as many."""
    if colours is None or colours.shape[1] != count:
        return plain, 1.0
    shades = shaded(colours[k], largest(colours))
    return SIGNED((shades + 1) / 2), 1.0 + 2.5 * np.abs(np.nan_to_num(shades))


def shaded(numbers: np.ndarray, most: float) -> np.ndarray:
    """The share of full colour of numbers, signed: it grows with the root of the size."""
    return np.sign(numbers) * np.sqrt(np.minimum(np.abs(numbers) / (most or 1.0), 1))


def _strokes(ax: Any, paths: np.ndarray, kind: str, inks: Any, widths: Any, dims: int) -> None:
    one = isinstance(inks, str)
    if dims == 2 and kind == "lines":
        ax.add_collection(LineCollection(list(paths), colors=inks, linewidths=widths))
    elif dims == 2:
        face = LIGHT["tint"] if one else inks
        ax.add_collection(PolyCollection(list(paths), facecolors=face, edgecolors=LIGHT["line"], linewidths=0.5))
    elif kind == "mesh":
        corners = np.arange(3 * len(paths)).reshape(-1, 3)
        surface = ax.plot_trisurf(*paths.reshape(-1, 3).T, triangles=corners, color=LIGHT["tint"], linewidth=0.2)
        if not one:
            surface.set_facecolor(inks)
    elif one:  # one line, broken between the pairs
        broken = np.concatenate([paths, np.full((len(paths), 1, 3), np.nan)], axis=1)
        ax.plot(*broken.reshape(-1, 3).T, color=inks, linewidth=widths)
    else:
        for path, ink, width in zip(paths, inks, widths, strict=True):
            ax.plot(*path.T, color=ink, linewidth=width)


def _arrows(ax: Any, reel: FilmReel, k: int, place: np.ndarray, wide: float, ink: str) -> None:
    arrows = reel.arrows
    assert arrows is not None
    unit = arrow_scale(arrows)
    long = _placed(arrows[k], reel.dims) / unit * REACH * wide
    fine = np.isfinite(long).all(-1) & (np.abs(long).max(-1) > 0) & np.isfinite(place).all(-1)
    if reel.dims == 3:
        ax.quiver(*place[fine].T, *long[fine].T, color=ink, linewidths=1.0)
    else:
        ax.quiver(
            *place[fine].T, *long[fine].T, color=ink, angles="xy", scale_units="xy", scale=1, width=0.004, zorder=4
        )
    ill = ~np.isfinite(arrows[k]).all(-1)
    ax.scatter(*place[ill].T, marker="x", color=LIGHT["bad"], s=40, zorder=5)
    said = "|adjoint|" if ink == LIGHT["hot"] else f"|{reel.tracks['arrows'].name}|"
    text = f"{said} = {unit:g}: an arrow of {REACH:.0%} of the stage"
    (ax.text2D if reel.dims == 3 else ax.text)(0.02, 0.02, text, transform=ax.transAxes, color=ink, fontsize=8)


def _field(figure: Chart, ax: Any, reel: FilmReel, k: int, panel: str) -> None:
    """A plane of numbers in signed colours; NaN is a hole with a rim, what was not kept is grey."""
    track = reel.tracks["field"]
    numbers = track.values if panel == "value" else track.adjoint
    assert numbers is not None
    most, least = largest(numbers), float(np.nanmin(np.where(np.isfinite(numbers), numbers, 0.0)))
    ax.imshow(shaded(numbers[k], most), cmap=SIGNED, vmin=-1, vmax=1, interpolation="nearest")
    if track.known is not None and panel == "value":
        ax.imshow(np.where(track.known[k], np.nan, 0.5), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    for row, column in np.argwhere(~np.isfinite(numbers[k])):
        ax.add_patch(_rim(row, column))
    name = track.name if panel == "value" else f"adjoint of {track.name}"
    ax.set_title(name, fontsize=9, color=LIGHT["hottext"] if panel == "adjoint" else LIGHT["ink"])
    ax.tick_params(labelsize=7, colors=LIGHT["muted"])
    marks = scale_marks(min(least, 0.0) and -most, most)
    bar = figure.colorbar(ax.images[0], ax=ax, shrink=0.7, ticks=[2 * at - 1 if least < 0 else at for at, _ in marks])
    bar.ax.set_yticklabels([f"{value:.2g}" for _, value in marks], fontsize=7)


def _rim(row: int, column: int) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((column - 0.5, row - 0.5), 1, 1, fill=True, facecolor=LIGHT["ground"], edgecolor=LIGHT["bad"])


def save_film(reel: FilmReel, path: Path, frames: int = FRAMES) -> Path:
    """Write a PNG of one frame, or a GIF or MP4: forward, then back with the adjoints. Returns the path.

    Raises LaunchError [film-file] for another ending, and for an MP4 where there is no ffmpeg.
    """
    ending = path.suffix.lower()
    if ending == ".png":
        path.write_bytes(png(film_chart(reel, poster_of(reel))))
        return path
    if ending not in (".gif", ".mp4"):
        text = f"film.save({path.name!r}) has an ending that is none of .html, .gif, .mp4 and .png."
        raise LaunchError(text, slug="film-file", instead='film.save("film.html")')
    if ending == ".mp4" and not FFMpegWriter.isAvailable():
        why = "MP4 is written by ffmpeg, which is not installed."
        raise LaunchError("no ffmpeg.", slug="film-file", why=why, instead='film.save("film.gif")   or "film.html"')
    writer: Any = PillowWriter(fps=RATE) if ending == ".gif" else FFMpegWriter(fps=RATE)
    picked = [int(k) for k in np.unique(np.linspace(0, len(reel.moments) - 1, max(frames // 2, 2)).round())]
    figure = film_chart(reel, 0, True, (6.4, 3.8))
    with writer.saving(figure, str(path), 100):
        for k, forward in [*((k, True) for k in picked), *((k, False) for k in reversed(picked))]:
            draw_film(figure, reel, k, forward)
            writer.grab_frame()
    return path


def poster_of(reel: FilmReel) -> int:
    """The frame that stands for the film: before the last third."""
    return round(0.66 * (len(reel.moments) - 1))
