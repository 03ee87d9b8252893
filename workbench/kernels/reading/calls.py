"""Calls: builtins, casts and constructors, atomics, random numbers, and funcs, which are read into the caller.

What is called is known by identity, not by name, so `from workbench import sin as s` works like `wb.sin`.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import typing
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FunctionType
from typing import Any

import numpy as np

from ...errors import KernelError, Where
from .. import ir, ops, types as T
from ..ir import constant
from ..ops import control, memory
from ..ops.signatures import TileBuiltin
from ..parameter_types import Ref
from ..row import Row, arity

# checks and tile_tools are imported to enter their readers of builtins
from . import addresses, assigned_names, checks, declare, hints, python_names as names, refused_syntax, tile_tools  # noqa: F401
from .addresses import array_of_memory, is_address
from .base import READERS, Meaning, ReaderBase, reads
from .chosen_arrays import each_option, unassigned
from .conditions import Guarded
from .declare import Func
from .func_grad import call_custom_each
from .gradients import Gradient, call_gradient
from .handles import call_library, open_handle
from .indexed_arrays import indexed_element, is_indexed, with_args
from .library import Library
from .local_arrays import call_zeros
from .lower_bounds import static_int
from .overload_calls import overload, references
from .overloads import refs
from .scope import (
    FRESH,
    ArrayView,
    Choice,
    Local,
    LocalPart,
    Shape,
    State,
    StructParts,
    Unusable,
    describe,
    is_array,
    is_literal,
)
from .subscripts import chosen_cell
from .tile_parts import is_tile
from .tile_sharing import refuse_read_beside, shared
from .tiles import call_tile, changed_tiles

UPDATES = {id(row): row for row in memory.ATOMICS}
STATEFUL = {id(f): f for f in ops.STATEFUL.values()}
FUNCTIONS = {id(f) for f in ops.BUILTINS.values()}
STORING = {id(ops.BUILTINS[name]): places for name, places in ops.STORING.items()}
OUTSIDE = "A func is read into the kernel; a plain Python function is not."


class Calls(ReaderBase):
    """Mixin of `Reader`: calls."""

    def visit_Call(self, node: ast.Call) -> Any:
        if any(isinstance(arg, ast.Starred) for arg in node.args):
            return self.call_spread(node)
        for keyword in node.keywords:
            if keyword.arg is None:
                raise refused_syntax.refuse("Starred", self.where(keyword.value))
        return self.call(self.visit(node.func), node)

    def call_spread(self, node: ast.Call) -> Any:
        """`f(*v)`: a call with the components of a vector, or the parts of a tuple, as arguments."""
        args: list[ast.expr] = []
        names: list[str] = []
        for arg in node.args:
            for name, part in self.spread_parts(arg) if isinstance(arg, ast.Starred) else ():
                self.state.names[name] = part
                names.append(name)
                args.append(ast.copy_location(ast.Name(name, ast.Load()), arg))
            args += [] if isinstance(arg, ast.Starred) else [arg]
        made = self.visit(ast.copy_location(ast.Call(node.func, args, node.keywords), node))
        for name in names:
            del self.state.names[name]
        return made

    def spread_parts(self, arg: ast.Starred) -> list[tuple[str, Any]]:
        given = self.visit(arg.value)
        if not isinstance(given, tuple):
            whole = self.value(given)
            if not isinstance(whole.type, T.Composite) or is_tile(whole):
                raise refused_syntax.refuse("Starred", self.where(arg))
            given = tuple(self.component(whole, (k,)) for k in range(whole.type.shape[0]))  # of a matrix its rows
        first = self.serial()
        return [(f"part {k} of {first}", part) for k, part in enumerate(given)]

    def call(self, callee: Meaning, node: ast.Call) -> Any:
        if isinstance(callee, TileBuiltin):
            return call_tile(self, callee, node)
        if id(callee) in READERS:
            return READERS[id(callee)](self, node)
        if isinstance(callee, FunctionType) and callee in declare.LOCAL_ZEROS:
            return call_zeros(self, node)
        if isinstance(callee, Library):
            return call_library(self, callee, node)
        if isinstance(callee, Func):
            return self.call_func(callee, node)
        if isinstance(callee, Gradient):
            return call_gradient(self, callee, node)
        if isinstance(callee, T.Struct):
            return self.call_struct(callee, node)
        if isinstance(callee, T.Type) or (isinstance(callee, type) and is_number_type(callee)):
            return self.call_type(callee, node)
        if id(callee) in UPDATES:
            return self.call_atomic(UPDATES[id(callee)], node)
        if callable(callee) and id(callee) in STATEFUL:
            return self.call_stateful(callee, node)
        if callable(callee) and (places := STORING.get(id(callee), {}).get(len(node.args))):
            return self.call_storing(callee, places, node)
        if callable(callee) and (id(callee) in FUNCTIONS or isinstance(callee, Row)):
            return self.call_builtin(callee, node)
        if isinstance(callee, typing.Hashable) and callee in ops.PYTHON:
            return self.call_builtin(ops.PYTHON[callee], node)
        if getattr(callee, "__name__", "") == "array":  # the class of the host: no name of the compiler's
            return array_of_memory(self, node)
        raise self.not_callable(callee, node)

    def not_callable(self, callee: Meaning, node: ast.Call) -> KernelError:
        if callee is builtins.range:
            return self.error("range() stands only after `for ... in`", "for-range", node, "", "for j in range(n): ...")
        name = getattr(callee, "__name__", None) or describe(callee)
        if isinstance(callee, FunctionType):
            return self.error(
                f"`{name}` is a plain Python function", "not-a-func", node, OUTSIDE, f"@func above def {name}"
            )
        reason = ops.why_refused(name) if isinstance(name, str) else None
        if reason:
            return self.error(f"`{name}` is not in the kernel language", "refused-builtin", node, reason)
        ours = f"wb.{name}(...)" if name in ops.BUILTINS else "a func or a builtin"
        return self.error(f"`{name}` cannot be called in a kernel", "not-callable", node, OUTSIDE, ours)

    # ---- launch, printing, static

    @reads(declare.tid)
    def call_tid(self, node: ast.Call) -> Any:
        if node.args or node.keywords:
            raise self.error("tid() takes no arguments", "arguments", node, "", "i = tid()")
        rank, self.unpacking = self.unpacking or 1, None
        if not 1 <= rank <= 4:
            raise self.error("a launch has one to four dimensions", "tid-rank", node, "", "i, j, k, l = tid()")
        if self.rank is not None and self.rank != rank:
            text = f"tid() gives {rank} indices here and {self.rank} elsewhere"
            why = "A kernel has one launch grid."
            raise self.error(text, "tid-rank", node, why, "the same names on the left everywhere")
        self.rank = rank
        made = tuple(self.builder.emit(control.TID, attr=control.Tid(axis)) for axis in range(rank))
        return made if rank > 1 else made[0]

    @reads(declare.printf)
    def call_printf(self, node: ast.Call) -> None:
        if not node.args or not (isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)):
            raise self.error("printf() takes a format in quotes first", "printf", node, "", 'printf("%f\\n", x)')
        if node.keywords:
            raise self.error("printf takes no named arguments", "printf", node.keywords[0].value, "", "the value alone")
        values = [self.value(self.visit(a)) for a in node.args[1:]]
        count = sum(ir.numeric(v).size for v in values)
        try:
            _, kinds = control.printed(node.args[0].value, lambda flags, kind: "")
        except ValueError as odd:
            why = "There are d i u x X o, e E f F g G and c."
            raise self.error(
                f"`{odd}` is no conversion of printf in a kernel", "printf", node.args[0], why, "%d or %f"
            ) from None
        if len(kinds) != count:
            text = f"printf has {len(kinds)} conversions and {count} values"
            raise self.error(text, "printf", node, "A vector takes one for each component.", 'printf("%f\\n", x)')
        shown = tuple(ast.unparse(a) for a in node.args[1:])
        self.builder.emit(control.PRINTF, *values, attr=(node.args[0].value, shown))

    @reads(builtins.len, declare.len_)
    def call_len(self, node: ast.Call) -> Any:
        (x,) = self.exactly(1, node)
        if is_array(x):
            return self.length(x, 0)
        if isinstance(x, Shape):
            return x.array.type.ndim
        if isinstance(x, tuple):
            return len(x)
        if is_indexed(x):
            return self.length(x.fields["indices0"], 0)
        v = self.value(x)
        if not isinstance(v.type, T.Composite):
            raise self.error(f"{v.type} has no length", "operand-type", node, "", "len(v) of a vector or array")
        return v.type.shape[0]

    @reads(builtins.type)
    def call_type_of(self, node: ast.Call) -> T.Type:
        """`type(a)(0.5)`: a literal in the type of `a`, for functions of any type."""
        (x,) = self.exactly(1, node)
        return type_of_value(x) or self.value(x).type

    # ---- builtins

    def call_builtin(self, f: Callable[..., Any], node: ast.Call) -> Any:
        """The value of a builtin. Literals have their own types; where it refuses those, the type of a value beside."""
        given = [self.visit(a) for a in (*node.args, *(k.value for k in node.keywords))]
        own = [self.operand(x) for x in given]
        try:
            return self.builtin(f, own, node)
        except (TypeError, KernelError):
            values = [v for x, v in zip(given, own, strict=True) if not is_literal(x)]
            fitted = [self.beside(x, values) if is_literal(x) else v for x, v in zip(given, own, strict=True)]
            if fitted != given:
                with suppress(TypeError, KernelError):
                    return self.builtin(f, [self.operand(x) for x in fitted], node)
            raise

    def builtin(self, f: Callable[..., Any], values: list[Any], node: ast.Call) -> Any:
        args = values[: len(node.args)]
        named = {str(k.arg): v for k, v in zip(node.keywords, values[len(args) :], strict=True)}
        try:
            if isinstance(f, Row) and (named or arity(f) not in (None, len(args))):
                raise TypeError
            return f(*args, **named)
        except TypeError as e:
            if hasattr(e, "slug"):
                raise
            name = getattr(f, "__name__", getattr(f, "name", "this"))
            doc = (getattr(f, "doc", "") or getattr(f, "__doc__", "") or "").strip().split("\n")[0]
            text = f"`{name}` does not take these arguments: {', '.join(describe(a) for a in args)}"
            raise self.error(text, "arguments", node, doc) from None

    def operand(self, x: Meaning) -> Any:
        """Numbers as values; types and names of types as they are."""
        return x if isinstance(x, T.Type) or (isinstance(x, type) and is_number_type(x)) else self.value(x)

    def call_type(self, type: Meaning, node: ast.Call) -> Any:
        """A cast or a constructor. A literal keeps its exact Python value."""
        if isinstance(type, T.Array):
            raise self.error("an array cannot be made in a kernel", "array", node, "Arrays are parameters.")
        if not isinstance(type, T.Composite):
            return self.cast(T.scalar_of(type), node)
        dtype = next((k for k in node.keywords if k.arg == "dtype"), None)
        if dtype is not None:
            type = type.over(T.scalar_of(self.visit(dtype.value)))
            node = ast.Call(node.func, node.args, [k for k in node.keywords if k is not dtype])
        given = self.named_components(type, node)
        if dtype is None and getattr(node.func, "attr", getattr(node.func, "id", "")) == "spatial_vector":
            scalar = self.component_type(given, None)  # as in Warp, this name alone takes it from its parts
            type = type.over(scalar) if scalar.kind == "f" else type
        args = [self.typed(a, type.scalar) for a in given]
        return ops.construct(type, *args)

    def named_components(self, type: T.Composite, node: ast.Call) -> list[Any]:
        args = [self.visit(a) for a in node.args]
        named = {k.arg: self.visit(k.value) for k in node.keywords}
        if not named:
            return args
        if isinstance(type, T.Transform) and set(named) <= set("pq"[len(args) :]):
            none = {"p": type.parts["p"][1](), "q": type.parts["q"][1](0, 0, 0, 1)}
            return list((none | dict(zip("pq", args, strict=False)) | named).values())
        order = "pq" if isinstance(type, T.Transform) else "xyzw"[: type.size]
        if set(named) - set(order[len(args) :]) or len(args) + len(named) != type.size:
            raise self.error(f"{type} takes its components {', '.join(order)}", "arguments", node)
        return args + [named[k] for k in order[len(args) :]]

    def cast(self, type: T.Scalar, node: ast.Call) -> Any:
        (x,) = self.exactly(1, node) if node.args or node.keywords else [0]
        if is_literal(x):
            return self.literal_cast(type, x)
        if is_address(x) and type in addresses.NUMBERS:
            return x
        v = self.value(x)
        if not isinstance(v.type, T.Scalar):
            raise self.error(f"{v.type} cannot become {type}", "cast", node, "A cast takes one number.", "v[0]")
        return ops.convert(type, v)

    def literal_cast(self, type: T.Scalar, x: float) -> ir.Value:
        if type.kind == "f":
            return constant(type, self.as_float(x))
        if type.kind == "b":
            return constant(type, bool(x))
        if isinstance(x, float):
            return ops.convert(type, self.value(np.float64(x)))
        return constant(type, int(np.uint64(int(x) % 2**64).astype(type.numpy)))

    @reads(T.vector)
    def call_vector(self, node: ast.Call) -> Any:
        args, named = [self.visit(a) for a in node.args], self.named(node, ("length", "dtype"))
        scalar = self.component_type(args, named.get("dtype"))
        copied = self.copied_type(args, T.Vector)
        length = static_int(named.get("length", len(args) if copied is None else copied.length))
        if length is None or length < 1:
            raise self.error("a vector's length is constant", "static-index", node, "", "vector(length=3, dtype=float)")
        return ops.construct(T.vector(length, scalar), *[self.typed(a, scalar) for a in args])

    @reads(T.matrix)
    def call_matrix(self, node: ast.Call) -> Any:
        args, named = [self.visit(a) for a in node.args], self.named(node, ("shape", "dtype"))
        copied = self.copied_type(args, T.Matrix)
        scalar = self.component_type(args, named.get("dtype"))
        shape = named.get("shape", None if copied is None else copied.shape)
        rows, cols = map(static_int, shape) if isinstance(shape, tuple) and len(shape) == 2 else (None, None)
        if rows is None or cols is None or rows < 1 or cols < 1:
            raise self.error(
                "the shape of a matrix is a constant", "static-index", node, "", "matrix(shape=(2, 2), dtype=float)"
            )
        return ops.construct(T.matrix((rows, cols), scalar), *[self.typed(a, scalar) for a in args])

    @reads(T.quaternion, T.transformation)
    def call_generic(self, node: ast.Call) -> Any:
        """`quaternion(...)` and `transformation(...)`: over `dtype`, else over the scalar of what is given."""
        made = self.visit(node.func)
        given = [self.value(self.visit(a)) for a in node.args]
        scalar = next((v.type.scalar for v in given if isinstance(v.type, (T.Scalar, T.Composite))), T.scalar_of(float))
        return self.call_type(made(scalar if T.is_float(scalar) else float), node)

    def copied_type(self, args: list[Any], kind: type) -> Any:
        """The type of the one composite that is to be copied; None if components are given."""
        found = self.value(args[0]).type if len(args) == 1 else None
        return found if isinstance(found, kind) else None

    def component_type(self, args: list[Any], dtype: Meaning) -> T.Scalar:
        if dtype is not None:
            return T.scalar_of(dtype)
        first = next((a for a in args if not is_literal(a)), args[0] if args else None)
        first = None if first is None else self.value(first).type
        return first.scalar if isinstance(first, (T.Scalar, T.Composite)) else T.scalar_of(float)

    def call_stateful(self, f: Callable[..., Any], node: ast.Call) -> Any:
        """A random number: the user's name for the state is bound to the next state."""
        if node.args and isinstance(node.args[0], ast.Call):  # a state that no name stands for: drawn from once
            return f(*[self.value(a) for a in self.arguments(node)])[0]
        if not node.args or not isinstance(node.args[0], ast.Name) or node.args[0].id not in self.state.names:
            text = "a random state must be a local variable"
            why = "Drawing a number changes it."
            instead = "state = rand_init(seed, i), then: randf(state)"
            raise self.error(text, "rand-state", node.args[0] if node.args else node, why, instead)
        name = node.args[0].id
        result, state = f(*[self.value(a) for a in self.arguments(node)])
        self.state.names[name] = self.materialised(state, name)
        return result

    def call_storing(self, f: Callable[..., Any], places: Sequence[int], node: ast.Call) -> None:
        """A builtin that assigns its results to some of its arguments; of these it reads the first of all alone."""
        kept = [a for i, a in enumerate(node.args) if i not in places or i == 0]
        given = ast.Call(node.func, kept, node.keywords)
        result = self.call_builtin(f, ast.copy_location(given, node))
        for place, value in zip(places, result if isinstance(result, tuple) else (result,), strict=True):
            self.assign(node.args[place], value)

    def changed_by(self, node: ast.Call) -> Sequence[ast.expr]:
        """The arguments that a call rebinds: a random state, outputs of a library func, those a builtin assigns to."""
        callee = self.python_object(node.func)
        if isinstance(callee, Library):
            return callee.form(node).handed_out(node)
        if places := STORING.get(id(callee), {}).get(len(node.args)):
            return [node.args[k] for k in places]
        if isinstance(callee, Func) and (found := refs(callee, node)):
            return found
        return node.args[:1] if id(callee) in STATEFUL else changed_tiles(callee, node)

    # ---- atomics

    def call_atomic(self, row: Row, node: ast.Call) -> Any:
        if not node.args or node.keywords:
            raise self.error(f"{row.name}() takes an array, its indices and a value", "arguments", node, row.doc)
        with self.at(node.args[0]):
            place = self.place(node.args[0])
        if is_indexed(place):
            n = place.type.ndim
            if len(node.args) <= n:
                raise self.error(f"{row.name}() on {place.type} takes {n} indices and a value", "rank", node, row.doc)
            place, node = indexed_element(self, place, node.args[1 : n + 1]), with_args(node, n)
        view = place.view if hasattr(place, "view") else place
        if not isinstance(view, ArrayView | Local | Choice):
            raise self.error(
                f"{row.name}() works on an array", "not-an-array", node.args[0], row.doc, f"{row.name}(a, i, v)"
            )
        count = 2 if row is memory.ATOMIC_CAS else 1
        given = node.args[1:]
        if len(given) <= count - 1 or len(given) - count != view.type.ndim:
            text = f"{row.name}() on {view.type} takes {view.type.ndim} indices and {count} value{'s' * (count > 1)}"
            raise self.error(text, "rank", node, row.doc)
        found = self.element(view, given[: view.type.ndim]) if view.type.ndim else place
        values = [self.visit(a) for a in given[view.type.ndim :]]
        if chosen := chosen_cell(found):
            return each_option(self, chosen, lambda one: self.update_cell(row, self.cell(found, one), values, node))
        return self.update_cell(row, found, values, node)

    def update_cell(self, row: Row, found: Meaning, values: list[Any], node: ast.Call) -> Any:
        """Emit an atomic on an element, or on components of one; returns the old value."""
        found = self.own(found)
        if isinstance(found, LocalPart):
            return self.update_local(row, found, values, node.args[0])
        if isinstance(found, ArrayView):
            return self.builder.emit(row, found.root, *found.prefix, *[self.typed(v, found.type.dtype) for v in values])
        return self.atomic_component(row, found, values, node)

    def update_local(self, row: Row, slot: LocalPart, values: list[Any], node: ast.expr) -> Any:
        """An atomic on an array made in the kernel, which no other thread knows: the update alone."""
        old = slot.load()
        assert row.update is not None
        slot.store(self.fitting(old, row.update(old, *[self.fitting(old, v, node) for v in values]), node))
        return old

    def atomic_component(self, row: Row, place: Meaning, values: list[Any], node: ast.Call) -> Any:
        parts = self.cell_parts(place, values[0])
        if len(parts) != 1 or len(values) != 1:
            raise self.error(f"{row.name}() takes one component", "component", node, "", "a[i].x")
        view, part = parts[0]
        return self.builder.emit(row, view.root, *view.prefix, part)

    # ---- structs

    def call_struct(self, struct: T.Struct, node: ast.Call) -> StructParts:
        args, named = [self.visit(a) for a in node.args], {k.arg: self.visit(k.value) for k in node.keywords}
        order = [name for name, _ in struct.fields]
        if len(args) > len(order) or set(named) - set(order[len(args) :]):
            raise self.error(f"{struct} takes the fields {', '.join(order)}", "arguments", node)
        given = {**dict(zip(order, args, strict=False)), **named}
        made = self.blank(struct)
        for name, value in given.items():
            made = made.with_field(name, self.fitting(made.fields[name], value, node))
        return made

    def blank(self, type: T.Type) -> Any:
        """A value before its parts are assigned: zeros, and no arrays."""
        if not isinstance(type, T.Struct):
            return self.zero(type)
        fields = {n: unassigned(self, type, n, t) if isinstance(t, T.Array) else self.blank(t) for n, t in type.fields}
        return StructParts(type, fields)

    # ---- funcs

    def call_func(self, f: Func, node: ast.Call) -> Any:
        args, named = self.given(node)
        f = overload(self, f, args, named, node)
        targets = references(self, f, node, [*args, *named.values()])
        kept: dict[str, Any] = {}
        result = self.call_bound(f, self.bound(f.fn, args, named, node), node, kept)
        for name, target in targets.items():
            with self.at(node):
                self.assign(target, self.checked(kept[name], target))
        return result

    def call_bound(self, f: Func, bound: dict[str, Any], node: ast.Call, kept: dict[str, Any] | None = None) -> Any:
        """A call of one func with these arguments."""
        if (no := f.refused) is not None:
            raise self.error(no.what, no.slug, node, no.why, no.instead)
        for frame in self.frames:
            if frame.fn.__code__ is f.fn.__code__:
                text = f"`{f.key}` calls itself"
                raise self.error(text, "recursion", node, "A func is read into its caller, so it has no end.", "a loop")
        if getattr(f.fn, "snippet", False):
            self.processor_only = self.processor_only or self.where(node)
        if self.custom(f) and not any(frame.fn in (f.grad, f.replay) for frame in self.frames):
            return call_custom_each(self, f, bound, node)
        return self.inlined(f.fn, bound, node, kept=kept)

    def inlined(
        self,
        fn: Callable[..., Any],
        bound: dict[str, Any],
        node: ast.Call,
        hides: Where | None = None,
        kept: dict[str, Any] | None = None,
    ) -> Any:
        """Read the body of a function here; its names are its own, its arrays are the caller's.

        With `hides`, what it does has that place in the source. `kept` takes what its names stand for at its end.
        """
        outer = self.state
        self.push(fn, self.where(node))
        self.frame.hides = self.frame.hides or hides
        self.callers.append((outer.names, self.frames[-2].source.tree, node))
        try:
            params = {name: shared(self, self.argument(name, value)) for name, value in bound.items()}
            self.state = State({**FRESH, **params}, dict(outer.cells))
            self.body()
            result = self.returned()
            if kept is not None:
                kept.update(self.state.names)
        finally:
            self.pop()
            self.callers.pop()
        refuse_read_beside(self, outer, self.state.cells, node)
        self.state = State(outer.names, self.state.cells)
        return result

    def returned(self) -> Any:
        """The result of the function just read; unusable where only some paths return a value."""
        names = self.state.names
        result, fn = self.materialised(names.get("$value"), ""), self.frame.fn
        if result is None or names["$return"] is True:
            return result
        error = lambda at: self.missing_return(fn, at)  # noqa: E731
        if isinstance(result, Unusable) or assigned_names.returned_values(self.frame.source.tree) < 2:
            return Unusable(error)
        return Guarded(error, names["$return"], result, True)

    def bound(self, fn: Callable[..., Any], args: list[Any], named: dict[str, Any], node: ast.Call) -> dict[str, Any]:
        signature = inspect.signature(fn)
        if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in signature.parameters.values()):
            raise refused_syntax.refuse("StarParameter", self.where(node))
        try:
            bound = signature.bind(*args, **named)
        except TypeError as e:
            raise self.error(f"`{fn.__name__}`: {e}", "arguments", node, f"It is {fn.__name__}{signature}.") from None
        if len(bound.arguments) < len(signature.parameters):
            self.lookups.link("attribute", fn, "__defaults__", fn.__defaults__)
        bound.apply_defaults()
        return dict(bound.arguments)

    def argument(self, name: str, value: Meaning) -> Any:
        """An argument as the annotation of its parameter wants it."""
        where = self.frame.caller
        wanted = names.annotation(
            self.frame.fn, name, self.frame.around, self.where(self.frame.source.tree), self.lookups
        )
        if wanted is None or wanted is typing.Any:
            return self.materialised(value, name)
        wanted = wanted.type if isinstance(wanted, Ref) else wanted
        if wanted is T.FUNCTION and callable(value) and not isinstance(value, T.Type):
            return value
        if is_literal(value) and isinstance(wanted, T.Scalar):
            value = self.typed(value, wanted)
        if isinstance(wanted, T.Handle):
            value = open_handle(self, wanted, value)
        value = self.materialised(value, name)
        held = is_address(value) and wanted in addresses.NUMBERS
        if not held and not T.covers(wanted, type_of_value(value)):
            text = f"`{self.frame.fn.__name__}` takes {wanted} as `{name}`, not {describe(value)}"
            why = "Nothing is converted silently."
            instead = f"{hints.spelled(str(wanted), self.frame.around)}(...)" if isinstance(wanted, T.Scalar) else ""
            raise KernelError(text, slug="argument-type", where=where, why=why, instead=instead)
        return value


def is_number_type(x: type) -> bool:
    return x in (int, float, bool) or issubclass(x, np.generic)


def type_of_value(x: Meaning) -> T.Type | None:
    return x.type if isinstance(x, ir.Value | StructParts) or is_array(x) else None
