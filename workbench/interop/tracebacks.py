"""Tracebacks of refusals end at the user's line: frames of the workbench behind it are cut off where one is shown.

Cut is when somebody shows the error: in `sys.excepthook`, in IPython's shell (notebooks too) and in pytest's reports.
So nothing is done on the way of a call that succeeds. Errors that are no refusals keep all frames, and so does every
error with `config.full_traceback = True`.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from types import TracebackType

from ..config import config
from ..errors import PACKAGE, KernelError, WorkbenchError

_PASSED = (PACKAGE, contextlib.__file__, functools.__file__)


def shorten(error: BaseException | None) -> None:
    """Cut the frames behind the last one of the user off the traceback of a refusal, in place."""
    if config.full_traceback or not isinstance(error, WorkbenchError | KernelError):
        return
    last, step = None, error.__traceback__
    while step is not None:
        if not step.tb_frame.f_code.co_filename.startswith(_PASSED):
            last = step
        step = step.tb_next
    if last is not None:
        last.tb_next = None


def install() -> None:
    """Make Python, and the shell of IPython if there is one, shorten what they show."""
    hook = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        shorten(error)
        hook(kind, error, traceback)

    sys.excepthook = excepthook
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None:
        return
    show = shell.showtraceback

    def showtraceback(
        exc_tuple: tuple[type[BaseException], BaseException, TracebackType] | None = None,
        *args: object,
        **named: object,
    ) -> object:
        shorten(sys.exc_info()[1] if exc_tuple is None else exc_tuple[1])
        return show(exc_tuple, *args, **named)

    shell.showtraceback = showtraceback
