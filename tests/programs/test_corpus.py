"""Every program of the corpus, on every backend, in every float type: what it computes, and its exact gradient.

The gradient of <seed, contents after> by every float element before is compared with central differences of fourth
order of the program itself, run in float64. All arrays are seeded and all are differentiated at once.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from corpus import BOTH, Program, load, plain

import workbench as wb
from tests.support.backends import CHOSEN, WITH_GPU
from tests.support.both_ways import hold
from workbench.kernels.compile import c_compiler

PROGRAMS = load()
# Gradients of overwritten arrays are read on purpose here; the warning about them has tests of its own.
pytestmark = pytest.mark.filterwarnings("ignore:.*overw:UserWarning")
GRADIENT_TOLERANCE = {wb.float64: 1e-6, wb.float32: 2e-3, wb.float16: 4e-2}
FORWARD_TOLERANCE = {wb.float64: 1e-12, wb.float32: 3e-5, wb.float16: 2e-2}
STEP = 3e-4
# Programs whose Python text alone says something else: states and structs are values in a kernel.
NOT_PLAIN = set(
    "local_structs random_numbers_are_replayed normal_random_numbers_are_replayed a_random_walk_of_random_length"
    " atomics_on_bits an_array_of_structs_changed_in_a_loop a_struct_handed_to_funcs_with_its_arrays"
    " integers_are_divided_as_in_c claims_that_hold parameters_that_are_the_callers_variables"
    " one_name_for_numbers_vectors_and_more_arguments a_func_of_open_types derivatives_in_a_kernel"
    " derivatives_of_derivatives array_fields_of_a_new_struct_on_some_paths".split()
)


def is_float(program: Program, name: str) -> bool:
    return wb.types.is_float(program.contents[name].element(wb.float64))


def after(program: Program, F, values) -> dict[str, np.ndarray]:
    arrays = program.arrays(F, values)
    program.run(F, arrays)
    return {name: a.numpy().astype(np.float64) for name, a in arrays.items()}


@functools.cache
def seeds(program: Program) -> dict[str, np.ndarray]:
    """One number per element: few digits, none alike."""
    out = {}
    for name, start in program.start().items():
        if is_float(program, name):
            rng = np.random.default_rng(len(name) + start.size)
            out[name] = (rng.permutation(start.size).reshape(start.shape) + 1.0) / 16 - 0.25
    return out


@functools.cache
def central_differences(program: Program) -> dict[str, np.ndarray]:
    """The gradient by differences of the float64 program, on the fastest backend there is."""
    backend, wb.config.backend = wb.config.backend, "c" if c_compiler.available() else "numpy"
    seed, start = seeds(program), program.start()

    def loss() -> float:
        made = after(program, wb.float64, start)
        return sum(float(np.sum(seed[name] * made[name])) for name in seed)

    out = {}
    for name in seed:
        grad, flat = np.zeros(start[name].shape), start[name].reshape(-1)
        for k in range(flat.size):
            here, total = flat[k], 0.0
            for turn, weight in ((-2, 1.0), (-1, -8.0), (1, 8.0), (2, -1.0)):
                flat[k] = here + turn * STEP
                total += weight * loss()
            flat[k] = here
            grad.reshape(-1)[k] = total / (12 * STEP)
        out[name] = grad
    wb.config.backend = backend
    return out


@functools.cache
def expected(program: Program) -> dict[str, np.ndarray]:
    """The contents after: by the program's own NumPy reference, else by the interpreter in float64."""
    start = program.start()
    if program.reference is not None:
        return {**start, **program.reference(**program.start())}
    backend, wb.config.backend = wb.config.backend, "numpy"
    made = after(program, wb.float64, start)
    wb.config.backend = backend
    return made


@dataclass
class Recorded:
    """One run of a program under a tape."""

    program: Program
    F: Any
    only: str | None = None  # the one array whose gradient is asked for; None: all of them

    def __post_init__(self) -> None:
        self.arrays = self.program.arrays(self.F, self.program.start(), self.only)
        self.tape = wb.Tape()
        with self.tape:
            self.program.run(self.F, self.arrays)

    def contents(self) -> dict[str, np.ndarray]:
        return {name: a.numpy().astype(np.float64) for name, a in self.arrays.items()}

    def backward(self) -> dict[str, np.ndarray]:
        """The published gradients by name. A float16 array is seeded in float32."""
        element = wb.float32 if self.F is wb.float16 else self.F
        given = {}
        for name, seed in seeds(self.program).items():
            dtype = self.program.contents[name].element(element)
            given[self.arrays[name]] = wb.array(seed.astype(dtype.numpy), dtype=dtype)
        self.tape.zero()
        self.tape.backward(grads=given)
        asked = seeds(self.program) if self.only is None else [self.only]
        return {name: self.arrays[name].grad.numpy().astype(np.float64) for name in asked}


def close(got: np.ndarray, want: np.ndarray, tolerance: float) -> bool:
    scale = max(1.0, float(np.max(np.abs(want), initial=0.0)))
    return bool(np.all(np.isfinite(got)) and np.all(np.abs(got - want) <= tolerance * scale))


FEWER = 1 if CHOSEN == "stand-in" else None  # it computes on the CPU: one float type shows that the path is right
CASES = [(p, F) for p in PROGRAMS.values() for F in p.dtypes[:FEWER]]
EACH = [(p, name) for p in PROGRAMS.values() for name in p.contents if is_float(p, name) and len(p.contents) > 1]


@pytest.mark.sampled
@pytest.mark.parametrize("backend", WITH_GPU)
@pytest.mark.parametrize(("program", "F"), CASES, ids=[f"{p}-{F}" for p, F in CASES])
@pytest.mark.host_memory("a_slot_taken_from_a_counter", "exchange_of_an_own_cell")
def test_a_gradient_is_the_derivative_of_the_program(program: Program, F, backend: str, monkeypatch):
    wb.config.backend = backend
    if backend == "numpy":
        hold(monkeypatch)
    run = Recorded(program, F)
    for name, want in expected(program).items():
        got = run.contents()[name]
        assert close(got, want, program.loose * FORWARD_TOLERANCE[F]), f"{name} after:\n{got}\nwant\n{want}"
    grads = run.backward()
    for name, want in central_differences(program).items():
        assert close(grads[name], want, GRADIENT_TOLERANCE[F]), f"gradient of {name}:\n{grads[name]}\nwant\n{want}"


@pytest.mark.sampled
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=str)
def test_a_tape_is_walked_any_number_of_times_and_changes_nothing(program: Program):
    wb.config.backend = "numpy"
    run = Recorded(program, wb.float64)
    before, first = run.contents(), run.backward()
    second, later = run.backward(), run.contents()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])
    for name in before:
        np.testing.assert_array_equal(before[name], later[name])


@pytest.mark.sampled
@pytest.mark.parametrize(("program", "name"), EACH, ids=[f"{p}-{name}" for p, name in EACH])
def test_a_gradient_does_not_depend_on_what_else_is_asked_for(program: Program, name: str):
    wb.config.backend = "numpy"
    got, want = Recorded(program, wb.float64, name).backward()[name], central_differences(program)[name]
    assert close(got, want, 1e-6), f"gradient of {name}:\n{got}\nwant\n{want}"


SCALAR = [
    p
    for p in PROGRAMS.values()
    if p.name not in NOT_PLAIN and all(isinstance(c.element(wb.float64), wb.types.Scalar) for c in p.contents.values())
]


@pytest.mark.sampled
@pytest.mark.parametrize("program", SCALAR, ids=str)
def test_a_kernel_means_what_its_python_text_means(program: Program, monkeypatch):
    with monkeypatch.context() as patched:
        plain.patch(patched)
        want = plain.run(program, wb.float64)
    wb.config.backend = "numpy"
    got = after(program, wb.float64, program.start())
    for name in want:
        assert close(got[name], want[name], 1e-12), f"{name} after:\n{got[name]}\nwant\n{want[name]}"


@pytest.mark.parametrize("backend", WITH_GPU)
def test_ties_of_an_extreme_share_its_adjoint_with_the_first_contents(backend: str):
    @wb.kernel
    def k(x: wb.array(dtype=wb.float64), y: wb.array(dtype=wb.float64)):
        i = wb.tid()
        wb.atomic_max(y, 0, x[i] * x[i])

    wb.config.backend = backend
    x = wb.array([2.0, 1.0, -2.0, 2.0], dtype=wb.float64, requires_grad=True)
    y = wb.array([4.0], dtype=wb.float64, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(k, dim=4, inputs=[x, y])
    tape.backward(grads={y: wb.array([1.0], dtype=wb.float64)})
    np.testing.assert_array_equal(x.grad.numpy(), [1.0, 0.0, -1.0, 1.0])
    np.testing.assert_array_equal(y.grad.numpy(), [0.25])


@pytest.mark.parametrize("backend", WITH_GPU)
def test_the_count_of_ties_repeats_stores_on_a_copy(backend: str):
    """It once repeated them in place, so that the adjoints of earlier launches read what it had left."""

    @wb.kernel
    def squares(x: wb.array(dtype=wb.float64), z: wb.array(dtype=wb.float64)):
        i = wb.tid()
        z[i] = x[i] * x[i]

    @wb.kernel
    def largest(x: wb.array(dtype=wb.float64), m: wb.array(dtype=wb.float64)):
        i = wb.tid()
        for turn in range(2):
            x[i] = x[i] * x[i]
        wb.atomic_max(m, 0, x[i])

    wb.config.backend = backend
    x = wb.array([1.5, 2.0], dtype=wb.float64, requires_grad=True)
    z, m = wb.zeros(2, dtype=wb.float64), wb.zeros(1, dtype=wb.float64)
    with wb.Tape() as tape:
        wb.launch(squares, dim=2, inputs=[x], outputs=[z])
        wb.launch(largest, dim=2, inputs=[x], outputs=[m])
    tape.backward(grads={z: wb.ones_like(z), m: wb.ones_like(m)})
    np.testing.assert_array_equal(x.grad.numpy(), [3.0, 4.0 + 32.0])
    np.testing.assert_array_equal(wb.jvp(tape, {x: [1.0, 1.0]})[m], [32.0])
    np.testing.assert_array_equal(x.numpy(), [1.5**4, 16.0])


@pytest.mark.parametrize("backend", WITH_GPU)
def test_ties_are_counted_over_what_the_launch_read(backend: str):
    @wb.kernel
    def largest(x: wb.array(dtype=wb.float64), m: wb.array(dtype=wb.float64)):
        i = wb.tid()
        wb.atomic_max(m, 0, x[i])

    wb.config.backend = backend
    x = wb.array([1.0, 2.0], dtype=wb.float64)  # no gradient: only the count needs it
    m = wb.array([5.0], dtype=wb.float64, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(largest, dim=2, inputs=[x, m])
        x.fill_(5.0)
    tape.backward(grads={m: wb.ones_like(m)})
    np.testing.assert_array_equal(m.grad.numpy(), [1.0])


@pytest.mark.parametrize("backend", WITH_GPU)
@pytest.mark.parametrize("F", BOTH)
def test_a_number_argument_has_a_gradient(F, backend: str):
    @wb.kernel
    def k(x: wb.array(dtype=F), a: F, y: wb.array(dtype=F)):
        i = wb.tid()
        s = a
        for j in range(i + 1):
            s = s * x[i] + a
        y[i] = s

    wb.config.backend = backend
    start = np.array([0.5, 0.75, 1.5])
    x, y = wb.array(start.astype(F.numpy), dtype=F, requires_grad=True), wb.zeros(3, dtype=F)
    a = wb.scalar(F(1.25), dtype=F, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(k, dim=3, inputs=[x, a, y])
    tape.backward(grads={y: wb.array([1.0, 2.0, 3.0], dtype=F)})
    powers = [np.polyval(np.ones(i + 2), start[i]) for i in range(3)]  # y[i] = a (1 + x + ... + x^(i+1))
    slopes = [np.polyval(np.polyder(np.ones(i + 2)), start[i]) for i in range(3)]
    np.testing.assert_allclose(a.grad.numpy().reshape(()), np.dot(powers, [1, 2, 3]), rtol=1e-6)
    np.testing.assert_allclose(x.grad.numpy(), 1.25 * np.multiply(slopes, [1, 2, 3]), rtol=1e-6)


def test_the_corpus_is_large():
    assert len(PROGRAMS) >= 120
