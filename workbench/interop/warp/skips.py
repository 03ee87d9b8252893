"""Launches that skip work on zeros (`if force == 0.0: continue`), recorded with that work done.

The results are the same. The derivative at 0 is then that of the formula, not that of the branch that a zero takes.
"""

from __future__ import annotations

from typing import Any

from ...arrays import allocation as memory
from ...config import config
from ...errors import WorkbenchError
from ...kernels.passes.zero_skips import without_zero_skips
from ...kernels.program import Program
from ...launches.command import Command
from .serialised import of_program, results, serialised


def without_skips(command: Command) -> Command:
    """The launch to record: `command`, or, if it skips work on zeros, the one that does that work.

    `command` too if that work would leave an array's bounds or give another result (0 times infinity). Memory must be
    as the launch sees it, and is restored.
    """
    program = _of_work(command.program)
    if program is None or command.declared:
        return command
    before = config.check_bounds
    with memory.LOCK:
        try:
            config.check_bounds = True
            made = of_program(command, program, command.plan.form.dims)
            found = results(made)
        except WorkbenchError:
            return command
        finally:
            config.check_bounds = before
        return made if all(map(_same_bits, found, results(command))) else command


class RecheckedLaunch:
    """A repeatable launch that skips work on zeros: rechecked against memory at each run."""

    def __init__(self, given: Command):
        self.given, self.plan, self.flat = given, given.plan, given.flat

    def launch(self, record_tape: bool, place: Any) -> None:
        serialised(without_skips(self.given)).launch(record_tape, place)


def to_repeat(given: Command, command: Command) -> Any:
    """The object that repeats a recorded launch: `command`, or a `RecheckedLaunch` if it skips work on zeros."""
    return command if _of_work(given.program) is None else RecheckedLaunch(given)


def _of_work(program: Program) -> Program | None:
    """The program with the skipped work done; None if it skips none."""
    return program.once(_without, program)


def _without(program: Program) -> Program | None:
    function = without_zero_skips(program.function)
    return None if function is program.function else program.with_function(function)


def _same_bits(one: Any, other: Any) -> bool:
    return one.tobytes() == other.tobytes()
