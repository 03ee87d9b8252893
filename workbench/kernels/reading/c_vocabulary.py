"""Facts about C: its types, functions, constants and operators by their names here."""

from __future__ import annotations

import re
from collections.abc import Sequence

TYPES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "bool": "bool",
    "char": "int8",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "long long": "int64",
    "size_t": "uint64",
    "unsigned": "uint32",
    "unsigned char": "uint8",
    "unsigned short": "uint16",
    "unsigned int": "uint32",
    "unsigned long": "uint64",
    "unsigned long long": "uint64",
}
TYPES |= {f"{u}int{n}{t}": f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64) for t in ("", "_t")}
TYPES |= {f"float{n}": f"float{n}" for n in (16, 32, 64)}
QUALIFIERS = ("const", "volatile", "constexpr", "register", "inline")  # which say nothing here
COMPOSITE = re.compile(r"(vec[234]|mat22|mat33|mat44|quat|transform|spatial_vector|spatial_matrix)[a-z]{0,2}$")
FUNCTIONS = {"fabs": "abs", "fabsf": "abs", "fmax": "max", "fmaxf": "max", "fmin": "min", "fminf": "min"}
FUNCTIONS |= {"fmod": "mod", "fmodf": "mod", "atomicExch": "atomic_exch", "atomicCAS": "atomic_cas"}
FUNCTIONS |= {f"atomic{name}": f"atomic_{name.lower()}" for name in ("Add", "Sub", "Max", "Min")}
FUNCTIONS |= {
    f"{n}f": n
    for n in "sin cos tan asin acos atan atan2 sinh cosh tanh exp log log2 log10 sqrt cbrt pow "
    "floor ceil trunc round rint erf erfc".split()
}
FUNCTIONS["__builtin_popcount"] = FUNCTIONS["__builtin_popcountll"] = "bit_count"
# The place of the lowest bit that is set: from 1 on, 0 without one; or from 0 on.
FIRST_BIT = dict.fromkeys(("__builtin_ffs", "__builtin_ffsll"), "wp.where({0} == 0, 0, {1})")
FIRST_BIT |= dict.fromkeys(("__builtin_ctz", "__builtin_ctzl", "__builtin_ctzll"), "({1} - 1)")
BARRIER = "WP_TILE_SYNC"
CONSTANTS = {
    "M_PI": "3.141592653589793",
    "true": "True",
    "false": "False",
    "INFINITY": "wp.inf",
    "FLT_MAX": "3.4028234663852886e38",
    "INT_MAX": "2147483647",
}
PREFIXES = {"!": "not ", "-": "-", "+": "+", "~": "~"}
# The operators of two numbers by what binds ever stronger, and what Python writes; `%` is C's remainder.
OPERATORS = [{"||": "or"}, {"&&": "and"}]
OPERATORS += [{sign: sign for sign in signs.split()} for signs in "|,^,&,== !=,< <= > >=,<< >>,+ -,* / %".split(",")]


def type_name(words: Sequence[str]) -> str | None:
    """The name here of a type of C; empty for `auto`; None if it is none (yet)."""
    name = " ".join(word.removeprefix("wp::") for word in words if word not in QUALIFIERS)
    if name == "auto" or (words and not name):
        return ""
    return TYPES.get(name) or (name if COMPOSITE.match(name) else None)
