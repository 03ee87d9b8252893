"""`%load_ext workbench`, then `%%tape`: a cell of IPython that is recorded, walked and shown."""

from __future__ import annotations

import argparse
import ast
import shlex
from itertools import takewhile
from typing import Any

from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.display import display

from ...arrays import allocation as memory
from ...arrays.array import array
from ...arrays.scalar import scalar
from ...errors import LaunchError
from ...tapes.tape import Tape

LINE = "%%tape tape --seed loss --explore"


def _options(line: str) -> argparse.Namespace:
    """The options of a line. Raises LaunchError [tape-magic] for one that it does not take."""
    parser = argparse.ArgumentParser("%%tape", add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("name", nargs="?", default="tape")
    parser.add_argument("--seed")
    parser.add_argument("--keep", choices=("needed", "all"), default="needed")
    views = parser.add_mutually_exclusive_group()
    for view in ("explore", "film", "show"):
        views.add_argument(f"--{view}", dest="view", action="store_const", const=view)
    try:
        asked, others = parser.parse_known_args(shlex.split(line))
        if others:
            raise ValueError(f"unrecognized arguments: {' '.join(others)}")
        if not asked.name.isidentifier():
            raise ValueError(f"{asked.name!r} is no name of a variable")
    except (ValueError, argparse.ArgumentError) as error:
        why = "It takes one name, --seed NAME, --keep all, and one of --explore, --film and --show."
        raise LaunchError(f"%%tape: {error}.", slug="tape-magic", why=why, instead=LINE) from None
    return asked


@magics_class
class TapeMagics(Magics):
    """The magics of `%load_ext workbench`."""

    @cell_magic
    def tape(self, line: str, cell: str) -> Any:
        """Record a cell: `%%tape [name] [--seed loss] [--keep all] [--explore | --film | --show]`.

        name     the variable that the tape is, by default `tape`. The cell can use it: `with tape.scope("step"):`.
        --seed   an array of one element: `backward` from it once the cell has run. What its arrays had in `.grad` is
                 cleared before, so that a cell that is run twice leaves the gradients of one run.
        --keep   "all" keeps every version of all memory.
        --explore, --film, --show   the live view, the film or the picture of the tape, below the cell.

        Names that the cell binds are those of the notebook, and its last expression is its result, as ever. If it
        raises, there is no backward and no picture, and the tape has what was recorded until then.
        """
        __tracebackhide__ = True
        asked = _options(line)
        if memory.recorder() is not None:
            text = "%%tape: another tape is open, and would record nothing of this cell."
            raise LaunchError(text, slug="nested-tape", instead="with wb.Tape() as inner:   in the cell of the other")
        names: dict[str, Any] = self.shell.user_ns  # pyright: ignore[reportOptionalMemberAccess]
        with Tape(asked.keep) as tape:
            names[asked.name] = tape
            result = _run(self.shell, cell)
        if asked.seed:
            loss = _named(names, asked.seed)
            tape.zero()
            tape.backward(loss)
        if asked.view:
            display(getattr(tape, asked.view)())
        return result


def _run(shell: Any, cell: str) -> Any:
    """Run the lines below the first of a cell, by their numbers there. Returns the value of a last expression."""
    __tracebackhide__ = True
    above = 1 + sum(1 for _ in takewhile(lambda line: not line.strip(), cell.splitlines()))  # IPython drops empty ones
    text = "\n" * above + shell.transform_cell(cell)
    file = shell.compile.cache(text, shell.execution_count, raw_code=text)
    tree = shell.transform_ast(shell.compile.ast_parse(text, filename=file))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(shell.compile(tree, file, "exec"), shell.user_ns)
    return None if last is None else eval(shell.compile(ast.Expression(last.value), file, "eval"), shell.user_ns)


def _named(names: dict[str, Any], text: str) -> Any:
    """The array that `loss`, or `sim.loss`, is in the notebook. Raises LaunchError [tape-magic] if none is."""
    first, *parts = text.split(".")
    found = names.get(first)
    for part in parts:
        found = getattr(found, part, None)
    if isinstance(found, array | scalar):
        return found
    what = f"there is no {text} in the notebook" if found is None else f"{text} is a {type(found).__name__}, no array"
    raise LaunchError(f"%%tape --seed {text}: {what}.", slug="tape-magic", instead=LINE)


def load_ipython_extension(shell: Any) -> None:
    """Register `%%tape`: what `%load_ext workbench` calls."""
    shell.register_magics(TapeMagics)
