"""The seeding panel, `tape.seeds(y)`: widgets around `Seeds`, the engine. One output element at a time, row by row.

JupyterLab runs callbacks in a thread of their own while a cell runs: each waits for the lock for 50 ms at most, else it
says "busy: recording" and is done when the lock is free. Long work runs in a worker thread and can be stopped.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

import ipywidgets as widgets
import numpy as np
import traitlets

from ...arrays import allocation
from ...arrays.array import array, read_values
from ...display import png
from ...kernels.compile.platform import in_background
from ...kernels.types import Scalar
from ...tapes.tape import Tape
from ..data.seed_runs import KINDS, SeedRun, Seeds, cell_name
from ..data.snapshot import SIDE, frame_of, picture
from ..picture.figure import reason
from ..picture.svg import data_uri, quoted
from . import jacobian_html
from .view import SIZE, Busy, Saved, View, Widget, module, quiet_memory, style

FRAME = 0.2  # seconds between pictures while rows are filled
LABELS = {  # of each kind of seed: the text of its button, and a note
    "one-hot": ("one element", "1 at one element: a row of the Jacobian"),
    "ones": ("ones", "the gradient of the sum"),
    "random": ("random", "a random combination of all rows"),
    "half norm": ("½‖y‖²", "the gradient of ½‖y‖²: the seed is y itself"),
}


class Picker(Widget):
    """The heat-map of an array, in which an element is picked by click or keyboard; `picked` is its index."""

    _esm = module("elements.js", "heat.js", "late_messages.js", "seeds.js")
    _css = style("seeds.css")
    label = traitlets.Unicode("").tag(sync=True)
    info = traitlets.Dict().tag(sync=True)
    cells = traitlets.Bytes().tag(sync=True)
    picked = traitlets.List().tag(sync=True)
    ready = traitlets.Bool(False).tag(sync=True)

    def show(self, name: str, values: np.ndarray, index: list[int]) -> None:
        """Show the elements of an array around this one, each as a cell of its own."""
        frame = frame_of(values.shape, index)
        if frame.block != (1, 1):
            places = [index[axis] for axis in frame.axes]
            corner = [n // SIDE * SIDE for n in (divmod(places[0], frame.wrap) if frame.wrap else places)]
            frame = frame_of(values.shape, index, (*corner, SIDE, SIDE))
        info, cells = picture(frame.plane(values, 0), frame)
        with self.hold_sync():
            self.label, self.cells = f"element of {name}", cells.tobytes()
            self.info = {"frame": frame.to_json(), **info}


class SeedPanel(Saved, widgets.VBox):
    """The result of `tape.seeds(y)`. `engine` is the `Seeds` behind it, `run` the seed that is shown."""

    def __init__(self, tape: Tape, y: array | None = None):
        self.engine = Seeds(tape, y)
        self.run: SeedRun | None = None
        self.pinned: SeedRun | None = None
        self.view: View | None = None
        self._quiet = False
        self._wanted: Any = None
        self._worker: threading.Thread | None = None
        self._halt = threading.Event()
        self._make_controls()
        super().__init__(self._arranged())
        self.add_class("wb-seeds")
        self._listen()
        self._asked(self._new_output)

    # ---- controls

    def _make_controls(self) -> None:
        names = list(self.engine.outputs)
        wide = widgets.Layout(width="260px")
        self.output = widgets.Dropdown(options=names, value=self.engine.output, description="output", layout=wide)
        kinds, notes = [(LABELS[k][0], k) for k in KINDS], [LABELS[k][1] for k in KINDS]
        self.kind = widgets.ToggleButtons(options=kinds, style={"button_width": "104px"}, tooltips=notes)
        self.picker = Picker()
        self.element = widgets.IntSlider(0, 0, 0, description="element", continuous_update=False)
        self.number = widgets.BoundedIntText(0, min=0, max=10**6, description="random no.", layout=wide)
        button = functools.partial(widgets.Button, layout=widgets.Layout(width="auto"))
        self.next = button(description="Next element", tooltip="seed the next component without a row")
        self.fill = button(description="Fill all rows", tooltip="one walk for each component", button_style="primary")
        self.stop = button(description="Stop", tooltip="stop filling", disabled=True)
        self.pin = button(description="Pin to compare", tooltip="compare the seeds that follow with this one")
        self.unpin = button(description="Unpin", disabled=True)
        self.progress = widgets.IntProgress(0, 0, 1, description="rows")
        self.measure = widgets.Checkbox(False, description="finite differences", indent=False)
        self.follow = widgets.Checkbox(False, description="how far is it good?", indent=False)
        self.input = widgets.Dropdown(options=list(self.engine.inputs), description="what if", layout=wide)
        self.component = widgets.BoundedIntText(0, min=0, max=0, description="component", layout=wide)
        self.value = widgets.FloatSlider(0.0, description="value", continuous_update=False, readout_format=".4g")
        self.reset = button(description="Reset inputs")
        self.status, self.title = widgets.HTML(), widgets.HTML()
        self.element_says, self.value_says = widgets.HTML(), widgets.HTML()
        self.matrix, self.row, self.curve = widgets.HTML(), widgets.HTML(), widgets.HTML()

    def _arranged(self) -> list[widgets.Widget]:
        def line(*parts: widgets.Widget, align: str = "center") -> widgets.HBox:
            layout = widgets.Layout(flex_flow="row wrap", align_items=align, overflow="visible")
            return widgets.HBox(parts, layout=layout)

        self._number_line = line(self.number)
        left = widgets.VBox([self.picker, line(self.element, self.element_says), self._number_line])
        return [
            self.title,
            line(self.output, self.kind),
            left,
            line(self.next, self.fill, self.stop, self.progress, self.pin, self.unpin, self.measure, self.follow),
            line(self.input, self.component, self.value, self.value_says, self.reset),
            self.status,
            line(self.matrix, self.row, self.curve, align="flex-start"),
        ]

    def _listen(self) -> None:
        def on(widget: widgets.Widget, work: Callable[[], None], trait: str = "value") -> None:
            widget.observe(lambda _: None if self._quiet else self._asked(work), trait)

        on(self.output, self._new_output)
        on(self.kind, self._seed)
        on(self.element, self._pick)
        on(self.number, self._seed)
        on(self.picker, self._picked, "picked")
        on(self.measure, self._measured)
        on(self.follow, self._followed)
        on(self.input, self._slider)
        on(self.component, self._slider)
        on(self.value, self._what_if)
        for button, work in (
            (self.next, self._next),
            (self.fill, lambda: self._start(self._all_rows)),
            (self.pin, lambda: self._pin(self.run)),
            (self.unpin, lambda: self._pin(None)),
            (self.reset, self._reset),
        ):
            button.on_click(lambda _, work=work: self._asked(work))
        self.stop.on_click(lambda _: self._halt.set())

    def _set(self, widget: widgets.Widget, **values: Any) -> None:
        """Change a control without triggering its callback."""
        before, self._quiet = self._quiet, True
        try:
            with widget.hold_trait_notifications():
                for name, value in values.items():
                    setattr(widget, name, value)
        finally:
            self._quiet = before

    # ---- how a request is answered

    def _asked(self, work: Callable[[], None]) -> None:
        """Handle a request now, or say why not and handle it as soon as the lock is free."""
        if self.working:
            self._say("busy: filling rows. Stop first.", wrong=True)
            return
        self._wanted = work
        try:
            with quiet_memory():
                self._answer(work)
        except Busy as busy:
            self._say(str(busy), wrong=True)
            in_background(self._later, work)

    def _later(self, work: Callable[[], None]) -> None:
        """Handle the last request that met a busy lock, when it is free."""
        with allocation.LOCK, allocation.unrecorded():
            if self._wanted is work and not self.working:
                self._answer(work)

    def _answer(self, work: Callable[[], None]) -> None:
        self._wanted = None
        try:
            self._say("")
            work()
        except Exception as error:  # a callback has no other place to show it
            self._say(reason(error), wrong=True)

    def _say(self, text: str, wrong: bool = False) -> None:
        cls = "wb-status wb-wrong" if wrong else "wb-status"
        self.status.value = f'<div class="{cls}" role="status" aria-live="polite">{quoted(text)}</div>'

    @property
    def message(self) -> str:
        """The panel's present message, as HTML text."""
        return self.status.value.partition(">")[2].rpartition("<")[0]

    # ---- requests

    def _new_output(self) -> None:
        self.engine.choose(str(self.output.value))
        self.pinned = None
        self._set(self.unpin, disabled=True)
        self._set(self.element, max=max(self.engine.count - 1, 0), value=0)
        self._set(self.picker, picked=self._index(0))
        self._set(self.progress, max=max(self.engine.count, 1), value=0)
        try:
            self._slider()
        except Exception as error:  # a tape that cannot be replayed can still be seeded
            self._set(self.value, disabled=True)
            self._set(self.reset, disabled=True)
            self._say("no what-if, no differences: " + reason(error))
        self._seed()

    def _pick(self) -> None:
        self._set(self.picker, picked=self._index(self.element.value))
        self._set(self.kind, value="one-hot")
        self._seed()

    def _index(self, k: int) -> list[int]:
        """The index of the component with this number."""
        return [int(i) for i in np.unravel_index(k, self.engine.shape)] if self.engine.count else []

    def _picked(self) -> None:
        index, shape = self.picker.picked, self.engine.shape
        if len(index) != len(shape) or not all(0 <= i < n for i, n in zip(index, shape, strict=True)):
            raise IndexError(f"{self.engine.output} has no component {index}")
        self._set(self.element, value=int(np.ravel_multi_index(index, shape)))
        self._pick()

    def _seed(self) -> None:
        self.run = self.engine.run(str(self.kind.value), self.element.value, self.number.value)
        if self.measure.value and not self.engine.columns:
            self._measured()
        self._draw()
        self._followed()

    def _next(self) -> None:
        """Seed the next component that has no row yet."""
        order = [*range(self.element.value + 1, self.engine.count), *range(self.element.value + 1)]
        k = next((k for k in order if k not in self.engine.rows), None)
        if k is None:
            self._say("every component has its row")
            return
        self._set(self.element, value=k)
        self._pick()

    def _pin(self, run: SeedRun | None) -> None:
        self.pinned = run
        self._set(self.unpin, disabled=run is None)
        self._draw()

    def _slider(self) -> None:
        """Set range and value of the slider to the chosen component of the chosen input."""
        values = self.engine.start()[str(self.input.value)].reshape(-1)
        self._set(self.component, max=values.size - 1)
        v = float(values[self.component.value])
        if not np.isfinite(v):
            self._set(self.value, disabled=True)
            return
        reach = max(1.0, 2 * abs(v))
        self._set(self.value, min=v - reach, max=v + reach, value=v, step=reach / 100, disabled=False)
        self._say_value()

    def _say_value(self) -> None:
        """Show the component that the input slider stands for, and its value."""
        said, k = "", self.component.value
        if not self.value.disabled:
            held = self.engine.start()[str(self.input.value)]
            said = f"{cell_name(str(self.input.value), k, held.shape)} = {held.reshape(-1)[k]:.4g}"
        self.value_says.value = _meant(said)

    def _what_if(self) -> None:
        self.engine.set(str(self.input.value), self.component.value, self.value.value)
        self._seed()

    def _reset(self) -> None:
        self.engine.reset()
        self._slider()
        self._seed()

    # ---- long work

    @property
    def working(self) -> bool:
        """True while a worker thread fills rows or measures differences."""
        return self._worker is not None and self._worker.is_alive()

    def wait(self, timeout: float | None = None) -> None:
        """Block until the worker is done."""
        if self._worker is not None and self._worker.is_alive():
            self._worker.join(timeout)

    def _measured(self) -> None:
        if self.measure.value and len(self.engine.columns) < self.engine.measured:
            self._start(self._all_differences)
        else:
            self._draw()

    def _start(self, work: Callable[[], None]) -> None:
        self._halt.clear()
        self.stop.disabled = False
        self._worker = in_background(self._work, work)

    def _work(self, work: Callable[[], None]) -> None:
        try:
            work()
            self._draw()
        except Exception as error:  # as in a callback
            self._say(reason(error), wrong=True)
        finally:
            self.stop.disabled = True

    def _all_rows(self) -> None:
        engine, drawn = self.engine, time.monotonic()
        for run in engine.walk(self.element.value, self._halt.is_set):
            self.progress.value = len(engine.rows)
            if time.monotonic() - drawn > FRAME:
                self.matrix.value = _card("Jacobian", jacobian_html.matrix(engine, run.element))
                drawn = time.monotonic()
        self._say(f"{len(engine.rows)} of {engine.count} rows" + (": stopped" if self._halt.is_set() else ""))

    def _followed(self) -> None:
        """Draw, in the background, the loss along the gradient of the element beside its slope, if that is wanted."""
        self.curve.value = ""
        if self.follow.value and not self.working:
            self._start(self._curve)

    def _curve(self) -> None:
        engine, k = self.engine, self.element.value
        *rest, last = self._index(k)
        one = engine.at(engine.y)[(*rest, slice(last, last + 1))]
        found = engine.tape.trust(one, [engine.at(a) for a in engine.inputs.values()], progress=False)
        picture = f'<img class="wb-curve" alt="{quoted(found.sentence)}" src="{data_uri(png(found.plot().figure))}">'
        self.curve.value = _card(f"{engine.name_of(k)} along its gradient", picture)

    def _all_differences(self) -> None:
        engine = self.engine
        self._set(self.progress, description="differences", max=engine.measured)
        try:
            for column in engine.differences(self._halt.is_set):
                self.progress.value = column + 1
        finally:
            self._set(self.progress, description="rows", max=max(engine.count, 1), value=len(engine.rows))
        less = f" (the first {engine.measured} of {engine.width} components)" if engine.measured < engine.width else ""
        self._say("central differences, two replays a component" + less)

    # ---- pictures

    def _draw(self) -> None:
        engine, run = self.engine, self.run
        if run is None:
            return
        self.progress.value = len(engine.rows)
        self._number_line.layout.display = None if run.kind == "random" else "none"
        values = read_values(engine.at(engine.y)).reshape(engine.shape)
        k = self.element.value
        self.picker.show(engine.output, values, self._index(k))
        self.element_says.value = _meant(f"{engine.name_of(k)} = {values.reshape(-1)[k]:.4g}" if values.size else "")
        self._say_value()
        changed = " · inputs changed" if engine.version and engine.tape is not engine.recorded else ""
        heading = f"Seeding {engine.output} ({' × '.join(map(str, engine.shape)) or '1'}) · seed: {run.label}{changed}"
        self.title.value = f'<div class="wb-title">{quoted(heading)}</div>'
        self.matrix.value = _card("Jacobian", jacobian_html.matrix(engine, run.element))
        pinned = self.pinned
        if pinned is run or (pinned is not None and pinned.row.shape != run.row.shape):
            pinned = None
        less = f", against {pinned.label} (outline)" if pinned is not None else ""
        self.row.value = _card(f"gradient of {run.label}{less}", self._row(run, pinned))
        self._draw_tape(run, pinned)

    def _draw_tape(self, run: SeedRun, pinned: SeedRun | None) -> None:
        """Draw the live view of the seeded tape; there is none where the seeds are float16."""
        engine = self.engine
        scalar = getattr(engine.y.dtype, "scalar", engine.y.dtype)
        if isinstance(scalar, Scalar) and scalar.bits == 16:
            return
        if self.view is None or self.view.tape is not engine.tape:
            self.view = View(engine.tape)
            others = [c for c in self.children if not isinstance(c, View)]
            self.children = (*others, self.view)
        y = engine.at(engine.y)
        minus = {y: array(pinned.seed, dtype=y.dtype)} if pinned is not None else None
        text = run.label if pinned is None else f"{run.label} minus {pinned.label}"
        self.view.set_seeds({y: array(run.seed, dtype=y.dtype)}, minus, text)

    def _row(self, run: SeedRun, pinned: SeedRun | None) -> str:
        measured = self.engine.measure(run) if self.measure.value and run.inputs == self.engine.version else None
        tables = jacobian_html.rows_table(self.engine, run, measured, pinned)
        chart = jacobian_html.bars(self.engine, run, measured, pinned)
        note = '<div class="wb-caption">ticks: central differences</div>' if measured is not None else ""
        return f"{chart}{note}<details><summary>The same as a table</summary>{tables}</details>"

    def still(self) -> tuple[str, str]:
        """The present pictures as text, and as HTML that needs neither kernel nor scripts."""
        parts = [self.title.value, self.matrix.value, self.row.value]
        if self.view is not None:
            parts.append(_card("tape view", self.view.still(SIZE // 2)[1]))
        return repr(self), f'<div class="wb-seeds"><style>{style("seeds.css")}</style>{"".join(parts)}</div>'

    def __repr__(self) -> str:
        label = self.run.label if self.run is not None else "no seed"
        return f"<seeding panel of {self.engine.output}: {label}, {len(self.engine.rows)} of {self.engine.count} rows>"


def _card(title: str, content: str) -> str:
    return f'<div class="wb-card"><div class="wb-title">{quoted(title)}</div>{content}</div>'


def _meant(text: str) -> str:
    """The HTML text beside a slider."""
    return f'<span class="wb-meant">{quoted(text)}</span>'
