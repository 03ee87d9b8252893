"""The live view as one file: the same module and columns, and answers worked out before, inside a page of its own.

One idea: a question of the page is the key of its answer, so the page works as with a kernel wherever an answer was
stored. Heat-maps are stored for every moment at which their array changes; ledgers and microscopes for chosen cells and
threads. The page asks no network and runs from a disk; names and values lie in it as data, never as markup.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...arrays import allocation as memory
from ...tapes.tape import Tape
from ..data.snapshot import full_shape
from ..picture.svg import quoted
from .view import SCRIPTS, View, module, style

CELLS = 48  # ledgers that are stored where nobody chooses
THREADS = 48  # microscopes
STOPS = 12  # moments of a ledger where nobody chooses
HEATS = 1 << 24  # bytes of heat-maps
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'">
<title>{title}</title><style>:root{{color-scheme:light dark}}body{{margin:16px;background:Canvas}}
{css}</style></head>
<body><main id="view"><h1 class="wb-title" style="position:absolute;clip-path:inset(50%)">{title}</h1></main>
<noscript>{sentence}</noscript>
<script type="application/octet-stream" id="data">{data}</script>
<script type="module">
{module}
{start}
</script></body></html>
"""
START = """
const packed = Uint8Array.from(atob(document.getElementById("data").textContent), (c) => c.charCodeAt(0));
const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
const whole = await new Response(stream).arrayBuffer();
const length = new DataView(whole).getUint32(0, true);
const page = JSON.parse(new TextDecoder().decode(new Uint8Array(whole, 4, length)));
const blob = ([at, size]) => new DataView(whole.slice(4 + length + at, 4 + length + at + size));
const state = page.state;
for (const name of page.blobs) state[name] = blob(state[name]);
const answer = async (content) => {
  const found = page.answers[keyOf(content, page.moments)];
  return found ? { ok: found.ok, buffers: found.buffers.map(blob) } : { error: page.missing[content.ask] };
};
const keyOf = (content, moments) => {
  const { ask, array, element, launch, thread } = content;
  const moment = moments[array]?.find((m) => m >= content.cursor) ?? state.meta.count;
  if (ask === "heat") return `heat ${array} ${moment}`;
  if (ask === "ledger") return `ledger ${array} ${element.join(" ")} ${moment}`;
  return ask === "microscope" ? `microscope ${launch} ${thread.join(" ")}` : ask;
};
explorer(offlineModel(state, answer), document.getElementById("view"), new AbortController().signal);
"""
MISSING = {
    "heat": "This page has no numbers of that array: they were too many. A notebook shows them: tape.explore().",
    "ledger": "This page has no ledger of that cell at that moment: to_html(path, cells=[(x, index)]) puts one in.",
    "microscope": "This page has no microscope of that thread: to_html(path, threads=[(launch, thread)]) puts one in.",
    "findings": "",
    "levels": "",
}


def to_html(
    tape: Tape, path: str | Path, cells: Iterable[tuple[Any, Any]] | None = None,
    threads: Iterable[tuple[Any, Any]] | None = None, wrong: Any = None,
) -> Path:  # fmt: skip
    """Write the live view of a tape as one page that needs no kernel and no network. Returns the path.

    cells     (array, index) of the ledgers to store, as for `tape.ledger`; by default the first ones of each leaf.
    threads   (launch, thread) of the microscopes to store; by default the first thread of the first launches.
    Raises GradientError or LaunchError for a cell or a thread that does not exist.
    """
    path = Path(path)
    view = View(tape, wrong)
    try:
        path.write_text(_Page(view, cells, threads).text(), "utf-8")
    finally:
        view.close()
    return path


class _Page:
    def __init__(self, view: View, cells: Any, threads: Any):
        self.view, self.tape = view, view.tape
        self.answers: dict[str, dict[str, Any]] = {}
        self.blobs: list[bytes] = []
        self.size = 0
        self.strict = False
        self.chosen: dict[int, list[int]] = {}
        with memory.LOCK:
            view.answer({"ask": "levels"})
            self.findings()
            self.moments = [self.changes(k) for k in range(len(view.arrays))]
            for k in self.by_size():
                self.heats(k)
            self.strict = cells is not None
            for a, index in self.some_cells() if cells is None else cells:
                self.ledgers(a, index)
            self.strict = threads is not None
            for launch, thread in self.some_threads() if threads is None else threads:
                self.microscope(launch, thread)

    def keep(self, key: str, asked: dict[str, Any]) -> None:
        """Ask the view, and store what it says. What the user did not choose may be refused in silence."""
        try:
            found, blobs = self.view.answer(asked)
        except Exception:
            if self.strict:
                raise
            return
        self.answers[key] = {"ok": found, "buffers": [self.store(blob) for blob in blobs]}

    def findings(self) -> None:
        """What is wrong, and the microscopes that it leads to. Nothing can be run again here."""
        self.keep("findings", {"ask": "findings"})
        found = self.answers.get("findings", {"ok": {"rows": []}})["ok"]
        found["again"] = found["partial"] = False
        for row in found["rows"][:THREADS]:
            n = row["position"]
            if n >= 0 and self.tape.events[n].command is not None:
                at = row["thread"] or tuple(0 for _ in self.tape.events[n].command.plan.form.dims)
                self.microscope(n, at)

    def store(self, blob: bytes) -> list[int]:
        at = [self.size, len(blob)]
        self.blobs.append(blob)
        self.size += len(blob)
        return at

    # ---- answers

    def changes(self, k: int) -> list[int]:
        """The moments at which an array, or its adjoint, differs from the next: before each event that touches it."""
        a = self.view.arrays[k].allocation
        return [n for n, e in enumerate(self.tape.events) if any(s.allocation is a for s in (*e.reads, *e.writes))]

    def by_size(self) -> list[int]:
        arrays = self.view.arrays
        return sorted(range(len(arrays)), key=lambda k: arrays[k].size * (len(self.moments[k]) + 1))

    def heats(self, k: int) -> None:
        for moment in [len(self.tape.events), *reversed(self.moments[k])]:  # from the right: no walk is done twice
            if self.size < HEATS:
                self.keep(f"heat {k} {moment}", {"ask": "heat", "array": k, "cursor": moment, "element": []})

    def some_cells(self) -> list[tuple[Any, tuple[int, ...]]]:
        leaves = [a for a in self.view.arrays if a.allocation.asked] or self.view.arrays
        each = max(CELLS // max(len(leaves), 1), 1)
        return [
            (a, tuple(int(i) for i in index))
            for a in leaves[:CELLS]
            for index in [*np.ndindex(full_shape(a))][:each]
        ]  # fmt: skip

    def ledgers(self, a: Any, index: Any) -> None:
        k = self.view.number_of(a)
        at = tuple(int(i) for i in index) if isinstance(index, Sequence) else (int(index),)
        stops = self.moments[k] if self.strict or len(self.moments[k]) <= STOPS else self.moments[k][:1]
        for cursor in (*stops, len(self.tape.events)):
            key = f"ledger {k} {' '.join(map(str, at))} {cursor}"
            self.keep(key, {"ask": "ledger", "array": k, "element": at, "cursor": cursor})

    def some_threads(self) -> list[tuple[int, tuple[int, ...]]]:
        launches = [n for n, e in enumerate(self.tape.events) if e.command is not None][:THREADS]
        return [(n, tuple(0 for _ in self.tape.events[n].command.plan.form.dims)) for n in launches]

    def microscope(self, launch: Any, thread: Any) -> None:
        n = launch if isinstance(launch, int) else self.tape.events.index(launch)
        at = tuple(int(i) for i in thread) if isinstance(thread, Sequence) else (int(thread),)
        self.chosen.setdefault(n, list(at))
        self.keep(f"microscope {n} {' '.join(map(str, at))}", {"ask": "microscope", "launch": n, "thread": at})

    # ---- the page

    def text(self) -> str:
        names = ("meta", "levels_meta", "cursor", "array", "element", "launch", "thread", "warning", "status", "walks")
        state: dict[str, Any] = {name: getattr(self.view, name) for name in names}
        state |= {"kind": "view", "other_meta": {}, "ready": False, "chosen": self.chosen}
        for name in ("columns", "levels"):
            state[name] = self.store(getattr(self.view, name))
        page = {
            "state": state, "blobs": ["columns", "levels"], "answers": self.answers, "moments": self.moments,
            "missing": MISSING,
        }  # fmt: skip
        said = json.dumps(page).encode("utf-8")
        packed = zlib.compress(len(said).to_bytes(4, "little") + said + b"".join(self.blobs), 6)
        title = quoted(self.view.meta["title"])
        return PAGE.format(
            title=title, css=style("view.css"), sentence=quoted(self.view.meta["sentence"]),
            data=base64.b64encode(packed).decode("ascii"), start=START,
            module=module(*SCRIPTS).replace("</", "<\\/"),
        )  # fmt: skip
