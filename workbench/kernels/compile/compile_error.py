"""The error of both compilers, for text that we wrote and they refused."""

from __future__ import annotations


class CompileError(RuntimeError):
    """The compiler refused text that we wrote: a fault of the workbench, never of the user's kernel."""


def refused(text: str, command: str, said: str) -> CompileError:
    """The error for text that a compiler did not take: the text with line numbers, and what was said of it."""
    numbered = "\n".join(f"{i:4d} {line}" for i, line in enumerate(text.splitlines(), 1))
    tail = "\n".join(said.splitlines()[-30:])
    return CompileError(
        f"the compiler refused generated code: a fault of workbench, please report it.\n"
        f"{numbered}\n\n{command}\n{tail}\n[compiler]"
    )
