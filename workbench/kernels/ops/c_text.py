"""C texts of scalar rows that are longer than a template, and the C functions that those texts call."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from ..types import SCALARS, float32, float64

PRELUDES: dict[str, str] = {}


def c_parts(beside: str, file: str) -> dict[str, str]:
    """The parts of a file of C beside another one: each begins behind a line `//// NAME`, and ends at an empty line."""
    with open(os.path.join(os.path.dirname(beside), file), encoding="utf-8") as text:
        return dict(re.findall(r"^//// (\w+)\n(.*?\n)(?=\n|\Z)", text.read(), re.DOTALL | re.MULTILINE))


def c_texts(beside: str, file: str, names: str) -> list[str]:
    """The parts of a file of C beside another one with these names."""
    parts = c_parts(beside, file)
    return [parts[name] for name in names.split()]


def c_turns(i: str, n: int, backward: bool) -> str:
    """The head of a loop over 0, 1, .. n - 1, or backward."""
    return f"int32_t {i} = {n} - 1; {i} >= 0; --{i}" if backward else f"int32_t {i} = 0; {i} < {n}; ++{i}"


def helper(name: str, text: str) -> None:
    """Enter a C function; `WB_FN` is defined by the emitter: static inline, or __device__ too."""
    PRELUDES[name] = f"WB_FN {text}\n"


def prelude(text: str, known: str = "") -> str:
    """The helper functions that `text` calls, in the order in which they may stand, without what `known` defines."""
    called = set(re.findall(r"wb_\w+(?=\()", text))
    return "".join(code for name, code in PRELUDES.items() if name in called and f"#define {name} " not in known)


def _conversions() -> None:
    for source, suffix in ((float32, "f"), (float64, "")):
        for t in SCALARS:
            if t.kind not in "iu":
                continue
            top = 2 ** (t.bits - (t.kind == "i"))
            low = (
                f"x < -{float(top)!r}{suffix} ? ({t.c})({-top + 1}LL - 1)" if t.kind == "i" else f"x <= 0.0{suffix} ? 0"
            )
            high = f"x >= {float(top)!r}{suffix} ? ({t.c}){top - 1}{'ULL' if t.kind == 'u' else 'LL'}"
            name = f"wb_{t.name}_from_{source.name}"
            helper(name, f"{t.c} {name}({source.c} x) {{ return x != x ? 0 : {low} : {high} : WB_INT(({t.c})x); }}")


def of_floats(name: str, text: str, c: str, suffix: str) -> None:
    """Enter a C function for float or double: its text has T for the type, and F behind the names of its functions."""
    helper(f"{name}{suffix}", re.sub(r"\bT\b", c, text.replace("F(", f"{suffix}(")))


_conversions()
for _name, _text in c_parts(__file__, "scalars.c").items():
    for _c, _suffix in (("float", "f"), ("double", "")) if _name.endswith("F") else (("", ""),):
        of_floats(_name.removesuffix("F"), _text.rstrip(), _c, _suffix)


def c_small(template: str) -> Callable[..., str]:
    """C computes small integers as int: bring the result back."""

    def c(types, *texts):
        text = template.format(*texts)
        return f"({types[0].c})({text})" if types[0].kind in "iu" and types[0].bits < 32 else text

    return c


def c_div(quotient: str, at_minus_one: str, float_c: str) -> Callable[..., str]:
    """Integer division without traps: 0 for a zero divisor; -1 apart, as INT_MIN / -1 does not fit."""

    def c(types, a, b):
        t = types[0]
        if t.kind == "f":
            return float_c.format(a, b, f="" if t.bits == 64 else "f")
        body = quotient.format(a, b)
        if t.kind == "i":
            negated = f"({t.c})(0u - (u{t.c}){a})" if t.bits <= 32 else f"({t.c})(0ull - (u{t.c}){a})"
            body = f"{b} == -1 ? {at_minus_one.format(negated)} : {body}"
        return f"({t.c})({b} == 0 ? 0 : {body})"

    return c


def c_floordiv(types, a, b):
    floor = "{0} / {1}" if types[0].kind == "u" else "{0} / {1} - ({0} % {1} != 0 && ({0} < 0) != ({1} < 0))"
    return c_div(floor, "{0}", "wb_floordiv{f}({0}, {1})")(types, a, b)


def c_pymod(types, a, b):
    mod = "{0} % {1}" if types[0].kind == "u" else "{0} % {1} + ({0} % {1} != 0 && ({0} < 0) != ({1} < 0) ? {1} : 0)"
    return c_div(mod, "0", "wb_pymod{f}({0}, {1})")(types, a, b)


def c_cast(types, x, attr):
    source, target = types[0], attr
    if source is target:
        return x
    if target.kind == "b":
        return f"({x} != 0)"
    if source.kind == "f" and target.kind in "iu":
        return f"wb_{target.name}_from_{'float64' if source.bits == 64 else 'float32'}({x})"
    return f"({target.c}){x}"


def c_lshift(types, a, n):
    t = types[0]
    wide = "uint64_t" if t.bits == 64 else "uint32_t"
    return f"({t.c})(({wide}){a} << ({n} & {t.bits - 1}))"


def c_rshift(types, a, n):
    return f"({types[0].c})({a} >> ({n} & {types[0].bits - 1}))"


def c_abs(types, x):
    t = types[0]
    if t.kind == "f":
        return f"fabs{'' if t.bits == 64 else 'f'}({x})"
    return x if t.kind == "u" else f"({t.c})({x} < 0 ? -{x} : {x})"
