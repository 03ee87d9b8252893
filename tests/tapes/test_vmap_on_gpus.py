"""Batched kernels and their adjoints are CUDA that NVRTC takes, whatever runs here."""

from __future__ import annotations

import warnings

import pytest
from corpus import load

import workbench as wb
from workbench.kernels.compile import nvrtc
from workbench.kernels.emit import cuda as emit_cuda
from workbench.kernels.emit.signature import Variant
from workbench.kernels.ir import walk
from workbench.kernels.ops import memory as rows
from workbench.kernels.passes.batch import batched

PROGRAMS = load()


@pytest.mark.needs_nvrtc
@pytest.mark.sampled
@pytest.mark.parametrize("name", [n for n, p in PROGRAMS.items() if n != "a_grid_of_four_axes"][::6])
def test_a_batched_kernel_and_its_adjoint_become_a_cubin(name: str, tmp_path):
    wb.config.cache_dir, program = tmp_path, PROGRAMS[name]
    with wb.Tape() as tape, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program.run(wb.float32, program.arrays(wb.float32, program.start()))
    of = next(e.command.program for e in tape.events if e.command is not None)
    made = batched(of.function, frozenset(p.name for p in of.function.arrays))
    for function in (made, of.with_function(made).reverse(of.floats).function):
        added = frozenset(s.args[0].name for s in walk(function.body) if s.row in (rows.ACCUMULATE, *rows.ATOMICS))
        text = emit_cuda.text(function, Variant(checked=frozenset(), atomic=added, index32=True))
        assert nvrtc.to_cubin(text, "sm_90")
