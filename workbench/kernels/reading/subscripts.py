"""Reading and writing parts: elements and rows of arrays, components of vectors and matrices, fields of structs.

A place that is assigned is either memory (an `ArrayView` whose indices are complete) or a part of a local: then writing
makes a new value of the whole and rebinds the name, however deep the part lies.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeAlias

from ...errors import KernelError
from .. import ir, ops
from ..ops import memory, parts, scalar, vectors
from ..row import Row
from ..types import Array, Composite, Matrix, Small, Struct, Transform, Vector, float16, float32, matrix, vector
from . import hints, refused_syntax
from .addresses import address_of
from .base import Meaning, ReaderBase
from .chosen_arrays import each_option
from .cuts import extent, narrowed, picked_along
from .func_grad import gradient_assigned, gradient_place, gradient_read, is_gradient, refuse_gradient_assigned
from .indexed_arrays import indexed_attribute, indexed_element, indexed_item, is_indexed
from .liveness import IN_PLACE_TILES
from .local_arrays import local_value, store_local
from .lower_bounds import static_int
from .scope import ArrayView, Choice, Fields, Local, LocalPart, Part, Shape, StructParts, Unusable, describe, is_array
from .tile_parts import is_tile, number_of, tile_read, tile_slot
from .tile_sharing import has_tiles, present_tiles, put_name, refuse_shared, shared

NAMES = {"x": 0, "y": 1, "z": 2, "w": 3}
IN_PLACE = {"Add": memory.ATOMIC_ADD, "Sub": memory.ATOMIC_SUB}


@dataclass(frozen=True)
class ComponentCells:
    """Components of an array element: the element, the pick among them, and their type where they have one together."""

    view: ArrayView | Choice
    pick: tuple[Any, ...]
    type: Composite | None = None


Cell: TypeAlias = ArrayView | Choice | ComponentCells  # an element in memory, or components of one


class Places(ReaderBase):
    """Mixin of `Reader`: subscripts and attributes, read and assigned."""

    # ---- reading

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        if is_gradient(self, node.value):
            return gradient_read(self, node)
        return self.loaded(self.item(self.visit(node.value), node))

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        return self.loaded(self.attribute(self.partly(node.value), node))

    def partly(self, node: ast.expr) -> Any:
        """Like `visit`, but an element of an array of structs is not loaded yet: one field may be all that is read."""
        if not isinstance(node, ast.Attribute | ast.Subscript):
            return self.visit(node)
        if isinstance(node, ast.Subscript) and is_gradient(self, node.value):
            return self.visit(node)
        base = self.partly(node.value)
        with self.at(node):
            found = self.attribute(base, node) if isinstance(node, ast.Attribute) else self.item(base, node)
            return found if isinstance(found, Fields) else self.loaded(found)

    def loaded(self, x: Meaning) -> Any:
        """The value of an array element; anything else as it is."""
        if isinstance(x, ArrayView) and x.type.ndim == 0:
            return self.builder.emit(memory.LOAD, x.root, *x.prefix)
        if isinstance(x, Local) and x.type.ndim == 0:
            return local_value(self, x)
        if isinstance(x, Choice) and x.type.ndim == 0:
            return each_option(self, x, self.loaded)
        if isinstance(x, Fields) and x.type.ndim == 0:
            return StructParts(x.struct, {name: self.loaded(part) for name, part in x.parts.items()})
        return x

    def item(self, base: Meaning, node: ast.Subscript) -> Any:
        """`base[...]`; elements of arrays stay views, so that they can be stored to as well."""
        if is_indexed(base):
            return indexed_item(self, base, self.indices(node.slice))
        if is_array(base):
            return self.element(base, self.indices(node.slice))
        if isinstance(base, Shape):
            return self.length(base.array, self.static_index(node.slice, base.array.type.ndim))
        if isinstance(base, tuple) and isinstance(node.slice, ast.Slice):
            return tuple(base[k] for k in self.static_slice(node.slice, len(base)))
        if isinstance(base, tuple):
            return base[self.static_index(node.slice, len(base))]
        if is_tile(base):
            return tile_read(self, base, listed(node.slice))
        whole = self.value(base)
        if isinstance(whole.type, Array):
            text = f"{describe(whole)} lies behind the elements of an array of structs"
            why = "Which arrays such structs hold is known only when the kernel runs."
            raise self.error(text, "struct-array", node, why, "one array of all their values")
        if not isinstance(whole.type, Composite):
            raise self.error(
                f"{describe(whole)} has no components", "not-indexable", node, "Arrays, vectors and matrices have."
            )
        return self.component(whole, self.pick(whole.type, node.slice))

    def attribute(self, base: Meaning, node: ast.Attribute) -> Any:
        if isinstance(base, ModuleType):  # asked for a name it has not, `wb` looks for the closest: that takes long
            return self.python_attribute(base, node)
        if is_array(base):
            return self.array_attribute(base, node)
        if node.attr in ("dtype", "shape", "size") and is_tile(base):
            dims = base.type.dims
            return {"dtype": number_of(base.type), "shape": dims, "size": math.prod(dims)}[node.attr]
        if is_indexed(base):
            return indexed_attribute(self, base, node)
        if isinstance(base, StructParts):
            if node.attr not in base.fields:
                raise self.no_field(base.type, node)
            return self.checked(base.fields[node.attr], node)
        if isinstance(base, ir.Value | Small):
            whole = self.value(base)
            if node.attr == "dtype":
                return ir.numeric(whole).scalar
            if node.attr == "length":  # how many components, as Warp has it
                return ir.numeric(whole).size
            if (part := part_named(whole.type, node.attr)) is not None:
                return self.builder.emit(parts.PART, whole, attr=part)
            return self.component(whole, (self.component_named(whole.type, node),))
        if isinstance(base, tuple) and node.attr in getattr(base, "_fields", ()):  # of a named tuple
            return self.python_attribute(base, node)
        if isinstance(base, (Shape, tuple)):
            raise refused_syntax.refuse("Method", self.where(node))
        if isinstance(base, Composite) and node.attr in ("dtype", "length"):  # a type: `type(a).dtype(0.5)`
            return base.scalar if node.attr == "dtype" else base.size
        return self.python_attribute(base, node)

    def array_attribute(self, base: Part | Fields, node: ast.Attribute) -> Any:
        if isinstance(base, Fields) and base.type.ndim == 0:
            if node.attr not in base.parts:
                raise self.no_field(base.struct, node)
            return base.parts[node.attr]
        if base.type.ndim == 0:
            return self.attribute(self.loaded(base), node)
        if node.attr == "dtype":
            return base.type.dtype
        if node.attr == "ndim":
            return base.type.ndim
        if node.attr == "shape":
            return Shape(base.first if isinstance(base, Fields) else base)
        if node.attr == "ptr":
            return address_of(self, base, node)
        text = f"an array has no attribute `{node.attr}` in a kernel"
        why = "There are shape, ndim, dtype and ptr."
        raise self.error(text, "attribute", node, why, hints.instead_of_method(node))

    def no_field(self, struct: Struct, node: ast.Attribute) -> KernelError:
        have = ", ".join(name for name, _ in struct.fields)
        return self.error(f"{struct} has no field `{node.attr}`", "field", node, f"It has {have}.")

    def component_named(self, type: Meaning, node: ast.Attribute) -> int:
        k = NAMES.get(node.attr)
        if isinstance(type, Transform):
            raise self.error(f"{type} has no component `{node.attr}`", "component", node, "It has p and q.", "t.p")
        if k is None or not isinstance(type, Composite) or isinstance(type, Matrix) or k >= type.size:
            raise self.error(f"{type} has no component `{node.attr}`", "component", node, "", "v[0]")
        return k

    def length(self, array: Part | Fields, axis: int) -> Any:
        """The number of elements along an axis: a Python int where it is constant, else an IR value."""
        n = extent(self, array.first if isinstance(array, Fields) else array, axis)
        return n if (k := static_int(n)) is None else k

    # ---- indices

    def indices(self, node: ast.expr) -> list[ast.expr]:
        found = node.elts if isinstance(node, ast.Tuple) else [node]
        for n in found:
            if isinstance(n, ast.Starred):
                raise refused_syntax.refuse(refused_syntax.name_of(n), self.where(n))
        return found

    def element(self, base: Part | Fields, nodes: list[ast.expr]) -> Any:
        """Rows, slices and elements; what goes beyond the axes of the array picks components."""
        taken, beyond = nodes[: base.type.ndim], nodes[base.type.ndim :]
        first = base.first if isinstance(base, Fields) else base
        found = narrowed(self, base, [picked_along(self, first, axis, n) for axis, n in enumerate(taken)])
        if not beyond:
            return found
        self.refuse_extra(base, found, nodes)
        whole = self.loaded(found)
        return self.component(whole, self.picked(whole.type, beyond))

    def refuse_extra(self, base: Part | Fields, found: Meaning, nodes: list[ast.expr]) -> None:
        """More indices than axes pick components, of one element."""
        element = found.load() if isinstance(found, LocalPart) else found
        if isinstance(found, LocalPart) and isinstance(getattr(element, "type", None), Composite):
            return
        composite = is_array(found) and found.type.ndim == 0 and isinstance(found.type.dtype, Composite)
        if not composite:
            n = base.type.ndim
            raise self.error(f"{base.type} takes {n} indices, got {len(nodes)}", "rank", nodes[n])

    def static_index(self, node: ast.expr, size: int) -> int:
        k = static_int(self.visit(node))
        if k is None or not -size <= k < size:
            raise self.error(f"this index must be a constant below {size}", "static-index", node, "", "x.shape[0]")
        return k % size

    # ---- components

    def pick(self, type: Composite, node: ast.expr) -> tuple[Any, ...]:
        return self.picked(type, node.elts if isinstance(node, ast.Tuple) else [node])

    def picked(self, type: Composite, nodes: list[ast.expr]) -> tuple[Any, ...]:
        """Each index as a Python int where it is known, as a range for a slice, else as a value."""
        if len(nodes) > len(type.shape):
            raise self.error(f"{type} takes {len(type.shape)} indices, got {len(nodes)}", "rank", nodes[-1])
        return tuple(self.pick_one(n, size) for n, size in zip(nodes, type.shape, strict=False))

    def pick_one(self, node: ast.expr, size: int) -> int | range | ir.Value:
        if isinstance(node, ast.Slice):
            return self.static_slice(node, size)
        i = self.index(node)
        k = static_int(i)
        return i if k is None else self.component_within(k, size, node)

    def static_slice(self, node: ast.Slice, size: int) -> range:
        ends = [None if e is None else static_int(self.visit(e)) for e in (node.lower, node.upper, node.step)]
        given = [e for e in (node.lower, node.upper, node.step) if e is not None]
        if sum(e is not None for e in ends) != len(given):
            raise self.error("a slice of a vector has constant ends", "slice", node, "Its length is a type.", "v[0:2]")
        found = range(*slice(*ends).indices(size)) if ends[2] != 0 else range(0)
        if not found:
            raise self.error("this slice is empty", "slice", node, "", "v[0:2]")
        return found

    def component(self, whole: ir.Value, pick: tuple[Any, ...]) -> ir.Value:
        if any(isinstance(p, range) for p in pick):
            return self.slice_read(whole, pick)
        if all(isinstance(p, int) for p in pick):
            return self.builder.emit(vectors.EXTRACT, whole, attr=pick)
        return self.builder.emit(vectors.EXTRACT_AT, whole, *[self.value(p) for p in pick])

    def slice_read(self, whole: ir.Value, pick: tuple[Any, ...]) -> ir.Value:
        of = ir.type_as(whole, Composite)
        number = of.scalar
        if len(of.shape) == 1 and pick[0].step == 1:
            return self.builder.emit(parts.PART, whole, attr=(pick[0].start, vector(len(pick[0]), number)))
        found = [self.component(whole, p) for p in spread(pick)]
        lengths = [len(p) for p in pick if isinstance(p, range)]
        if isinstance(found[0].type, Vector):  # rows of a matrix
            columns = range(found[0].type.length)
            found = [self.component(p, (c,)) for p in found for c in columns]
            lengths.append(len(columns))
        type = vector(lengths[0], number) if len(lengths) == 1 else matrix(tuple(lengths), number)
        return self.builder.emit(vectors.CONSTRUCT, *found, attr=type)

    def inserted(self, whole: ir.Value, pick: tuple[Any, ...], value: Meaning) -> ir.Value:
        """`whole` with the picked components replaced."""
        type = ir.type_as(whole, Composite)
        if any(isinstance(p, range) for p in pick):
            places = spread(pick + tuple(range(n) for n in type.shape[len(pick) :]))
            for place, part in zip(places, self.split(value, len(places), type), strict=True):
                whole = self.inserted(whole, place, part)
            return whole
        part = type.scalar if len(pick) == len(type.shape) else part_type(type, pick)
        v = self.typed(value, part)
        if all(isinstance(p, int) for p in pick):
            return self.builder.emit(vectors.INSERT, whole, v, attr=pick)
        return self.builder.emit(vectors.INSERT_AT, whole, *[self.value(p) for p in pick], v)

    def split(self, value: Meaning, count: int, type: Composite) -> list[ir.Value]:
        """One value per place: the components of a vector, or one number for all."""
        v = self.typed(value, type.scalar)
        if not isinstance(v.type, Composite):
            return [v] * count
        if v.type.size != count:
            raise self.error(f"{count} components cannot take {v.type}", "slice", None)
        return vectors.components(v)

    # ---- assigning

    def assign(self, target: ast.expr, value: Meaning) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            return self.assign_each(target, value)
        if isinstance(target, ast.Name):
            return self.bind(target, value)
        if not isinstance(target, (ast.Attribute, ast.Subscript)):
            raise refused_syntax.refuse(refused_syntax.name_of(target), self.where(target))
        refuse_gradient_assigned(self, target)
        with self.at(target):
            if is_array(value) and isinstance(target, ast.Attribute):
                return self.assign_array_field(target, value)
            self.write(self.place(target), value, target)

    def assign_array_field(self, target: ast.Attribute, value: Part | Fields) -> None:
        """`s.x = a`: rebinds the field, which stands for that array from here on."""
        base = self.place(target.value)
        record = base.load() if isinstance(base, LocalPart) else None
        wanted = dict(record.type.fields).get(target.attr) if isinstance(record, StructParts) else None
        if record is None or wanted is None or isinstance(value, Local) or value.type != wanted:
            raise self.error(f"{describe(value)} cannot be assigned here", "assign", target, "", "a field of its type")
        base.store(record.with_field(target.attr, value))

    def assign_each(self, target: ast.Tuple | ast.List, value: Meaning) -> None:
        items = self.unpacked(value, target)
        if len(items) != len(target.elts):
            raise self.error(f"{len(target.elts)} names, and {len(items)} values on the right", "unpack", target)
        for t, v in zip(target.elts, items, strict=True):
            self.assign(t, v)

    def unpacked(self, value: Meaning, node: ast.expr) -> list[Any]:
        if isinstance(value, tuple):
            return list(value)
        if isinstance(value, Shape):
            return [self.length(value.array, k) for k in range(value.array.type.ndim)]
        if isinstance(value, ir.Value) and isinstance(value.type, Composite):
            return [self.component(value, (k,)) for k in range(value.type.shape[0])]
        raise self.error(f"{describe(value)} cannot be unpacked into names", "unpack", node, "", "a, b = f(x)")

    def bind(self, target: ast.Name, value: Meaning) -> None:
        settled = self.materialised(value, target.id)
        self.state.names[target.id] = shared(self, settled, target.id) if has_tiles(settled) else settled

    def place(self, node: ast.expr) -> Any:
        """The target of an assignment: a Slot of a local, a View or Fields (memory), Cells, or a Local's element."""
        if isinstance(node, ast.Name):
            name = node.id
            if name not in self.state.names and name in self.frame.around:
                text = f"`{name}` is a Python variable outside: a kernel cannot change it"
                why = "It is a constant for the kernel."
                raise self.error(text, "global", node, why, f"{name}_local = {name}, and change that")
            found = self.visit(node)
            if is_array(found) or is_indexed(found):
                return found
            if isinstance(self.state.names.get(name, found), Unusable):
                self.state.names[name] = found  # assigned here, if it was not certain before
            return LocalPart(lambda: present_tiles(self, self.state.names[name]), lambda v: put_name(self, name, v))
        if isinstance(node, ast.Attribute):
            with self.at(node):
                return self.field_place(self.place(node.value), node)
        if isinstance(node, ast.Subscript):
            if is_gradient(self, node.value):
                return gradient_place(self, node)
            with self.at(node):
                return self.item_place(self.place(node.value), node)
        if isinstance(node, ast.Starred):
            raise refused_syntax.refuse("Starred", self.where(node))
        found = self.visit(node)
        if is_array(found):
            return found
        raise self.error("this cannot be assigned to", "assign", node, "It is no name, part of one, or array element.")

    def field_place(self, base: Meaning, node: ast.Attribute) -> Any:
        if isinstance(base, Fields):
            return self.own(self.array_attribute(base, node))
        if isinstance(base, ArrayView | Choice) and base.type.ndim == 0:
            if (part := part_named(base.type.dtype, node.attr)) is not None:
                return ComponentCells(base, (range(part[0], part[0] + part[1].size),), part[1])
            return ComponentCells(base, (self.component_named(base.type.dtype, node),))
        if isinstance(base, ComponentCells) and base.type is not None:
            return ComponentCells(base.view, (base.pick[0][self.component_named(base.type, node)],))
        if not isinstance(base, LocalPart):
            raise self.error(f"`{node.attr}` cannot be assigned here", "assign", node)
        whole = base.load()
        if isinstance(whole, StructParts):
            if node.attr not in whole.fields:
                raise self.no_field(whole.type, node)
            if is_array(whole.fields[node.attr]) or is_indexed(whole.fields[node.attr]):
                return whole.fields[node.attr]
            name = node.attr
            return LocalPart(lambda: base.load().fields[name], lambda v: base.store(base.load().with_field(name, v)))
        if (part := part_named(self.value(whole).type, node.attr)) is not None:
            return self.typed_slot(base, part)
        return self.part_slot(base, (self.component_named(self.value(whole).type, node),))

    def item_place(self, base: Meaning, node: ast.Subscript) -> Any:
        if is_indexed(base):
            nodes, n = self.indices(node.slice), base.type.ndim
            found, beyond = indexed_element(self, base, nodes[:n]), nodes[n:]
            return (
                ComponentCells(found, self.picked(self.composite(found.type.dtype, node), beyond)) if beyond else found
            )
        if is_array(base) and base.type.ndim > 0:
            nodes = self.indices(node.slice)
            found = self.own(self.element(base, nodes[: base.type.ndim]))
            beyond = nodes[base.type.ndim :]
            if not beyond:
                return found
            self.refuse_extra(base, found, nodes)
            if isinstance(found, LocalPart):
                return self.part_slot(found, self.picked(found.load().type, beyond))
            return ComponentCells(found, self.picked(found.type.dtype, beyond))
        if isinstance(base, ArrayView | Choice):
            return ComponentCells(base, self.pick(self.composite(base.type.dtype, node), node.slice))
        if isinstance(base, ComponentCells) and base.type is not None:
            return ComponentCells(base.view, self.inside(base, self.pick(base.type, node.slice)[0]))
        if isinstance(base, ComponentCells):
            rest = self.pick(self.composite(part_type(base.view.type.dtype, base.pick), node), node.slice)
            return ComponentCells(base.view, base.pick + rest)
        if not isinstance(base, LocalPart):
            raise self.error("this cannot be assigned to", "assign", node)
        if is_tile(base.load()):
            return LocalPart(*tile_slot(self, base, listed(node.slice), node.value))
        whole = self.value(base.load())
        return self.part_slot(base, self.pick(self.composite(whole.type, node), node.slice))

    def own(self, found: Meaning) -> Any:
        """A complete element of an array made in the kernel is written like part of any other local."""
        if not isinstance(found, Local) or found.type.ndim:
            return found
        return LocalPart(lambda: local_value(self, found), lambda v: store_local(self, found, v))

    def inside(self, base: ComponentCells, pick: int | range | ir.Value) -> tuple[Any, ...]:
        """The pick among all components that means this one among those of a part."""
        start = base.pick[0].start
        if isinstance(pick, range):
            return (range(start + pick.start, start + pick.stop, pick.step),)
        if isinstance(pick, int):
            return (start + pick,)
        return (ops.binary("+", self.component_index(pick, len(base.pick[0])), self.typed(start, pick.type)),)

    def cell(self, place: Meaning, option: ArrayView | Local) -> ArrayView | ComponentCells | LocalPart:
        """The element, or the components of one, in one of the arrays that it may be in."""
        found = self.own(option)
        if not isinstance(place, ComponentCells):
            return found
        if not isinstance(found, LocalPart):
            return ComponentCells(found, place.pick, place.type)
        if place.type is not None:
            return self.typed_slot(found, (place.pick[0].start, place.type))
        return self.part_slot(found, place.pick)

    def typed_slot(self, base: LocalPart, part: tuple[int, Composite]) -> LocalPart:
        """A named part of a local: of a transform its position or rotation."""
        read = lambda whole: self.builder.emit(parts.PART, whole, attr=part)  # noqa: E731
        return self.slot(base, read, lambda whole, v: parts.replaced(whole, part[0], self.value(v)))

    def part_slot(self, base: LocalPart, pick: tuple[Any, ...]) -> LocalPart:
        return self.slot(base, lambda whole: self.component(whole, pick), lambda w, v: self.inserted(w, pick, v))

    def slot(self, base: LocalPart, read: Callable[..., Any], replaced: Callable[..., Any]) -> LocalPart:
        """Components of a local: `read(whole)` gives them, `replaced(whole, v)` the whole with others."""

        def store(v: Meaning) -> None:
            whole = self.value(base.load())
            made = replaced(whole, v)
            made.name = made.name or whole.name
            base.store(made)

        return LocalPart(lambda: read(self.value(base.load())), store)

    # ---- writing to a place

    def write(self, place: Meaning, value: Meaning, node: ast.expr) -> None:
        if chosen := chosen_cell(place):
            each_option(self, chosen, lambda option: self.write(self.cell(place, option), value, node))
        elif isinstance(place, LocalPart):
            place.store(self.fitting(place.load(), value, node))
        elif isinstance(place, ArrayView):
            self.store_element(place, value, node)
        elif isinstance(place, Fields):
            self.store_struct(place, value, node)
        elif isinstance(place, ComponentCells):
            for view, part in self.cell_parts(place, value):
                if _is_shadow(view.root):
                    raise gradient_assigned(self, node)
                self.builder.emit(memory.STORE, view.root, *view.prefix, part)
        else:
            raise self.error("this cannot be assigned to", "assign", node)

    def fitting(self, old: Meaning, value: Meaning, node: ast.expr) -> Any:
        """A value for a part that has a type already: a field or component keeps it."""
        if isinstance(old, ir.Value):
            new = self.typed(value, old.type)
            if new.type != old.type and not isinstance(node, ast.Subscript):
                text = f"a value of type {new.type} cannot go into this {old.type}"
                raise self.error(text, "store-type", node, "", f"{old.type}(...)")
            return new
        same = is_array(value) if is_array(old) else isinstance(value, StructParts)
        if (is_array(old) or isinstance(old, StructParts)) and not (same and getattr(value, "type", None) == old.type):
            raise self.error(f"{describe(value)} cannot go into this {old.type}", "store-type", node)
        return value

    def store_element(self, view: ArrayView | Choice, value: Meaning, node: ast.expr) -> None:
        if isinstance(view, ArrayView) and _is_shadow(view.root):
            raise gradient_assigned(self, node)
        if view.type.ndim or isinstance(view, Choice):
            text = f"a row or slice cannot be assigned: {view.type.ndim} more indices are needed"
            why = "An array is written element by element."
            raise self.error(text, "rank", node, why, "for j in range(x.shape[1]): x[i, j] = ...")
        self.builder.emit(memory.STORE, view.root, *view.prefix, self.typed(value, view.type.dtype))

    def store_struct(self, place: Fields, value: Meaning, node: ast.expr) -> None:
        if place.type.ndim or not isinstance(value, StructParts) or value.type != place.type.dtype:
            raise self.error(f"{describe(value)} cannot be stored here", "store-type", node, f"This is {place.type}.")
        for name, part in place.parts.items():
            self.write(self.own(part), value.fields[name], node)

    def cell_parts(self, place: ComponentCells, value: Meaning) -> list[tuple[ArrayView, ir.Value]]:
        """Scalar elements of an array of composites, seen as an array of scalars, and the value for each."""
        type = place.view.type.dtype
        assert isinstance(type, Composite) and isinstance(place.view, ArrayView)
        view = place.view
        full = place.pick + tuple(range(n) for n in type.shape[len(place.pick) :])
        root = self.builder.emit(memory.COMPONENTS, view.root)
        spots = spread(full)
        one = len(spots) == 1 and not any(isinstance(p, range) for p in full)
        parts = [self.typed(value, type.scalar)] if one else self.split(value, len(spots), type)
        views = [
            ArrayView(
                root, view.prefix + tuple(self.component_index(p, n) for p, n in zip(spot, type.shape, strict=True))
            )
            for spot in spots
        ]
        return list(zip(views, parts, strict=True))

    def component_index(self, p: int | ir.Value, size: int) -> ir.Value:
        if isinstance(p, int) or self.facts.non_negative(p):
            return self.value(p)
        return self.builder.emit(memory.WRAP, p, self.typed(size, p.type))

    # ---- augmented assignment

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        with self.at(node.target):
            place = self.place(node.target)
        op = refused_syntax.name_of(node.op)
        if op not in IN_PLACE:
            refuse_gradient_assigned(self, node.target)
        if isinstance(place, (ArrayView, ComponentCells, Choice)):
            return self.update_memory(place, node, op)
        if not isinstance(place, LocalPart):
            raise self.error("a struct cannot be updated as a whole", "assign", node.target, "", "p[i].q += v")
        old = place.load()
        if isinstance(old, Unusable):
            raise old.error(self.where(node.target))
        in_place = is_tile(old) and isinstance(node.target, ast.Name) and op in IN_PLACE_TILES
        if in_place:
            refuse_shared(self, old, node.target)
        with hints.mixed_types(self, node.target, node.value):
            result = self.binary(node.op, old, self.visit(node.value))
        name = node.target.id if isinstance(node.target, ast.Name) else ""
        if isinstance(node.target, ast.Name) and is_tile(old) and not in_place:
            return self.bind(node.target, result)
        place.store(self.materialised(result, name) if name else self.fitting(old, result, node.target))

    def add_to(self, row: Row, view: ArrayView, part: ir.Value) -> None:
        """`+=` on memory: an atomic update; of a gradient, an accumulation without a result."""
        if not _is_shadow(view.root):
            self.builder.emit(row, view.root, *view.prefix, part)
        else:
            part = part if row is memory.ATOMIC_ADD else ops.unary("-", part)
            if getattr(part.type, "scalar", None) is float16:  # its gradients are float32
                part = self.builder.emit(scalar.CAST, part, attr=float32)
            self.builder.emit(memory.ACCUMULATE, view.root, *view.prefix, part)

    def add_value(self, row: Row, place: Cell | LocalPart, value: Meaning, node: ast.AugAssign) -> None:
        """`+=` or `-=` on an element, or on components of one."""
        if chosen := chosen_cell(place):
            each_option(self, chosen, lambda option: self.add_value(row, self.cell(place, option), value, node))
        elif isinstance(place, LocalPart):  # of an array made in the kernel
            old = place.load()
            place.store(self.fitting(old, self.binary(node.op, old, value), node.target))
        elif isinstance(place, ComponentCells):
            for view, part in self.cell_parts(place, value):
                self.add_to(row, view, part)
        else:
            assert isinstance(place, ArrayView)
            self.add_to(row, place, self.typed(value, place.type.dtype))

    def update_memory(self, place: Cell, node: ast.AugAssign, op: str) -> None:
        """`a[i] += v` adds atomically; other operators load, compute and store."""
        if not isinstance(place, ComponentCells) and place.type.ndim:
            return self.store_element(place, None, node.target)
        row = IN_PLACE.get(op)
        if row is not None:
            return self.add_value(row, place, self.visit(node.value), node)
        old = self.loaded(place.view if isinstance(place, ComponentCells) else place)
        if isinstance(place, ComponentCells):
            typed = (place.pick[0].start, place.type) if place.type is not None else None
            emit = self.builder.emit
            old = self.component(old, place.pick) if typed is None else emit(parts.PART, old, attr=typed)
        self.write(place, self.binary(node.op, old, self.visit(node.value)), node.target)


def chosen_cell(place: Meaning) -> Choice | None:
    """The element of one array or another that a place is, or has components of; None for any other place."""
    found = place.view if isinstance(place, ComponentCells) else place
    return found if isinstance(found, Choice) and found.type.ndim == 0 else None


def part_named(type: Meaning, name: str) -> tuple[int, Composite] | None:
    """(offset, type) of the named part of a transform; None if there is none."""
    return type.parts.get(name) if isinstance(type, Transform) else None


def listed(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple) else [node]


def spread(pick: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """The indices of every component that a pick with ranges names, row by row."""
    places: list[tuple[Any, ...]] = [()]
    for p in pick:
        places = [(*place, k) for place in places for k in (p if isinstance(p, range) else (p,))]
    return places


def part_type(type: Meaning, pick: tuple[Any, ...]) -> Any:
    """The type of a component or row."""
    if isinstance(type, Matrix) and len(pick) == 1:
        return Vector(type.cols, type.scalar)
    return ir.numeric(type).scalar


def _is_shadow(array: ir.Value) -> bool:
    """True if this, or what it shows the components of, is an array of gradients."""
    return ir.root(array).role is ir.Role.SHADOW
