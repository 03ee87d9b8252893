"""Warp's `autograd` names: Jacobians with its keys, shapes and dtypes, and exact."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb


@wb.kernel
def two(x: wb.array[wb.vec3], s: float, y: wb.array[float], z: wb.array[wb.vec3]):
    i = wb.tid()
    y[i] = s * wb.dot(x[i], x[i])
    z[i] = 2.0 * x[i]


X = np.array([[1.0, 2, 3], [4, 5, 6]])


def made():
    return dict(dim=2, inputs=[wb.array(X, dtype=wb.vec3), 2.0], outputs=[wb.zeros(2), wb.zeros(2, dtype=wb.vec3)])


@pytest.mark.parametrize("which, bound", [("jacobian", 0), ("jacobian_fd", 2e-2)])
def test_jacobians_have_a_row_per_number_and_a_column_per_element(which, bound):
    found = getattr(wb.autograd, which)(two, **made())
    assert {k: (a.shape, a.dtype) for k, a in found.items()} == {(0, 0): ((2, 2), wb.vec3), (0, 1): ((6, 2), wb.vec3)}
    want = np.zeros((2, 2, 3))
    want[0, 0], want[1, 1] = 4 * X[0], 4 * X[1]
    np.testing.assert_allclose(found[0, 0].numpy(), want, atol=bound * 10)
    np.testing.assert_allclose(found[0, 1].numpy().reshape(6, 6), 2 * np.eye(6), atol=bound)


def test_a_function_and_a_mask():
    def both(x):
        y, z = wb.zeros(2), wb.zeros(2, dtype=wb.vec3)
        wb.launch(two, 2, [x, 2.0], [y, z])
        return y, z

    x = wb.array(X, dtype=wb.vec3)
    found = wb.autograd.jacobian(both, inputs=[x], input_output_mask=[(0, 1)])
    assert list(found) == [(0, 1)] and not x.requires_grad and np.array_equal(x.numpy(), X)


@pytest.mark.parametrize("which", ["jacobian", "jacobian_fd"])
def test_pairs_by_name_and_some_rows_or_columns(which):
    jacobian, of = getattr(wb.autograd, which), {"jacobian": "max_outputs_per_var", "jacobian_fd": "max_inputs_per_var"}
    found = jacobian(two, **made(), input_output_mask=[("x", "z")], **{of[which]: 4})
    whole = jacobian(two, **made())[0, 1].numpy().reshape(6, 6)
    some = found[0, 1].numpy().reshape(6, 6)
    if which == "jacobian_fd":
        some, whole = some.T, whole.T
    assert list(found) == [(0, 1)] and np.isnan(some[4:]).all() and np.array_equal(some[:4], whole[:4])
    with pytest.raises(wb.LaunchError, match=r"no output 'w'; there are y, z(.|\n)*\[jacobian-mask\]"):
        jacobian(two, **made(), input_output_mask=[("x", "w")])
    by_name = jacobian(lambda x: 2.0 * x, inputs=[wb.array([1.0])], input_output_mask=[("x", "output_0")])
    np.testing.assert_allclose(by_name[0, 0].numpy(), 2, rtol=1e-3)


@pytest.mark.parametrize("how", [{}, {"scale_colors_per_submatrix": True, "log_scale": True}, {"show_colorbar": False}])
def test_a_picture_of_jacobians_shows_their_numbers(how):
    given = made()
    found = wb.autograd.jacobian(two, **given, plot_jacobians=True)
    figure = wb.autograd.jacobian_plot(found, two, given["inputs"], title="two", **how)
    images = [ax for ax in figure.axes if ax.images]
    assert [(ax.get_xlabel(), ax.get_ylabel()) for ax in images] == [("x", "y"), ("x", "z")]
    drawn = np.asarray(images[0].images[0].get_array().filled(0))
    np.testing.assert_allclose(np.nan_to_num(drawn), found[0, 0].numpy().reshape(2, 6))
    assert figure._repr_png_()[1:4] == b"PNG"
    assert wb.autograd.jacobian_plot({}, two, []) is None
    with pytest.raises(wb.LaunchError, match=r"\[arguments\]"):
        wb.autograd.jacobian_plot(found, two)


def test_a_module_of_this_name_can_be_imported():
    import workbench.autograd

    assert workbench.autograd is wb.autograd


def test_checks_say_yes_or_raise():
    assert wb.autograd.gradcheck(two, **made()) is True

    @wb.func
    def f(x: float):
        return x * x

    @wb.func_grad(f)
    def adj_f(x: float, adj: float):
        wb.adjoint[x] += 3.0 * x * adj

    @wb.kernel
    def wrong(x: wb.array[float], y: wb.array[float]):
        i = wb.tid()
        y[i] = f(x[i])

    how = dict(dim=1, inputs=[wb.array([2.0])], outputs=[wb.zeros(1)])
    assert wb.autograd.gradcheck(wrong, **how, raise_exception=False) is False
    with pytest.raises(wb.GradientError, match="gradcheck"):
        wb.autograd.gradcheck(wrong, **how)


@pytest.mark.needs_warp
def test_every_name_of_autograd_optim_and_sparse_is_known():
    import warp.autograd
    import warp.optim.linear
    import warp.sparse

    missing = {
        module.__name__: [n for n in dir(module) if not n.startswith("_") and not hasattr(ours, n)]
        for module, ours in (
            (warp.autograd, wb.autograd),
            (warp.optim, wb.optim),
            (warp.optim.linear, wb.optim.linear),
            (warp.sparse, wb.sparse),
        )
    }
    assert not any(missing.values()), missing
