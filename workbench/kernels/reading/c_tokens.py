"""Facts about C: its types and functions by their names here, its operators, and the tokens of a text."""

from __future__ import annotations

import re

from ...records import record

TYPES = (
    {
        "float": "float32",
        "double": "float64",
        "half": "float16",
        "int": "int32",
        "unsigned": "uint32",
        "long": "int64",
        "unsigned int": "uint32",
        "long long": "int64",
        "unsigned long long": "uint64",
        "long long int": "int64",
        "unsigned long": "uint64",
        "size_t": "uint64",
        "bool": "bool",
        "char": "int8",
        "short": "int16",
        "unsigned char": "uint8",
        "unsigned short": "uint16",
    }
    | {f"{u}int{n}{t}": f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64) for t in ("", "_t")}
    | {f"float{n}": f"float{n}" for n in (16, 32, 64)}
)
COMPOSITE = re.compile(r"(vec[234]|mat22|mat33|mat44|quat|transform|spatial_vector|spatial_matrix)[a-z]{0,2}$")
VECTORS = {f"{c}{n}": f"vec{n}{s}" for c, s in (("float", ""), ("int", "i"), ("double", "d")) for n in (2, 3, 4)}
FUNCTIONS = {f"make_{c}": made for c, made in VECTORS.items()} | {
    "fabs": "abs",
    "fabsf": "abs",
    "fmaxf": "max",
    "fmax": "max",
    "fminf": "min",
    "fmin": "min",
    "fmodf": "mod",
    "fmod": "mod",
    "atomicAdd": "atomic_add",
    "atomicSub": "atomic_sub",
    "atomicMax": "atomic_max",
    "atomicMin": "atomic_min",
    "atomicCAS": "atomic_cas",
    "atomicExch": "atomic_exch",
}
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
ADDRESSES = "uint64", "int64"  # the types that an address fits into
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
BINARY = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", "<=", ">", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
TOKEN = re.compile(
    r"\s+|//[^\n]*|/\*.*?\*/|(?P<token>0[xX][0-9a-fA-F]+[uUlL]*|(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?[fFuUlL]*|"
    r"(?:\w+::)*[A-Za-z_]\w*|<<=|>>=|->|\+\+|--|[-+*/%&|^]=|<<|>>|[<>=!]=|&&|\|\||[-+*/%<>=!&|^~?:;,.(){}\[\]])|(?P<odd>.)",
    re.DOTALL,
)


@record(frozen=True)
class Token:
    text: str
    line: int


def one_side(text: str) -> tuple[str, bool]:
    """The text without preprocessor lines, as a processor sees it; were there any about CUDA? Raises ValueError."""
    kept, seen, states = [], False, []
    for line in text.split("\n"):
        word = line.strip()
        if re.match(r"#\s*pragma\b", word):
            kept.append("")
            continue
        if word.startswith("#"):
            about = re.match(r"#\s*(?:if|ifdef|ifndef)\b(.*)", word)
            if about:
                if "__CUDA_ARCH__" not in about[1] and "__CUDACC__" not in about[1]:
                    raise ValueError(f"`{word}`")
                states.append("!" in about[1] or re.match(r"#\s*ifndef", word) is not None)
                seen = True
            elif re.match(r"#\s*else\b", word) and states:
                states[-1] = not states[-1]
            elif re.match(r"#\s*endif\b", word) and states:
                states.pop()
            else:
                raise ValueError(f"`{word}`")
            kept.append("")
            continue
        kept.append(line if all(states) else "")
    return "\n".join(kept), seen


def tokens(text: str) -> list[Token]:
    found, line, at = [], 1, 0
    for m in TOKEN.finditer(text):
        line += text.count("\n", at, m.start())
        at = m.start()
        if m["odd"]:
            raise ValueError(f"`{m['odd']}`")
        if m["token"]:
            found.append(Token(m["token"], line))
    return found
