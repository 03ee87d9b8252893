"""Shown to people: tables as text and HTML, bytes as text, figures as PNG, bars of progress, names in completion."""

from __future__ import annotations

import io
import math
import sys
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
Lines = Sequence[Sequence[str]]


def aligned(
    lines: Lines, right: Collection[int] = (), rule: str = "", gap: str = "  ", width: Callable[[str], int] = len
) -> list[str]:
    """One text per line, its cells below each other.

    right   the columns that are set right.
    rule    a character that underlines the first line, if any.
    width   how many columns of a terminal a text takes.
    """
    widths = [max(width(line[k]) for line in lines) for k in range(len(lines[0]))]
    ruled = [lines[0], [rule * w for w in widths], *lines[1:]] if rule else lines
    return [
        gap.join(
            " " * (w - width(cell)) + cell if k in right else cell + " " * (w - width(cell))
            for k, (cell, w) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in ruled
    ]


def html_table(
    caption: str,
    head: Sequence[str],
    rows: Lines,
    right: Collection[int] = (),
    style: str = "",
    head_style: str = "",
    heads: bool = True,
    note: str = "",
) -> str:
    """A table that a screen reader can follow; lines of a cell are parted by newlines.

    style, head_style   of the cells, and of those of the head.
    heads               True if the first cell of a row is its header.
    note                a sentence below.
    """
    from html import escape

    sides = [f"text-align:{'right' if k in right else 'left'}" for k in range(len(head))]
    top = "".join(
        f'<th scope="col" style="{side}{head_style}">{escape(text)}</th>' if text else "<td></td>"
        for side, text in zip(sides, head, strict=True)
    )
    body = []
    for row in rows:
        cells = [(f'style="{side}{style}"', "<br>".join(map(escape, t.split("\n")))) for side, t in zip(sides, row)]
        first = f'<th scope="row" {cells[0][0]}>{cells[0][1]}</th>' if heads else ""
        body.append(f"<tr>{first}{''.join(f'<td {look}>{text}</td>' for look, text in cells[heads:])}</tr>")
    inside = f"<thead><tr>{top}</tr></thead><tbody>{''.join(body)}</tbody>"
    table = f"<table><caption>{escape(caption)}</caption>{inside}</table>"
    below = f"<p>{escape(note)}</p>" if note else ""
    return f'<div style="overflow-x:auto" tabindex="0">{table}{below}</div>'


def bytes_text(n: int, step: int = 1024) -> str:
    """`384 B`, `1.5 KiB`, `20 MiB`; with a step of 1000 `1.5 kB`, `3.2 MB`, to a digit less."""
    units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"] if step == 1024 else ["B", "kB", "MB", "GB", "TB"]
    size = float(n)
    while size >= step and len(units) > 1:
        size, units = size / step, units[1:]
    return f"{size:.4g} {units[0]}" if step == 1024 else f"{size:.3g} {units[0]}"


BARS = "▁▂▃▄▅▆▇█"


def residuals_text(sizes: Sequence[float], turns: float, wanted: float) -> str:
    """`3 turns, residual █▇▅▁ 1.2 to 3e-08 (1e-07 wanted)`; "" without sizes.

    sizes   norms, of which at most 24 evenly chosen ones become bars, as tall as their logarithms.
    """
    if not sizes:
        return ""
    every = (len(sizes) - 1) / 23 if len(sizes) > 24 else 1
    seen = [sizes[round(k * every)] for k in range(min(len(sizes), 24))]
    logs = [math.log(size) for size in seen if 0 < size < math.inf]
    low, high = min(logs, default=0.0), max(logs, default=0.0)
    bars = "".join(BARS[round(7 * (one - low) / (high - low or 1.0))] for one in logs)
    ends = f"{sizes[0]:.2g} to {sizes[-1]:.2g} ({wanted:.2g} wanted)"
    return f"{turns:g} turn{'s' * (turns != 1)}, residual {bars} {ends}"


def png(figure: Any) -> bytes:
    """A matplotlib figure as a PNG of 120 dots per inch, for `_repr_png_`."""
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=120)
    return data.getvalue()


BAR_AFTER_S = 1.0  # what is over sooner shows no bar


class ProgressBar:
    """A context that counts work, and shows a bar once it has taken a second: in a notebook or on a terminal.

    Its end takes the bar away, with all of its widgets; elsewhere, and unless `shown`, nothing is written.
    """

    def __init__(self, total: int | None, title: str, shown: bool = True):
        self.total, self.title, self.shown, self.done = total, title, shown, 0
        self._begin = time.monotonic()
        self._bar: Any = None

    def __enter__(self) -> ProgressBar:
        return self

    def close(self, *_: object) -> None:
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.close()
            if (box := getattr(bar, "container", None)) is not None:  # of a notebook: tqdm closes the box alone
                for part in (*box.children, box):
                    for widget in (getattr(part, "style", None), part.layout, part):
                        if widget is not None:
                            widget.close()

    __exit__ = close

    def update(self, n: int = 1) -> bool:
        """Count `n` more. Returns True if there is a bar."""
        self.done += n
        if self._bar is not None:
            self._bar.update(n)
        elif self.shown and time.monotonic() - self._begin >= BAR_AFTER_S and (made := _bar_here()) is not None:
            self._bar = made(total=self.total, initial=self.done, desc=self.title, leave=False)
        return self._bar is not None

    def say(self, text: str) -> None:
        """Show a text behind the bar, if there is one."""
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)


def _bar_here() -> Any:
    """The bar of tqdm for a notebook or a terminal; None where nobody looks."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None and "IPKernelApp" in shell.config:
        from tqdm.notebook import tqdm as in_notebook

        return in_notebook
    if not sys.stderr.isatty():
        return None
    from tqdm import tqdm

    return tqdm


# ---- names in completion


class Listed(type):
    """Metaclass of a class whose own `dir`, which IPython adds to that of its objects, shows what it `offers`, too."""

    def __dir__(cls) -> list[str]:
        return [name for name in super().__dir__() if name in cls.offered or name.startswith("__")]  # type: ignore[attr-defined]


def offers(names: str) -> Callable[[type[T]], type[T]]:
    """Decorate a class: `dir` and completion show these names of its objects, those of its bases, and Python's own.

    Every other attribute can be used as before.
    """

    def decorate(cls: type[T]) -> type[T]:
        own = frozenset(names.split()) | getattr(cls, "offered", frozenset())
        cls.offered = own  # type: ignore[attr-defined]
        cls.__dir__ = lambda self: sorted({*own, *(n for n in object.__dir__(self) if n[:2] == "__")})
        return cls

    return decorate
