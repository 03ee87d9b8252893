"""`tape.gradients`: gradients by array, and by instance of a struct: then those of its fields, by their names."""

from __future__ import annotations

from typing import Any

from ..arrays.array import array
from ..arrays.scalar import scalar
from ..kernels.reading.declare import Instance, struct_of
from ..kernels.types import Array


class StructGradient:
    """The gradients of the arrays and declared scalars of a struct instance, under the names of the fields."""

    def __init__(self, of: Instance, known: dict[array, array]):
        self._name, self._fields = struct_of(of).name, {}
        for name, type in struct_of(of).fields:
            part = getattr(of, name)
            if isinstance(part, Instance):
                self._fields[name] = StructGradient(part, known)
            elif isinstance(type, Array) or isinstance(part, scalar):
                self._fields[name] = known.get(part.memory if isinstance(part, scalar) else part)

    def __bool__(self) -> bool:
        return any(bool(f) if isinstance(f, StructGradient) else f is not None for f in self._fields.values())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._fields:
            have = ", ".join(self._fields) or "none"
            raise AttributeError(
                f"the gradient of a {self._name} has no {name!r}: there are those of its arrays and scalars ({have}). "
                f"For the gradient of a number write s.{name} = wb.scalar(value, requires_grad=True)"
            )
        return self._fields[name]

    def __repr__(self) -> str:
        return f"{self._name}({', '.join(f'{name}={part!r}' for name, part in self._fields.items())})"


class TapeGradients(dict):
    """{array: its gradient}; an instance of a struct is a key too, where one of its arrays is."""

    def __missing__(self, key: object) -> StructGradient:
        found = StructGradient(key, self) if isinstance(key, Instance) else None
        if found is None or not found:
            raise KeyError(key)
        return found

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or (isinstance(key, Instance) and bool(StructGradient(key, self)))

    def get(self, key: object, default: object = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default
