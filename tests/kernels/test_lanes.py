"""The same operand gives the same bits in every lane of a vector register and in what is left over, on backend `c`."""

from __future__ import annotations

import importlib.util
import itertools
from types import ModuleType

import numpy as np
import pytest

import workbench as wb

pytestmark = pytest.mark.needs_cc
N = 37  # two registers of sixteen, and five more
QUICK = {
    "root": "a[i] ** F(0.5)",
    "folded_root": "a[i] ** (F(0.25) + F(0.25))",
    "square": "a[i] ** F(2.0)",
    "inverse": "a[i] ** F(-1.0)",
    "whole": "F(int(a[i]))",
    "next": "F(int(a[i]) + int(b[i]))",
    "acos": "wb.acos(a[i])",
}
ONE = """sin cos tan asin atan sinh cosh tanh exp log log2 log10 log1p expm1 sqrt rsqrt cbrt erf erfc degrees radians
abs floor ceil trunc round rint frac sign step nonzero""".split()
TWO = "pow atan2 min max copysign mod".split()
ALL = {
    **{name: f"wb.{name}(a[i])" for name in ONE},
    **{name: f"wb.{name}(a[i], b[i])" for name in TWO},
    "sum": "a[i] + b[i]",
    "difference": "a[i] - b[i]",
    "product": "a[i] * b[i]",
    "quotient": "a[i] / b[i]",
    "rest": "a[i] % b[i]",
    "cube": "a[i] ** F(3.0)",
    "clamp": "wb.clamp(a[i], b[i], F(1.0))",
    "lerp": "wb.lerp(a[i], b[i], F(0.3))",
    "where": "wb.where(a[i] < b[i], a[i], b[i])",
    "length": "wb.length(V(a[i], b[i], a[i]))",
    "normalize": "wb.normalize(V(a[i], b[i], a[i]))[0]",
}
KERNEL = """
@wb.kernel
def {name}(a: wb.array(dtype=F), b: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = {expression}
"""


def module(folder, real: str, expressions: dict[str, str]) -> ModuleType:
    """A kernel for each expression: alone in its loop, so that compilers vectorise what they can."""
    head = f"import workbench as wb\nF = wb.{real}\nV = wb.types.vector(3, F)\n"
    text = head + "".join(KERNEL.format(name=f"k_{n}", expression=e) for n, e in expressions.items())
    (folder / f"lanes_{real}.py").write_text(text)
    spec = importlib.util.spec_from_file_location(f"lanes_{real}", folder / f"lanes_{real}.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def telling(number: type) -> list[float]:
    info = np.finfo(number)
    some = [
        0.0,
        0.5,
        1.0,
        2.5,
        7.3,
        1e20,
        1e-20,
        3e9,
        float(info.tiny),
        float(info.smallest_subnormal),
        float(info.max),
    ]
    return [s * x for x in [*some, np.inf] for s in (1, -1)] + [np.nan]


def differing(kernel, number: type, a: float, b: float) -> list[str]:
    """Which of value and derivatives have other bits in some lane than in the first."""
    dtype = wb.float32 if number is np.float32 else wb.float64
    x, z = (wb.full(N, float(number(v)), dtype=dtype, requires_grad=True) for v in (a, b))
    y = wb.zeros(N, dtype=dtype, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(kernel, N, [x, z], [y])
    tape.backward(grads={y: wb.ones(N, dtype=dtype)})
    found = []
    for name, array in (("value", y), ("by a", x.grad), ("by b", z.grad)):
        n = array.numpy()
        bits = n.view(np.uint32 if number is np.float32 else np.uint64)
        if (bits != bits[0]).any() and not np.isnan(n).all():  # the sign of a NaN means nothing
            found.append(f"{name} at {a}, {b}: {n[0]} and {n[-1]}")
    return found


@pytest.mark.parametrize("number", [np.float32, np.float64])
@pytest.mark.filterwarnings("ignore:The slope of")
def test_what_compilers_do_in_another_way_where_they_vectorise_has_the_same_bits(number, tmp_path):
    wb.config.backend = "c"
    made = module(tmp_path, number.__name__, QUICK)
    wrong = [(n, d) for n in QUICK for a in telling(number) for d in differing(getattr(made, f"k_{n}"), number, a, 1.0)]
    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [np.float32, np.float64])
@pytest.mark.filterwarnings("ignore:The slope of")
def test_every_function_has_the_same_bits_in_every_lane(number, tmp_path):
    wb.config.backend = "c"
    made, wrong = module(tmp_path, number.__name__, ALL), []
    for name, expression in ALL.items():
        others = telling(number)[::3] if "b[i]" in expression else [1.0]
        for a, b in itertools.product(telling(number), others):
            wrong += [(name, d) for d in differing(getattr(made, f"k_{name}"), number, a, b)]
    assert wrong == []
