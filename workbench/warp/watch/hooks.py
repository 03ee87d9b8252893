"""Hooks on Warp's functions: their code objects are exchanged while a watch is on.

The function objects stay, so `from warp import launch`, taken before, is hooked too. Calls made inside a hooked call
are part of it: `assign` copies, `clone` copies, `Tape.backward` launches.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import FunctionType
from typing import Any

from ...errors import GradientError

Handler = Callable[..., Any]  # of the original function and the arguments
Original = Callable[..., Any]  # a function of Warp that a hook replaced


def _through(*args: object, **kwargs: object) -> Any:
    handler: Any = "handler"
    return handler(*args, **kwargs)


def _original(function: FunctionType) -> FunctionType:
    """A copy of a function with its present code, to call the original after the exchange."""
    made = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    made.__kwdefaults__ = function.__kwdefaults__
    made.__annotations__ = function.__annotations__
    return made


class Hooks:
    """Functions whose calls go to handlers, from `put` to `restore`. `unheard` is told of calls in other threads."""

    def __init__(self, unheard: Callable[[str], None]) -> None:
        self.kept: list[tuple[Any, Any, Any, Any]] = []
        self.unheard = unheard
        self.thread = threading.get_ident()

    def put(self, function: FunctionType, handler: Handler) -> None:
        """Turn calls of `function` into `handler(original, *args, **kwargs)`."""
        original = _original(function)
        thread = self.thread

        def heard(*args: object, **kwargs: object) -> Any:
            if threading.get_ident() != thread:
                self.unheard(original.__name__)
                return original(*args, **kwargs)
            return handler(original, *args, **kwargs)

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
