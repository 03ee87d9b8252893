"""The one place through which every pass runs: it has a name, and what it made is shown to whoever wants to look."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

from ...config import config
from .. import show
from ..ir import Function

P = ParamSpec("P")
R = TypeVar("R")

_kept: ContextVar[list[tuple[str, str]] | None] = ContextVar("kept", default=None)


def named_pass(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator of a pass. What it returns is a function, several, a record with functions among its fields, or None.

    They are handed to `config.check_passes`, if there is such a check.
    """

    def decorate(make: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(make)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            made, kept = make(*args, **kwargs), _kept.get()
            for function in functions_of(made):
                if config.check_passes is not None:
                    config.check_passes(function, name)
                if kept is not None and (text := show.text(function)) not in [before for _, before in kept]:
                    kept.append((name, text))
            return made

        vars(run)["pass_name"] = name
        return run

    return decorate


def functions_of(made: object) -> list[Function]:
    """The programs that a pass returned."""
    found = made if isinstance(made, tuple) else (made, *vars(made).values()) if made is not None else ()
    return [f for f in found if isinstance(f, Function)]


@contextmanager
def kept_passes() -> Iterator[list[tuple[str, str]]]:
    """A list to which every pass that runs meanwhile adds its name and the text of what it made, if that is new."""
    kept: list[tuple[str, str]] = []
    token = _kept.set(kept)
    try:
        yield kept
    finally:
        _kept.reset(token)
