"""What is refused, and what the message says: kernel, argument, line, thread, index, shape.

The tests of the reader hold the words for each construct; here are the mistakes of a launch and of a backward call.
"""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb

E = (wb.LaunchError, wb.GradientError, wb.KernelError)


@wb.kernel
def scale(x: wb.array(dtype=wb.float32), y: wb.array(dtype=wb.float32), a: wb.float32, n: wb.int32):
    i = wb.tid()
    y[i] = x[i] * a


@wb.kernel
def plane(x: wb.array2d(dtype=wb.float32), y: wb.array2d(dtype=wb.float32)):
    i, j = wb.tid()
    y[i, j] = x[i, j + 1] * 2.0


@wb.kernel
def gather(x: wb.array(dtype=wb.float32), n: wb.array(dtype=int), y: wb.array(dtype=wb.float32)):
    i = wb.tid()
    y[i] = x[n[i]] * x[n[i]]


@wb.kernel
def square(x: wb.array(dtype=wb.float32), y: wb.array(dtype=wb.float32)):
    i = wb.tid()
    y[i] = x[i] * x[i]


def four(**options) -> wb.array:
    return wb.array(np.arange(1.0, 5.0, dtype=np.float32), dtype=wb.float32, **options)


def refused(slug: str, *words: str, kind=E):
    """The call inside raises an error with this slug, whose message has all these words."""
    pattern = "".join(f"(?=[\\s\\S]*{word})" for word in (*words, rf"\[{slug}\]"))
    return pytest.raises(kind, match=pattern)


# ---- arguments of a launch


def test_the_number_of_arguments():
    with refused("argument-count", "'scale'", "takes 4 arguments, got 2", "x: array"):
        wb.launch(scale, dim=4, inputs=[four(), four()])


@pytest.mark.parametrize("other", [wb.float64, wb.int32, wb.float16])
def test_the_dtype_of_an_array(other):
    wrong = wb.zeros(4, dtype=other)
    with refused("argument-dtype", "'scale'", "'y'", r"array\(dtype=float32\)", str(other)):
        wb.launch(scale, dim=4, inputs=[four(), wrong, 2.0, 1])


def test_vectors_where_scalars_are_due():
    with refused("argument-dtype", "'scale'", "'x'", "vec3"):
        wb.launch(scale, dim=4, inputs=[wb.zeros(4, dtype=wb.vec3), four(), 2.0, 1])


def test_the_rank_of_an_array():
    with refused("argument-rank", "'scale'", "'x'", "1 axes, got 2", r"\(2, 2\)"):
        wb.launch(scale, dim=4, inputs=[wb.zeros((2, 2), dtype=wb.float32), four(), 2.0, 1])


@pytest.mark.parametrize("wrong", [None, 3.0, "text", np.zeros(4, np.int64)])
def test_something_else_than_an_array(wrong):
    with refused("(argument-type|argument-dtype|array-left-out)", "'scale'", "'x'"):
        wb.launch(scale, dim=4, inputs=[wrong, four(), 2.0, 1])


@pytest.mark.parametrize("wrong", [1.5, 2**31, "text", None])
def test_a_number_that_is_no_int32(wrong):
    with refused("argument-type", "'scale'", "'n'", "int32"):
        wb.launch(scale, dim=4, inputs=[four(), four(), 2.0, wrong])


@pytest.mark.parametrize("wrong", ["text", None, [1.0, 2.0]])
def test_something_else_than_a_float(wrong):
    with refused("argument-type", "'scale'", "'a'", "float32"):
        wb.launch(scale, dim=4, inputs=[four(), four(), wrong, 1])


def test_a_grid_of_too_few_axes():
    x = wb.zeros((4, 5), dtype=wb.float32)
    with refused("dim-rank", "'plane'", "2 thread indices"):
        wb.launch(plane, dim=4, inputs=[x, x])


def test_a_grid_of_too_many_axes():
    with refused("dim-rank", "'scale'", "1 thread ind", "2"):
        wb.launch(scale, dim=(2, 2), inputs=[four(), four(), 2.0, 1])


@pytest.mark.parametrize("dim", [-1, (1, 2, 3, 4, 5), "ab", 1.5, None])
def test_a_grid_that_is_none(dim):
    with refused("dim", "'scale'"):
        wb.launch(scale, dim=dim, inputs=[four(), four(), 2.0, 1])


def test_a_plain_function_is_no_kernel():
    def plain(x):
        return x

    with refused("not-a-kernel", "plain"):
        wb.launch(plain, dim=4, inputs=[four()])


# ---- bounds


def test_a_grid_larger_than_the_array(backend):
    y = wb.zeros(4, dtype=wb.float32)
    with refused(
        "bounds", "'scale'", "'[xy]'", "5", r"\(4,\)", "test_error_messages.py", r"y\[i\] = x\[i\]", kind=wb.BoundsError
    ):
        wb.launch(scale, dim=5, inputs=[four(), y, 2.0, 1])
    np.testing.assert_array_equal(y.numpy(), 0)


def test_an_affine_index_that_leaves_one_axis(backend):
    x = wb.zeros((3, 5), dtype=wb.float32)
    with refused("bounds", "'plane'", "'x'", r"\(3, 5\)", r"x\[i, j \+ 1\]", kind=wb.BoundsError) as caught:
        wb.launch(plane, dim=(3, 5), inputs=[x, wb.zeros((3, 5), dtype=wb.float32)])
    assert caught.value.where.text.strip() == "y[i, j] = x[i, j + 1] * 2.0"


def test_an_index_that_depends_on_a_number(backend):
    @wb.kernel
    def shifted(x: wb.array(dtype=wb.float32), shift: int):
        i = wb.tid()
        x[i + shift] = 1.0

    wb.launch(shifted, dim=2, inputs=[four(), 2])
    with refused("bounds", "'shifted'", "'x'", r"\(4,\)", kind=wb.BoundsError):
        wb.launch(shifted, dim=2, inputs=[four(), 3])


def test_a_loop_that_leaves_the_array(backend):
    @wb.kernel
    def total(x: wb.array(dtype=wb.float32), y: wb.array(dtype=wb.float32), n: int):
        s = 0.0
        for j in range(n):
            s += x[j]
        y[0] = s

    wb.launch(total, dim=1, inputs=[four(), four(), 4])
    with refused("bounds", "'total'", "'x'", r"\(4,\)", kind=wb.BoundsError):
        wb.launch(total, dim=1, inputs=[four(), four(), 5])


@pytest.mark.parametrize("wrong", [4, 7, -5])
def test_an_index_from_data_is_found_by_the_interpreter(wrong):
    wb.config.backend = "numpy"
    n = wb.array([0, 1, wrong, 2], dtype=wb.int32)
    with refused(
        "bounds",
        "'gather'",
        "'x'",
        "thread 2",
        rf"x\[{wrong}\]",
        "line",
        r"\(4,\)",
        r"x\[n\[i\]\]",
        kind=wb.BoundsError,
    ):
        wb.launch(gather, dim=4, inputs=[four(), n, four()])


@pytest.mark.needs_cc
@pytest.mark.parametrize("wrong", [4, 7, -5])
def test_an_index_from_data_is_found_by_compiled_code_when_asked(wrong):
    wb.config.backend, wb.config.check_bounds = "c", True
    n = wb.array([0, 1, wrong, 2], dtype=wb.int32)
    with refused("bounds", "'gather'", "'x'", "thread.* 2", r"\(4,\)", r"x\[n\[i\]\]", kind=wb.BoundsError):
        wb.launch(gather, dim=4, inputs=[four(), n, four()])


def test_negative_indices_count_from_the_end(backend):
    wb.config.check_bounds = True
    y = wb.zeros(4, dtype=wb.float32)
    wb.launch(gather, dim=4, inputs=[four(), wb.array([-1, -2, -4, 3], dtype=wb.int32), y])
    np.testing.assert_array_equal(y.numpy(), [16, 9, 1, 16])


def test_a_failed_launch_under_a_tape_leaves_no_event(backend):
    x, y, tape = four(requires_grad=True), four(), wb.Tape()
    with tape:
        wb.launch(square, dim=4, inputs=[x, y])
        with pytest.raises(wb.BoundsError):
            wb.launch(square, dim=5, inputs=[x, y])
    assert len(tape.events) == 1
    tape.backward(grads={y: wb.ones(4, dtype=wb.float32)})
    np.testing.assert_array_equal(x.grad.numpy(), 2 * x.numpy())


# ---- races


def test_two_threads_that_store_to_one_element(backend):
    @wb.kernel
    def clash(x: wb.array(dtype=wb.float32), y: wb.array(dtype=wb.float32)):
        i = wb.tid()
        y[0] = x[i]

    with refused("race", "'clash'", "'y'", r"threads \(0,\) and \(1,\)", "atomic_add", r"y\[0\] = x\[i\]"):
        wb.launch(clash, dim=4, inputs=[four(), four()])


# ---- seeds


def recorded():
    x, y, tape = four(requires_grad=True), four(requires_grad=True), wb.Tape()
    with tape:
        wb.launch(square, dim=4, inputs=[x, y])
    return x, y, tape


@pytest.mark.parametrize("shape", [3, 5, (4, 1), (2, 2)])
def test_a_seed_of_another_shape(backend, shape):
    x, y, tape = recorded()
    with refused("seed-shape", r"\(4,\)"):
        tape.backward(grads={y: wb.ones(shape, dtype=wb.float32)})


@pytest.mark.parametrize("dtype", [wb.float64, wb.int32, wb.vec3])
def test_a_seed_of_another_dtype(backend, dtype):
    x, y, tape = recorded()
    with refused("seed-dtype", str(dtype), r"float32 of shape \(4,\)"):
        tape.backward(grads={y: wb.zeros(4, dtype=dtype)})


def test_a_loss_of_many_elements(backend):
    x, y, tape = recorded()
    with refused("loss-shape", r"\(4,\)"):
        tape.backward(loss=y)


def test_a_seed_that_the_tape_never_touched(backend):
    x, y, tape = recorded()
    with refused("seed-untouched"):
        tape.backward(grads={four(requires_grad=True): wb.ones(4, dtype=wb.float32)})


def test_a_gradient_of_integers():
    with refused("grad-of-int", "int32"):
        wb.zeros(4, dtype=wb.int32, requires_grad=True)


# ---- changes behind the tape's back


def test_an_input_changed_between_forward_and_backward(backend):
    x, y, tape = recorded()
    x.numpy()[0] = 9.0
    with refused("overwritten", "'?x'?", "square", kind=wb.GradientError):
        tape.backward(grads={y: wb.ones(4, dtype=wb.float32)})


# ---- sources


def one(source_of_kernel):
    wb.launch(source_of_kernel, dim=4, inputs=[four(), four()])


def test_an_unknown_name():
    @wb.kernel
    def k(x: wb.array(dtype=wb.float32), y: wb.array(dtype=wb.float32)):
        i = wb.tid()
        y[i] = x[i] * nowhere  # noqa: F821

    with refused("unknown-name", "nowhere", kind=wb.KernelError) as caught:
        one(k)
    assert "nowhere" in caught.value.text


def test_a_type_that_changes_in_a_loop():
    @wb.kernel
    def k(x: wb.array(dtype=wb.float32), y: wb.array(dtype=wb.float32)):
        i = wb.tid()
        s = 0
        for j in range(3):
            s = s + 1
            s = x[i]
        y[i] = x[i]

    with refused("loop-type", "'?`?s", "int32", "float32", kind=wb.KernelError):
        one(k)


def test_a_type_that_differs_between_branches():
    @wb.kernel
    def k(x: wb.array(dtype=wb.float32), y: wb.array(dtype=wb.float32)):
        i = wb.tid()
        if x[i] > 1.0:
            s = 1
        else:
            s = 1.0
        y[i] = float(s)

    with refused("branch-type", "s", "int32", "float32", kind=wb.KernelError):
        one(k)


def test_a_func_that_returns_on_some_paths_only():
    @wb.func
    def f(a: wb.float32):
        if a > 1.0:
            return a

    @wb.kernel
    def k(x: wb.array(dtype=wb.float32), y: wb.array(dtype=wb.float32)):
        i = wb.tid()
        y[i] = f(x[i])

    with refused("missing-return", "f", kind=wb.KernelError):
        one(k)


def test_a_name_bound_on_some_paths_only():
    @wb.kernel
    def k(x: wb.array(dtype=wb.float32), y: wb.array(dtype=wb.float32)):
        i = wb.tid()
        if x[i] > 1.0:
            s = x[i]
        y[i] = s

    with refused("maybe-unbound", "s", kind=wb.KernelError):
        one(k)


def test_numbers_of_two_types():
    @wb.kernel
    def k(x: wb.array(dtype=wb.float32), y: wb.array(dtype=wb.float32)):
        i = wb.tid()
        y[i] = x[i] * i

    with refused("mixed-types", "float32", "int32", kind=wb.KernelError) as caught:
        one(k)
    assert "x[i] * i" in caught.value.text


def test_a_value_of_another_type_stored():
    @wb.kernel
    def k(x: wb.array(dtype=wb.float32), y: wb.array(dtype=wb.float32)):
        i = wb.tid()
        y[i] = wb.float64(x[i])

    with refused("store-type", "float64", "float32", kind=wb.KernelError):
        one(k)


def test_a_local_array_of_arrays():
    @wb.struct
    class Rows:
        x: wb.array(dtype=wb.float32)

    @wb.kernel
    def k(x: wb.array(dtype=wb.float32), y: wb.array(dtype=wb.float32)):
        i = wb.tid()
        q = wb.zeros(shape=3, dtype=Rows)
        y[i] = q[0].x[0]

    with refused("local-array", "array", "numbers", kind=wb.KernelError):
        one(k)


def test_too_many_indices():
    @wb.kernel
    def k(x: wb.array2d(dtype=wb.float32), y: wb.array2d(dtype=wb.float32)):
        i, j = wb.tid()
        y[i, j, 0] = x[i, j]

    with refused("rank", kind=wb.KernelError):
        wb.launch(k, dim=(2, 2), inputs=[wb.zeros((2, 2)), wb.zeros((2, 2))])


def test_a_load_and_a_store_of_one_element_by_two_threads(backend):
    @wb.kernel
    def k(x: wb.array(dtype=wb.float32), y: wb.array(dtype=wb.float32)):
        i = wb.tid()
        y[i] = x[3 - i] * x[3 - i]
        x[i] = y[i]

    x, y, tape = four(requires_grad=True), four(requires_grad=True), wb.Tape()
    with refused("race", "'k'", "'x'", "threads", "load", "store"):
        with tape:
            wb.launch(k, dim=4, inputs=[x, y])
        tape.backward(grads={y: wb.ones(4, dtype=wb.float32)})


def test_a_scatter_by_equal_indices(backend):
    @wb.kernel
    def k(x: wb.array(dtype=wb.float32), n: wb.array(dtype=int), y: wb.array(dtype=wb.float32)):
        i = wb.tid()
        y[n[i]] = x[i] * x[i]

    x, y, tape = four(requires_grad=True), four(requires_grad=True), wb.Tape()
    n = wb.array([0, 2, 1, 2], dtype=wb.int32)
    with refused("race", "'k'", "'y'", "threads 3 and 1"):
        with tape:
            wb.launch(k, dim=4, inputs=[x, n, y])
        tape.backward(grads={y: wb.ones(4, dtype=wb.float32)})


@pytest.mark.parametrize("name", ["atomic_exch", "atomic_min"])
def test_an_atomic_without_a_derivative_on_an_active_path(backend, name):
    update = getattr(wb, name)

    @wb.kernel
    def k(x: wb.array(dtype=wb.float32), y: wb.array(dtype=wb.float32)):
        i = wb.tid()
        old = update(y, i, x[i])
        y[i] = old * x[i]

    x, y, tape = four(requires_grad=True), four(requires_grad=True), wb.Tape()
    with refused("atomic-(gradient|mixed)", name):
        with tape:
            wb.launch(k, dim=4, inputs=[x, y])
        tape.backward(grads={y: wb.ones(4, dtype=wb.float32)})


def test_a_returned_float_of_an_atomic_that_threads_share(backend):
    @wb.kernel
    def k(x: wb.array(dtype=wb.float32), y: wb.array(dtype=wb.float32), z: wb.array(dtype=wb.float32)):
        i = wb.tid()
        z[i] = wb.atomic_add(y, 0, x[i]) * x[i]

    x, y, z, tape = four(requires_grad=True), four(requires_grad=True), four(), wb.Tape()
    with refused("atomic-order", "'k'|k", kind=wb.GradientError):
        with tape:
            wb.launch(k, dim=4, inputs=[x, y, z])
        tape.backward(grads={z: wb.ones(4, dtype=wb.float32)})


def test_a_tape_names_itself_and_what_to_write():
    for make in (lambda: wb.Tape(persistent=True), lambda: wb.Tape(keep="everything"), lambda: wb.Tape(True)):
        with pytest.raises(wb.LaunchError) as found:
            make()
        assert found.value.slug == "tape-keyword" and "wb.Tape(" in found.value.instead
        assert str(found.value).startswith("Tape")


def test_a_lambda_on_the_line_of_a_def_is_no_stale_source():
    def mapped(x): return wb.map(lambda v: v * v, x)  # fmt: skip

    with pytest.raises(wb.KernelError) as found:
        mapped(wb.ones(2))
    assert found.value.slug == "no-source" and found.value.instead.startswith("def f(")
