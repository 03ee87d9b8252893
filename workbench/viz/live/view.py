"""The live tape view, `tape.explore()`: a widget that draws the columns of a trace, and answers what the page asks.

Zoom, pan, folding, search and the table need no kernel: the page has every column. Heat-maps, ledger, microscope and
findings are asked for by messages `{id, ask, ...}` and answered `{id, ok}` or `{id, error}`. JupyterLab delivers these
in a thread of its own while a cell runs: each answer takes the lock for 50 ms at most, else it says "busy" and the page
asks again; whatever goes wrong becomes text in the view. Invariant: no gradient, no tape and no array changes.
"""

from __future__ import annotations

import base64
import json
import re
import threading
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from ...arrays import allocation as memory
from ...arrays.array import array
from ...derivatives.pitfalls import Wrong
from ...device import xp
from ...diagnose import Finding
from ...diagnose.flow import trusted
from ...diagnose.walk_record import seeded_number
from ...errors import GradientError
from ...kernels.types import Struct
from ...tapes.events import Event
from ...tapes.tape import Tape
from ..data.columns import Columns
from ..data.event_kinds import excerpt
from ..data.gather import Gather, Levels, no_collector, with_levels
from ..data.headline import PATIENT, SOON, Verdict, followed, telling_threads, verdict
from ..data.marks import THEMES
from ..data.snapshot import Retrace, SeedBytes, TapeMoments, frame_of, full_shape, known_picture, seed_bytes
from ..data.text import clean, clean_lines, json_number
from ..inspect.ledger import cell_of, ledger
from ..inspect.ledger_table import Contribution, Ledger
from ..inspect.microscope import KeptRun, ThreadIndex, microscope
from ..picture.figure import TapeFigure
from ..picture.svg import quoted

SIZE = 280_000  # bytes that a still picture adds to a notebook
MOST = 1 << 25  # bytes of answers that are remembered
# Of one output a saved notebook without a kernel shows the widget, or "model not found", and nothing else. So the still
# picture is an output before that of the widget, and its style sheet hides it as soon as the widget has any element.
STILL = "wb-still"
_CHILD, _WIDGET = ".jp-OutputArea-child", ">.jp-OutputArea-output:not([data-mime-type])>:not(script)"
_PICTURE = f"{_CHILD}:has(>*>.{STILL})"
STYLE = f"{_PICTURE}+{_CHILD}:not(:has({_WIDGET})),{_PICTURE}:has(+{_CHILD}{_WIDGET}){{display:none}}"


class Answers:
    """A bounded cache of answers to the page, which stay valid when the arrays have been reused since."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[Any, list[bytes]]] = {}
        self.size = 0
        self.seeds: Any = None

    def key(self, asked: Mapping[str, Any], seeds: object, exactly: bool = False) -> str:
        """The cache key of a question, `exactly` with its id or without.

        With other seeds than those of the last one, the cache is cleared.
        """
        if seeds is not self.seeds:
            self.known, self.size, self.seeds = {}, 0, seeds
        named = {name: value for name, value in asked.items() if exactly or name != "id"}
        return json.dumps(named, sort_keys=True, default=str)

    def put(self, key: str, found: tuple[Any, list[bytes]]) -> None:
        self.known[key] = found
        self.size += sum(map(len, found[1])) + 500
        while self.size > MOST:
            self.size -= sum(map(len, self.known.pop(next(iter(self.known)))[1])) + 500


class Widget(anywidget.AnyWidget):
    """comm_id  the name of its connection, by which the page finds its own model: see `late_messages.js`."""

    comm_id = traitlets.Unicode("").tag(sync=True)

    def __init__(self, **values: Any):
        own = uuid.uuid4().hex
        super().__init__(model_id=own, comm_id=own, **values)


class Saved:
    """A widget that is displayed with its still picture before it. `still()` gives that as text and HTML."""

    _shown: Any = None

    def still(self) -> tuple[str, str]:
        raise NotImplementedError

    def _ipython_display_(self) -> None:
        from IPython.display import display

        self._shown = display(self._still_output(), raw=True, display_id=True)
        data, metadata = self._live_output() or ({}, {})
        display({**data, "text/plain": "", "text/html": ""}, metadata=metadata, raw=True)

    def _repr_mimebundle_(self, **choices: object) -> Any:
        """The widget, and in the same bundle its still picture, for whoever asks for one bundle."""
        found = self._live_output(**choices)
        if found is None:
            return None
        data, metadata = found
        text, html = self.still()
        return {**data, "text/plain": text, "text/html": html}, metadata

    def _live_output(self, **choices: object) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The data and metadata that the widget displays; None if it has none."""
        found = super()._repr_mimebundle_(**choices)  # type: ignore[misc]  # of the widget class that follows
        return found if found is None or isinstance(found, tuple) else (found, {})

    def _still_output(self) -> dict[str, str]:
        text, html = self.still()
        return {"text/plain": text, "text/html": f'<div class="{STILL}"><style>{STYLE}</style>{html}</div>'}

    def refresh_still(self) -> None:
        """Draw the still picture again where it is displayed."""
        if self._shown is not None:
            self._shown.update(self._still_output(), raw=True)


PATIENCE = 0.05  # seconds that an answer waits for the lock
SHORT = 100  # events up to which the still picture waits for the verdict
EVENTS, ENDS = 5000, 80  # from which the still picture is drawn from the ends and the extremes of the tape; each end
AT_ONCE = 2000  # events up to which the adjoint is walked before the page opens
BUSY = "busy: recording"
REMEMBERED = ("heat", "ledger", "microscope", "trust")  # answers that are given again to whoever asks the same
QUESTIONS = (*REMEMBERED, "findings", "levels", "again")  # each is answered by the method of its name
SCRIPTS = tuple(  # a file imports from those before it
    f"{name}.js"
    for name in (
        "elements heat lanes envelope strips ask late_messages state window families against words range search help "
        "play page heads compose panel_height paint overview table tips keys section heat_panel ledger_panel turns "
        "scope_panel panels legend verdict printed view"
    ).split()
)
PAGE = Path(__file__).with_name("page.html").read_text("utf-8")


class Busy(Exception):
    """Raised when the memory lock is not free: ask again."""


@cache
def module(*names: str) -> str:
    """JavaScript files of this folder as one ES module, without their imports of each other, comments and indents.

    Every widget of a notebook carries a copy of it.
    """
    text = "\n".join(Path(__file__).with_name(name).read_text("utf-8") for name in names)
    text = re.sub(r'^import [^;]*? from "\./[^"]*";$', "", text, flags=re.MULTILINE)
    text = re.sub(r"/\*\* .*?\*/ ?", "", text, flags=re.DOTALL)
    text = re.sub(r" // .*$", "", text, flags=re.MULTILINE)
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


@cache
def style(*names: str) -> str:
    """CSS files, beside this one, as one, with the colours of `marks`; ground and ink follow the theme of the page."""
    text = "\n".join((Path(__file__).parent / name).read_text("utf-8") for name in names)
    for theme, palette in THEMES.items():
        colours = " ".join(f"--wb-{k}: {v};" for k, v in palette.items() if k not in ("ground", "ink"))
        text = text.replace(f"/* {theme} */", colours)
    return text


def html_page(title: str, sentence: str, css: str, data: bytes, start: str, left: str, scripts: Sequence[str]) -> str:
    """A page of its own with these scripts, of which `start` runs last, and data that they read."""
    return PAGE.format(
        title=quoted(title),
        css=css,
        sentence=quoted(sentence),
        data=base64.b64encode(zlib.compress(data, 6)).decode("ascii"),
        start=start,
        left=quoted(left),
        module=module(*scripts).replace("</", "<\\/"),
    )


class NotebookCells:
    """A monitor of running notebook cells, whose code may read memory that a walk changes for a while."""

    def __init__(self) -> None:
        self.running, self.listening = False, False

    def listen(self) -> None:
        try:
            from IPython.core.getipython import get_ipython
        except ImportError:  # a plain Python process: nothing runs beside us
            return
        shell = get_ipython()
        if shell is None or self.listening:
            return
        self.listening = self.running = True
        shell.events.register("pre_run_cell", partial(self._run, True))
        shell.events.register("post_run_cell", partial(self._run, False))

    def _run(self, running: bool, *_: object) -> None:
        self.running = running

    def give_way(self) -> None:
        """Raises `Busy` while a cell runs in the main thread, if the caller is in another one: long work waits."""
        if self.running and threading.current_thread() is not threading.main_thread():
            raise Busy("busy: a cell is running")


cells = NotebookCells()


@contextmanager
def quiet_memory() -> Iterator[None]:
    """Context with the memory lock held and nothing recorded; raises `Busy` if it is not free within 50 ms."""
    if not memory.LOCK.acquire(timeout=PATIENCE):
        raise Busy(BUSY)
    try:
        with memory.unrecorded():
            yield
    finally:
        memory.LOCK.release()


def reply(answer: Callable[[Any], tuple[Any, list[bytes]]], content: Mapping[str, Any]) -> tuple[Any, list[bytes]]:
    """The message, and its buffers, that answers a question of a page."""
    number = {"id": content.get("id")}
    try:
        found, blobs = answer(content)
        return {**number, "ok": found}, blobs
    except Busy as error:
        return {**number, "busy": str(error)}, []
    except Exception as error:  # shown in the view: a callback has nobody else to tell
        return {**number, "error": clean_lines(str(error) or type(error).__name__)}, []


class View(Saved, Widget):
    """The live view of a tape; `wrong`: a pass that is wrong on purpose, to show instead.

    findings  of somebody else, which come first.
    cursor   events from this position on have been reversed: 0 (the whole pass is done) to the number of events.
    array    number in `arrays`, -1 for none; element: index in it, then of the component.
    launch   position in `tape.events`, -1 for none; thread: its index in the grid.
    """

    scripts, styles, buffers = SCRIPTS, ("../picture/marks.css", "view.css"), ()
    _esm = module(*SCRIPTS)
    _css = style(*styles)
    meta = traitlets.Dict().tag(sync=True)
    columns = traitlets.Bytes().tag(sync=True)
    levels_meta = traitlets.Dict().tag(sync=True)
    levels = traitlets.Bytes().tag(sync=True)
    other_meta = traitlets.Dict().tag(sync=True)
    other = traitlets.Bytes().tag(sync=True)
    cursor = traitlets.Int(0).tag(sync=True)
    array = traitlets.Int(-1).tag(sync=True)
    element = traitlets.List().tag(sync=True)
    launch = traitlets.Int(-1).tag(sync=True)
    thread = traitlets.List().tag(sync=True)
    warning = traitlets.Unicode("").tag(sync=True)
    status = traitlets.Unicode("").tag(sync=True)
    walks = traitlets.Int(0).tag(sync=True)
    ready = traitlets.Bool(False).tag(sync=True)

    def __init__(self, tape: Tape, wrong: Wrong | None = None, findings: Sequence[Finding] = ()):
        cells.listen()
        self.tape, self.wrong, self.findings = tape, wrong, findings
        self.arrays: list[array] = []
        self.moments: TapeMoments | None = None
        self._kept: KeptRun | None = None
        self._said: Verdict | None = None
        self.answers, self._events = Answers(), list(tape.events)
        self._grids: dict[tuple[int, ...], int] = {}
        self._parts: dict[str, dict[tuple[int, int], str]] = {}  # by lane and range: its name
        self._found: Levels | None = None
        self._retrace: Retrace | None = None if wrong is None else wrong.retrace
        self._seeds: SeedBytes | None = None if wrong is None else wrong.seeds
        with memory.LOCK, memory.unrecorded(), no_collector():
            self._columns = self._columns_of()
            given = self._level_traits() if len(tape.events) <= AT_ONCE else {}
            lists = self._lists()
            self.moments = self._moments()
        if given and self.arrays:  # what gradients are asked of is looked at first
            given["array"] = next((k for k, a in enumerate(self.arrays) if a.allocation.asked), 0)
        meta, warning = {**self._columns.meta, **lists}, ""
        if wrong is not None:
            meta["title"], warning = clean(wrong.title), f"Wrong on purpose: {clean(wrong.pitfall)}"
        super().__init__(meta=meta, columns=self._columns.data, warning=warning, **given)
        self.on_msg(self._heard)

    # ---- what the page is given

    def _columns_of(self) -> Columns:
        trace = replace(Gather(self.tape).structure(), wrong=self.wrong is not None)
        return Columns(trace, trace.folds, self._grid_numbers())

    def _lists(self) -> dict[str, Any]:
        """The arrays to choose from, and the grids of the launches."""
        seen: dict[Any, Any] = {}
        for a in self.tape.arrays.values():
            if a.size and not isinstance(a.dtype, Struct):
                seen.setdefault((a.span, a.dtype, self._name(a)), a)
        self.arrays = list(seen.values())
        lanes = self._columns.lanes
        listed = [
            [clean(self._name(a)), lanes.get(str(a.allocation), -1), *a.span.hull(), list(full_shape(a)), str(a.dtype)]
            for a in self.arrays
        ]
        return {"arrays": listed, "grids": [list(grid) for grid in self._grids]}

    def _grid_numbers(self) -> list[int]:
        """Per event the number of its grid in `_grids`."""
        numbers, commands = self._grids, [event.command for event in self.tape.events]
        return [-1 if c is None else numbers.setdefault(tuple(c.plan.form.dims), len(numbers)) for c in commands]

    def _name(self, a: array) -> str:
        track = self._columns.trace.allocations[self._columns.lanes[str(a.allocation)]]
        if track.id not in self._parts:
            self._parts[track.id] = {(name.lo, name.hi): name.name for name in reversed(track.names)}
        same = self._parts[track.id].get(a.span.hull(), "")
        return self.tape.names.given(a) or same or a.label

    def _level_traits(self) -> dict[str, Any]:
        self._found = Gather(self.tape, self._retrace, self._seeds).levels()
        meta, data, *_ = self._columns.side(self._found)
        return {"levels_meta": meta, "levels": data}

    # ---- from Python

    def step(self, cursor: int) -> None:
        """Put the cursor before this event."""
        self.cursor = self.column_of(min(max(int(cursor), 0), len(self.tape.events)))

    def column_of(self, event: int) -> int:
        """The column of an event of the tape, by position: the same, but where columns of another tape come between."""
        return event

    def event_of(self, column: int) -> int:
        """The position of the event that a column stands for, or of the next one."""
        return column

    def select(self, a: array | int, index: int | Sequence[int] | None = None) -> None:
        """Look at an array (or its number), and at one element of it (with the component, if it has any)."""
        number = a if isinstance(a, int) else self.number_of(a)
        with self.hold_sync():
            self.element = [] if index is None else _numbers(index)
            self.array = number

    def number_of(self, a: object) -> int:
        """The place of an array among those of the view."""
        found = [n for n, b in enumerate(self.arrays) if b is a]
        found += [n for n, b in enumerate(self.arrays) if isinstance(a, array) and b.span == a.span]
        if not found:
            raise ValueError(f"this tape has not touched {getattr(a, 'label', a)!r}")
        return found[0]

    def look_into(self, launch: Event | int, thread: ThreadIndex = 0) -> None:
        """Open the microscope on a launch (or its position) and a thread."""
        position = launch if isinstance(launch, int) else self.tape.events.index(launch)
        with self.hold_sync():
            self.launch = self.column_of(position)
            self.thread = _numbers(thread)

    def set_seeds(
        self, grads: Mapping[Any, Any] | None = None, minus: Mapping[Any, Any] | None = None, text: str = ""
    ) -> None:
        """Show the reverse pass of these seeds ({array: seed}, as for `backward`), in a workspace of its own.

        minus   other seeds: what is shown is the difference of both passes, which is the pass of the difference.
        Without seeds: those of the last `backward`. Raises GradientError for a seed that does not fit.
        """
        with memory.LOCK, memory.unrecorded():
            self.show_seeds(None if grads is None else seed_bytes(self.tape, grads, minus), text)

    def show_seeds(self, seeds: SeedBytes | None, text: str = "") -> None:
        """Show the reverse pass of these bytes of seeds; of None: of the last `backward`. The caller holds the lock."""
        self._seeds, self.moments = seeds, None
        self._retrace = None if seeds is None else partial(self.tape.retrace, seeds=seeds)
        self._give(self._level_traits(), text)

    def _give(self, traits: dict[str, Any], text: str = "") -> None:
        if text and "levels_meta" in traits:
            traits["levels_meta"] = {**traits["levels_meta"], "seed": clean(text)}
        with self.hold_sync():
            for name, value in traits.items():
                setattr(self, name, value)
            self.walks += 1

    # ---- questions of the page

    def _heard(self, _: object, content: object, buffers: object) -> None:
        if isinstance(content, dict) and "ask" in content:
            self.send(*reply(self.answer, content))

    def answer(self, content: Mapping[str, Any]) -> tuple[Any, list[bytes]]:
        """The answer to one question, and its buffers. Raises `Busy`, or the question's own error."""
        seeds = self.tape.last_seeds if self._seeds is None else self._seeds
        if self.moments is not None and seeds is not self.answers.seeds:
            self.moments.walked.clear()
        # Of the others the same question, by its id, may come again: the page did not hear the answer.
        key = self.answers.key(content, seeds, exactly=content["ask"] not in REMEMBERED)
        if key in self.answers.known:
            return self.answers.known[key]
        with quiet_memory():
            if not self._is_same():
                raise ValueError("the tape has changed since this view was made: tape.explore() makes a new one")
            for device in {a.device for a in self.arrays if a.device.is_cuda}:  # current per thread
                xp(device).cuda.Device(device.ordinal).synchronize()
            if self._retrace is not None and content["ask"] in ("ledger", "microscope"):
                what = f"the {content['ask']} belongs to the seeds of the last backward"
                raise ValueError(f"{what}; this view shows other ones")
            answer = {ask: getattr(self, f"_{ask}") for ask in QUESTIONS}[content["ask"]]
            found = answer(content)
            if content["ask"] in REMEMBERED or "id" in content:
                self.answers.put(key, found)
            return found

    def _is_same(self) -> bool:
        """True if the tape's events are those drawn; later foreign writes to its memory do not count."""
        now, drawn = self.tape.events, self._events
        later = now[len(drawn) :]
        return now[: len(drawn)][-1:] == drawn[-1:] and not any(event.kind.own for event in later)

    def _walks(self) -> TapeMoments:
        """`TapeMoments`, for walks that restore past contents. Raises `Busy` while a cell runs that could see them."""
        if self.moments is None:
            self.moments = self._moments()
        if self.moments.rewinds:
            cells.give_way()
        return self.moments

    def _moments(self) -> TapeMoments:
        """The tape's `TapeMoments`, with present memory copied: made with the view, before memory is reused."""
        found = TapeMoments(self.tape, self._retrace, self._seeds)
        found.hold(self.arrays)
        found.beside = sorted(self.arrays, key=lambda a: not a.allocation.asked)
        return found

    def _heat(self, asked: Mapping[str, Any]) -> tuple[Any, list[bytes]]:
        a = self.arrays[int(asked["array"])]
        cursor = min(max(int(asked["cursor"]), 0), len(self._events))
        frame = frame_of(full_shape(a), asked.get("fixed") or (), asked.get("window") or ())
        moments = self._walks()
        numbers, known, note = (moments if self._kept is None else self._kept).value(a, cursor)
        value, blobs = known_picture(numbers, known, frame)
        try:
            adjoint = moments.adjoint(a, cursor, frame)
        except GradientError as error:  # its memory has been used again: the value is still known
            adjoint, note = None, clean_lines(f"No adjoint: {error}")
        found: dict[str, Any] = {"frame": frame.to_json(), "value": {**value, "note": note}, "adjoint": None}
        if adjoint is not None:
            found["adjoint"], drawn = adjoint
            blobs.append(drawn.tobytes())
        element = tuple(int(i) for i in asked.get("element") or ())
        if element and len(element) == numbers.ndim and all(0 <= i < n for i, n in zip(element, numbers.shape)):
            found["number"] = json_number(float(numbers[element])) if known[element] else None
        return found, blobs

    def _ledger(self, asked: Mapping[str, Any]) -> tuple[Any, list[bytes]]:
        self._walks()
        a, cursor = self.arrays[int(asked["array"])], int(asked["cursor"])
        index = tuple(int(i) for i in asked["element"])
        behind = cursor >= len(self._events)
        found = self._seed_ledger(a, index) if behind else ledger(self.tape, a, index, max(cursor, 0))
        return self.ledger_answer(a, found, cursor)

    def ledger_answer(self, a: array, found: Ledger, cursor: int) -> tuple[Any, list[bytes]]:
        return {**found.to_json(), "cursor": cursor, "array": clean(self._name(a))}, []

    def _seed_ledger(self, a: array, index: tuple[int, ...]) -> Ledger:
        """The ledger at the start of the reverse pass: one row with the seed, or none."""
        if not self.tape.last_seeds:
            raise GradientError("there is no seed before any backward()", slug="no-seed")
        cell = cell_of(self.tape, a, index)
        seed = self.tape.last_seeds.get(cell.allocation)
        value = 0.0 if seed is None else cell.value(seed)
        rows = (Contribution(-1, "seed", "seed", None, None, cell.label, value, value),) if value else ()
        return Ledger(cell.label, cell.index, rows, value, value, 0.0)

    def _microscope(self, asked: Mapping[str, Any]) -> tuple[Any, list[bytes]]:
        self._walks()
        thread = tuple(int(i) for i in asked["thread"])
        look = microscope if self._kept is None else self._kept.microscope
        return look(self.tape, int(asked["launch"]), thread).to_json(), []

    def _findings(self, asked: Mapping[str, Any]) -> tuple[Any, list[bytes]]:
        cells.give_way()
        if self.wrong is not None:
            return {**Verdict(()).to_json(), "again": False}, []
        self._said = found = self._verdict(None if asked.get("all") else PATIENT)
        self.refresh_still()
        said = found.to_json()
        rows = (row for row in found.rows if row.thread is None and row.severity != "info")
        alone = (row.position for row in rows if row.position >= 0)
        telling = telling_threads(self.tape, alone)
        for row in said["rows"]:
            row["thread"] = row["thread"] or telling.get(row["position"])
            row["lanes"] = self._rows_of(row["lanes"])
        return {**said, "again": self._kept is None and any(not row.known for row in found.rows)}, []

    def _verdict(self, limit: int | None) -> Verdict:
        return verdict(self.tape, limit=limit, first=self.findings)

    def _rows_of(self, lanes: Sequence[str]) -> list[int]:
        return [self._columns.lanes[name] for name in lanes if name in self._columns.lanes]

    def _trust(self, asked: Mapping[str, Any]) -> tuple[Any, list[bytes]]:
        """Answer `rows` with the one finding of `tape.trust`, or none; `ask` where it takes long."""
        cells.give_way()
        long = len(self._events) > SOON and not asked.get("all")
        found = None if long or self._retrace is not None else followed(self.tape, self.trust)
        rows = [] if found is None else [{**asdict(found), "lanes": self._rows_of(found.lanes), "spreads": False}]
        return {"rows": rows, "ask": long}, []

    @cached_property
    def trust(self) -> Any:
        """The `Trust` of the number that the last backward was seeded by; None where it cannot be said."""
        return trusted(self.tape, seeded_number(self.tape))

    def _again(self, _: Mapping[str, Any]) -> tuple[Any, list[bytes]]:
        """Rerun the program on copies with everything kept: from now on every value at every moment is known."""
        cells.give_way()
        self._kept = KeptRun(self.tape)
        self.moments, self.answers = None, Answers()
        return {}, []

    def _levels(self, _: Mapping[str, Any]) -> tuple[Any, list[bytes]]:
        if not self.levels_meta:
            self._walks()
            with no_collector():
                self._give(self._level_traits())
            self.refresh_still()
        return {}, []

    # ---- without a kernel

    def still(self, most: int = SIZE) -> tuple[str, str]:
        """The picture of the tape as it was when this view was made, for a saved notebook without a kernel.

        A short tape is judged for it, as by `show`; of a longer one the verdict is there once the page has asked.
        """
        if self._said is None and self.wrong is None and len(self.tape.events) <= SHORT:
            with memory.LOCK, memory.unrecorded():
                self._said = self._verdict(SHORT)
        trace, wrong = self._columns.trace, self.wrong
        trace = trace if self._found is None else with_levels(trace, self._found)
        trace = trace if wrong is None else replace(trace, title=wrong.title, wrong=True)
        shown = excerpt(trace, ENDS) if len(trace.events) > EVENTS else trace
        return TapeFigure(shown, verdict=self._said).within(most)


# ---- small parts


def _numbers(index: int | Sequence[int]) -> list[int]:
    return [int(i) for i in (index if isinstance(index, Sequence) else [index])]
