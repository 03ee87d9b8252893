"""Launches that leave out work on zeros (`if force == 0.0: continue`), recorded with that work done.

The results are the same. The derivative at 0 is then that of the function, not that of the branch that a zero takes.
"""

from __future__ import annotations

from typing import Any

from ...arrays import allocation as memory
from ...config import config
from ...errors import WorkbenchError
from ...kernels.ir import Function
from ...kernels.passes.zero_skips import without_zero_skips
from ...kernels.program import Program
from ...launches.launch import Command
from ...launches.plan import plan
from .one_by_one import results, settled


def without_skips(command: Command) -> Command:
    """The launch to record for one of Warp: itself, or, where it leaves out work on zeros, one that does that work.

    It is itself too where that work would lie outside of an array. Memory must be as the launch sees it, and is again
    afterwards.
    """
    program = command.program
    function = program.once(without_zero_skips, program.function)
    if function is program.function or command.declared:
        return command
    before = config.check_bounds
    with memory.LOCK:
        try:
            config.check_bounds = True
            made = _command(command, program.once(_program, program, function))
            results(made)
        except WorkbenchError:
            return command
        finally:
            config.check_bounds = before
    return made


class Anew:
    """A launch to be repeated that leaves out work on zeros: looked at each time, as memory is then."""

    def __init__(self, given: Command):
        self.given, self.plan, self.flat = given, given.plan, given.flat

    def launch(self, record_tape: bool, place: Any) -> None:
        settled(without_skips(self.given)).launch(record_tape, place)


def to_repeat(given: Command, command: Command) -> Any:
    """What repeats a launch that was recorded as this command: it, or what looks anew."""
    program = given.program
    return command if program.once(without_zero_skips, program.function) is program.function else Anew(given)


def _command(command: Command, program: Program) -> Command:
    return Command(program, plan(program.name, program, command.plan.form.dims, command.flat, None), command.flat)


def _program(program: Program, function: Function) -> Any:
    return Program(
        program.name, function, program.params, program.leaves, program.enable_backward,
        asked=program.asked, kernel=program.kernel,
    )  # fmt: skip
