"""Arrays made in a kernel from the address of another one's element: exact, or refused with a way out."""

import ctypes
from typing import Any

import numpy as np
import pytest

import workbench as wb

SIZE = ctypes.sizeof(wb.float32._type_)


@wb.func_native("return (uint64_t)arr.data;")
def address(arr: wb.array[float]) -> wb.uint64: ...


@wb.func
def address_of(arr: wb.array[float], start: int) -> wb.uint64:
    return address(arr) + wb.uint64(start) * wb.uint64(wb.static(SIZE))


@wb.kernel
def products(x: wb.array[float], starts: wb.array[int], rows: wb.array[int], y: wb.array[float]):
    b = wb.tid()
    n = rows[b]
    a = wb.array(ptr=address_of(x, starts[b]), shape=(n, 3), dtype=wb.float32)
    out = wb.array(ptr=address_of(y, starts[b]), shape=(3, n), dtype=wb.float32)
    for i in range(n):
        for j in range(a.shape[1]):
            out[j, i] = a[i, j] * a[i, (j + 1) % 3] + a[n - 1 - i, 0]


def of_products(x: np.ndarray, starts: list[int], rows: list[int]) -> np.ndarray:
    y = np.zeros_like(x)
    for start, n in zip(starts, rows, strict=True):
        a = x[start : start + 3 * n].reshape(n, 3)
        y[start : start + 3 * n] = (a * np.roll(a, -1, axis=1) + a[::-1, :1]).T.ravel()
    return y


def test_a_matrix_in_an_array_of_one_axis(backend):
    starts, rows = [6, 0, 15], [3, 2, 1]
    x = wb.array(np.linspace(-1.0, 2.0, 18), dtype=float, requires_grad=True)
    y = wb.zeros(18)
    with wb.Tape(keep="all") as tape:
        wb.launch(products, 3, [x, wb.array(starts), wb.array(rows), y])
    np.testing.assert_allclose(y.numpy(), of_products(x.numpy(), starts, rows), rtol=1e-6)
    wb.gradcheck(tape)


@wb.kernel
def pieces(x: wb.array[wb.vec3], k: wb.array[wb.int64], y: wb.array[float]):
    i = wb.tid()
    at = x.ptr + wb.uint64(24)
    at += wb.uint64(12 * k[i])
    two = wb.array(at - wb.uint64(12), (2,), wb.vec3)
    part = wb.array(two[1:].ptr, shape=1, dtype=wb.vec3)
    y[i] = wb.dot(two[0], two[1]) * part[0][0] + two[-2][1]
    two[0] = wb.vec3(0.0)


def test_vectors_offsets_and_parts_of_parts(backend):
    given = np.arange(18.0, dtype=np.float32).reshape(6, 3) / 8
    x, y = wb.array(given, dtype=wb.vec3, requires_grad=True), wb.zeros(2)
    with wb.Tape(keep="all") as tape:
        wb.launch(pieces, 2, [x, wb.array([2, 0], dtype=wb.int64), y])
    a, b = given[[3, 1]], given[[4, 2]]
    np.testing.assert_allclose(y.numpy(), (a * b).sum(1) * b[:, 0] + a[:, 1], rtol=1e-6)
    assert x.numpy()[[3, 1]].tolist() == [[0, 0, 0]] * 2 and x.numpy()[4].tolist() == given[4].tolist()
    wb.gradcheck(tape)


def test_elements_are_counted_where_an_array_has_gaps(backend):
    @wb.kernel
    def second(x: wb.array[float], y: wb.array[float]):
        y[0] = wb.array(ptr=x.ptr + wb.uint64(4), shape=2, dtype=float)[0]

    x, y = wb.array([1.0, 2.0, 3.0, 4.0]), wb.zeros(1)
    wb.launch(second, 1, [x[::2], y])
    assert y.numpy().tolist() == [3]


@pytest.mark.host_memory
def test_an_index_outside_of_it_is_found(backend, monkeypatch):
    monkeypatch.setattr(wb.config, "check_bounds", True)

    @wb.kernel
    def outside(x: wb.array[float], n: int, y: wb.array[float]):
        a = wb.array(ptr=x.ptr, shape=n, dtype=float)
        y[0] = a[n]

    with pytest.raises(wb.LaunchError, match="outside of this slice"):
        wb.launch(outside, 1, [wb.ones(4), 2, wb.zeros(1)])


def test_tiles_of_it(backend):
    @wb.kernel
    def transposed(x: wb.array[float], n: int, y: wb.array[float]):
        b = wb.tid()
        a = wb.array(ptr=address_of(x, b * 6), shape=(n, 2), dtype=float)
        out = wb.array(ptr=address_of(y, b * 6), shape=(2, n), dtype=float)
        t = wb.tile_load(a, shape=(4, 2), offset=(0, 0))  # what lies outside is zero, and is not stored
        wb.tile_store(out, wb.tile_transpose(wb.tile_map(wb.mul, t, t)), offset=(0, 0))

    x, y = wb.array(np.arange(12.0), dtype=float, requires_grad=True), wb.zeros(12)
    with wb.Tape(keep="all") as tape:
        wb.launch_tiled(transposed, dim=[2], inputs=[x, 3, y], block_dim=32)
    expected = (np.arange(12.0).reshape(2, 3, 2) ** 2).transpose(0, 2, 1)
    assert y.numpy().tolist() == expected.ravel().tolist()
    wb.gradcheck(tape)


@pytest.mark.parametrize(
    "line, slug, what",
    [
        ("a = wb.array(ptr=number, shape=2, dtype=float)", "not-callable", "none of the kernel's arrays"),
        ("a = wb.array(ptr=x.ptr, shape=2, dtype=wb.int32)", "address", "dtype=float32"),
        ("a = wb.array(ptr=x.ptr + number, shape=2, dtype=float)", "address", "whole elements"),
        ("a = wb.array(ptr=x.ptr + wb.uint64(2), shape=2, dtype=float)", "address", "whole elements"),
        ("a = wb.array(ptr=x.ptr + wb.uint64(i * 6), shape=2, dtype=float)", "address", "whole elements"),
        ("a = wb.array(ptr=x.ptr + x.ptr, shape=2, dtype=float)", "address", "whole elements"),
        ("a = wb.array(ptr=wb.uint64(4) - x.ptr, shape=2, dtype=float)", "address", "whole elements"),
        ("a = wb.array(ptr=x.ptr * wb.uint64(4), shape=2, dtype=float)", "address", "whole elements"),
        ("a = wb.array(ptr=z.ptr, shape=2, dtype=float)", "address", "one axis"),
        ("a = wb.array(ptr=x.ptr, shape=(1, 1, 1, 1, 1), dtype=float)", "rank", "one to four"),
        ("x[0] = float(x.ptr)", "operand-type", ""),
        ("x[0] = wb.where(x.ptr == wb.uint64(0), 1.0, 2.0)", "operand-type", ""),
    ],
)
def test_what_is_no_part_of_an_array_is_refused(line, slug, what, tmp_path):
    file = tmp_path / "made.py"
    file.write_text(
        "import workbench as wb\n\n\n@wb.kernel\n"
        "def k(x: wb.array[float], z: wb.array2d[float], number: wb.uint64, i: int):\n"
        f"    {line}\n"
    )
    space: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), space)
    with pytest.raises(wb.KernelError, match=slug) as error:
        space["k"].program()
    assert what in str(error.value)


def test_an_address_in_a_snippet_is_no_value(backend):
    @wb.func_native("uint64_t p = (uint64_t)a.data; return p;")
    def at(a: wb.array[float]) -> wb.uint64: ...

    @wb.kernel
    def k(x: wb.array[float], y: wb.array[float]):
        y[0] = wb.array(ptr=at(x), shape=2, dtype=float)[0]

    y = wb.zeros(1)
    wb.launch(k, 1, [wb.array([1.0, 2.0, 3.0]), y])
    assert y.numpy().tolist() == [1.0]


@pytest.mark.parametrize(
    "text",
    [
        "return &a.data[0] == &a.data[1];",
        "float x = (float)&a.data[0]; return x > 0;",
        "return a.data;",
        "return (float)a.data > 0;",
    ],
)
def test_addresses_are_not_compared_or_converted(text):
    @wb.func_native(text)
    def f(a: wb.array[float]) -> bool: ...

    @wb.kernel
    def k(a: wb.array[float]):
        if f(a):
            a[0] = 1.0

    with pytest.raises(wb.KernelError, match="native-snippet"):
        k.program()
