"""The names that programs for NVIDIA Warp use exist here, say what they are, and take the same keywords."""

import inspect

import numpy as np
import pytest

import workbench as wb
from workbench.kernels.reading import declare

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
    "searches": "lower_bound sample_cdf",
    "open types": "Float Int Scalar Function ref",
    "geometry": "HashGrid HashGridQuery hash_grid_query hash_grid_query_next hash_grid_point_id "
    "Mesh mesh_get mesh_get_bvh mesh_get_index mesh_get_point mesh_get_velocity mesh_eval_position mesh_eval_velocity "
    "mesh_eval_face_normal MeshQueryPoint mesh_query_point mesh_query_point_no_sign mesh_query_point_sign_normal "
    "mesh_query_point_sign_parity mesh_query_point_sign_winding_number mesh_query_furthest_point_no_sign MeshQueryRay "
    "mesh_query_ray mesh_query_ray_anyhit mesh_query_ray_count_intersections Bvh bvh_get_group_root "
    "mesh_get_group_root "
    "bvh_query_aabb bvh_query_ray "
    "bvh_query_capsule bvh_query_sphere bvh_query_next mesh_query_aabb mesh_query_sphere mesh_query_next "
    "mesh_query_aabb_next",
    "bits and operators": "add sub mul div floordiv neg pos invert lshift rshift bit_and bit_or bit_xor unot",
}
CONSTANTS = {
    "pi": np.pi,
    "PI": np.pi,
    "tau": 2 * np.pi,
    "TAU": 2 * np.pi,
    "e": np.e,
    "E": np.e,
    "half_pi": np.pi / 2,
    "HALF_PI": np.pi / 2,
    "inf": np.inf,
    "INF": np.inf,
    "ln2": np.log(2),
    "LN2": np.log(2),
    "ln10": np.log(10),
    "LN10": np.log(10),
    "log2e": np.log2(np.e),
    "LOG2E": np.log2(np.e),
    "log10e": np.log10(np.e),
    "LOG10E": np.log10(np.e),
    "phi": (1 + np.sqrt(5)) / 2,
    "PHI": (1 + np.sqrt(5)) / 2,
}
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


@pytest.mark.needs_warp
def test_every_name_of_warp_is_here_or_says_what_to_use():
    import warp

    names = [name for name in dir(warp) if not name.startswith("_")]
    assert len(names) > 400
    unknown = [name for name in names if not hasattr(wb, name)]
    assert unknown == []
    for name in names:
        if isinstance(found := getattr(wb, name), declare.Refused):
            assert len(found.__doc__) > 10, name


def test_a_refused_name_says_why_on_the_host_and_in_a_kernel():
    with pytest.raises(wb.LaunchError, match=r"ScopedMempool(.|\n)*allocators(.|\n)*not-here"):
        wb.ScopedMempool("cpu", True)

    @wb.kernel
    def counted(x: wb.array(dtype=int)):
        i = wb.tid()
        x[i] = wb.volume_lookup_index(x[i])

    with pytest.raises(
        wb.KernelError, match=r"`volume_lookup_index` of NVIDIA Warp(.|\n)*use arrays(.|\n)*refused-builtin"
    ):
        wb.launch(counted, 1, [wb.zeros(1, dtype=int)])


@pytest.mark.parametrize(
    "name, meant",
    [
        ("lanuch", "wb.launch"),
        ("Array", "wb.array"),
        ("zeroes", "wb.zeros"),
        ("tensor", "wb.array(data)"),
        ("no_grad", "wb.detach"),
        ("sum", "wb.utils.array_sum"),
        ("vec5", "wb.types.vector(5, float)"),
        ("vec6d", "wb.types.vector(6, wb.float64)"),
        ("mat23", "wb.types.matrix((2, 3), float)"),
        ("gradient", "tape.backward(loss), then x.grad"),
        ("kernal", "wb.kernel"),
        ("Kernal", "wb.Kernel"),
    ],
)
def test_an_unknown_name_says_what_to_use(name, meant):
    with pytest.raises(AttributeError, match=r"Write instead") as caught:
        getattr(wb, name)
    assert meant in str(caught.value) and "[unknown-name]" in str(caught.value)
    assert not hasattr(wb, name)


def test_a_name_like_no_other_is_unknown_without_advice():
    with pytest.raises(AttributeError, match="'workbench' has no attribute 'qqxzy'") as caught:
        wb.qqxzy  # noqa: B018
    assert "Write instead" not in str(caught.value)


def test_an_unknown_name_in_a_kernel_says_what_to_use():
    @wb.kernel
    def sines(x: wb.array(dtype=float)):
        i = wb.tid()
        x[i] = wb.sinus(x[i])

    @wb.kernel
    def numpys(x: wb.array(dtype=float)):
        i = wb.tid()
        x[i] = np.sin(x[i])

    with pytest.raises(wb.KernelError, match=r"`workbench` has no `sinus`(.|\n)*Write instead: +wb.sin") as caught:
        wb.launch(sines, 1, [wb.zeros(1)])
    assert caught.value.slug == "unknown-name" and "wb.sinus(x[i])" in caught.value.text
    with pytest.raises(wb.KernelError, match=r"`sin` cannot be called(.|\n)*Write instead: +wb.sin\(\.\.\.\)"):
        wb.launch(numpys, 1, [wb.zeros(1)])


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


def test_questions_about_types_and_values():
    t = wb.types
    assert t.type_is_vector(wb.vec3) and not t.type_is_vector(wb.quat) and t.type_is_quaternion(wb.quatd)
    assert t.type_is_int(int) and t.type_is_int(np.uint8) and not t.type_is_int(float) and t.type_is_float(wb.float64)
    assert (
        t.type_is_matrix(wb.mat22)
        and t.type_is_scalar(float)
        and t.type_is_value(wb.vec2)
        and t.type_is_composite(wb.mat33)
    )
    assert t.is_array(wb.zeros(2)) and not t.is_array(np.zeros(2)) and t.type_is_array(wb.array[float])
    assert (
        t.is_vector(wb.vec2(1.0, 2.0))
        and t.is_scalar(np.float32(1))
        and not t.is_scalar("x")
        and not t.is_vector(wb.vec2)
    )
    assert t.type_size(wb.mat33) == 9 and t.type_size_in_bytes(wb.vec3d) == 24 and t.type_size_in_bytes(float) == 4
    assert t.types_equal(float, wb.float32) and not t.types_equal(wb.vec3, wb.vec3d)
    assert t.type_repr(wb.vec3) == "vec3f" and t.type_repr(float) == "float32"


def test_types_have_the_names_of_warps_classes():
    shown = [t.__name__ for t in (wb.vec3, wb.vec3d, wb.vec2ub, wb.mat33, wb.quat, wb.transformd, wb.vector(5, float))]
    assert shown == ["vec3f", "vec3d", "vec2ub", "mat33f", "quatf", "transformd", "vec_t"]
    assert wb.types.type_repr(wb.vec3) == "vec3f" and wb.types.type_repr(wb.float32) == "float32"
    assert wb.types.type_repr(wb.array(dtype=wb.vec3, ndim=2)) == "array(ndim=2, dtype=vec3f)"
    assert wb.types.type_repr(wb.vector(5, float)) == "vector(length=5, dtype=float32)"
