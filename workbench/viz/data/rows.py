"""The rows of every picture from top to bottom: lanes, and families of lanes as one row, with names and heights.

A picture leaves out the members of a family that is shut; y of whatever lies on a lane is measured from the top of its
row. A family is one list or one kind (`u[k]`, arrays made anew each step) by names alone: memory that has a further
name of its own, or whose names cover only parts of it, keeps its lane, so that a fold never hides an alias.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...display import bytes_text
from .lanes import BAND, Lane
from .text import Span, apart, clean, fit, fit_ends, text_width
from .trace import AllocationTrack, NameRange

FEW = 12  # lanes up to which none of them fold
LEAST = 4  # lanes of one kind from which they fold
INDEX = re.compile(r"\[(-?\d+)\]")
NAME_BUDGET = 6
NAMES = (264.0, 228.0, 190.0, 150.0)  # where the tracks begin: in a wide picture, and in narrower ones
BESIDE = 52.0  # of these, for the words between names and tracks
INDENT, LETTERS, PADDING, BETWEEN, LINE = 14.0, 11.5, 18.0, 6.0, 24.0  # of the labels of names
SHUT, OPEN = 62.0, 30.0  # heights of the row of a family
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


class NameLabel(NamedTuple):
    """A name as it is written: where it begins, in which line of its row, and how wide it is."""

    text: str
    x: float
    line: int
    wide: float


class RowNote(NamedTuple):
    """The line below the names of a row: that memory is shared, or its type and size."""

    look: str
    text: str
    size: float


class RowSize(NamedTuple):
    """A row beside names of one width: its height, the label of each name, and the note below them."""

    height: float
    labels: tuple[NameLabel, ...]
    note: RowNote


class PictureRow(NamedTuple):
    """A lane, or a family of lanes.

    number   of the lane; those of families follow those of all lanes. `inside`: the family it is a member of, else -1.
    members  of a family the numbers of its lanes.
    names    (name, tooltip) of each label; the name is "" where a label counts further ones.
    sizes    one for each of `NAMES`.
    """

    number: int
    lane: Lane
    inside: int
    members: tuple[int, ...]
    names: tuple[tuple[str, str], ...]
    sizes: tuple[RowSize, ...]


def picture_rows(lanes: Mapping[str, Lane]) -> list[PictureRow]:
    """All rows in their order: the members of a family follow it."""
    tracks, made = [lane.track for lane in lanes.values()], list(lanes.values())
    found = families(tracks) if len(tracks) > FEW else []
    spans = apart(clean(name.name) for track in tracks for name in track.names)
    of = {member: n for n, family in enumerate(found) for member in family.members}
    rows: list[PictureRow] = []
    for k, lane in enumerate(made):
        n = of.get(k, -1)
        if n < 0:
            rows.append(_lane_row(k, lane, -1, spans))
        elif k == min(found[n].members):
            rows.append(_family_row(len(made), n, found[n]))
            rows += [_lane_row(member, made[member], n, spans) for member in found[n].members]
    return rows


def _lane_row(number: int, lane: Lane, inside: int, spans: Mapping[str, Span]) -> PictureRow:
    track = lane.track
    named = [(clean(name.name), "") for name in track.names[:NAME_BUDGET]]
    if len(track.names) > NAME_BUDGET:
        named.append(("", ""))
    return PictureRow(number, lane, inside, (), tuple(named), tuple(_lane_size(lane, left, spans) for left in NAMES))


def _lane_size(lane: Lane, left: float, spans: Mapping[str, Span]) -> RowSize:
    track, edge, labels = lane.track, left - BESIDE, []
    x, line = INDENT, 0
    texts = [_name_text(track, name, edge - 32, spans) for name in track.names[:NAME_BUDGET]]
    if len(track.names) > NAME_BUDGET:
        texts.append(f"+{len(track.names) - NAME_BUDGET} names")
    for text in texts:
        wide = text_width(text, LETTERS, True) + PADDING
        if x > INDENT and x + wide > edge:
            x, line = INDENT, line + 1
        labels.append(NameLabel(text, x, line, round(wide, 2)))
        x = round(x + wide + BETWEEN, 2)
    tall = max(2 * lane.track_height + 32.0, 30.0 + LINE * (line + 1))
    return RowSize(tall, tuple(labels), _note(track, left - 62))


def _name_text(track: AllocationTrack, name: NameRange, room: float, spans: Mapping[str, Span]) -> str:
    """A name, and of memory that it covers in part the elements, which are never cut off."""
    text = clean(name.name)
    extent = f" {track.range_text(name.lo, name.hi)}" if track.partial(name.lo, name.hi) else ""
    shown = fit_ends(text, room - text_width(extent, LETTERS, True), LETTERS, True, spans.get(text))
    return fit(shown + extent, room, LETTERS, True)


def _note(track: AllocationTrack, room: float) -> RowNote:
    if track.aliased:
        number = len(track.names)
        said = f"one memory, {NUMBERS[number] if number < len(NUMBERS) else number} names"
        return RowNote("note", fit(said, room, 11), 11.0)
    said = " · ".join(filter(None, (clean(track.text), bytes_text(track.nbytes, 1000))))  # float32 (32, 3) · 384 B
    return RowNote("faint", fit(said, room, 10), 10.0)


def _family_row(lanes: int, n: int, family: Family) -> PictureRow:
    count, sizes = f" ×{len(family.members)}", []
    name = NameRange(family.name + count, 0, family.nbytes)
    lane = Lane(AllocationTrack(f"family-{n}", family.nbytes, (name,), family.what), BAND, (0, 1))
    for left in NAMES:
        room = left - BESIDE - INDENT - PADDING - text_width("+ " + count, LETTERS, True)
        text = fit_ends(family.name, room, LETTERS, True) + count
        label = NameLabel(text, INDENT, 0, round(text_width("+ " + text, LETTERS, True) + PADDING, 2))
        sizes.append(RowSize(SHUT, (label,), RowNote("faint", fit(family.note, left - 62, 10), 10.0)))
    return PictureRow(lanes + n, lane, -1, family.members, ((family.name, family.note),), tuple(sizes))


# ---- families


class Family(NamedTuple):
    """Lanes under one name: `members` are their numbers, in the order of their indices."""

    name: str
    what: str
    nbytes: int
    members: tuple[int, ...]

    @property
    def note(self) -> str:
        return f"{self.what} · {bytes_text(self.nbytes, 1000)}"


def families(tracks: Sequence[AllocationTrack]) -> list[Family]:
    """The lanes that fold, in the order of their first members."""
    found: dict[tuple[str, ...], list[int]] = {}
    for n, track in enumerate(tracks):
        if track.names and not any(track.partial(name.lo, name.hi) or name.strided for name in track.names):
            found.setdefault(tuple(sorted(INDEX.sub("[]", name.name) for name in track.names)), []).append(n)
    return [_family(tracks, kind, members) for kind, members in found.items() if len(members) >= LEAST]


def _family(tracks: Sequence[AllocationTrack], kind: tuple[str, ...], members: list[int]) -> Family:
    indices = {n: tuple(int(k) for k in INDEX.findall(", ".join(x.name for x in tracks[n].names))) for n in members}
    members = sorted(members, key=lambda n: (indices[n], n))
    name = ", ".join(_ranged(one, sorted({indices[n] for n in members})) for one in kind)
    texts = dict.fromkeys(tracks[n].text for n in members)
    what = f"{next(iter(texts))} each" if len(texts) == 1 else "of several shapes"
    nbytes = sum(tracks[n].nbytes for n in members)
    return Family(clean(name), clean(f"{len(members)} arrays, {what}"), nbytes, tuple(members))


def _ranged(kind: str, indices: Sequence[tuple[int, ...]]) -> str:
    """`u[0…103]` for `u[]`, where the indices have no holes; `u[…]` else."""
    ones = [index[0] for index in indices if len(index) == 1]
    whole = len(ones) == len(indices) > 1 and ones[-1] - ones[0] + 1 == len(ones)
    return kind.replace("[]", f"[{ones[0]}…{ones[-1]}]" if whole else "[…]")
