"""The memory that a tape costs: bytes held, by whom, and why.

One idea: every row is memory that would be freed with the tape, except the arrays themselves, which are the user's too.
An allocation is counted once, however many arrays lie on it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ..arrays.allocation import Allocation
from ..arrays.grouping import grouped
from ..display import aligned, bytes_text, html_table
from ..tapes.tape import Tape

HEAD = ("what", "bytes", "of", "held by", "why")
SHORT = 40
Names = dict[Allocation, str]


@dataclass(frozen=True)
class Holding:
    """One row. `kind`: kept, checkpoint, gradient, seed, shadow (only while a walk runs) or array."""

    kind: str
    nbytes: int
    of: str
    by: str
    why: str

    @property
    def row(self) -> tuple[str, ...]:
        return self.kind, bytes_text(self.nbytes), self.of, self.by, self.why


class Holdings:
    """The rows, largest kind of cost first, with `total` (all but shadows) and `during_backward`."""

    def __init__(self, rows: list[Holding]):
        self.rows = rows

    def sum(self, *kinds: str) -> int:
        """Bytes of all rows of these kinds."""
        return sum(r.nbytes for r in self.rows if r.kind in kinds)

    @property
    def total(self) -> int:
        """Bytes held now: kept values, gradients, seeds, and the arrays of the events."""
        return sum(r.nbytes for r in self.rows if r.kind != "shadow")

    @property
    def during_backward(self) -> int:
        """Bytes more while the reverse pass runs."""
        return self.sum("shadow")

    @property
    def title(self) -> str:
        kept = bytes_text(self.sum("kept"))
        return (
            f"This tape holds {bytes_text(self.total)}, of which {kept} are values kept for the reverse pass;"
            f" backward takes up to {bytes_text(self.during_backward)} more."
        )

    @property
    def text(self) -> str:
        """All rows as plain text."""
        return "\n".join([self.title, *aligned([HEAD, *(r.row for r in self.rows)], right=(1,), rule="-")])

    @property
    def html(self) -> str:
        """All rows as a table with a caption and header cells."""
        return html_table(self.title, HEAD, [r.row for r in self.rows], (1,), ";vertical-align:top")

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html


def holdings(tape: Tape) -> Holdings:
    """The memory that the tape holds now, and that a walk of it takes."""
    names = _names(tape)
    loops, why = [e for e in tape.events if e.loop is not None], "steps run again from here"
    states = [Holding("checkpoint", e.loop.nbytes, "its state", f"{e.label} at {e.where}", why) for e in loops]
    return Holdings([*_kept(tape, names), *states, *_of_arrays(tape, names)])


def _kept(tape: Tape, names: Names) -> list[Holding]:
    """Kept values, one row per line and reason."""
    held = ((e, k, names.get(k.span.allocation, str(k.span.allocation))) for e in tape.events for k in e.kept)
    rows = grouped(((e.label, e.where, of, tape.names.reason_of(k)), k.span.nbytes) for e, k, of in held)
    found = []
    for (label, where, of, reason), sizes in rows.items():
        times = f" (x{len(sizes)})" if len(sizes) > 1 else ""
        line = f" at {where}" if where else ""
        found.append(Holding("kept", sum(sizes), of, f"{label}{times}{line}", f"overwritten here; {reason}"))
    return sorted(found, key=lambda r: -r.nbytes)


def _of_arrays(tape: Tape, names: Names) -> list[Holding]:
    rows: dict[str, list[Holding]] = {"gradient": [], "seed": [], "array": [], "shadow": []}
    users = Counter(a for e in tape.events for a in {s.allocation for s in (*e.reads, *e.writes)})
    for a, of in names.items():
        by = f"{users[a]} event{'' if users[a] == 1 else 's'}"
        rows["array"].append(Holding("array", a.nbytes, of, by, "read or written by recorded events"))
        if a.grad is not None:
            rows["gradient"].append(Holding("gradient", a.grad.nbytes, of, "the array", "its .grad"))
        if a in tape.last_seeds:
            seed = tape.last_seeds[a]
            rows["seed"].append(Holding("seed", seed.nbytes, of, "the tape", "for adjoint(), show() and diagnose()"))
        if a in tape.active:
            size = a.nbytes * (a.grad_scale or 1)
            rows["shadow"].append(Holding("shadow", size, of, "backward, while it runs", "on an active path"))
    return [r for kind in rows.values() for r in kind]


def _names(tape: Tape) -> Names:
    """The user's names for each allocation of the tape, joined and shortened."""
    found = grouped((x.allocation, tape.names.of(x)) for x in tape.arrays.values())
    texts = {a: ", ".join(dict.fromkeys(names)) for a, names in found.items()}
    return {a: text if len(text) <= SHORT else f"{text[: SHORT - 1]}…" for a, text in texts.items()}
