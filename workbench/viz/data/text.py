"""The words and numbers of every view: names made safe, texts measured and cut, levels and accesses in a few words."""

from __future__ import annotations

import math
import re
import unicodedata
from typing import Any

from ...errors import Where, shown_file
from .trace import AdjointLevel, TouchMark, Trace

MONO, SANS = 0.612, 0.56  # widths of a character, as parts of its size
BADGES = {
    "nan": "NaN",
    "inf": "Inf",
    "died": "died",
    "cut": "cut",
    "parts": "parts",
    "here": "only here",
    "there": "only there",
}
ODD = ("parts", "here", "there")  # badges about a second pass


def text_width(text: str, size: float, mono: bool = False) -> float:
    """A generous estimate without font files; wide East Asian characters count twice."""
    if text.isascii():
        return len(text) * size * (MONO if mono else SANS)
    cells = sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
    return cells * size * (MONO if mono else SANS)


def fit(text: str, room: float, size: float, mono: bool = False) -> str:
    """The text, or as much as has room followed by an ellipsis; nothing if not even that has room."""
    if text_width(text, size, mono) <= room:
        return text
    while text and text_width(text + "…", size, mono) > room:
        text = text[:-1]
    return text.rstrip() + "…" if text else ""


def fit_ends(text: str, room: float, size: float, mono: bool = False) -> str:
    """The text, or as much of its start and its end as has room: names differ at their ends."""
    shown, kept = text, len(text)
    while kept and text_width(shown, size, mono) > room:
        kept -= 1
        shown = f"{text[: (kept + 1) // 2]}…{text[len(text) - kept // 2 :]}"
    return shown if kept else ""


def fit_middle(text: str, room: float, size: float, mono: bool = False) -> str:
    """The text, or as much of its start as has room, with its number (`#3`, `×200`) whole; that alone, or nothing."""
    if text_width(text, size, mono) <= room:
        return text
    found = re.search(r" [#×]\S*$", text)
    number = found[0] if found else ""
    start = text.removesuffix(number)
    while start and text_width(f"{start}…{number}", size, mono) > room:
        start = start[:-1]
    if start:
        return f"{start}…{number}"
    return number.strip() if text_width(number.strip(), size, mono) <= room else ""


def clean(text: object) -> str:
    """Text that XML and a terminal can carry: control, direction-changing and lone surrogate characters replaced."""
    said = str(text)
    if said.isprintable():  # most are
        return said
    bad = ("Cc", "Cs", "Cf", "Co", "Cn", "Zl", "Zp")
    return "".join("\ufffd" if unicodedata.category(c) in bad else c for c in said)


def clean_lines(text: object) -> str:
    """`clean` that keeps line breaks."""
    return "\n".join(clean(line) for line in str(text).split("\n"))


def level_text(level: AdjointLevel | None) -> str:
    """One level in a few words."""
    if level is None:
        return "none"
    if level.state == "zero":
        return "0 exactly"
    names = [name for name, found in (("NaN", level.nan), ("Inf", level.inf)) if found]
    if names:
        return " and ".join(names) + (" in parts" if level.mixed else "")
    return f"{'≤ ' if level.mixed else ''}{level.max_abs:.3g}"


def versions(touch: TouchMark) -> str:
    if touch.how == "read":
        return f"v{touch.version_before}"
    return f"v{touch.version_before}→v{touch.version_after}"


def moment_text(trace: Trace, position: int) -> str:
    """The name of the event that the reverse pass came from at a moment: `#3 springs`, `the seed`."""
    return clean(trace.events[position].heading) if position < len(trace.events) else "the seed"


def sentence(trace: Trace) -> str:
    """The picture in one sentence, for those who do not see it."""
    shared = sum(track.aliased for track in trace.allocations)
    parts = [f"{clean(trace.title)}: {trace.summary}"]
    if shared:
        parts.append(f"{shared} {'allocation has' if shared == 1 else 'allocations have'} more than one name")
    if trace.seeds:
        parts.append(f"seeded by {clean(trace.seed_text)}")
    tally = trace.tally
    seen = ((word, tally[flag]) for flag, word in BADGES.items() if flag in tally)
    found = [f"{word} at {number} {'event' if number == 1 else 'events'}" for word, number in seen]
    return "; ".join([*parts, *(["adjoint " + ", ".join(found)] if found else [])]) + "."


def json_number(value: float) -> float | str:
    """A float as JSON can hold it."""
    return float(value) if math.isfinite(value) else str(float(value))


def json_place(where: Where | None) -> dict[str, Any] | None:
    """A place as plain data: file, line, column, text, and where it was called from."""
    if where is None:
        return None
    same = {name: getattr(where, name) for name in ("line", "col", "text", "function")}
    return {"file": shown_file(where.file), **same, "caller": json_place(where.caller)}
