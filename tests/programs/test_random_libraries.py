"""A handful of the random programs over sparse matrices, solvers, sorts, optimizers and meshes: see `fuzz/host.py`."""

from __future__ import annotations

import collections

import pytest

import workbench as wb
from tests.fuzz import doors, host as fuzz_host, host_steps as fuzz_host_steps
from tests.fuzz.host import verdict


@pytest.mark.needs_cc
@pytest.mark.filterwarnings("ignore")
def test_every_gradient_is_exact_or_refused(monkeypatch):
    monkeypatch.setattr(wb.config, "backend", "c")
    said = {seed: verdict(seed) for seed in range(14)}
    counts = collections.Counter(what for what, _ in said.values())
    assert set(counts) <= {"exact", "refused", "unsure"}, said
    assert counts["exact"] > 8 and counts["refused"] < 3, counts


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", (1, 2, 4))
def test_the_interpreter_says_the_same(seed, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", "numpy")
    assert verdict(seed)[0] in ("exact", "refused", "unsure")


@pytest.mark.needs_cc
@pytest.mark.filterwarnings("ignore")
def test_a_wrong_adjoint_of_a_library_is_noticed(monkeypatch):
    """A scan whose tape sees another one."""
    monkeypatch.setattr(wb.config, "backend", "c")
    scanned, right = [s for s in range(200) if "scanned" in fuzz_host.Program(s).names][:3], wb.utils.array_scan

    def wrong(a, out, inclusive):
        right(wb.detach(a), out, inclusive)

    monkeypatch.setattr(fuzz_host_steps.wb.utils, "array_scan", wrong)
    assert any(verdict(seed)[0] == "WRONG" for seed in scanned)


@pytest.mark.needs_torch
@pytest.mark.slow
@pytest.mark.usefixtures("backend")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(3))
def test_kernels_between_operations_of_torch_are_differentiated_as_those_are(seed):
    pytest.importorskip("torch")
    assert not doors.differing(seed, doors.in_torch)


@pytest.mark.needs_jax
@pytest.mark.needs_cc
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", (0, 4))
def test_kernels_between_operations_of_jax_are_differentiated_as_those_are(seed):
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    try:
        assert not doors.differing(seed, doors.in_jax)
    finally:
        jax.config.update("jax_enable_x64", False)
