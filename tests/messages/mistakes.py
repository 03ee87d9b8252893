"""The table of what is refused: a program, the slug of its error, words of the message, and the line that it shows.

A program is a line over the names of a `Scene`, or a function that is marked `@refused`. Constructs that the reader
refuses are in `tests/kernels`, with their slugs and carets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import workbench as wb

ERRORS = (wb.LaunchError, wb.GradientError)


class Mistake(NamedTuple):
    """One refusal. `slug` is empty where Python has the kind of error; `line` is empty where no line is shown."""

    name: str
    run: Callable[[], Any]
    slug: str
    words: tuple[str, ...]
    kind: type[Exception] | tuple[type[Exception], ...] = ERRORS
    line: str = ""
    backends: tuple[str, ...] = ("",)


MISTAKES: list[Mistake] = []


def refused(
    slug: str,
    *words: str,
    kind: type[Exception] | tuple[type[Exception], ...] = ERRORS,
    line: str = "",
    given: list[Any] | None = None,
    backends: tuple[str, ...] = ("",),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Note a program, for each value in `given` if there are some: `{}` in words is that value."""

    def note(program: Callable[..., Any]) -> Callable[..., Any]:
        name = program.__name__.replace("_", " ")
        if given is None:
            MISTAKES.append(Mistake(name, program, slug, words, kind, line, backends))
        for value in given or ():
            said = tuple(word.replace("{}", str(value)) for word in words)
            MISTAKES.append(Mistake(f"{name}: {value!r}", lambda v=value: program(v), slug, said, kind, line, backends))
        return program

    return note


BOTH = ("numpy", "c")


# ---- lines over a scene


@wb.kernel
def square(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = x[i] * x[i]


@wb.kernel
def squares64(x: wb.array[wb.float64], y: wb.array[wb.float64]):
    i = wb.tid()
    y[i] = x[i] * x[i]


@wb.kernel
def lengths(p: wb.array[wb.vec3], y: wb.array[float]):
    i = wb.tid()
    y[i] = wb.length_sq(p[i])


@wb.kernel
def scaled(a: float, x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = a * x[i]


@wb.struct
class Body:
    x: wb.array[float]
    mass: float


@wb.kernel
def weigh(body: Body, y: wb.array[float]):
    i = wb.tid()
    y[i] = body.x[i] * body.mass


class Scene:
    """What the lines of the table see: three numbers squared under a tape, and more of the like."""

    def __init__(self):
        self.x = wb.array([1.0, 2.0, 3.0], requires_grad=True, name="x")
        self.y = wb.zeros(3, name="y")
        self.tape = wb.Tape()
        with self.tape:
            wb.launch(square, 3, [self.x], [self.y])
        self.k, self.body, self.p = square, Body(), wb.zeros((4, 3), name="p")
        self.p4, self.x64 = wb.zeros((4, 4), name="p4"), wb.zeros(3, dtype=wb.float64, name="x64")
        self.lengths, self.scaled, self.weigh, self.squares64, self.Body = lengths, scaled, weigh, squares64, Body
        self.wb, self.np = wb, np

    def run(self, line: str) -> None:
        exec(line, {**vars(self), "loss": lambda x: wb.map(wb.sin, x)})


# the line, its slug (or the error, where Python has the kind), and words of the message
LINES = [
    # backward
    ("tape.backward(grads=[y])", "seed-type", "a dict {array: seed}, not list", "backward(grads={y: wb.ones_like(y)})"),
    ("tape.backward(grads=y)", "seed-type", "a dict {array: seed}, not array y", "backward(grads={y: wb.ones_like"),
    ("tape.backward([x, y])", "seed-type", "not list", "{x: wb.ones_like(x), y: wb.ones_like(y)}"),
    ("tape.backward({y: wb.ones(3)})", "seed-type", "an array, not dict", "backward(grads={y: seed})"),
    ("tape.backward(3.0)", "seed-type", "an array, not float 3.0", "left the tape", "backward(loss)"),
    ("tape.backward(y.numpy().sum())", "seed-type", "left the tape", "backward(loss)"),
    ("tape.backward(wb.scalar(1.0))", "seed-type", "an input of launches", "backward(loss)"),
    ("tape.backward(grads={})", "no-seed", "empty", "backward(grads={y: wb.ones_like(y)})"),
    ("tape.backward(grads={'y': wb.ones(3)})", "seed-type", "str 'y'", "y, the array, without quotes"),
    ("tape.backward(grads={y: 1.0})", "seed-type", "the seed of y is a float", "wb.full_like(y, 1.0)"),
    ("tape.backward(y)", "loss-shape", "(3,)", "grads={y: seed}"),
    # launch
    ("wb.launch(k, 3, x, [y])", "argument-list", "inputs is a list", "the array x", "inputs=[x]"),
    ("wb.launch(k, 3, [x], y)", "argument-list", "outputs is a list", "the array y", "outputs=[y]"),
    ("wb.launch(scaled, 1, wb.ones(1), [x, y])", "argument-list", "inputs is a list", "inputs=["),
    ("wb.launch(k, 3, np.ones(3, np.float32), [y])", "argument-list", "inputs=["),
    ("wb.launch(weigh, 3, body, [y])", "argument-list", "inputs=["),
    ("wb.launch(scaled, 3, 2.0, [x, y])", "argument-list", "float 2.0", "inputs=["),
    ("wb.launch(k, [x], 3, [y])", "argument-list", "int 3"),
    ("wb.launch(k, x, [x], [y])", "dim", "dim=array", "x.shape"),
    ("wb.launch(k, 3, [np.ones(3)], [y])", "argument-type", "float64", "from_numpy(..., dtype=wb.float32)", "copies"),
    ("wb.launch(lengths, 4, [np.ones((4, 3))], [wb.zeros(4)])", "argument-type", "from_numpy(..., dtype=wb.vec3)"),
    ("wb.launch(lengths, 4, [p], [wb.zeros(4)])", "argument-dtype", "shape (4, 3)", "p.view(wb.vec3)"),
    ("wb.launch(lengths, 4, [p4], [wb.zeros(4)])", "argument-dtype", "wb.array(values, dtype=wb.vec3)", "(n, 3)"),
    ("wb.launch(k, 4, [wb.zeros(4, dtype=wb.vec3)], [wb.zeros(4)])", "argument-dtype", "x.view(wb.float32).flatten()"),
    (
        "wb.launch(squares64, 3, [x], [x64])",
        "argument-dtype",
        "takes array(dtype=float64), got dtype float32",
        "dtype=wb.float64) where x is made",
        "wb.float64(v)",
    ),
    ("wb.launch(k, 3, [x64], [y])", "argument-dtype", "got dtype float64", "wb.float32(v)"),
    ("wb.launch(k, 3, [wb.array([1, 2, 3])], [y])", "argument-dtype", "int32", "wb.float32(v)"),
    ("wb.launch(scaled, 3, [x, 2.0], [y])", "argument-type", "'a'", "the array x", "wb.scalar(value"),
    ("wb.launch(k, 3, [wb.scalar(1.0)], [y])", "argument-type", "x: float32 in the kernel"),
    ("wb.launch(weigh, 3, [Body], [y])", "argument-type", "Body(...), an instance"),
    ("wb.launch(weigh, 3, [dict(x=x)], [y])", "argument-type", "Body(...), an instance"),
    ("wb.launch(weigh, 3, [body], [y])", "array-left-out", "must be assigned before the launch"),
    ("k(x, y)", TypeError, "wb.launch(square, dim=n"),
    # arrays
    ("wb.zeros((2**40, 2**40))", "memory", "PiB of memory", "a smaller shape"),
    ("wb.zeros(2**45)", "memory", "128 TiB of memory"),
    ("wb.zeros(2**80)", "memory", "of memory cannot be had"),
    ("wb.zeros(3, 4)", "dtype", "4 is not a dtype"),
    ("x == y", "array-comparison", "x is y", "x.numpy() == y.numpy()"),
    ("x != y", "array-comparison", "x is y", "x.numpy() != y.numpy()"),
    ("x == 3.0", "array-comparison", "x.numpy() == ..."),
    ("x < 1.0", "array-comparison", "x.numpy() < ..."),
    ("x >= y", "array-comparison", "x.numpy() >= y.numpy()"),
    ("x == np.ones(3)", "array-comparison", "x.numpy() == ..."),
    ("float(x)", "shape", "3 elements, not one"),
    ("x.sum()", AttributeError, "wb.utils.array_sum(x)"),
    ("x.astype(float)", AttributeError, "a kernel that casts"),
    ("x.copy()", AttributeError, "wb.clone(x)"),
    ("x.cpu()", AttributeError, "x.numpy()"),
    ("x.zero_grad()", AttributeError, "x.grad.zero_()"),
    ("x.backward()", AttributeError, "tape.backward(loss), then x.grad"),
    ("wb.sin(x)", TypeError, "wb.map(f, x)"),
    ("wb.map(np.sin, x)", "map-func", "wb.map(wb.sin, ...)"),
    ("wb.map(wb.sin, np.ones(3))", "map-arrays", "from_numpy"),
    ("wb.from_numpy([1.0, 2.0])", "argument-type", "wb.array(data)"),
    ("wb.clone(np.ones(3))", "argument-type", "wb.array(data)"),
    ("wb.zeros_like(np.ones(3))", "argument-type", "wb.zeros(data.shape"),
    ("wb.copy(y, np.ones(3))", "argument-type", "dest.assign(values)"),
    ("y.fill_(np.ones(3))", "components", "one value of float32", "x.assign(values)"),
    ("wb.scalar([1.0, 2.0])", "components", "one value of float32"),
    # structs
    ("body.x = np.ones(3)", "struct-field", "Body.x takes an array(", "wb.from_numpy(..., dtype=wb.float32)"),
    ("body.x = [1.0, 2.0]", "struct-field", "not list", "wb.array(..., dtype=wb.float32)"),
    ("body.x = x64", "struct-field", "not one of float64"),
    ("body.mass = wb.ones(1)", TypeError, "Body.mass takes a float32, not array of shape (1,)"),
    ("body.weight = 1.0", AttributeError, "it has x, mass"),
    ("@wb.struct\nclass Ball:\n    mass: float = 1.0", TypeError, "has a default value"),
    # what a tape is asked
    ("wb.jacobian(tape, x, y)", "jacobian-order", "only read x", "jacobian(tape, y, x)"),
    ("wb.jacobian(y, x, tape)", "tape-type", "a tape first", "jacobian(tape, y, x)"),
    ("wb.jacobian(k, y, x)", "tape-type", "with wb.Tape() as tape"),
    ("wb.jvp(tape, x)", "seed-type", "{array: direction}", "jvp(tape, {x: v})"),
    ("wb.jvp(x, tape)", "tape-type", "jvp(tape, {x: v})"),
    ("wb.hvp(tape, y, np.ones(3))", "seed-type", "hvp(tape, loss, {x: v})"),
    ("wb.hvp(y, tape, {x: np.ones(3)})", "tape-type", "hvp(tape, loss, {x: v})"),
    ("tape.replay(x)", "seed-type", "tape.replay({x: values})"),
    ("tape.adjoint('x')", "no-seed", "tape.backward(loss)"),
    ("tape.zero_grad()", AttributeError, "tape.zero()"),
    ("tape.gradient(y, x)", AttributeError, "tape.backward(loss), then x.grad"),
    ("tape.watch(x)", AttributeError, "x.requires_grad = True"),
    ("tape.record_func([x], lambda: None)", "record-func", "a function first"),
    ("tape.record_func(lambda: None, x)", "record-func", "a list of arrays", "record_func(backward, [x, y])"),
    ("tape.record_func(lambda: None, [3.0])", "record-func", "arrays, not float"),
    ("tape.record_func(lambda g: None, [x])", "record-func", "without arguments", "def backward()"),
    ("wb.value_and_grad(k)", TypeError, "a function that launches square"),
    ("wb.value_and_grad(loss)(np.ones(3))", "loss-shape", "shape (3,)", "array_sum"),
    ("wb.value_and_grad(loss)('abc')", TypeError, "arrays of numbers"),
    ("wb.value_and_grad(loss, argnums=1)(np.ones(3))", TypeError, "counted from 0"),
    ("wb.sweep(3, [1.0])", TypeError, "sweep(fn, inputs)"),
    ("with wb.capture() as g: x.numpy()", "capture", "the same line after the `with wb.capture()` block"),
    ("with wb.capture() as g: g.replay()", "capture", "graph.replay() after the `with` block"),
]


def noted(line: str, kind: str | type[Exception], words: tuple[str, ...]) -> Mistake:
    slug, error = (kind, ERRORS) if isinstance(kind, str) else ("", kind)
    return Mistake(line, lambda: Scene().run(line), slug, words, error)


MISTAKES += [noted(line, kind, tuple(words)) for line, kind, *words in LINES]


# ---- arguments of a launch


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


def taken(kernel: Any, dim: int, inputs: list):
    """A launch that must not be refused."""
    try:
        wb.launch(kernel, dim=dim, inputs=inputs)
    except wb.LaunchError as error:
        raise AssertionError("refused too early") from error


def four(**options) -> wb.array:
    return wb.array(np.arange(1.0, 5.0, dtype=np.float32), dtype=wb.float32, **options)


@refused("argument-count", "'scale'", "takes 4 arguments, got 2", "x: array")
def the_number_of_arguments():
    wb.launch(scale, dim=4, inputs=[four(), four()])


@refused("argument-dtype", "'scale'", "'y'", "array(dtype=float32)", "{}", given=[wb.float64, wb.int32, wb.float16])
def the_dtype_of_an_array(other):
    wb.launch(scale, dim=4, inputs=[four(), wb.zeros(4, dtype=other), 2.0, 1])


@refused("argument-dtype", "'scale'", "'x'", "vec3")
def vectors_where_scalars_are_due():
    wb.launch(scale, dim=4, inputs=[wb.zeros(4, dtype=wb.vec3), four(), 2.0, 1])


@refused("argument-rank", "'scale'", "'x'", "1 axes, got 2", "(2, 2)")
def the_rank_of_an_array():
    wb.launch(scale, dim=4, inputs=[wb.zeros((2, 2), dtype=wb.float32), four(), 2.0, 1])


@refused("array-left-out", "'scale'", "'x'")
def nothing_for_an_array():
    wb.launch(scale, dim=4, inputs=[None, four(), 2.0, 1])


@refused("argument-type", "'scale'", "'x'", given=[3.0, "text", np.zeros(4, np.int64)])
def something_else_than_an_array(wrong):
    wb.launch(scale, dim=4, inputs=[wrong, four(), 2.0, 1])


@refused("argument-type", "'scale'", "'n'", "int32", given=[1.5, 2**31, "text", None])
def a_number_that_is_no_int32(wrong):
    wb.launch(scale, dim=4, inputs=[four(), four(), 2.0, wrong])


@refused("argument-type", "'scale'", "'a'", "float32", given=["text", None, [1.0, 2.0]])
def something_else_than_a_float(wrong):
    wb.launch(scale, dim=4, inputs=[four(), four(), wrong, 1])


@refused("dim-rank", "'plane'", "2 thread indices")
def a_grid_of_too_few_axes():
    x = wb.zeros((4, 5), dtype=wb.float32)
    wb.launch(plane, dim=4, inputs=[x, x])


@refused("dim-rank", "'scale'", "1 thread ind", "2")
def a_grid_of_too_many_axes():
    wb.launch(scale, dim=(2, 2), inputs=[four(), four(), 2.0, 1])


@refused("dim", "'scale'", given=[-1, (1, 2, 3, 4, 5), "ab", 1.5, None])
def a_grid_that_is_none(dim):
    wb.launch(scale, dim=dim, inputs=[four(), four(), 2.0, 1])


@refused("not-a-kernel", "plain")
def a_plain_function_is_no_kernel():
    def plain(x):
        return x

    wb.launch(plain, dim=4, inputs=[four()])


# ---- bounds and races


@refused(
    "bounds", "'scale'", "'x'", "5", "(4,)", "mistakes.py", kind=wb.BoundsError, line="y[i] = x[i] * a", backends=BOTH
)
def a_grid_larger_than_the_array():
    y = wb.zeros(4, dtype=wb.float32)
    try:
        wb.launch(scale, dim=5, inputs=[four(), y, 2.0, 1])
    finally:
        np.testing.assert_array_equal(y.numpy(), 0)


@refused(
    "bounds",
    "'plane'",
    "'x'",
    "(3, 5)",
    "x[i, j + 1]",
    kind=wb.BoundsError,
    line="y[i, j] = x[i, j + 1] * 2.0",
    backends=BOTH,
)
def an_affine_index_that_leaves_one_axis():
    x = wb.zeros((3, 5), dtype=wb.float32)
    wb.launch(plane, dim=(3, 5), inputs=[x, wb.zeros((3, 5), dtype=wb.float32)])


@refused("bounds", "'shifted'", "'x'", "(4,)", kind=wb.BoundsError, line="x[i + shift] = 1.0", backends=BOTH)
def an_index_that_depends_on_a_number():
    @wb.kernel
    def shifted(x: wb.array(dtype=wb.float32), shift: int):
        i = wb.tid()
        x[i + shift] = 1.0

    taken(shifted, 2, [four(), 2])
    wb.launch(shifted, dim=2, inputs=[four(), 3])


@refused("bounds", "'total'", "'x'", "(4,)", kind=wb.BoundsError, line="s += x[j]", backends=BOTH)
def a_loop_that_leaves_the_array():
    @wb.kernel
    def total(x: wb.array(dtype=wb.float32), y: wb.array(dtype=wb.float32), n: int):
        s = 0.0
        for j in range(n):
            s += x[j]
        y[0] = s

    taken(total, 1, [four(), four(), 4])
    wb.launch(total, dim=1, inputs=[four(), four(), 5])


def gathered(wrong: int):
    wb.launch(gather, dim=4, inputs=[four(), wb.array([0, 1, wrong, 2], dtype=wb.int32), four()])


@refused(
    "bounds",
    "'gather'",
    "'x'",
    "thread 2",
    "x[{}]",
    "line",
    "(4,)",
    "x[n[i]]",
    kind=wb.BoundsError,
    line="y[i] = x[n[i]] * x[n[i]]",
    given=[4, 7, -5],
    backends=("numpy",),
)
def an_index_from_data_is_found_by_the_interpreter(wrong):
    gathered(wrong)


@refused(
    "bounds",
    "'gather'",
    "'x'",
    "thread 2",
    "(4,)",
    "x[n[i]]",
    kind=wb.BoundsError,
    line="y[i] = x[n[i]] * x[n[i]]",
    given=[4, 7, -5],
    backends=("c",),
)
def an_index_from_data_is_found_by_compiled_code_when_asked(wrong):
    wb.config.check_bounds = True
    gathered(wrong)


@refused("race", "'clash'", "'y'", "threads (0,) and (1,)", "atomic_add", line="y[0] = x[i]", backends=BOTH)
def two_threads_that_store_to_one_element():
    @wb.kernel
    def clash(x: wb.array(dtype=wb.float32), y: wb.array(dtype=wb.float32)):
        i = wb.tid()
        y[0] = x[i]

    wb.launch(clash, dim=4, inputs=[four(), four()])


def backward(kernel: Any, *more: wb.array):
    """A launch on four numbers under a tape, and its walk back from the array behind the first and the indices."""
    x, y, tape = four(requires_grad=True), four(requires_grad=True), wb.Tape()
    with tape:
        wb.launch(kernel, dim=4, inputs=[x, *more, y])
    tape.backward(grads={y: wb.ones(4, dtype=wb.float32)})


@refused("race", "'k'", "'x'", "threads", "load", "store", line="y[i] = x[3 - i] * x[3 - i]", backends=BOTH)
def a_load_and_a_store_of_one_element_by_two_threads():
    @wb.kernel
    def k(x: wb.array(dtype=wb.float32), y: wb.array(dtype=wb.float32)):
        i = wb.tid()
        y[i] = x[3 - i] * x[3 - i]
        x[i] = y[i]

    backward(k)


@refused("race", "'k'", "'y'", "threads 3 and 1", line="y[n[i]] = x[i] * x[i]", backends=BOTH)
def a_scatter_by_equal_indices():
    @wb.kernel
    def k(x: wb.array(dtype=wb.float32), n: wb.array(dtype=int), y: wb.array(dtype=wb.float32)):
        i = wb.tid()
        y[n[i]] = x[i] * x[i]

    backward(k, wb.array([0, 2, 1, 2], dtype=wb.int32))


def updated(update: Any):
    @wb.kernel
    def k(x: wb.array(dtype=wb.float32), y: wb.array(dtype=wb.float32)):
        i = wb.tid()
        old = update(y, i, x[i])
        y[i] = old * x[i]

    backward(k)


@refused("atomic-gradient", "`atomic_exch`", line="old = update(y, i, x[i])", backends=BOTH)
def an_atomic_without_a_derivative_on_an_active_path():
    updated(wb.atomic_exch)


@refused("atomic-mixed", "`atomic_min`", line="old = update(y, i, x[i])", backends=BOTH)
def an_atomic_whose_result_is_used_on_an_active_path():
    updated(wb.atomic_min)


@refused("atomic-order", "'k'", kind=wb.GradientError, line="z[i] = wb.atomic_add(y, 0, x[i]) * x[i]", backends=BOTH)
def a_returned_float_of_an_atomic_that_threads_share():
    @wb.kernel
    def k(x: wb.array(dtype=wb.float32), y: wb.array(dtype=wb.float32), z: wb.array(dtype=wb.float32)):
        i = wb.tid()
        z[i] = wb.atomic_add(y, 0, x[i]) * x[i]

    x, y, z, tape = four(requires_grad=True), four(requires_grad=True), four(), wb.Tape()
    with tape:
        wb.launch(k, dim=4, inputs=[x, y, z])
    tape.backward(grads={z: wb.ones(4, dtype=wb.float32)})


# ---- seeds


def recorded():
    x, y, tape = four(requires_grad=True), four(requires_grad=True), wb.Tape()
    with tape:
        wb.launch(square, dim=4, inputs=[x, y])
    return x, y, tape


@refused("seed-shape", "(4,)", given=[3, 5, (4, 1), (2, 2)], backends=BOTH)
def a_seed_of_another_shape(shape):
    _, y, tape = recorded()
    tape.backward(grads={y: wb.ones(shape, dtype=wb.float32)})


@refused("seed-dtype", "{}", "float32 of shape (4,)", given=[wb.float64, wb.int32, wb.vec3], backends=BOTH)
def a_seed_of_another_dtype(dtype):
    _, y, tape = recorded()
    tape.backward(grads={y: wb.zeros(4, dtype=dtype)})


@refused("loss-shape", "(4,)", backends=BOTH)
def a_loss_of_many_elements():
    _, y, tape = recorded()
    tape.backward(loss=y)


@refused("seed-untouched", backends=BOTH)
def a_seed_that_the_tape_never_touched():
    _, _, tape = recorded()
    tape.backward(grads={four(requires_grad=True): wb.ones(4, dtype=wb.float32)})


@refused("grad-of-int", "int32")
def a_gradient_of_integers():
    wb.zeros(4, dtype=wb.int32, requires_grad=True)


@refused(
    "overwritten", "'x'", "square", kind=wb.GradientError, line="wb.launch(square, dim=4, inputs=[x, y])", backends=BOTH
)
def an_input_changed_between_forward_and_backward():
    x, y, tape = recorded()
    x.numpy()[0] = 9.0
    tape.backward(grads={y: wb.ones(4, dtype=wb.float32)})


@refused("seed-untouched", "was neither read nor written")
def an_adjoint_of_an_array_that_the_tape_never_saw():
    s = Scene()
    s.tape.backward(grads={s.y: wb.ones(3)})
    s.tape.adjoint(wb.ones(3))


@refused("event", "no event of this tape", "tape.events")
def an_adjoint_at_no_event():
    s = Scene()
    s.tape.backward(grads={s.y: wb.ones(3)})
    s.tape.adjoint(s.x, at=0)


@refused("tape-keyword", "Tape has no argument 'persistent'.\nIt takes keep alone", "\nWrite instead:   wb.Tape(")
def a_keyword_that_a_tape_does_not_have():
    wb.Tape(persistent=True)


@refused("tape-keyword", "Tape(keep='everything'): keep is 'needed' or 'all'.\nWrite instead:   wb.Tape(")
def a_tape_that_keeps_something_else():
    wb.Tape(keep="everything")


@refused("tape-keyword", "Tape(keep=True): keep is 'needed' or 'all'.\nWrite instead:   wb.Tape(")
def a_tape_with_a_number():
    wb.Tape(True)


# ---- sources


def one(kernel: Any):
    wb.launch(kernel, dim=4, inputs=[four(), four()])


@refused("unknown-name", "`settings.dt` raises KeyError('dt')", kind=wb.KernelError, line="y[i] = x[i] * settings.dt")
def an_attribute_that_raises():
    settings = type("Settings", (dict,), {"__getattr__": dict.__getitem__})(step=0.1)

    @wb.kernel
    def k(x: wb.array(dtype=wb.float32), y: wb.array(dtype=wb.float32)):
        i = wb.tid()
        y[i] = x[i] * settings.dt

    one(k)


@refused("unknown-name", "nowhere", kind=wb.KernelError, line="y[i] = x[i] * nowhere")
def an_unknown_name():
    @wb.kernel
    def k(x: wb.array(dtype=wb.float32), y: wb.array(dtype=wb.float32)):
        i = wb.tid()
        y[i] = x[i] * nowhere  # noqa: F821

    one(k)


@refused("loop-type", "`s`", "int32", "float32", kind=wb.KernelError, line="for j in range(3):")
def a_type_that_changes_in_a_loop():
    @wb.kernel
    def k(x: wb.array(dtype=wb.float32), y: wb.array(dtype=wb.float32)):
        i = wb.tid()
        s = 0
        for j in range(3):
            s = s + 1
            s = x[i]
        y[i] = x[i]

    one(k)


@refused("branch-type", "`s`", "int32", "float32", kind=wb.KernelError, line="y[i] = float(s)")
def a_type_that_differs_between_branches():
    @wb.kernel
    def k(x: wb.array(dtype=wb.float32), y: wb.array(dtype=wb.float32)):
        i = wb.tid()
        if x[i] > 1.0:
            s = 1
        else:
            s = 1.0
        y[i] = float(s)

    one(k)


@refused("missing-return", "`f`", kind=wb.KernelError, line="def f(a: wb.float32):")
def a_func_that_returns_on_some_paths_only():
    @wb.func
    def f(a: wb.float32):
        if a > 1.0:
            return a

    @wb.kernel
    def k(x: wb.array(dtype=wb.float32), y: wb.array(dtype=wb.float32)):
        i = wb.tid()
        y[i] = f(x[i])

    one(k)


@refused("maybe-unbound", "`s`", kind=wb.KernelError, line="y[i] = s")
def a_name_bound_on_some_paths_only():
    @wb.kernel
    def k(x: wb.array(dtype=wb.float32), y: wb.array(dtype=wb.float32)):
        i = wb.tid()
        if x[i] > 1.0:
            s = x[i]
        y[i] = s

    one(k)


@refused("mixed-types", "float32", "int32", kind=wb.KernelError, line="y[i] = x[i] * i")
def numbers_of_two_types():
    @wb.kernel
    def k(x: wb.array(dtype=wb.float32), y: wb.array(dtype=wb.float32)):
        i = wb.tid()
        y[i] = x[i] * i

    one(k)


@refused("store-type", "float64", "float32", kind=wb.KernelError, line="y[i] = wb.float64(x[i])")
def a_value_of_another_type_stored():
    @wb.kernel
    def k(x: wb.array(dtype=wb.float32), y: wb.array(dtype=wb.float32)):
        i = wb.tid()
        y[i] = wb.float64(x[i])

    one(k)


@refused("local-array", "array", "numbers", kind=wb.KernelError, line="q = wb.zeros(shape=3, dtype=Rows)")
def a_local_array_of_arrays():
    @wb.struct
    class Rows:
        x: wb.array(dtype=wb.float32)

    @wb.kernel
    def k(x: wb.array(dtype=wb.float32), y: wb.array(dtype=wb.float32)):
        i = wb.tid()
        q = wb.zeros(shape=3, dtype=Rows)
        y[i] = q[0].x[0]

    one(k)


@refused("rank", kind=wb.KernelError, line="y[i, j, 0] = x[i, j]")
def too_many_indices():
    @wb.kernel
    def k(x: wb.array2d(dtype=wb.float32), y: wb.array2d(dtype=wb.float32)):
        i, j = wb.tid()
        y[i, j, 0] = x[i, j]

    wb.launch(k, dim=(2, 2), inputs=[wb.zeros((2, 2)), wb.zeros((2, 2))])


@refused("no-source", kind=wb.KernelError)
def a_lambda_without_a_text():
    wb.map(eval("lambda v: v * v"), wb.ones(2))
