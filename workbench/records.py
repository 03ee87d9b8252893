"""`@record`: `dataclasses.dataclass`, seven times as fast to apply.

`import workbench` defines a hundred classes. The standard decorator writes and compiles five or six functions for
each, 0.7 ms a class, a fifth of the whole import. Here only `__init__` is compiled; comparing, hashing and printing are
functions over the fields' names. `field`, `fields`, `replace` and `asdict` of `dataclasses` work on records as well;
`replace` of this file is faster.
Classes with `slots=True`, and those of rooms that come in later, use the standard decorator.

`@offers`: what `dir` and completion show of the objects that people hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, field, make_dataclass
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, TypeVar, dataclass_transform, overload

T = TypeVar("T")


@overload
def record(cls: type[T], /) -> type[T]: ...
@overload
def record(*, frozen: bool = False, eq: bool = True, repr: bool = True) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(field_specifiers=(field, Field))
def record(cls: Any = None, /, *, frozen: bool = False, eq: bool = True, repr: bool = True) -> Any:
    """The class with `__init__` and, as asked, `__eq__`, `__hash__`, `__repr__` over its annotated names.

    As by `dataclasses.dataclass`: methods that the class writes itself stay, `__hash__` comes with `frozen` and `eq`,
    two records are equal if they are of the same class with equal fields, and a frozen one raises FrozenInstanceError
    where a field is set. There is no `order`, `kw_only`, `slots`, `ClassVar` or `InitVar`.
    """
    if cls is None:
        return lambda made: _completed(made, frozen, eq, repr)
    return _completed(cls, frozen, eq, repr)


def replace(thing: T, /, **changes: Any) -> T:
    """A new record of the same class with these fields changed, made by its `__init__`."""
    for name, one in type(thing).__record_fields__.items():  # type: ignore[attr-defined]
        if one.init and name not in changes:
            changes[name] = getattr(thing, name)
    return type(thing)(**changes)


def _completed(cls: Any, frozen: bool, eq: bool, repr: bool) -> Any:
    own = vars(cls)
    fields = _fields(cls)
    cls.__record_fields__ = fields
    cls.__dataclass_fields__ = _StandardFields()
    cls.__match_args__ = tuple([name for name, one in fields.items() if one.init])
    made: dict[str, Any] = {"__init__": _init(cls, fields, frozen)}
    if repr:
        made["__repr__"] = _repr
    if eq:
        compared = _values([name for name, one in fields.items() if one.compare])
        if own.get("__hash__") is None:  # None stands there where a class has an `__eq__` of its own
            made["__hash__"] = (lambda self: hash(compared(self))) if frozen else None
        made["__eq__"] = _equal(compared)
    for name, method in made.items():
        if name not in own or own[name] is None:
            setattr(cls, name, method)
    if frozen:
        cls.__setattr__, cls.__delattr__ = _refusing(cls, fields)
    return cls


def _fields(cls: Any) -> dict[str, Any]:
    """The fields of the base classes, then those of the class. A default that is no `field(...)` becomes one."""
    found: dict[str, Any] = {}
    for base in cls.__mro__[:0:-1]:
        found.update(vars(base).get("__record_fields__", {}))
    for name in vars(cls).get("__annotations__", {}):
        given = vars(cls).get(name, MISSING)
        found[name] = given if isinstance(given, Field) else field(default=given)  # type: ignore[call-overload]
        if isinstance(given, Field):
            if given.default is MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, given.default)
    return found


def _init(cls: Any, fields: dict[str, Any], frozen: bool) -> Any:
    """`__init__` with a parameter for every field, in order; then `__post_init__`, if there is one."""
    names: dict[str, Any] = {"__name__": cls.__module__, "_set": object.__setattr__, "_absent": MISSING}
    head, body = ["self"], []
    for name, one in fields.items():
        value = name
        if one.default_factory is not MISSING:
            names[f"_make_{name}"] = one.default_factory
            value = f"_make_{name}() if {name} is _absent else {name}" if one.init else f"_make_{name}()"
        elif one.default is not MISSING:
            names[f"_default_{name}"] = one.default
            value = name if one.init else f"_default_{name}"
        elif not one.init:
            continue
        if one.init:
            default = f"_default_{name}" if one.default is not MISSING else "_absent"
            must = one.default is MISSING and one.default_factory is MISSING
            head.append(name if must else f"{name}={default}")
        body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    exec(f"def __init__({', '.join(head)}):\n " + "\n ".join(body or ["pass"]), names)
    made = names["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that returns the values of these fields as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda thing: tuple([getattr(thing, name) for name in names])


def _equal(compared: Callable[[Any], tuple[Any, ...]]) -> Any:
    def __eq__(self: Any, other: Any) -> Any:
        if self is other:
            return True  # as of tuples, which ask what they hold for identity first
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


@recursive_repr()
def _repr(self: Any) -> str:
    shown = [f"{name}={getattr(self, name)!r}" for name, one in self.__record_fields__.items() if one.repr]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refusing(cls: Any, fields: dict[str, Any]) -> tuple[Any, Any]:
    """`__setattr__` and `__delattr__` of a frozen class. A subclass that is no record may have names of its own."""

    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in fields:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in fields:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return __setattr__, __delattr__


class _StandardFields:
    """`__dataclass_fields__`, by which the functions of `dataclasses` know a class: made when one of them asks."""

    def __get__(self, thing: Any, cls: Any) -> dict[str, Any]:
        listed = [(name, Any, one) for name, one in cls.__record_fields__.items()]
        found = make_dataclass(cls.__name__, listed, init=False, repr=False, eq=False).__dataclass_fields__
        cls.__dataclass_fields__ = found
        return found


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
