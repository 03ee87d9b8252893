"""How far functions of floats are from the exact result, at most: in units in the last place of that result.

Name -> (value, derivative, where an operand or a result is below the normal range). They hold for float32 and float64,
on the backends `c` and `numpy`, wherever value and derivative can be held; `test_rounding_table` checks them against
mpmath. `pages` is what the reference shows. A quotient below the normal range has fewer digits, and so has what is
made of it. A GPU has functions of its own, whose bounds NVIDIA documents.
"""

from __future__ import annotations

from math import inf

BOUNDS: dict[str, tuple[float, float, float]] = {
    "sin": (2, 2, 1),
    "cos": (2, 2, 1),
    "tan": (4, 8, 1),
    "asin": (2, 2, 1),
    "acos": (2, 2, 1),
    "atan": (2, 4, 4),
    "sinh": (2, 2, 1),
    "cosh": (2, 2, 1),
    "tanh": (4, 8, 4),
    "exp": (2, 2, 2),
    "log": (2, 1, 1),
    "log2": (2, 2, 1),
    "log10": (2, 3, 2),
    "log1p": (2, 3, 1),
    "expm1": (3, 2, 2),
    "sqrt": (1, 2, 2),
    "rsqrt": (2, 3, 3),
    "cbrt": (4, 8, 8),
    "erf": (2, 4, 3),
    "erfc": (8, 4, 3),
    "degrees": (2, 1, 1),
    "radians": (2, 1, 1),
    "abs": (0, 0, 0),
    "neg": (0, 0, 0),
    "frac": (0, 0, 0),
    "add": (0.5, 0, 0.5),
    "sub": (0.5, 0, 0.5),
    "mul": (0.5, 0, 0.5),
    "div": (0.5, 2, 4096),
    "min": (0, 0, 0),
    "max": (0, 0, 0),
    "copysign": (0, 0, 0),
    "atan2": (4, 4, 4096),
    "pow": (2, 12, 128),
    "length": (3, 4, 4),
    "normalize": (4, 8, inf),
}


def pages() -> str:
    """The table as the reference has it."""
    lines = ["   function, value, derivative, below the normal range"]
    for name, bounds in BOUNDS.items():
        lines.append(f"   ``{name}``, " + ", ".join("none" if b == inf else f"{b:g}" for b in bounds))
    return "\n".join(lines) + "\n"


# In last places of the sum of the sizes of the terms; of an inverse Y of M, of |Y| |M| |Y|, and its derivative of the
# product of two of these.
PRODUCTS: dict[str, tuple[float, float]] = {
    "dot": (2, 0),
    "cross": (1, 1),
    "outer": (0.5, 2),
    "mat * vec": (2, 2),
    "mat * mat": (2, 2),
    "quat * quat": (2, 2),
    "vec * scalar": (0.5, 2),
    "determinant": (3, 3),
    "inverse": (6, 4),
}


def pages_of_products() -> str:
    """The table of products as the reference has it."""
    rows = [f"   ``{name}``, {value:g}, {slope:g}" for name, (value, slope) in PRODUCTS.items()]
    return "\n".join(["   product, value, derivative", *rows]) + "\n"
