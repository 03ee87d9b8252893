"""The names that programs for NVIDIA Warp use exist here, say what they are, and take the same keywords."""

import inspect

import numpy as np
import pytest

import workbench as wb

NAMES = {
    "decorators": "kernel func struct func_grad func_replay overload",
    "inside kernels": "tid printf static constant adjoint",
    "arrays": "array array1d array2d array3d array4d zeros ones full empty zeros_like ones_like full_like empty_like "
    "clone copy from_numpy from_torch to_torch from_dlpack from_jax to_jax",
    "running": "launch Tape map utils config init synchronize get_device get_devices set_device is_cuda_available "
    "ScopedDevice Kernel",
    "errors": "KernelError LaunchError BoundsError GradientError",
    "numbers": "bool float int float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64",
    "vectors": " ".join(f"vec{n}{s}" for n in (2, 3, 4) for s in ("", *"f d h i l s b ui ul us ub".split())),
    "matrices": " ".join(f"mat{n}{n}{s}" for n in (2, 3, 4) for s in ("", "f", "d", "h")) + " quat quatf quatd quath",
    "making types": "vector matrix types",
    "atomics": "atomic_add atomic_sub atomic_min atomic_max atomic_exch atomic_cas",
    "random": "rand_init randf randi randu randn",
    "scalars": "min max abs clamp sign step nonzero sin cos tan asin acos atan atan2 sinh cosh tanh exp log log2 log10 "
    "sqrt cbrt pow floor ceil trunc round rint frac mod degrees radians erf erfc where lerp smoothstep "
    "isnan isinf isfinite",
    "linear algebra": "dot ddot cross outer length length_sq normalize transpose determinant inverse trace diag "
    "get_diag skew identity cw_mul cw_div norm_l1 norm_l2 matrix_from_rows matrix_from_cols",
    "quaternions": "quat_identity quat_from_axis_angle quat_rpy quat_rotate quat_rotate_inv quat_inverse "
    "quat_to_matrix",
    "bits and operators": "add sub mul div floordiv neg pos invert lshift rshift bit_and bit_or bit_xor unot",
}
CONSTANTS = {"pi": np.pi, "PI": np.pi, "tau": 2 * np.pi, "TAU": 2 * np.pi, "e": np.e, "E": np.e, "half_pi": np.pi / 2,
             "HALF_PI": np.pi / 2, "inf": np.inf, "INF": np.inf}  # fmt: skip
EVERY = [name for names in NAMES.values() for name in names.split()]


@pytest.mark.parametrize("name", EVERY)
def test_the_name_exists_and_is_documented(name):
    assert (inspect.getdoc(getattr(wb, name)) or "").strip(), f"wb.{name} has no docstring"


def test_no_name_is_listed_twice():
    assert len(EVERY) == len(set(EVERY))


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_are_python_floats(name):
    assert type(getattr(wb, name)) is float and getattr(wb, name) == CONSTANTS[name]
    assert np.isnan(wb.nan) and np.isnan(wb.NAN)


def test_typed_names_are_the_types_they_say():
    assert wb.vec3 is wb.vec3f and wb.vec3.scalar is wb.float32 and wb.vec3.length == 3
    assert wb.vec4d.scalar is wb.float64 and wb.vec2i.scalar is wb.int32 and wb.vec2ub.scalar is wb.uint8
    assert wb.mat33 is wb.mat33f and wb.mat33d.scalar is wb.float64 and wb.mat22.shape == (2, 2)
    assert wb.quat is wb.quatf and wb.quatd.scalar is wb.float64


def test_vector_and_matrix_types_are_made_as_in_warp():
    assert wb.types.vector(length=3, dtype=wb.float32) is wb.vec3 is wb.types.vector(3, float)
    assert wb.types.matrix(shape=(3, 3), dtype=wb.float64) is wb.mat33d is wb.types.matrix([3, 3], np.float64)
    assert wb.types.vector(length=7, dtype=wb.float16).length == 7
    assert wb.types.matrix(shape=(2, 5), dtype=float).shape == (2, 5)
    assert wb.vector is wb.types.vector and wb.matrix is wb.types.matrix


def test_both_forms_of_array_annotations_mean_the_same():
    assert wb.array(dtype=wb.vec3) == wb.array[wb.vec3]
    assert wb.array2d(dtype=float) == wb.array(dtype=wb.float32, ndim=2) == wb.array2d[float]


def test_warp_s_idioms_run_unchanged():
    Five = wb.types.vector(length=5, dtype=float)

    @wb.kernel
    def kernel(x: wb.array(dtype=Five), y: wb.array(dtype=float)):
        i = wb.tid()
        total = wb.float(0.0)
        count = wb.int(0)
        for j in range(5):
            total += x[i][j] * wb.PI
            count += 1
        y[i] = total + wb.float(count) + wb.vector(1.0, 2.0)[1]

    y = wb.zeros(2)
    wb.launch(kernel, dim=2, inputs=[wb.ones(2, dtype=Five)], outputs=[y], block_dim=64, max_blocks=0, stream=None)
    np.testing.assert_allclose(y.numpy(), 5 * np.pi + 7, rtol=1e-6)


def test_launch_refuses_keywords_by_name():
    @wb.kernel
    def one(x: wb.array(dtype=float)):
        x[wb.tid()] = 1.0

    x = wb.zeros(3)
    with pytest.raises(wb.LaunchError, match=r"no argument 'input'(.|\n)*inputs=(.|\n)*launch-keyword"):
        wb.launch(one, 3, input=[x])
    for odd in ({"stream": object()}, {"adj_inputs": [x]}, {"block_dim": "many"}):
        with pytest.raises(wb.LaunchError, match=f"{next(iter(odd))}(.|\n)*launch-keyword"):
            wb.launch(one, 3, [x], **odd)
    assert not x.numpy().any()
    wb.launch(one, 3, [x], block_dim=128, adjoint=False, adj_inputs=[], adj_outputs=[])
    assert x.numpy().all()


def test_a_recorded_command_is_launched_again():
    @wb.kernel
    def double(x: wb.array(dtype=float)):
        i = wb.tid()
        x[i] = 2.0 * x[i]

    x = wb.ones(3)
    command = wb.launch(double, 3, [x], record_cmd=True)
    command.launch()
    command.launch()
    assert x.numpy().tolist() == [4.0] * 3


def test_mod_works_component_by_component():
    @wb.kernel
    def kernel(a: wb.array(dtype=wb.vec3), b: wb.array(dtype=wb.vec3), y: wb.array(dtype=wb.vec3)):
        i = wb.tid()
        y[i] = wb.mod(a[i], b[i])

    a = wb.array([[5.5, -4.0, 7.25]], dtype=wb.vec3, requires_grad=True)
    b = wb.array([[2.0, 3.0, 2.5]], dtype=wb.vec3, requires_grad=True)
    y = wb.zeros(1, dtype=wb.vec3)
    with wb.Tape() as tape:
        wb.launch(kernel, 1, [a, b], [y])
    np.testing.assert_array_equal(y.numpy(), [[1.5, -1.0, 2.25]])
    tape.backward(grads={y: wb.array([[1.0, 10.0, 100.0]], dtype=wb.vec3)})
    np.testing.assert_array_equal(a.grad.numpy(), [[1, 10, 100]])
    np.testing.assert_array_equal(b.grad.numpy(), [[-2, 10, -200]])
