"""What a recorded run of a program executes, forwards and backwards, as functions to write out as C or CUDA."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import workbench as wb
from workbench.kernels.emit.signature import Variant, to_check
from workbench.kernels.ir import Function, walk
from workbench.kernels.ops import memory as rows


def functions(program: Any, F) -> Iterator[tuple[Function, Variant]]:
    """Every function that a recorded run of the program executes, forwards and backwards."""
    wb.config.backend = "numpy"
    arrays, tape = program.arrays(F, program.start()), wb.Tape()
    with tape:
        program.run(F, arrays)
    plans = {
        (id(e.command.program), e.command.plan.form.groups): e.command.plan for e in tape.events if e.kind == "launch"
    }
    assert plans, "the program launches nothing"
    for plan in plans.values():
        written = {plan.program.leaves[k].name for k, _ in plan.writes}
        groups = tuple(g for g in plan.form.groups if g & written)
        reverse = plan.program.reverse(plan.program.floats, groups)
        for function in filter(None, (plan.program.function, reverse.function, reverse.count)):
            yield function, variant(function, F, bool(plan.form.groups))


def variant(function: Function, F, overlap: bool) -> Variant:
    names = frozenset(p.name for p in function.arrays)
    updated = frozenset(root(s) for s in walk(function.body) if s.row is rows.ACCUMULATE or s.row in rows.ATOMICS)
    if F is wb.float64:
        return Variant(checked=to_check(function, ()), restrict=False, atomic=updated, index32=False)
    return Variant(contiguous=names, restrict=not overlap, atomic=updated, index32=True, aligned=True)


def root(stmt) -> str:
    value = stmt.args[0]
    while value.stmt is not None:
        value = value.stmt.args[0]
    return value.name
