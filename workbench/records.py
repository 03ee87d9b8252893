"""`@offers`, the names that `dir` and completion show of what people hold; `Itself`, for objects without copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeVar

T = TypeVar("T")


class Listed(type):
    """Metaclass of a class whose own `dir`, which IPython adds to that of its objects, shows what it `offers`, too."""

    def __dir__(cls) -> list[str]:
        return [name for name in super().__dir__() if name in cls.offered or name.startswith("__")]  # type: ignore[attr-defined]


def offers(names: str) -> Callable[[type[T]], type[T]]:
    """Decorate a class: `dir` and completion show these names of its objects, those of its bases, and Python's own.

    Every other attribute can be used as before.
    """

    def decorate(cls: type[T]) -> type[T]:
        cls.offered = frozenset(names.split()) | getattr(cls, "offered", frozenset())  # type: ignore[attr-defined]
        cls.__dir__ = _offered  # type: ignore[assignment]
        return cls

    return decorate


def _offered(self: Any) -> list[str]:
    return sorted({*type(self).offered, *(name for name in object.__dir__(self) if name.startswith("__"))})


class Itself:
    """Base of objects of which there is one: `copy` and `deepcopy` give the object itself."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self
