"""The words and numbers of every view: names made safe, texts measured and cut, levels and accesses in a few words."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import is_dataclass
from itertools import pairwise
from typing import Any

from ...errors import Where, shown_file
from .trace import AdjointLevel, TouchMark, Trace

MONO, SANS = 0.612, 0.56  # widths of a character, as parts of its size
BADGES = {"nan": "NaN", "inf": "Inf", "died": "died", "cut": "cut", "parts": "parts"}
BADGES |= {"here": "only here", "there": "only there"}
ODD = ("parts", "here", "there")  # badges about a second pass
Span = tuple[int, int]  # letters [a, b) of a text


def text_width(text: str, size: float, mono: bool = False) -> float:
    """A generous estimate without font files; wide East Asian characters count twice."""
    if text.isascii():
        return len(text) * size * (MONO if mono else SANS)
    cells = sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
    return cells * size * (MONO if mono else SANS)


def fit(text: str, room: float, size: float, mono: bool = False) -> str:
    """The text, or as much of its start as has room followed by an ellipsis; nothing if not even that has room."""
    return fit_ends(text, room, size, mono, (len(text), len(text)))


def apart(names: Iterable[str]) -> dict[str, Span]:
    """The letters [a, b) of each name in which it differs from another that is much like it: short words as a whole."""
    found: dict[str, Span] = {}
    by_start = sorted({*names})
    for pair in (*pairwise(by_start), *pairwise(sorted(by_start, key=lambda name: name[::-1]))):
        one, a = pair[0], _same(*pair)
        rest = _same(*(name[a:][::-1] for name in pair))
        alike, ends = 3 * (a + rest), (one[:a][::-1], one[len(one) - rest :])
        a, rest = (len(re.sub(r"^[^\W_]{1,8}(?![^\W_])", "", end)) for end in ends)
        for name in pair:
            if alike >= len(name):
                first, last = found.get(name, (a, 0))
                found[name] = min(first, a), max(last, len(name) - rest)
    return found


def _same(one: str, other: str) -> int:
    """The number of letters that both begin with."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def fit_ends(text: str, room: float, size: float, mono: bool = False, span: Span | None = None) -> str:
    """The text, or as much of its start and its end as has room, around the letters `span` if they are given."""
    if text_width(text, size, mono) <= room:
        return text
    a, b = span or (len(text) // 2, len(text) // 2)
    for kept in range(len(text) - (b - a), -(a < b), -1):
        tail = min(kept // 2, len(text) - b)
        head = min(kept - tail, a)
        inner = text[a:b] and f"{text[a:b]}{'…' * (tail < len(text) - b)}"
        shown = f"{text[:head].rstrip()}{'…' * (head < a or a == b)}{inner}{text[len(text) - tail :]}"
        if text_width(shown, size, mono) <= room:
            return shown
    return fit_ends(text[a:b], room, size, mono) if a < b else ""


def fit_middle(text: str, room: float, size: float, mono: bool = False, span: Span | None = None) -> str:
    """The text, or as much of it as has room before its number (`#3`, `×200`) as `fit_ends`; that alone, or nothing."""
    found = re.search(r" [#×]\S*$", text)
    number = found[0] if found else ""
    start = text.removesuffix(number)
    shown = fit_ends(start, room - text_width(number, size, mono), size, mono, span or (len(start), len(start)))
    return shown + number if shown else number.strip() * (text_width(number.strip(), size, mono) <= room)


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


def plain(value: object) -> Any:
    """A record, and all in it, as JSON can hold it: tuples as lists, places with where they were called from."""
    if isinstance(value, float):
        return json_number(value)
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    if isinstance(value, Where):
        same = {name: getattr(value, name) for name in ("line", "col", "text", "function")}
        return {"file": shown_file(value.file), **same, "caller": plain(value.caller)}
    return {name: plain(one) for name, one in vars(value).items()} if is_dataclass(value) else value
