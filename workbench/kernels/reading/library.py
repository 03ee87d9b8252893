"""Funcs that belong to the language: called like builtins, and all that happens inside has its place at the call."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

from ..ops.examples import documented
from ..recursion import recursive
from . import refused_syntax
from .declare import Func, Marker
from .overloads import bound


class Library(Marker, Func):
    """A func of the house. Its parameters annotated with a `Handle` take the number of one, as `mesh.id`.

    `hands_out` names parameters through which it gives something back, as C does by pointers: the func returns its
    value and then the new values of these, and the caller's names are bound to them. `other` is what the name means
    where a call has as many arguments as that one needs. `like` names parameters whose literals take the type of the
    elements of another, an array.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        hands_out: tuple[str, ...] = (),
        other: Library | None = None,
        like: dict[str, str] | None = None,
    ):
        Func.__init__(self, fn)
        self.__doc__ = documented(inspect.cleandoc(fn.__doc__ or ""), fn.__name__)
        self.hands_out, self.other, self.like = hands_out, other, like or {}
        self.signature = inspect.signature(fn)
        self.needed = sum(p.default is p.empty for p in self.signature.parameters.values())

    def form(self, node: ast.Call) -> Library:
        """The one of the functions of this name that a call means."""
        given = len(node.args) + len(node.keywords)
        return self.other if self.other is not None and given >= self.other.needed else self

    def handed_out(self, node: ast.Call) -> tuple[ast.expr, ...]:
        """The arguments of a call that it binds anew; none for a call that does not fit."""
        given = bound(self.fn, node.args, {str(k.arg): k.value for k in node.keywords})
        return () if given is None else tuple(given[name] for name in self.hands_out)


def library(
    *hands_out: str, other: Library | None = None, like: dict[str, str] | None = None
) -> Callable[[Callable[..., Any]], Library]:
    """Decorator: a `Library` func."""

    def make(fn: Callable[..., Any]) -> Library:
        recursive(refused_syntax.check)(fn)
        return Library(fn, hands_out, other, like)

    return make
