"""The signatures of builtins, as `inspect`, `help` and notebooks show them: read from the heads of their docstrings.

A head is `lerp(a: T, b: T, t: scalar) -> T: ...`. It says for people what types a builtin takes, and is the only place.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

from .examples import documented

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
