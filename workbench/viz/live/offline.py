"""The live view as one file: the same module and columns, and answers worked out before, inside a page of its own.

A question of the page is the key of its answer: heat-maps for every moment at which their array changes, ledgers and
microscopes for chosen cells and threads. The page asks no network; names and values lie in it as data, never as markup.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ...arrays import allocation as memory
from ...arrays.array import array
from ...arrays.grouping import grouped
from ...derivatives.pitfalls import Wrong
from ...diagnose import Finding
from ...display import ProgressBar
from ...errors import GradientError, LaunchError
from ...kernels.types import is_float
from ...tapes.events import Event
from ...tapes.tape import Tape
from ..data.against import Against
from ..data.snapshot import frame_of, full_shape
from ..inspect.ledger import ledgers
from ..inspect.ledger_table import Ledger
from ..inspect.microscope import ThreadIndex, microscopes
from .view import SOON, View, html_page, module, style
from .view_kinds import FilmView, view_of

CELLS = 48  # ledgers that are stored where nobody chooses
RUNS = 800  # adjoints that are run again for them
THREADS = 16  # microscopes
STOPS = 12  # moments of a ledger where nobody chooses
HEATS = 1 << 24  # bytes of heat-maps
MAPS = 500  # heat-maps
MISSING = {
    "heat": "This page has no numbers of that array at that moment: there were too many. tape.explore() has all.",
    "ledger": "This page has no ledger of that cell at that moment: to_html(path, cells=[(x, index)]) puts one in.",
    "microscope": "This page has no microscope of that thread: to_html(path, threads=[(launch, thread)]) puts one in.",
}


CellChoice = tuple[array, int | Sequence[int]]
ThreadChoice = tuple[Event | int, ThreadIndex]


def to_html(
    tape: Tape,
    path: str | Path,
    cells: Iterable[CellChoice] | None = None,
    threads: Iterable[ThreadChoice] | None = None,
    wrong: Wrong | None = None,
    against: Against = None,
    findings: Sequence[Finding] = (),
    film: object = None,
) -> Path:
    """Write the live view of a tape as one page that needs no kernel and no network. Returns the path.

    cells     (array, index) of the ledgers to store, as for `tape.ledger`; by default the first ones of each leaf.
    threads   (launch, thread) of the microscopes to store; by default the first thread of the first launches.
    against   another pass over this one, as for `tape.show`. findings: of somebody else, which come first.
    film      True, points, or the arguments of `tape.film` by name: the film above the lanes.
    Raises GradientError or LaunchError for a cell or a thread that does not exist.
    """
    path = Path(path)
    view = view_of(tape, wrong, against, findings, film)
    try:
        path.write_text(_Page(view, cells, threads).text(), "utf-8")
    finally:
        view.close()
    return path


class _Page:
    def __init__(self, view: View, cells: Iterable[CellChoice] | None, threads: Iterable[ThreadChoice] | None):
        self.view, self.tape = view, view.tape
        self.answers: dict[str, dict[str, Any]] = {}
        self.blobs: list[bytes] = []
        self.size = 0
        self.strict = False
        self.chosen: dict[int, list[int]] = {}
        self.leads: list[tuple[int, tuple[int, ...]]] = []  # threads that findings are about
        with memory.LOCK, ProgressBar(5, "page") as bar:
            for work in (self.levels, self.findings, self.all_heats, self.all_ledgers, self.all_microscopes):
                bar.say(work.__name__.removeprefix("all_"))
                work(*{self.all_ledgers: (cells,), self.all_microscopes: (threads,)}.get(work, ()))
                bar.update()

    def levels(self) -> None:
        self.view.answer({"ask": "levels"})

    def all_heats(self) -> None:
        arrays = self.view.arrays
        touching = {} if self.view.moments is None else self.view.moments.touching
        self.moments = [touching.get(a.allocation, []) for a in arrays]  # before each event that touches the array
        wanted = self.some_heats()
        if self.view.moments is not None:
            every = [(arrays[k], frame_of(full_shape(arrays[k])), moments) for k, moments in wanted.items()]
            with contextlib.suppress(GradientError):
                self.view.moments.take([one for one in every if is_float(one[0].dtype)])
        pairs = ((arrays[k].allocation, (moment, k)) for k, moments in wanted.items() for moment in moments)
        for asked in grouped(pairs).values():
            for moment, k in sorted(asked, reverse=True):  # from the right: no walk is done twice
                if self.size < HEATS:
                    self.keep(f"heat {k} {moment}", {"ask": "heat", "array": k, "cursor": moment, "element": []})

    def all_ledgers(self, cells: Iterable[CellChoice] | None) -> None:
        self.strict = cells is not None
        wanted = [self.stops(a, index) for a, index in (self.some_cells() if cells is None else cells)]
        if cells is None:
            wanted = self.affordable(wanted)
        if self.view.wrong is None and wanted:
            arrays, end = self.view.arrays, len(self.tape.events)
            with contextlib.suppress(GradientError):
                asked = [(arrays[k], at, [n for n in moments if n < end]) for k, at, moments in wanted]
                for (k, at, _), found in zip(wanted, ledgers(self.tape, asked), strict=True):
                    for n, one in found.items():
                        if isinstance(one, Ledger):
                            said = self.view.ledger_answer(arrays[k], one, n)
                            self.known({"ask": "ledger", "array": k, "element": at, "cursor": n}, said)
        for k, at, moments in wanted:
            for n in moments:
                key = f"ledger {k} {' '.join(map(str, at))} {n}"
                self.keep(key, {"ask": "ledger", "array": k, "element": at, "cursor": n})

    def all_microscopes(self, threads: Iterable[ThreadChoice] | None) -> None:
        wanted = self.some_threads() if threads is None else list(threads)
        every = [*self.leads, *wanted]
        if self.view.wrong is None:
            with contextlib.suppress(GradientError, LaunchError):
                for (launch, thread), found in zip(every, microscopes(self.tape, every), strict=True):
                    n, at = self.place(launch, thread)
                    self.known({"ask": "microscope", "launch": n, "thread": at}, (found.to_json(), []))
        for k, (launch, thread) in enumerate(every):
            self.strict = threads is not None and k >= len(self.leads)
            self.microscope(launch, thread)

    def known(self, asked: dict[str, Any], found: tuple[Any, list[bytes]]) -> None:
        """Give the view an answer that was made together with others."""
        self.view.answers.put(self.view.answers.key(asked, self.view.answers.seeds), found)

    def keep(self, key: str, asked: dict[str, Any]) -> None:
        """Ask the view, and store its answer. What the user did not choose may fail silently."""
        try:
            found, blobs = View.answer(self.view, asked)  # by events, not by columns
        except Exception:
            if self.strict:
                raise
            return
        self.answers[key] = {"ok": found, "buffers": [self.store(blob) for blob in blobs]}

    def findings(self) -> None:
        """Store the findings, and note the microscopes that they lead to. Nothing can be run again here."""
        self.keep("findings", {"ask": "findings"})
        found = self.answers.get("findings", {"ok": {"rows": []}})["ok"]
        found["again"] = found["partial"] = False
        if len(self.tape.events) <= SOON:
            self.keep("trust", {"ask": "trust"})
        followed = self.answers.get("trust", {"ok": {"rows": []}})["ok"]["rows"]
        for row in (*followed, *found["rows"][:THREADS]):
            n = row["position"]
            if n >= 0 and self.tape.events[n].command is not None:
                at = row["thread"] or tuple(0 for _ in self.tape.events[n].command.plan.form.dims)
                self.leads.append((n, tuple(at)))

    def store(self, blob: bytes) -> list[int]:
        at = [self.size, len(blob)]
        self.blobs.append(blob)
        self.size += len(blob)
        return at

    # ---- answers

    def some_heats(self) -> dict[int, list[int]]:
        """Per array the moments whose heat-maps are stored: all, or as many of each as there is room for, evenly."""
        arrays, end = self.view.arrays, len(self.tape.events)
        first = sorted(range(len(arrays)), key=lambda k: (not arrays[k].allocation.asked, len(self.moments[k])))
        found, room = {}, MAPS
        for n, k in enumerate(first):
            share, moments = max(room // (len(first) - n), 2), self.moments[k]
            if len(moments) + 1 > share:
                moments = [moments[round(i * (len(moments) - 1) / max(share - 2, 1))] for i in range(share - 1)]
            found[k] = [*dict.fromkeys(moments), end]
            room -= len(found[k])
            if room < 2:
                break
        for k, moment in self.led_to():
            found[k] = sorted({*found.get(k, ()), moment})
        return found

    def led_to(self) -> Iterator[tuple[int, int]]:
        """Yields (number of an array, moment) for the heat-maps that findings point at."""
        lanes = [listed[1] for listed in self.view.meta["arrays"]]
        for row in self.answers.get("findings", {"ok": {"rows": []}})["ok"]["rows"][:THREADS]:
            at = row["position"] + (row["phase"] != "reverse")
            for k in (k for k, lane in enumerate(lanes) if lane in row["lanes"]):
                yield k, next((m for m in self.moments[k] if m >= at), len(self.tape.events))

    def some_cells(self) -> list[tuple[Any, tuple[int, ...]]]:
        leaves = [a for a in self.view.arrays if a.allocation.asked] or self.view.arrays
        each = max(CELLS // max(len(leaves), 1), 1)
        return [(a, index) for a in leaves[:CELLS] for index in islice(np.ndindex(full_shape(a)), each)]

    def stops(self, a: array, index: int | Sequence[int]) -> tuple[int, tuple[int, ...], list[int]]:
        """The (array, index, moments) of the ledgers of a cell."""
        k = self.view.number_of(a)
        at = tuple(int(i) for i in index) if isinstance(index, Sequence) else (int(index),)
        moments = self.moments[k] if self.strict or len(self.moments[k]) <= STOPS else self.moments[k][:1]
        return k, at, [*moments, len(self.tape.events)]

    def affordable(self, wanted: list[tuple[int, tuple[int, ...], list[int]]]) -> list:
        """The first cells of each array in turn, within a budget of work; one at least."""
        nth = [sum(one[0] == other[0] for other in wanted[:n]) for n, one in enumerate(wanted)]
        found, room = [], RUNS
        for one in (wanted[n] for n in sorted(range(len(wanted)), key=nth.__getitem__)):
            room -= len(self.moments[one[0]]) * (1 + self.view.arrays[one[0]].allocation.nbytes // (1 << 16))
            if room < 0 and found:
                break
            found.append(one)
        return found

    def some_threads(self) -> list[tuple[int, tuple[int, ...]]]:
        """The first thread of the first launch of each kernel, then of the first launches."""
        launches = [n for n, e in enumerate(self.tape.events) if e.command is not None]
        kernels = {self.tape.events[n].command.program: n for n in reversed(launches)}
        chosen = [*dict.fromkeys([*sorted(kernels.values()), *launches[:THREADS]])][:THREADS]
        return [(n, tuple(0 for _ in self.tape.events[n].command.plan.form.dims)) for n in chosen]

    def place(self, launch: Event | int, thread: ThreadIndex) -> tuple[int, tuple[int, ...]]:
        n = launch if isinstance(launch, int) else self.tape.events.index(launch)
        return n, tuple(int(i) for i in thread) if isinstance(thread, Sequence) else (int(thread),)

    def microscope(self, launch: Event | int, thread: ThreadIndex) -> None:
        n, at = self.place(launch, thread)
        self.chosen.setdefault(n, list(at))
        self.keep(f"microscope {n} {' '.join(map(str, at))}", {"ask": "microscope", "launch": n, "thread": at})

    def left_out(self) -> str:
        """A sentence on what the page cannot answer."""
        told = {name: sum(key.startswith(name) for key in self.answers) for name in ("heat ", "ledger ", "microscope ")}
        every = sum(len(moments) + 1 for moments in self.moments)
        launches = sum(event.command is not None for event in self.tape.events)
        return (
            f"This page needs no kernel. It has {told['heat ']} of {every} heat-maps, {told['ledger ']} ledgers, and"
            f" microscopes of {told['microscope ']} threads, of {launches} launches; a notebook answers the rest:"
            " tape.explore()."
        )

    # ---- the page

    def text(self) -> str:
        names = "meta levels_meta other_meta cursor array element launch thread warning status walks".split()
        view, count = self.view, self.view.meta["count"]
        state: dict[str, Any] = {name: getattr(self.view, name) for name in names}
        state |= {"ready": False, "chosen": {view.column_of(n): at for n, at in self.chosen.items()}}
        for row in self.answers.get("findings", {"ok": {"rows": []}})["ok"]["rows"]:
            row["position"] = view.column_of(row["position"]) if row["position"] >= 0 else -1
        blobs = ["columns", "levels", *(["other"] if self.view.other_meta else []), *self.view.buffers]
        if isinstance(self.view, FilmView):
            state["film_meta"] = {**self.view.film_meta, "what_if": None}
        for name in blobs:
            state[name] = self.store(getattr(self.view, name))
        page = {"state": state, "blobs": blobs, "answers": self.answers, "moments": self.moments, "missing": MISSING}
        end = page["end"] = len(self.tape.events)
        if count != end:  # some columns are of another tape
            events = [view.event_of(k) for k in range(count + 1)]
            page["events"] = [[n, n if view.column_of(n) == k else -1] for k, n in enumerate(events)]
        said = json.dumps(page).encode("utf-8")
        data, css = len(said).to_bytes(4, "little") + said + b"".join(self.blobs), style(*view.styles)
        titles = view.meta["title"], view.meta["sentence"]
        return html_page(*titles, css, data, module("offline.js"), self.left_out(), view.scripts)
