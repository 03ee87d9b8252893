"""Random programs (`fuzz/kernels.py`): exact or refused. Hypothesis draws; a failure prints the program, cut down."""

from __future__ import annotations

import collections
import zlib

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from tests.fuzz import kernels as fuzz, slices as fuzz_slices
from workbench.kernels.compile.c_compiler import available

PROGRAMS = 100


@pytest.mark.slow
def test_a_hundred_random_programs_are_exact_or_refused_and_nearly_all_exact():
    """Against differences and forward mode on the interpreter; every twelfth is compiled too."""
    counts: collections.Counter[str] = collections.Counter()

    @settings(
        max_examples=PROGRAMS,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],  # `minimise` cuts down what fails, in seconds
    )
    @given(st.randoms(use_true_random=False))
    def one(randomness):
        program = fuzz.Generator(randomness).program()
        c = available() and zlib.crc32(program.source.encode()) % 12 == 0
        outcome = fuzz.check(program, c)
        counts[outcome.verdict] += 1
        assert outcome.verdict not in ("wrong", "crash"), report(program, c)

    one()
    assert counts.total() >= PROGRAMS and counts["exact"] >= 0.9 * PROGRAMS, counts


def report(program, c=False):
    small = fuzz.minimise(program, c, 30.0)
    return f"{fuzz.check(small, c).detail}\n{fuzz.describe(small)}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(70002, 70014))
def test_random_programs_with_transforms_are_exact_or_refused(seed):
    program = fuzz.make(seed, transforms=True)
    assert fuzz.check(program, False).verdict in ("exact", "refused"), report(program)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1012))
def test_random_programs_with_slices_and_local_arrays_are_exact(seed):
    assert fuzz.check(fuzz_slices.make(seed), False).verdict == "exact", report(fuzz_slices.make(seed))


@pytest.mark.slow
@pytest.mark.needs_cc
@pytest.mark.parametrize("seed", range(1000, 1006))
def test_the_c_backend_agrees_with_the_interpreter(seed):
    assert fuzz.check(fuzz.make(seed), c=True).verdict == "exact", report(fuzz.make(seed), True)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "word",
    [
        "wb.vec3d(",
        "wb.diag(",
        "@ ",
        "].x",
        "[0] ",
        "if ",
        "elif ",
        "else:",
        "for ",
        "while ",
        "break",
        "continue",
        "return",
        "@wb.func",
        "Pair()",
        ": Pack",
        "wb.atomic_add",
        "x[",
        "*= ",
        "+= ",
        "wb.where",
        "array2d",
        "wb.tid()",
    ],
)
def test_the_generator_makes_what_it_is_meant_to_make(word):
    """Types, components, branches, loops, funcs, structs, gathers and scatters, in-place writes."""
    body = [fuzz.make(seed).source.partition("class Pack")[2].partition("\n\n")[2] for seed in range(60)]
    assert sum(word in text for text in body) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("bits", [16, 32, 64])
def test_programs_of_every_float_type_are_compared_with_forward_mode(bits):
    verdicts = [fuzz.transposed(fuzz.replace(fuzz.make(seed), bits=bits), 1e-2).verdict for seed in range(6)]
    assert verdicts.count("exact") >= 4 and "wrong" not in verdicts, verdicts


def test_the_oracle_notices_a_wrong_gradient(monkeypatch):
    whole = fuzz.Program.gradient

    def spoiled(self, twice=False):
        grads, final = whole(self, twice)
        return {name: g * 1.001 for name, g in grads.items()}, final

    monkeypatch.setattr(fuzz.Program, "gradient", spoiled)
    assert any(fuzz.check(fuzz.make(seed)).verdict == "wrong" for seed in range(3))
