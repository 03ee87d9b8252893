"""A recorded launch: repeated, over another grid, with other arguments; what a tape has recorded stays as it was."""

from __future__ import annotations

import pytest

import workbench as wb


@wb.kernel
def scale(x: wb.array[float], a: float, y: wb.array[float]):
    i = wb.tid()
    y[i] = a * x[i]


def test_arguments_and_grid_can_be_others_from_then_on():
    x, y, z = wb.array([1.0, 2.0]), wb.zeros(2), wb.zeros(2)
    command = wb.launch(scale, 2, [x, 3.0], [y], record_cmd=True)
    assert y.list() == [0.0, 0.0]
    command.launch()
    command.set_param_at_index(1, 5.0)
    command.set_param_by_name("y", z)
    command.set_dim(1)
    command.launch()
    assert y.list() == [3.0, 6.0] and z.list() == [5.0, 0.0]
    command.set_params([x, 2.0, y])
    command.launch(stream=None)
    assert y.list() == [2.0, 6.0] and command.params[1] == 2.0 and "scale" in repr(command)


def test_recorded_events_keep_their_arguments():
    x, y, z = wb.array([1.0, 2.0], requires_grad=True), wb.zeros(2), wb.zeros(2)
    command = wb.launch(scale, 2, [x, 3.0], [y], record_cmd=True)
    with wb.Tape() as tape:
        command.launch()
        command.set_params([x, 5.0, z])
        command.launch()
    tape.backward(grads={y: wb.ones(2), z: wb.ones(2)})
    assert x.grad.list() == [8.0, 8.0]


@pytest.mark.parametrize(
    ("change", "slug"),
    [
        (lambda c: c.set_param_by_name("b", 1.0), "argument-count"),
        (lambda c: c.set_param_at_index(3, 1.0), "argument-count"),
        (lambda c: c.set_param_at_index(0, 1.0), "argument-type"),
        (lambda c: c.set_dim(3), "bounds"),
        (lambda c: c.set_param_at_index(1, 1.0, adjoint=True), "launch-keyword"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(change, slug):
    x, y = wb.ones(2), wb.zeros(2)
    command = wb.launch(scale, 2, [x, 3.0], [y], record_cmd=True)
    with pytest.raises((wb.LaunchError, wb.BoundsError)) as found:
        change(command)
    command.launch()
    assert found.value.slug == slug and y.list() == [3.0, 3.0]
