"""Parts of composites as a whole: taken out, put in place, joined. What transforms and spatial vectors are made by."""

from __future__ import annotations

from typing import Any

from ..ir import kind, numeric
from ..row import Operand, refuse
from ..types import Composite, Matrix, Scalar, Type, vector
from .row import row
from .vectors import EXTRACT

Place = tuple[int, Any]  # first component, and a type: of the part, or of the whole


def _part_type(v: Type, attr: Place) -> Type:
    start, part = attr
    if not isinstance(v, Composite) or part.scalar != v.scalar or not 0 <= start <= v.size - part.size:
        raise refuse(f"{v} has no {part} at component {start}", slug="operand-type")
    return part


def _place_type(part: Type, attr: Place) -> Type:
    start, whole = attr
    _part_type(whole, (start, part))
    return whole


def _join_type(*types: Type, attr: Composite) -> Type:
    for t in types:
        if not isinstance(t, (Scalar, Composite)) or t.scalar != attr.scalar:
            raise refuse(f"{attr} is made of {attr.scalar}, not {t}", slug="mixed-types", instead=f"{attr.scalar}(...)")
    count = sum(numeric(t).size for t in types)
    if count != attr.size:
        raise refuse(f"{attr} takes {attr.size} components, got {count}", slug="components")
    return attr


def _joined(*parts, types, out, attr):
    return [x for p in parts for x in (p if isinstance(p, list) else [p])]


def _adjoint_join(g, y, *parts, attr):
    made, start = [], 0
    for p in parts:
        type = numeric(p)
        if isinstance(type, Composite):
            made.append(PART(g, attr=(start, type)))
        else:
            made.append(EXTRACT(g, attr=component(attr, start)))
        start += type.size
    return tuple(made)


def component(type: Composite, k: int) -> tuple[int, ...]:
    """The indices of component k, counted row by row."""
    return divmod(k, type.cols) if isinstance(type, Matrix) else (k,)


PART = row(
    "part",
    type=_part_type,
    facts="typed_by_attr linear exact moves cheap",
    expand=lambda v, types, out, attr: v[attr[0] : attr[0] + out.size],
    adjoint=lambda g, y, v, attr: (PLACE(g, attr=(attr[0], kind(v))),),
)
PLACE = row(
    "place",
    type=_place_type,
    facts="typed_by_attr linear exact moves cheap",
    expand=lambda p, types, out, attr: [0] * attr[0] + p + [0] * (out.size - attr[0] - len(p)),
    adjoint=lambda g, y, p, attr: (PART(g, attr=(attr[0], kind(p))),),
)
JOIN = row(
    "join", type=_join_type, facts="typed_by_attr linear exact moves cheap", expand=_joined, adjoint=_adjoint_join
)


def replaced(whole: Operand, start: int, part: Operand) -> Any:
    """`whole` with its components from `start` on replaced by those of `part`."""
    type, size = numeric(whole), numeric(part).size
    sides = [(0, start), (start + size, type.size - start - size)]
    before, behind = ([PART(whole, attr=(at, vector(n, type.scalar)))] if n else [] for at, n in sides)
    return JOIN(*before, part, *behind, attr=type)
