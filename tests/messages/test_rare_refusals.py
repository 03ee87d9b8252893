"""Refusals that few programs meet: each names its slug, and the line to write instead."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from tests.support.squares import ONE, F, N, empty, leaf, square, times

pytestmark = pytest.mark.usefixtures("backend")


@wb.func
def a_pair_of_names(x: float):
    return wb.sin


def taped(seeded=True, **how):
    x, y = leaf(), empty()
    with wb.Tape(**how) as tape:
        wb.launch(square, N, [x], [y])
    if seeded:
        tape.backward(grads={y: wb.ones_like(y)})
    return tape, x, y


def rows_or_columns():
    @wb.kernel
    def k(y: wb.array(dtype=wb.mat22)):
        y[wb.tid()] = wb.mat22(wb.vec2(1.0, 2.0), wb.vec2(3.0, 4.0))

    wb.launch(k, 1, [wb.zeros(1, dtype=wb.mat22)])


def memory_of_two_widths():
    """A gradient check in float64 of memory that holds float32 and vectors of float64."""
    memory = wb.zeros(2, dtype=wb.vec2d)
    ones = wb.array(ptr=memory.ptr, dtype=wb.float32, shape=4)

    @wb.kernel
    def k(x: wb.array(dtype=float), a: wb.array(dtype=float), b: wb.array(dtype=wb.vec2d), y: wb.array(dtype=float)):
        y[0] = x[0] * a[0] + float(b[1][0])

    x, y = wb.ones(1, dtype=float, requires_grad=True), wb.zeros(1, dtype=float)
    with wb.Tape(keep="all") as tape:
        wb.launch(k, 1, [x, ones, memory], [y])
    wb.gradcheck(tape)


def ledger(*args, **named):
    tape, x, _ = taped()
    return tape.ledger(x, *args, **named)


def with_a_late_leaf():
    x, w, y, z = leaf(), empty(), empty(), empty()
    with wb.Tape() as tape:
        wb.launch(square, N, [w], [z])
        wb.launch(square, N, [x], [y])
    w.requires_grad = True
    tape.backward(grads={z: wb.ones_like(z)})


def with_an_objective_that_reads_more():
    k = leaf()

    def objective(x):
        out = empty(1)
        wb.launch(times, N, [x, k, empty()])
        wb.launch(square, 1, [x, out])
        return out

    return wb.minimize(objective, leaf())


def replayed(**values):
    tape, x, y = taped(keep="all")
    return tape.replay({x: values["to"]} if "to" in values else {empty(): np.zeros(N)})


# slug -> what is run, and words of what is said
REFUSED = [
    ("kernel-only", lambda: wb.tile_zeros(4), "A tile lives in a block", "wb.launch_tiled"),
    ("matrix-from-vectors", rows_or_columns, "rows or columns", "matrix_from_rows"),
    ("no-grad", lambda: wb.descend(lambda x: x, wb.zeros(2), rounds=1), "which way", "requires_grad=True"),
    ("no-grad", lambda: wb.descend(lambda x: x, [np.ones(2)], rounds=1), "ndarray has no requires_grad", "wb.array("),
    ("loss-shape", lambda: (lambda t, x, y: wb.hessian(t, [y], x))(*taped()), "a loss of one element", "summed up"),
    ("checkpoint-state", lambda: wb.integrate(lambda k, x: None, 3, 2), "state 0 is a int", "lies in arrays"),
    ("map-result", lambda: wb.map(a_pair_of_names, wb.zeros(2)), "this func returns", "numbers, vectors and structs"),
    ("gradcheck-mixed", memory_of_two_widths, "floats of another width", "dtype=None"),
    ("ledger-index", lambda: ledger(N + 5), "index 9 is outside axis 0 of x", "from 0 to 3"),
    ("ledger-event", lambda: ledger(0, at=99), "99 is no event of this tape, which has 1", "tape.events[k]"),
    ("dtype", lambda: wb.zeros(2, dtype="vec"), "is not a dtype", "A dtype is a scalar"),
    ("dtype", lambda: wb.zeros(2, dtype=wb.array(dtype=float)), "cannot be the dtype", "dtype=float32"),
    ("components", lambda: wb.array(np.zeros((4, 2)), dtype=wb.vec3), "must be (3,)", "data.reshape(-1, 3)"),
    ("convert", lambda: wb.array([1, 300], dtype=wb.int8), "do not fit int8", "cut off or wrap around"),
    ("convert", lambda: wb.array([-1, 2**63], dtype=wb.uint64), "do not fit uint64", "cut off or wrap around"),
    ("array-operator", lambda: wb.zeros(2) @ wb.zeros(2), "no operator matmul", "wb.utils.array_inner"),
    ("array-comparison", lambda: leaf() < leaf(), "where no tape sees", "for the values of now"),
    ("jacobian-order", lambda: (lambda t, x, y: wb.jacobian(t, x, y))(*taped()), "only read x", "jacobian(tape, y, x)"),
    (
        "gradcheck-vacuous",
        lambda: wb.gradcheck(square, N, [wb.zeros(N, dtype=F)], [empty()]),
        "by differences",
        "inputs=[x]",
    ),
    ("root", lambda: wb.root(3.0, empty()), "not float", "with def function(x, p)"),
    ("root", lambda: wb.root(square, wb.zeros(2, dtype=int)), "float32 or float64 as guess", "wb.zeros(n), p"),
    ("unused-argument", with_an_objective_that_reads_more, "is no argument", "with def objective(x, a)"),
    (
        "launch-keyword",
        lambda: wb.launch(square, N, [leaf()], [empty()], adj_inputs=[leaf()]),
        "no use for adjoints",
        "adjoint=True",
    ),
    (
        "launch-keyword",
        lambda: wb.launch(square, N, [leaf()], [empty()], grid=3),
        "has no argument 'grid'",
        "dim=n, inputs=[...]",
    ),
    ("not-a-kernel", lambda: wb.launch(taped, 1), "launch takes a kernel", "@wb.kernel above it"),
    ("dim", lambda: wb.launch(square, "4", [leaf()], [empty()]), "is not a grid", "dim=n or dim=(n, m)"),
    ("dim", lambda: wb.launch(square, leaf(), [leaf()], [empty()]), "dim=array is not a grid", "dim=x.shape"),
    ("map-func", lambda: wb.map(print, leaf()), "not print", "@wb.func above its def"),
    ("map-func", lambda: wb.map(np.sin, leaf()), "not sin", "wb.map(wb.sin, ...)"),
    ("map-arrays", lambda: wb.map(wb.sin, 1.0), "at least one array", "sin(...)"),
    ("shape", lambda: wb.map(wb.atan2, leaf(), empty(3)), "nothing is stretched", "x.reshape((4,))"),
    ("late-grad", with_a_late_leaf, "was not yet on an active path", "before the tape records"),
    ("replay-array", lambda: replayed(), "neither read nor written", "among the inputs"),
    ("replay-input", lambda: replayed(to=np.ones(3)), "numbers of shape (4,)", "np.ones((4,))"),
    ("replay-input", lambda: replayed(to=wb.ones(N)), "float32 of shape (4,)", "it takes float64"),
    ("no-seed", lambda: taped(seeded=False)[0].backward(), "Every gradient would be zero", "backward(loss)"),
    ("loss-shape", lambda: (lambda t, x, y: t.backward(y))(*taped()), "is float64 of shape (4,)", "grads={y: seed}"),
    ("shape", lambda: wb.zeros(3.5), "3.5 is not a shape", "shape=(n, m)"),
    ("shape", lambda: wb.zeros("3"), "'3' is not a shape", "shape=(n, m)"),
    ("shape", lambda: wb.ones((2.0, 3)), "is not a shape", "shape=(n, m)"),
    ("custom-op", lambda: wb.custom_op(lambda x: None)(leaf()), "returned None", "return y"),
    ("custom-op", lambda: wb.custom_op(lambda x, k: x)(leaf(), k=2.0), "in order", "without names"),
    ("numerics", lambda: wb.numerics.rfft(empty(0)), "with elements", ""),
    ("seed-type", lambda: taped()[0].trust("loss"), "not to str", "without quotes"),
    ("record-func", lambda: recording(4, []), "a function first, not int", ""),
    ("record-func", lambda: recording(print, 4), "a list of arrays, not int", ""),
    ("record-func", lambda: recording(print, [4]), "takes arrays, not int", ""),
    ("record-func", lambda: recording(lambda a: a, []), "calls its function without arguments", "which reads a.grad"),
]


def recording(*args):
    with wb.Tape() as tape:
        tape.record_func(*args)


@pytest.mark.parametrize(
    ("slug", "run", "said", "instead"), REFUSED, ids=[f"{k} {r[0]}" for k, r in enumerate(REFUSED)]
)
def test_it_is_refused_by_name_with_its_reason_and_the_way_out(slug, run, said, instead):
    with pytest.raises((wb.KernelError, wb.GradientError, wb.LaunchError)) as found:
        run()
    assert found.value.slug == slug
    assert said in str(found.value) and instead in str(found.value)


# ---- sparse matrices, loops, tapes that are run again


def a_checkpointed(step, *state):
    def loop():
        with wb.Tape():
            wb.checkpoint(4, 2)(step)(*state)

    return loop


def a_step_that_counts():
    x, done = leaf(), []

    def step(k, x):
        done.append(k)
        wb.launch(square if len(done) % 3 else double, N, [x], [y := empty()])
        wb.copy(x, y)

    with wb.Tape() as tape:
        wb.checkpoint(4, 2)(step)(x)
    tape.backward(grads={x: wb.ones_like(x)})


@wb.kernel
def double(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    y[wb.tid()] = x[wb.tid()] + x[wb.tid()]


def identity():
    return wb.sparse.bsr_identity(2, float)


def a_product_of_second_order(keep):
    tape, x, y = taped(keep=keep)
    wb.hvp(tape, y[:1], {x: np.ones(N)})


def copied_onto_one_number():
    x, source = wb.array(ptr=empty().ptr, dtype=F, shape=3, strides=(0,)), leaf()
    with wb.Tape():
        wb.copy(x, source[:3])


def a_tangent_of_another_array():
    tape, x, _ = taped()
    return wb.jvp(tape, {x: ONE})[leaf()]


RUN_AGAIN = [
    ("structure", lambda: setattr(identity(), "nnz", 7), "nnz = 7, while the last of the offsets is 2", "A.nnz_sync()"),
    (
        "topology",
        lambda: setattr(identity(), "row_counts", 7),
        "as many blocks as its offsets say",
        "row_counts = None",
    ),
    ("dtype", lambda: wb.sparse.bsr_copy(identity(), scalar_type=F), "to other blocks", "bsr_from_triplets"),
    ("checkpoint-state", a_checkpointed(lambda k, x: None, 3.0), "state 0 is a float", "lies in arrays"),
    ("checkpoint-step", a_step_that_counts, "that of another program", "no list or counter"),
    ("seed-untouched", a_tangent_of_another_array, "neither read nor written", "reads or writes"),
    ("not-kept", lambda: a_product_of_second_order("needed"), "cannot be run again", 'wb.Tape(keep="all")'),
    ("race", copied_onto_one_number, "a matter of luck", "wb.copy(y, values)"),
]


@pytest.mark.host_memory("race")
@pytest.mark.parametrize(
    ("slug", "run", "said", "instead"), RUN_AGAIN, ids=[f"{k} {r[0]}" for k, r in enumerate(RUN_AGAIN)]
)
def test_matrices_and_what_is_run_again_are_refused_by_name(slug, run, said, instead):
    with pytest.raises((wb.GradientError, wb.LaunchError)) as found:
        run()
    assert found.value.slug == slug
    assert said in str(found.value) and instead in str(found.value)


# ---- what other libraries hold


def moved(torch):
    t = torch.ones(N, dtype=torch.float64, requires_grad=True)
    y = empty()
    with wb.Tape() as tape:
        wb.launch(square, N, [t], [y])
    t.data = torch.ones(N, dtype=torch.float64)
    tape.backward(grads={y: wb.ones_like(y)})


OF_OTHERS = [
    ("dtype", lambda torch: wb.dtype_to_torch(Pair), "has no torch dtype", "to_torch(a.field(name))"),
    (
        "from-torch",
        lambda torch: wb.from_torch(torch.ones(2), grad=torch.ones(2)),
        "go out through t.grad",
        "wb.from_torch(t)",
    ),
    ("non-leaf", lambda torch: wb.from_torch(torch.ones(2, requires_grad=True) * 2), "no gradient", "t.detach()"),
    ("components", lambda torch: wb.from_torch(torch.ones(2, 2), dtype=wb.vec3), "they must be (3,)", ""),
    ("layout", lambda torch: wb.array(torch.ones(2).to_sparse()), "has no plain memory", "t.to_dense()"),
    ("layout", lambda torch: wb.interop.torch.function(square)(torch.ones(2).to_sparse()), "no plain memory", "dense"),
    ("layout", lambda torch: wb.from_torch((torch.ones(2) * 1j).conj().imag), "only by a mark", "resolve_neg()"),
    ("moved", moved, "The launches read the old memory", "wb.from_torch(tensor), again"),
]


@wb.struct
class Pair:
    a: float


@pytest.mark.needs_torch
@pytest.mark.parametrize(
    ("slug", "run", "said", "instead"), OF_OTHERS, ids=[f"{k} {r[0]}" for k, r in enumerate(OF_OTHERS)]
)
def test_tensors_are_refused_by_name(slug, run, said, instead):
    import torch

    with pytest.raises((wb.GradientError, wb.LaunchError)) as found:
        run(torch)
    assert found.value.slug == slug
    assert said in str(found.value) and instead in str(found.value)
