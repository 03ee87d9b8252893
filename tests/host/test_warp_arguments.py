"""Functions of the host take the arguments of Warp's, by its names and in its order."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path

import numpy as np
import pytest

import workbench as wb

NAMES = Path(__file__).resolve().parents[2] / ".docs" / "warp_names.txt"
# What only the library itself makes, and questions about types, which have one argument.
KERNELS = {"transform_expand", "sparse.bsr_block_index", "sparse.bsr_row_index"}  # of the kernel language
OTHERS = (
    KERNELS
    | {"Device", "Graph", "Module", "Function"}
    | {
        f"types.is_{what}"
        for what in "array composite float int matrix quaternion scalar struct transformation value vector".split()
    }
)
LEFT_OUT = {"from_dlpack": {"hint"}, "Kernel": {"code_transformers", "source"}}  # refused as Python does it


def look_up(root, name):
    for part in name.split("."):
        root = getattr(root, part)
    return root


def parameters(f):
    try:
        return list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        return []


@pytest.mark.needs_warp
def test_every_argument_of_warp_s_host_functions_is_known():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import warp
        import warp.autograd
        import warp.optim.linear
        import warp.sparse
        from warp._src.context import builtin_functions
    unknown, compared = {}, 0
    for name in NAMES.read_text("utf-8").split():
        try:
            theirs, ours = look_up(warp, name), look_up(wb, name)
        except AttributeError:
            continue
        known, wanted = parameters(ours), parameters(theirs) if callable(theirs) else []
        if name in OTHERS or name in builtin_functions or not known or not wanted:
            continue
        if type(ours).__name__ == "Refused" or any(p.kind is p.VAR_KEYWORD for p in known):
            continue
        has = {p.name for p in known} | LEFT_OUT.get(name, set())
        compared += 1
        needed = {p.name for p in known if p.default is p.empty} & {p.name for p in wanted if p.default is not p.empty}
        if needed:
            unknown[name] = f"needs {needed}"
        if missing := {p.name for p in wanted if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)} - has:
            unknown[name] = missing
    assert unknown == {} and compared > 80


@wb.func(name="twice", module="unique")
def double(x: float):
    return 2.0 * x


@wb.struct(module="unique")
class Pair:
    a: float
    b: float


@wb.kernel(name="renamed", module="unique", grid_stride=False, launch_bounds=64, module_options={"fast_math": True})
def fill(x: wb.array(dtype=float), pair: Pair):
    i = wb.tid()
    x[i] = double(pair.a) + pair.b


def test_decorators_take_names_and_modules():
    x, pair = wb.zeros(2), Pair()
    pair.a, pair.b = 2.0, 1.0
    wb.launch(fill, 2, [x, pair], stream=None, max_blocks=0, block_dim=64)
    assert x.list() == [5, 5] and fill.key == "renamed" and double.key == "twice"
    assert fill.module.load("cpu", block_dim=64) is fill.module is wb.get_module(__name__)
    assert fill.module.options["block_dim"] == 256 and fill.module.name == __name__
    with pytest.raises(TypeError, match="gridstride"):
        wb.kernel(gridstride=True)


def test_kernels_are_made_of_functions_with_modules_and_options():
    def body(x: wb.array(dtype=float)):
        x[wb.tid()] = 3.0

    made = wb.Kernel(func=body, key="three", module=wb.get_module("mine"), options={"enable_backward": False})
    x = wb.zeros(1)
    wb.launch(made, 1, [x])
    assert x.item() == 3 and made.module.name == "mine" and not made.enable_backward


def test_arrays_are_made_with_all_arguments():
    src = wb.array([1.0, 2.0], requires_grad=True)
    how = dict(device="cpu", requires_grad=True, pinned=False, retain_grad=True)
    likes = [like(src, **how) for like in (wb.zeros_like, wb.ones_like, wb.empty_like, wb.clone)]
    new = [wb.full_like(src, 7.0, **how), wb.zeros((2,), float, **how), wb.full((2,), 7.0, float, **how)]
    for made in (*likes, *new):
        assert made.requires_grad and made.retain_grad and made.shape == (2,)
    assert wb.clone(src, "cpu", False, False, False).requires_grad is False
    assert wb.from_numpy(arr=np.ones(3), dtype=wb.float32, shape=(3,), retain_grad=False).shape == (3,)
    assert wb.utils.array_sum(values=src) == 3


def test_devices_captures_and_maps_take_warp_s_words():
    wb.set_device(ident="cpu")
    with wb.ScopedDevice(device="cpu"):
        assert wb.get_device(ident=None) == wb.get_device(ident="cpu")
    x = wb.ones(2)
    with wb.ScopedCapture("cpu", None, force_module_load=False) as scope:
        x.fill_(4.0)
    wb.capture_launch(scope.graph, stream=None)
    assert wb.map(double, x, block_dim=32, device="cpu").list() == [8, 8]
    with pytest.raises(wb.LaunchError, match=r"\[map-func\]"):
        wb.map(double, x, return_kernel=True)


@pytest.mark.needs_torch
def test_a_tensor_comes_with_no_gradient_of_its_own():
    import torch

    t = torch.ones(2)
    assert wb.from_torch(t, retain_grad=True).retain_grad
    for how in ({"grad": torch.ones(2)}, {"return_ctype": True}):
        with pytest.raises(wb.LaunchError, match=r"\[from-torch\]"):
            wb.from_torch(t, **how)
    assert wb.dtype_to_torch(warp_dtype=wb.float32) is torch.float32 and wb.device_to_torch(warp_device="cpu") == "cpu"
