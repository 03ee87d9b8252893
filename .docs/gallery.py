"""The gallery: a page for each stored notebook, and one that shows them all. Nothing is run for it.

Sphinx reads notebooks below its own folder and knows no attachments: `write` lays copies into `gallery/`, with the
attached pictures as files beside them.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
NOTEBOOKS = HERE.parent / "notebooks"
PAGES = HERE / "gallery"
# A notebook is on the last shelf whose first number is not above its own.
SHELVES = ((0, "Start"), (2, "Pitfalls"), (10, "Physics"), (29, "With others"))
SAID = """A first gradient in fifteen cells, and then the whole of it, once.

The five traps one by one, then accumulation, loops and overwrites. Each asks for a prediction, makes the
historical mistake on purpose, and shows the wrong flow and the exact one as one picture.

A step that is no kernel (``record_func``, ``func_grad``); the first field of a wave from its last; DiffTaichi's
robot, and float32 that parts from float64 at a contact; a jelly; an exact gradient of the wrong program; an
orbit, and a neighbour of it that its loss could not tell apart; a long run in little memory (``checkpoint``); descents
on several processes (``executor=``); exact gradients that lead nowhere, and the remedy (``trust``, ``smoothed``). Then
what a gradient finds, each with its film (``tape.film``): a beam and its adjoints; a cloth, thrown so that it lies in
a square (``descend``); a heater in the next room, with the ellipse of its uncertainty and the best place for one more
thermometer (``optim.linear.lu``, ``covariance``, ``jvp``); a lens by traced rays, down to Descartes' hyperboloid
(``first_root``, ``jacobian``); an arm's inertia; a bridge; an arm that draws round a ball; a drone that looks ahead and
goes through six gates in gusts; a soft walker that a network of PyTorch teaches to gallop; smoke that is blown into a
sign (``custom_op``). Each is checked against closed forms, published numbers or differences.

Training through a simulation by torch (``interop.torch.function``, ``torch.autograd.Function``); a program of NVIDIA
Warp, whose wrong gradient is found in two lines (``interop.warp.watch``); MuJoCo Warp, unchanged (extra
``engines``)."""
HEAD = """Gallery
=======

Each page is a notebook of ``notebooks/``, as it is stored: open it in JupyterLab to move what moves.

"""
DRAWN = re.compile(r"data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)")


def text(part: str | list[str]) -> str:
    return part if isinstance(part, str) else "".join(part)


def pictures(notebook: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Every picture that is stored, as (suffix, bytes): what the first cell shows, then what cells have drawn."""
    for cell in notebook["cells"]:
        for kinds in cell.get("attachments", {}).values():
            yield from ((".png", base64.b64decode(data)) for kind, data in kinds.items() if kind == "image/png")
    for cell in notebook["cells"]:
        for data in (output.get("data", {}) for output in cell.get("outputs", [])):
            if "image/png" in data:
                yield ".png", base64.b64decode(text(data["image/png"]))
            for drawn in DRAWN.findall(text(data.get("text/html", ""))):
                if b"wb-tape" in (picture := base64.b64decode(drawn)):  # and not the sealed answer of a quiz
                    yield ".svg", picture


def detach(notebook: dict[str, Any], folder: Path) -> None:
    """Write attachments as files, and let the text point there."""
    for cell in notebook["cells"]:
        for name, kinds in cell.pop("attachments", {}).items():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(base64.b64decode(kinds["image/png"]))
            cell["source"] = text(cell["source"]).replace(f"attachment:{name}", f"{folder.name}/{name}")


def plain(said: str) -> str:
    """Text of a notebook as reStructuredText: code stays code, the rest loses its marks."""
    parts = re.split(r"`([^`]+)`", re.sub(r"\s+", " ", said))
    return "".join(f"``{part}``" if k % 2 else part.replace("*", "") for k, part in enumerate(parts))


def card(path: Path) -> list[str]:
    """One notebook: written as a page, and its card as lines."""
    notebook = json.loads(path.read_text("utf-8"))
    title, said = re.findall(r"\A# (.+)\n\s*((?:.|\n){50,}?[.?!])(?=\s)", text(notebook["cells"][0]["source"]))[0]
    suffix, shown = next(pictures(notebook), ("", b""))
    detach(notebook, PAGES / path.stem)
    (PAGES / path.name).write_text(json.dumps(notebook), "utf-8")
    lines = [".. container:: card", ""]
    if shown:
        (PAGES / f"{path.stem}-face{suffix}").write_bytes(shown)
        lines += [f"   .. image:: {path.stem}-face{suffix}", "      :alt:", ""]
    return [*lines, f"   :doc:`{title} <{path.stem}>`", "", f"   {plain(said)}", ""]


def shelf(number: int) -> int:
    return max(k for k, (first, _) in enumerate(SHELVES) if first <= number)


def write() -> None:
    """Lay the notebooks and the page of cards into `gallery/`."""
    shutil.rmtree(PAGES, ignore_errors=True)
    PAGES.mkdir()
    paths = sorted(NOTEBOOKS.glob("*.ipynb"))
    out = [HEAD]
    for k, ((_, name), said) in enumerate(zip(SHELVES, SAID.split("\n\n"), strict=True)):
        out += [name, "-" * len(name), "", said, "", ".. container:: cards", ""]
        for path in paths:
            if shelf(int(path.stem.split("_")[0])) == k:
                out += [f"   {line}".rstrip() for line in card(path)]
    out += [".. toctree::", "   :hidden:", "", *(f"   {path.stem}" for path in paths), ""]
    (PAGES / "index.rst").write_text("\n".join(out), "utf-8")
