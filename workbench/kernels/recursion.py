"""Room for programs that are nested deeply: Python's limit of recursion is higher while one of them is worked on."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

CALLS = 25_000  # of a sum of three thousand terms, which is as many as Python itself takes in one line
_lock = threading.Lock()
_limits: list[int] = []  # that the calls under way have found, of all threads; only the first is the user's


def recursive(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: the function may call itself as deeply as the programs that Python accepts are nested.

    The limit is that of all threads: it is put back when the last of them leaves.
    """

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with _lock:
            _limits.append(sys.getrecursionlimit())
            sys.setrecursionlimit(max(_limits[0], CALLS))
        try:
            return function(*args, **kwargs)
        finally:
            with _lock:
                found = _limits.pop()
                if not _limits:
                    sys.setrecursionlimit(found)

    return run
