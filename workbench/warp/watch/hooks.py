"""Hooks on Warp's functions, whose code objects are exchanged while a watch is on, and the program's call behind one.

The function objects stay, so `from warp import launch`, taken before, is hooked too. Calls made inside a hooked call
are part of it: `assign` copies, `clone` copies, `Tape.backward` launches.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from types import FrameType, FunctionType
from typing import Any

from ...errors import GradientError, Where
from ...tapes.events import place_of

_OURS = {__name__.partition(".")[0], "warp"}

Theirs = functools.partial[Any]  # a call of Warp as the program has made it; `func` is Warp's own function
Handler = Callable[..., Any]  # of such a call, and its arguments


@functools.cache
def is_between(module: str) -> bool:
    """True if a module lies between the user's program and us: workbench or Warp, but not its examples."""
    return module.partition(".")[0] in _OURS and not module.startswith("warp.examples")


def caller() -> Any:
    """The frame of the user's program, or of a library on Warp, that called a function of Warp."""
    frame: FrameType = sys._getframe(1)
    while frame.f_back is not None and is_between(frame.f_globals.get("__name__") or ""):
        frame = frame.f_back
    return frame


def is_installed(file: str) -> bool:
    """True for a file of an installed package: not the user's to change."""
    return "-packages" in file


def call_of_program(frame: FrameType) -> Where:
    """The line of the user's program from which a frame of an installed library was called."""
    while frame.f_back is not None and is_installed(frame.f_code.co_filename):
        frame = frame.f_back
    return place_of((frame.f_code, frame.f_lasti))


def first_line(error: BaseException) -> str:
    """The first line of an error's message."""
    what = str(getattr(error, "what", None) or error or type(error).__name__)
    return what.splitlines()[0]


def _through(*args: object, **kwargs: object) -> Any:
    handler: Any = "handler"
    return handler(*args, **kwargs)


def _original(function: FunctionType) -> FunctionType:
    """A copy of a function with its present code, to call the original after the exchange."""
    own = function.__globals__, function.__name__, function.__defaults__, function.__closure__
    made = FunctionType(function.__code__, *own)
    made.__kwdefaults__ = function.__kwdefaults__
    made.__annotations__ = function.__annotations__
    return made


class Hooks:
    """Functions whose calls go to handlers, from `put` to `restore`.

    inside   True while a call of Warp runs: what that calls is part of it, and goes to no handler.
    unheard  is told of calls in other threads.
    """

    def __init__(self, inside: Callable[[], bool], unheard: Callable[[str], None]) -> None:
        self.kept: list[tuple[Any, Any, Any, Any]] = []
        self.inside, self.unheard = inside, unheard
        self.thread = threading.get_ident()

    def put(self, function: FunctionType, handler: Handler, always: bool = False) -> None:
        """Turn calls of `function` into `handler(theirs, *args, **kwargs)`. `always`: inside calls of Warp too."""
        original = _original(function)
        thread = self.thread

        def heard(*args: object, **kwargs: object) -> Any:
            if threading.get_ident() != thread:
                self.unheard(original.__name__)
                return original(*args, **kwargs)
            if self.inside() and not always:
                return original(*args, **kwargs)
            return handler(functools.partial(original, *args, **kwargs), *args, **kwargs)

        code = _through.__code__
        consts = tuple(heard if c == "handler" else c for c in code.co_consts)
        self.kept.append((function, function.__code__, function.__defaults__, function.__kwdefaults__))
        function.__code__ = code.replace(co_consts=consts, co_name=function.__name__)
        function.__defaults__ = function.__kwdefaults__ = None

    def restore(self) -> None:
        """Give every function its own code back."""
        while self.kept:
            function, code, defaults, keywords = self.kept.pop()
            function.__code__, function.__defaults__, function.__kwdefaults__ = code, defaults, keywords


def refuse_walks(tape: Any, name: str) -> None:
    """Make the watch's tape refuse all walks from now on: another thread has called Warp, which is not followed."""
    if not tape.needed.conflicts:
        text = f"`{name}` of Warp was called in another thread during the watch"
        why = "What it computed is not followed, so a gradient through it would be lost."
        instead = "all calls of Warp in the thread that has opened the watch"
        error = GradientError(text, slug="watch-thread", why=why, instead=instead)
        tape.needed.conflicts.append(error)
