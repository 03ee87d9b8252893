"""The signatures of builtins, as `inspect`, `help` and notebooks show them: read from the heads of their docstrings.

A head is `lerp(a: T, b: T, t: scalar) -> T: ...`. It says for people what types a builtin takes, and is the only place.
The names of tiles stand here: the reader (`reading.tiles`) knows what each means, as shapes are part of types.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

from ...errors import KernelError
from ..types import AnyTile, Tile, TileOf, Type, scalar_of, tile_type
from .examples import documented, paragraphs

_RESULT = re.compile(r" -> (\([^)]*\)|.+?)(?=[.:;,]|$| (?:of|with|whose|that|in|from)\b)")
_COMMA = re.compile(r", (?=\*?\w+(?:[:=,]| =|$))")  # between two parameters, not inside what one takes
_PARAMETER = re.compile(r"(\*?)(\w+)(?:: ((?:(?! = ).)+))?(?: ?= ?(.+))?")
_LETTERS = {"F": "a float type", "I": "an integer type", "V": "a vector type", "T": "any type of numbers"}


class Words(str):
    """A type or a default in words: shown as it is, without quotes."""

    def __repr__(self) -> str:
        return str(self)


def signature(head: str) -> inspect.Signature:
    """The signature in the head of a docstring."""
    inside, _, behind = head[head.index("(") + 1 :].partition(")")
    made: list[inspect.Parameter] = []
    for text in filter(None, _COMMA.split(inside)):
        made.append(_parameter(text, any(p.kind is p.VAR_POSITIONAL for p in made)))
    result = _RESULT.match(behind)
    return inspect.Signature(made, return_annotation=Words(result[1]) if result else inspect.Signature.empty)


def called_by_users(module: str) -> dict[str, Callable[..., Any]]:
    """The functions of a module whose docstrings begin with a call of them: what users call, by name."""
    found = {name: f for name, f in vars(sys.modules[module]).items() if isinstance(f, FunctionType)}
    return {n: f for n, f in found.items() if f.__module__ == module and (f.__doc__ or "").startswith(f"{n}(")}


def _parameter(text: str, last: bool) -> inspect.Parameter:
    """The parameter `*i: int` or `delta: scalar = 1`; with `last` one behind a star."""
    found = _PARAMETER.fullmatch(text)
    assert found is not None, f"{text} is no parameter"
    star, name, type, default = found.groups()
    made = inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if star or last:
        made = made.replace(kind=made.VAR_POSITIONAL if star else made.KEYWORD_ONLY)
    if default is not None:
        made = made.replace(default=_default(default))
    return made.replace(annotation=Words(type)) if type else made


def _default(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except ValueError:
        return Words(text)


def describe(builtin: Callable[..., Any], name: str, doc: str) -> None:
    """Give a builtin its name, its signature, and its docstring with an example and a line about the letters in it.

    A function keeps its own parameters, annotated by the words of its docstring.
    """
    doc = inspect.cleandoc(doc)
    made = signature(doc)
    words = {p.name: p.annotation for p in made.parameters.values() if p.annotation is not p.empty}
    head = " ".join(words.values())
    letters = [letter for letter in _LETTERS if letter in head.split() and f", {letter} " not in doc]
    legend = ", ".join(f"{letter} is {_LETTERS[letter]}" for letter in letters)
    set_as = object.__setattr__  # rows are frozen
    set_as(builtin, "__name__", name)
    set_as(builtin, "__doc__", documented(f"{doc}\n\n{legend}." if legend else doc, name))
    if isinstance(builtin, FunctionType) and "args" not in builtin.__code__.co_varnames:
        builtin.__annotations__ = {**words, "return": made.return_annotation}
    else:
        set_as(builtin, "__signature__", made)


class TileBuiltin:
    """A function of the kernel language over tiles. Raises KernelError where it is called on the host."""

    def __init__(self, head: str, what: str):
        """`head`: as `tile_ones(shape, dtype=float)`."""
        name, _, arguments = head.removesuffix(")").partition("(")
        self.__name__ = self.__qualname__ = name
        self.__doc__ = f"{head}: {what} In kernels only."
        self.arguments = arguments
        self.__signature__ = signature("(" + re.sub(r"(\w+), \.\.\.", r"*\1", arguments) + ")")

    def __repr__(self) -> str:
        return f"<builtin {self.__name__}>"

    def __call__(self, *args: object, **named: object) -> object:
        text = f"`{self.__name__}` belongs into a kernel"
        instead = "@wb.kernel above the function that calls it, and wb.launch_tiled(...)"
        raise KernelError(text, slug="kernel-only", why="A tile lives in a block of a launch.", instead=instead)


class TileName(TileBuiltin):
    """`tile`: also what parameters of funcs are annotated with: `tile(dtype=float, shape=(4, 4))`, `tile[float, 4]`."""

    def __call__(self, *args: object, **named: object) -> object:
        if "dtype" not in named:
            return super().__call__(*args, **named)
        shape = named.get("shape", Any)
        return annotated(named["dtype"], shape if shape is Any or isinstance(shape, (tuple, list)) else (shape,))

    def __getitem__(self, given: object) -> AnyTile | Tile | TileOf:
        dtype, *shape = given if isinstance(given, tuple) else (given,)
        if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
            shape = list(shape[0])
        return annotated(dtype, tuple(shape) if shape else Any)


def annotated(dtype: object, shape: object) -> AnyTile | Tile | TileOf:
    """The type that an annotation means: of one shape and type, or a pattern."""
    if dtype is Any or not isinstance(shape, (tuple, list)):
        known = dtype if dtype is Any or isinstance(dtype, Type) else scalar_of(dtype)
        return AnyTile(known, tuple(shape) if isinstance(shape, (tuple, list)) else None)
    return tile_type(tuple(int(n) for n in shape), dtype)


_MADE = [
    (TileName if head.startswith("tile(") else TileBuiltin)(head, w) for head, w in paragraphs("tiles.txt").items()
]
TILES = {made.__name__: made for made in _MADE}
# What is done to each component of vectors on its own, of the tile that comes first.
_FORMS = "view reshape squeeze broadcast transpose astype sum scan_inclusive scan_exclusive"
PER_PART = frozenset(f"tile_{name}" for name in _FORMS.split())
# What gives a part or another form of a tile, in its memory.
SHOWING = ("tile_view", "tile_reshape", "tile_squeeze", "tile_broadcast", "tile_transpose")
# Which arguments a call changes in place: (position, name).
CHANGED = {
    "tile_assign": ((0, "dst"),),
    "tile_axpy": ((2, "dest"),),
    "tile_sort": ((0, "keys"), (1, "values")),
    "tile_matmul": ((2, "out"),),
    "tile_cholesky_inplace": ((0, "A"),),
    "tile_cholesky_solve_inplace": ((1, "y"),),
    "tile_lower_solve_inplace": ((1, "y"),),
    "tile_upper_solve_inplace": ((1, "z"),),
    "tile_scatter_add": ((0, "a"),),
    "tile_scatter_masked": ((0, "a"),),
    "tile_fft": ((0, "inout"),),
    "tile_ifft": ((0, "inout"),),
    "tile_stack_push": ((0, "s"),),
    "tile_stack_pop": ((0, "s"),),
    "tile_stack_clear": ((0, "s"),),
    **{f"tile_{sign}_inplace": ((0, "a"),) for sign in ("add", "sub", "bit_and", "bit_or", "bit_xor")},
}
