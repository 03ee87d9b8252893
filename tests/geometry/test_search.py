"""Searches in sorted arrays: lower_bound against NumPy, in every form and type, and what was found on a tape."""

import numpy as np
import pytest

import workbench as wb

SORTED = [0, 1, 1, 2, 5, 5, 5, 9]


@wb.kernel
def whole(a: wb.array(dtype=wb.Scalar), v: wb.array(dtype=wb.Scalar), out: wb.array[int]):
    i = wb.tid()
    out[i] = wb.lower_bound(a, v[i])


@wb.kernel
def part(a: wb.array(dtype=wb.Scalar), begin: int, end: int, v: wb.array(dtype=wb.Scalar), out: wb.array[int]):
    i = wb.tid()
    out[i] = wb.lower_bound(a, begin, end, v[i])


def expected(begin: int, end: int, values) -> list[int]:
    found = begin + np.searchsorted(SORTED[begin:end], values)
    return np.maximum(np.minimum(found, end - 1), begin).tolist()


@pytest.mark.parametrize("dtype", [wb.float32, wb.float64, wb.int32, wb.uint64, wb.uint8])
@pytest.mark.parametrize("begin, end", [(0, 8), (1, 5), (3, 4), (2, 2), (5, 3)])
def test_the_first_that_is_not_below(dtype, begin, end, backend):
    a, values = wb.array(SORTED, dtype=dtype), np.arange(12)
    v, out = wb.array(values, dtype=dtype), wb.zeros(12, dtype=int)
    wb.launch(part, 12, [a, begin, end, v, out])
    assert out.numpy().tolist() == expected(begin, end, values)
    wb.launch(whole, 12, [a, v, out])
    assert out.numpy().tolist() == expected(0, 8, values)


def test_an_empty_array_and_literals(backend):
    @wb.kernel
    def k(a: wb.array[wb.float64], b: wb.array[wb.int64], out: wb.array[int]):
        out[0] = wb.lower_bound(a, 2)
        out[1] = wb.lower_bound(b, 2)
        out[2] = wb.lower_bound(b, 1, 3, 2)

    out = wb.zeros(3, dtype=int)
    wb.launch(k, 1, [wb.zeros(0, dtype=wb.float64), wb.array([1, 1, 3, 4], dtype=wb.int64), out])
    assert out.numpy().tolist() == [0, 2, 2]


@pytest.mark.parametrize("call", ["wb.lower_bound(a, a)", "wb.lower_bound(b, 1)", "wb.lower_bound(a, 0, 1)"])
def test_what_does_not_fit_is_refused_at_the_users_line(call, tmp_path):
    import importlib.util

    path = tmp_path / "one.py"
    path.write_text(f"""
import workbench as wb

@wb.kernel
def k(a: wb.array[int], b: wb.array2d[int], out: wb.array[int]):
    out[0] = {call}
""")
    spec = importlib.util.spec_from_file_location("one", path)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    with pytest.raises(wb.KernelError, match="lower_bound") as e:
        made.k.program()
    assert e.value.where.line == 6


def test_a_table_is_interpolated_where_it_was_found_and_differentiated(backend):
    @wb.kernel
    def table(x: wb.array[wb.float64], y: wb.array[wb.float64], at: wb.array[wb.float64], out: wb.array[wb.float64]):
        i = wb.tid()
        k = wb.max(wb.lower_bound(x, at[i]), 1)
        t = (at[i] - x[k - 1]) / (x[k] - x[k - 1])
        out[i] = y[k - 1] + t * (y[k] - y[k - 1])

    x = wb.array([0.0, 1.0, 3.0, 4.0], dtype=wb.float64, requires_grad=True)
    y = wb.array([1.0, 3.0, -1.0, 2.0], dtype=wb.float64, requires_grad=True)
    at = wb.array([0.25, 1.5, 2.5, 3.5], dtype=wb.float64, requires_grad=True)
    out = wb.zeros(4, dtype=wb.float64)
    with wb.Tape(keep="all") as tape:
        wb.launch(table, 4, [x, y, at, out])
    wb.gradcheck(tape)
    tape.backward(grads={out: wb.ones(4, dtype=wb.float64)})
    np.testing.assert_allclose(out.numpy(), np.interp(at.numpy(), x.numpy(), y.numpy()))
    np.testing.assert_allclose(at.grad.numpy(), [2.0, -2.0, -2.0, 3.0])


def test_an_index_is_drawn_as_warp_does():
    @wb.kernel
    def draw(cdf: wb.array[float], n: wb.array[int]):
        i = wb.tid()
        state = wb.rand_init(42, i)
        n[i] = wb.sample_cdf(state, cdf)

    n = wb.zeros(10, dtype=int)
    wb.launch(draw, 10, [wb.array([0.1, 0.3, 0.6, 1.0]), n])
    assert n.numpy().tolist() == [3, 0, 2, 1, 3, 3, 2, 2, 2, 0]  # by warp-lang 1.19.0
