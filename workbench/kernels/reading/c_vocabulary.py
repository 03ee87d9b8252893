"""Facts about C: its types, functions, constants and operators by their names here."""

from __future__ import annotations

import re

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
    "long long int": "int64",
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
ADDRESSES = "uint64", "int64"  # the types that an address fits into
COMPOSITE = re.compile(r"(vec[234]|mat22|mat33|mat44|quat|transform|spatial_vector|spatial_matrix)[a-z]{0,2}$")
VECTORS = {f"{c}{n}": f"vec{n}{s}" for c, s in (("float", ""), ("int", "i"), ("double", "d")) for n in (2, 3, 4)}
FUNCTIONS = {f"make_{c}": made for c, made in VECTORS.items()}
FUNCTIONS |= {"fabs": "abs", "fabsf": "abs", "fmax": "max", "fmaxf": "max", "fmin": "min", "fminf": "min"}
FUNCTIONS |= {"fmod": "mod", "fmodf": "mod", "atomicExch": "atomic_exch", "atomicCAS": "atomic_cas"}
FUNCTIONS |= {f"atomic{name}": f"atomic_{name.lower()}" for name in ("Add", "Sub", "Max", "Min")}
FUNCTIONS |= {
    f"{n}f": n
    for n in "sin cos tan asin acos atan atan2 sinh cosh tanh exp log log2 log10 sqrt cbrt pow "
    "floor ceil trunc round rint erf erfc".split()
}
FUNCTIONS |= dict.fromkeys("__builtin_popcount __builtin_popcountll __popc __popcll".split(), "bit_count")
BARRIER = "WP_TILE_SYNC"
SAME_BITS = {
    "__float_as_int": "int32",
    "__float_as_uint": "uint32",
    "__int_as_float": "float32",
    "__uint_as_float": "float32",
    "__double_as_longlong": "int64",
    "__longlong_as_double": "float64",
}
FIRST_BIT = dict.fromkeys("__builtin_ffs __builtin_ffsll __ffs __ffsll".split(), "wp.where({0} == 0, 0, {1})")
FIRST_BIT |= dict.fromkeys("__builtin_ctz __builtin_ctzl __builtin_ctzll".split(), "({1} - 1)")
CONSTANTS = {
    "M_PI": "3.141592653589793",
    "M_PI_F": "3.141592653589793",
    "true": "True",
    "false": "False",
    "INFINITY": "wp.inf",
    "FLT_MAX": "3.4028234663852886e38",
    "INT_MAX": "2147483647",
}
# The operators of two numbers; `%` is C's remainder.
OPERATORS = {sign: sign for sign in "| ^ & == != < <= > >= << >> + - * / %".split()} | {"||": "or", "&&": "and"}


def type_name(text: str) -> str | None:
    """The name here of a type of C; empty for `auto`; None if it is none."""
    words = re.sub(r"\b(const|volatile|constexpr|register|inline|signed)\b|\bwp::", "", text).split()
    name = " ".join(words) or "int" * ("signed" in text)
    name = VECTORS.get(name, name)
    return "" if name == "auto" else TYPES.get(name) or (name if COMPOSITE.match(name) else None)
