"""Python's protocol of types for those of the language: `class X(type)`, `|`, `isinstance`."""

from __future__ import annotations

from typing import Any, Union


class _Named(type):
    """`class vec5(wb.types.vector(5, float)): pass` names a type: it is that type, there is no other of its content."""

    def __call__(cls, *args: Any, **named: object) -> Any:
        if len(args) == 3 and isinstance(args[0], str) and isinstance(args[2], dict):
            name, bases, inside = args
            own = [n for n in inside if n == "__annotations__" or not (n.startswith("__") and n.endswith("__"))]
            if len(bases) != 1 or own:
                raise TypeError(f"class {name}: a type of the kernel language is named, with nothing in it but `pass`")
            return bases[0]
        return super().__call__(*args, **named)


class Asked(metaclass=_Named):
    """Base of the types of the kernel language: `isinstance`, `issubclass` and `|`."""

    def __instancecheck__(self, value: object) -> bool:
        found = getattr(value, "type", None)
        return (found if isinstance(found, Asked) else None) == self

    def __subclasscheck__(self, other: object) -> bool:
        return other == self

    def __or__(self, other: object) -> Any:
        return Union[self, other]  # noqa: UP007  `|` is what is being defined

    def __ror__(self, other: object) -> Any:
        return Union[other, self]  # noqa: UP007
