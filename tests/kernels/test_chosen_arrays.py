"""One array or another: what is refused, what fails as it runs, and what costs nothing. Gradients: `corpus.chosen`."""

import runpy

import numpy as np
import pytest

import workbench as wb
from workbench.kernels import ir
from workbench.kernels.reading.reader import read


@wb.struct
class Part:
    n: int
    values: wb.array[float]
    rows: wb.array2d[float]


def launched(kernel, n=0):
    x, y = wb.array([1.0, 2.0, 3.0]), wb.array([10.0, 20.0, 30.0])
    wb.launch(kernel, dim=3, inputs=[x, y, n])
    return x.numpy(), y.numpy()


def test_a_field_that_was_never_assigned_is_refused_where_it_is_read():
    @wb.kernel
    def k(x: wb.array[float], y: wb.array[float], n: int):
        i = wb.tid()
        p = Part()
        for _ in range(n):
            x[i] = p.values[i]

    with pytest.raises(wb.KernelError, match="never assigned") as error:
        launched(k)
    assert error.value.slug == "array-field" and "p.values[i]" in error.value.text
    assert "s.values = ..." in str(error.value)


@pytest.mark.parametrize("backend", ["numpy", "c"])
def test_a_field_of_some_paths_fails_only_in_the_threads_that_read_it_on_others(backend, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", backend)

    @wb.kernel
    def k(x: wb.array[float], y: wb.array[float], n: int):
        i = wb.tid()
        p = Part()
        if i < 2:
            p.values = y
        if i < n:
            x[i] = p.values[i] * 2.0

    assert launched(k, 2)[0].tolist() == [20.0, 40.0, 3.0]
    with pytest.raises(wb.LaunchError, match="array field 'values'") as error:
        launched(k, 3)
    assert error.value.slug == "array-field" and error.value.where.text.strip() == "x[i] = p.values[i] * 2.0"


def test_a_field_without_an_array_is_false_and_has_no_elements():
    @wb.kernel
    def k(x: wb.array[float], y: wb.array[float], n: int):
        i = wb.tid()
        p = Part()
        if i == 1:
            p.values = y
        x[i] = float(p.values.shape[0] + 10 * len(p.rows))
        if p.values:
            x[i] += 100.0
        if not p.rows:
            x[i] += 1000.0

    assert launched(k)[0].tolist() == [1000.0, 1103.0, 1000.0]


@pytest.mark.parametrize("backend", ["numpy", "c"])
def test_a_choice_may_be_of_an_array_that_the_launch_leaves_out(backend, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", backend)

    @wb.kernel
    def k(x: wb.array[float], y: wb.array[float], z: wb.array[float]):
        i = wb.tid()
        a = z if i == 1 else y
        if a:
            x[i] = a[i]
        elif a is None:
            x[i] = 7.0

    x, y = wb.array([1.0, 2.0, 3.0]), wb.array([10.0, 20.0, 30.0])
    wb.launch(k, dim=3, inputs=[x, y, None])
    assert x.numpy().tolist() == [10.0, 7.0, 30.0]
    wb.launch(k, dim=3, inputs=[x, y, y])
    assert x.numpy().tolist() == [10.0, 20.0, 30.0]


def test_where_the_condition_is_known_there_is_no_second_branch():
    @wb.kernel
    def k(x: wb.array[float], y: wb.array[float], n: int):
        i = wb.tid()
        a = x
        if n > 0:
            a = y
        if n > 0:
            a[i] = 5.0

    body = read(k.func).function.body
    stores = [s for s in ir.walk(body) if s.row.writes]
    assert [s.args[0].name for s in stores] == ["y"]


def test_indices_and_values_are_evaluated_once():
    @wb.kernel
    def k(x: wb.array[float], y: wb.array[float], n: wb.array[int]):
        i = wb.tid()
        a = x if i == 0 else y
        a[wb.atomic_add(n, 0, 1)] = float(wb.atomic_add(n, 1, 1))

    x, y, n = wb.zeros(3), wb.zeros(3), wb.zeros(2, dtype=int)
    wb.launch(k, dim=2, inputs=[x, y, n])
    assert n.numpy().tolist() == [2, 2]


def test_two_threads_that_reach_one_element_through_a_choice_are_a_race():
    @wb.kernel
    def k(x: wb.array[float], y: wb.array[float], n: int):
        i = wb.tid()
        a = x if i == n else y
        a[0] = float(i)

    with pytest.raises(wb.LaunchError, match=r"both store to one element of 'y', y\[0\]"):
        launched(k)


def test_an_array_that_a_choice_has_overwritten_is_kept_for_the_reverse_pass():
    @wb.kernel
    def square(x: wb.array[float], y: wb.array[float]):
        i = wb.tid()
        y[i] = x[i] * x[i]

    @wb.kernel
    def overwrite(x: wb.array[float], y: wb.array[float], n: int):
        i = wb.tid()
        a = x if i == n else y
        a[i] = a[i] * 3.0

    x, y = wb.array([1.0, 2.0, 3.0], requires_grad=True), wb.zeros(3, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(square, dim=3, inputs=[x, y])
        wb.launch(overwrite, dim=3, inputs=[x, y, 1])
    tape.backward(grads={y: wb.ones(3)})
    assert np.allclose(x.grad.numpy(), [6.0, 4.0, 18.0])


def test_more_arrays_than_there_may_be_are_refused(tmp_path):
    names = [f"a{k}" for k in range(17)]
    lines = [f"    {'el' * (k > 0)}if i == {k}:\n        a = {name}\n" for k, name in enumerate(names[1:])]
    params = ", ".join(f"{name}: wb.array[float]" for name in names)
    text = f"import workbench as wb\n@wb.kernel\ndef k({params}):\n    i = wb.tid()\n    a = a0\n"
    path = tmp_path / "many_arrays.py"
    path.write_text(text + "".join(lines) + "    a0[i] = a[i]\n")
    space = runpy.run_path(str(path))
    with pytest.raises(wb.KernelError, match="more than 16") as error:
        wb.launch(space["k"], dim=1, inputs=[wb.zeros(1)] * 17)
    assert error.value.slug == "array-choice"


def test_an_array_made_in_a_turn_of_a_loop_cannot_be_read_in_the_next_one():
    @wb.kernel
    def k(x: wb.array[float], y: wb.array[float], n: int):
        a = x
        for j in range(n):
            y[j] = a[0]
            a = wb.zeros(shape=3, dtype=float)

    with pytest.raises(wb.KernelError) as error:
        launched(k)
    assert error.value.slug == "array-choice" and "for j in range(n)" in error.value.text


@wb.kernel
def one_of_two_rows(x: wb.array2d[wb.float64], y: wb.array[wb.float64]):
    i = wb.tid()
    a, row = i + 1, x[i]
    if i > 0:
        row = x[a]
    for j in range(2):
        y[i] = y[i] * 2.0 + row[j] * row[j]
        row = x[a]


def test_rows_of_one_array_by_branch_and_by_turn(backend):
    start = np.arange(1.0, 7.0).reshape(3, 2)
    x, y = wb.array(start, dtype=wb.float64, requires_grad=True), wb.zeros(2, dtype=wb.float64)
    with wb.Tape() as tape:
        wb.launch(one_of_two_rows, 2, [x, y])
    assert y.list() == [2.0 * 1.0 + 16.0, 2.0 * 25.0 + 36.0]
    tape.backward(grads={y: wb.ones(2, dtype=wb.float64)})
    assert x.grad.numpy().tolist() == [[4.0, 0.0], [0.0, 8.0], [20.0, 12.0]]
