"""User-visible names of the arrays of a tape: for findings, errors and pictures, never for what is computed.

A variable or attribute that is the array comes first; then a part of one (`x[1:]`), then what the source of the launch
says (`inputs=[self.x, tmp]`), which is all that is left of the variables of a function that has returned.
"""

from __future__ import annotations

import ast
import linecache
import sys
from functools import lru_cache
from types import FrameType

from ..arrays.allocation import Allocation
from ..arrays.array import array
from ..arrays.names import MOST, names_in, part_of, scopes, user_frames, variables
from ..arrays.span import Span
from .event_log import EventLog
from .events import Event, KeptBytes

FEW = 500  # values that a tape looks at when it closes: that is part of every step of a loop
LONGEST = 40  # characters of a call that names what it makes
NEAR = 3  # `model.body[3].f` is three steps from a variable: farther is called by a nearer variable


class TapeNames:
    """The names of the arrays of a tape.

    noted     id of an array -> what the user calls it. guessed: those of them that no variable was seen to be.
    wholes    what has a name in each memory: span -> (name, array).
    calls     id of an array without any name -> the call that made it, where a launch was given that.
    """

    def __init__(self, log: EventLog) -> None:
        self.log = log
        self.clear()

    def clear(self) -> None:
        """Forget all names."""
        self.noted: dict[int, str] = {}
        self.guessed: set[int] = set()
        self.calls: dict[int, str] = {}
        self.wholes: dict[Allocation, dict[Span, tuple[str, array]]] = {}

    def note(self, frame: FrameType | None) -> None:
        """Note names of the arrays of the tape from the variables visible in the calling frames.

        The outermost frame comes first: a script's or a cell's `sim.x` says more than the `x` of a function it called.
        """
        arrays = self.log.arrays
        memories = {a.allocation for a in arrays.values()}
        missing = set(arrays)
        found: dict[int, str] = {}
        for place in reversed(list(user_frames(frame))):
            for label, a in names_in(variables(place), array, MOST, lambda: not missing):
                if a.allocation in memories:
                    self.wholes.setdefault(a.allocation, {}).setdefault(a.span, (label, a))
                    if id(a) in missing:
                        found.setdefault(id(a), label)
                        if label.count(".") + label.count("[") <= NEAR:
                            missing.discard(id(a))
                            found[id(a)] = label
            if not missing:
                break
        self.noted.update(found)
        self.noted.update((i, a.name) for i, a in arrays.items() if a.name)
        self.guessed.difference_update(found)

    def note_near(self, frame: FrameType) -> None:
        """Note names from one frame, when the tape closes, before the variables of that function are gone."""
        missing, found = self.log.arrays.keys() - self.noted.keys(), {}
        if not missing or next(user_frames(frame), None) is not frame:
            return
        for scope in scopes(frame):
            for label, a in names_in(scope, array, FEW, lambda: missing <= found.keys()):
                found.setdefault(id(a), label)
            if missing <= found.keys():
                break
        self.noted.update((i, found[i]) for i in missing & found.keys())

    def guess(self) -> None:
        """Name the arrays that no variable is: by the array they are a part of, or by the line that launched them."""
        sure = self.noted.keys() - self.guessed
        for event in self.log.events:
            texts: list[str] | None = None
            for k, a in enumerate(event.places):
                if id(a) in sure or not isinstance(a, array):
                    continue
                guess = a.name or self._part(a)
                if not guess and event.command is not None and id(a) not in self.noted:
                    texts = argument_texts(event) if texts is None else texts
                    guess = texts[k]
                if "(" in guess:
                    self.calls[id(a)] = guess
                elif guess:
                    self.noted[id(a)] = guess
                    self.guessed.add(id(a))

    def _part(self, a: array) -> str:
        known = self.wholes.get(a.allocation, {})
        label, whole = known.get(a.span, ("", None))
        if whole is None:
            label, whole = next((found for span, found in known.items() if span.contains(a.span)), ("", None))
        return part_of(label, whole, a) if whole is not None else ""

    def near(self, span: Span) -> list[array]:
        """The arrays of the tape that share a byte with a span, those on all of it first."""
        found = [a for a in self.log.arrays.values() if a.span.overlaps(span) is not False]
        return sorted(found, key=lambda a: a.span != span)

    def of(self, a: array, parameter: str = "") -> str:
        """The noted name of an array; else its own `name`, the parameter, or the id of its memory."""
        primal = getattr(a.allocation, "of", None)
        own = self.given(a) or parameter or self.calls.get(id(a), "")
        return own or (f"{self.of_memory(primal)}.grad" if primal else str(a.allocation))

    def given(self, a: array) -> str:
        """The noted name of an array, or its own `name`; "" if it has neither."""
        return self.noted.get(id(a)) or a.name or ""

    def own(self, a: array) -> str:
        """The user's name of this array object; "" if its name is only a guess, as for a temporary view."""
        return a.name or (self.noted.get(id(a), "") if id(a) not in self.guessed else "")

    def of_memory(self, a: Allocation, span: Span | None = None) -> str:
        """The noted user's name of this memory, or of the bytes of a span in it; else its id."""
        near = (x for x in self.log.arrays.values() if x.allocation is a)
        near = (x for x in near if span is None or x.span.overlaps(span) is not False)
        return next((n for x in near if (n := self.given(x))), str(a))

    def called(self, a: array, parameter: str = "") -> str:
        """The name of an array of this tape for messages, searched in the calling frames (slow)."""
        self.note(sys._getframe(1))
        self.guess()
        return self.of(a, parameter)

    def called_by(self, event: Event, position: int) -> str:
        """`called` for the argument of a launch, or the array of another event, at this position."""
        command = event.command
        parameter = command.program.leaves[position].name if command is not None else ""
        return self.called(event.places[position], parameter)

    def reason_of(self, kept: KeptBytes) -> str:
        """Text of the reason why bytes were kept: the adjoints that will read them, and under which names."""
        if kept.said:
            return kept.said
        needs = {f"adjoint of {n.event.label} reads {self.of(n.array, n.name)}" for n in kept.needs}
        return ", ".join(sorted(needs)) or 'keep="all"'


# ---- the source of a launch


def argument_texts(event: Event) -> list[str]:
    """The source text of each flat argument of a launch; "" where that is no name."""
    program, where = event.command.program, event.where
    given: list[str] = []
    if where is not None:
        given = list(_arguments("".join(linecache.getlines(where.file)), where.line, where.col, where.end_col))
    texts = []
    for leaf in program.leaves:
        text = given[leaf.arg] if 0 <= leaf.arg < len(given) else ""
        if leaf.opened is not None:
            text = text.removesuffix(".id")
        texts.append(".".join([text, *leaf.path]) if text else "")
    return texts


@lru_cache(1024)
def _arguments(source: str, line: int, col: int, end_col: int) -> tuple[str, ...]:
    """Source texts of the elements of `inputs` and `outputs` of the launch call at this place."""
    for call in _launches(source):
        if (call.lineno, call.col_offset, call.end_col_offset) == (line, col, end_col):
            lists = dict(zip(("kernel", "dim", "inputs", "outputs"), call.args, strict=False))
            lists |= {k.arg: k.value for k in call.keywords if k.arg}
            return tuple(text for key in ("inputs", "outputs") if key in lists for text in _elements(lists[key]))
    return ()


@lru_cache(16)
def _launches(source: str) -> list[ast.Call]:
    try:
        tree = ast.parse(source)
    except SyntaxError:  # a cell with magics
        return []
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [c for c in calls if getattr(c.func, "attr", getattr(c.func, "id", "")) == "launch"]


def _elements(given: object) -> list[str]:
    if not isinstance(given, ast.List | ast.Tuple) or any(isinstance(e, ast.Starred) for e in given.elts):
        return []
    names = ast.Name | ast.Attribute | ast.Subscript | ast.Call
    texts = (ast.unparse(e).replace(", ", ",") if isinstance(e, names) else "" for e in given.elts)
    return [text if len(text) <= LONGEST else "" for text in texts]
