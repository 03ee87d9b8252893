"""Every error a user sees: the mistake, its line, the reason, the line to write instead, a slug.

`KernelError` is a real `SyntaxError`, so IPython names the cell and draws the caret by itself.
`Where` is the one notion of a place in the user's source; it travels on every IR statement.
"""

from __future__ import annotations

import os
import sys
import warnings
from dataclasses import dataclass
from typing import Any

PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")


@dataclass(frozen=True)
class Where:
    """A place in the user's source. Columns are zero-based; `caller` is set inside an inlined function."""

    file: str
    line: int
    col: int = 0
    end_col: int = 0
    text: str = ""
    function: str = ""
    caller: Where | None = None

    def __str__(self) -> str:
        return f"{shown_file(self.file)}:{self.line}"


_cautions: dict[Any, Any] = {}  # what `warnings` has shown, so that a line is told once


def caution(text: str, where: Where) -> None:
    """Warn about a line of the user's, once; not about lines of installed packages."""
    if "site-packages" not in where.file:
        warnings.warn_explicit(text, UserWarning, where.file, where.line, registry=_cautions)


def shown_file(file: str) -> str:
    """A file as messages and pictures name it, without the machine's own folders where they say nothing.

    A notebook's cell by the number that stands beside it, a file below the current directory from there on, one that
    Python imports from the entry of `sys.path` on (`mujoco_warp/_src/smooth.py`), every other by its path.
    """
    if file.startswith(PACKAGE):
        return "workbench" + file[len(PACKAGE) - 1 :]
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    code_name = getattr(getattr(shell, "compile", None), "format_code_name", None)
    named = code_name(file) if code_name is not None else None
    return named[1] if named else _below(file)


def _below(file: str) -> str:
    """A file from the folder of installed packages on, else from the current directory, else from one in `sys.path`."""
    try:
        here, *others = (os.path.join(os.path.abspath(folder), "") for folder in ("", *sys.path))
    except OSError:  # the current directory was removed
        return file
    others.sort(key=len, reverse=True)
    installed = [folder for folder in others if "-packages" in folder]
    folder = next((folder for folder in (*installed, here, *others) if file.startswith(folder)), "")
    return file[len(folder) :]


def compose(what: str, where: Where | None, why: str, instead: str, slug: str) -> str:
    """Text of a message: every error is composed here."""
    lines = [what.rstrip()]
    if why:
        lines.append(why.rstrip())
    if where is not None and where.text:
        lines.append(f"  {where}: {where.text.strip()}")
    if instead:
        lines.append(f"Write instead:   {instead}")
    lines.append(f"[{slug}]")
    return "\n".join(lines)


def _again(kind, what: str, slug: str, where: Where | None, why: str, instead: str) -> Exception:
    """Rebuild an error that was pickled in another process."""
    return kind(what, slug=slug, where=where, why=why, instead=instead)


class WorkbenchError(Exception):
    """Base of the errors raised on purpose. `slug` is the stable name that docs and tests use."""

    def __init__(self, what: str, *, slug: str, where: Where | None = None, why: str = "", instead: str = ""):
        self.what, self.slug, self.where, self.why, self.instead = what, slug, where, why, instead
        super().__init__(compose(what, where, why, instead, slug))

    def __reduce__(self):
        return _again, (type(self), self.what, self.slug, self.where, self.why, self.instead)


class KernelError(SyntaxError):
    """The kernel's source is refused: raised while a function is read, typed or differentiated.

    >>> @wb.kernel
    ... def odd(x: wb.array[float]):
    ...     i = wb.tid()
    ...     x[i] = [1.0]
    >>> wb.launch(odd, dim=1, inputs=[wb.zeros(1)])
    Traceback (most recent call last):
    ...
    workbench.errors.KernelError: ...
    """

    def __init__(self, what: str, *, slug: str, where: Where | None = None, why: str = "", instead: str = ""):
        self.what, self.slug, self.where, self.why, self.instead = what, slug, where, why, instead
        tail = [part for part in (why, f"Write instead:   {instead}" if instead else "", f"[{slug}]") if part]
        message = "\n".join([what, *tail])
        if where is None:
            super().__init__(message)
        else:
            text = where.text + "\n"
            super().__init__(message, (where.file, where.line, where.col + 1, text, where.line, where.end_col + 1))

    __reduce__ = WorkbenchError.__reduce__

    def __str__(self) -> str:
        # Python's own tracebacks draw the line and the caret; a program that prints the error has only this.
        return compose(self.what, self.where, self.why, self.instead, self.slug)


class LaunchError(WorkbenchError, ValueError):
    """A launch, an array operation or an argument is refused before anything ran.

    >>> wb.zeros(3, dtype="no such type")
    Traceback (most recent call last):
    ...
    workbench.errors.LaunchError: ...
    """


class BoundsError(LaunchError):
    """An index lies outside its array: names line, thread, index and shape.

    >>> @wb.kernel
    ... def shift(x: wb.array[float]):
    ...     i = wb.tid()
    ...     x[i] = x[i + 1]
    >>> wb.launch(shift, dim=3, inputs=[wb.zeros(3)])
    Traceback (most recent call last):
    ...
    workbench.errors.BoundsError: ...
    """


def outside(
    kernel: str, name: str, thread: tuple[int, ...], index: tuple[int, ...], shape: tuple[int, ...], where: Where | None
) -> BoundsError:
    """The BoundsError of a thread that has used an index outside an array, a tile, a vector or a matrix."""
    at: object = thread if len(thread) != 1 else thread[0]
    line = f" at line {where.line}" if where else ""
    if name.startswith("every "):  # the rows of `kernels.reading.handles`
        kind = name.partition(".")[0].removeprefix("every ")
        text = f"Kernel {kernel!r}: thread {at} takes a number{line} that is of no {kind}."
        why, instead = "It is gone, or of something else.", f"{kind.lower()}.id of one that is kept, or 0 for none"
        return BoundsError(text, slug="handle", where=where, why=why, instead=instead)
    used = f"{name}[{', '.join(map(str, index))}]{line}"
    text = f"Kernel {kernel!r}, array {name!r}: thread {at} uses {used}, outside shape {shape}"
    why = f"each index must be at least 0 and less than the extent of {name} along its axis"
    instead = f"an `if` around this line, a launch whose dim fits {name}.shape, or a larger {name}"
    return BoundsError(text, slug="bounds", where=where, why=why, instead=instead)


class GradientError(WorkbenchError, RuntimeError):
    """A gradient cannot be exact, so it is refused.

    >>> x = wb.zeros(2, requires_grad=True)
    >>> with wb.Tape() as tape:
    ...     y = wb.clone(x)
    >>> tape.backward(y)  # a loss has one element
    Traceback (most recent call last):
    ...
    workbench.errors.GradientError: ...
    """
