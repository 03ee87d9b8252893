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
from .one_by_one import results


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


def _command(command: Command, program: Program) -> Command:
    return Command(program, plan(program.name, program, command.plan.form.dims, command.flat, None), command.flat)


def _program(program: Program, function: Function) -> Any:
    return Program(
        program.name, function, program.params, program.leaves, program.enable_backward,
        asked=program.asked, kernel=program.kernel,
    )  # fmt: skip
