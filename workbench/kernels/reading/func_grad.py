"""Calls of funcs that bring an adjoint or a replay of their own: a `call` statement with closed regions.

In a func_grad, `adjoint[a] += g` adds to the gradient of the argument `a`: of a value through a local that starts at
zero, of an array in the shadow of its memory. Nothing but `+=` and `-=` can be written; the shadow of an array can
also be read, because a func that writes to an array finds its incoming gradient there.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...errors import KernelError
from .. import ir
from ..ops import control, memory
from ..types import Array, is_float, shadow_type
from . import declare
from .base import Meaning, ReaderBase
from .chosen_arrays import each_option
from .declare import Func
from .lower_bounds import Facts
from .scope import FRESH, ArrayView, Choice, LocalPart, State, StructParts, describe, leaves, rebuild


def call_custom_each(reader: ReaderBase, f: Func, bound: dict[str, Any], node: ast.AST) -> Any:
    """A call for each array that an argument may be."""
    chosen = next((name for name, value in bound.items() if isinstance(value, Choice)), None)
    if chosen is None:
        return call_custom(reader, f, bound, node)
    return each_option(reader, bound[chosen], lambda one: call_custom_each(reader, f, {**bound, chosen: one}, node))


def call_custom(reader: ReaderBase, f: Func, bound: dict[str, Any], node: ast.AST) -> Any:
    args = {name: reader.materialised(value, name) for name, value in bound.items()}
    flat = [v for name, value in args.items() for v in flat_values(reader, name, value, node)]
    region, result = region_of(reader, f.fn, args, flat, node, same_arrays=True)
    custom = customs(reader, f, args, flat, result, node)
    outs = list(leaves(result)) if result is not None else []
    region.results = tuple(outs)
    stmt = reader.builder.append(control.CALL, flat, [v.type for v in outs], (region,), custom)
    return None if result is None else rebuild(result, iter(stmt.outs))


def customs(
    reader: ReaderBase, f: Func, args: dict[str, Any], flat: list[ir.Value], result: Meaning, node: ast.AST
) -> declare.CustomAdjoint:
    arrays = tuple(k for k, v in enumerate(flat) if isinstance(v.type, Array) and is_float(v.type))
    values = tuple(k for k, v in enumerate(flat) if not isinstance(v.type, Array) and is_float(v.type))
    outs = tuple(k for k, v in enumerate(leaves(result)) if is_float(v.type)) if result is not None else ()
    grad = own_adjoint(reader, f, args, flat, result, arrays, values, node) if f.grad else None
    replay = None
    if f.replay:
        replay, again = region_of(reader, f.replay, args, flat, node, same_arrays=False)
        if describe(again) != describe(result):
            text = f"the replay of `{f.key}` returns {describe(again)}, not {describe(result)}"
            raise reader.error(text, "replay-type", node)
        replay.results = tuple(leaves(again)) if again is not None else ()
    return declare.CustomAdjoint(f, grad, replay, arrays, values, outs)


def flat_values(reader: ReaderBase, name: str, value: Meaning, node: ast.AST) -> list[ir.Value]:
    """The IR values behind one argument."""
    if isinstance(value, ArrayView):
        return [value.root, *leaves(value)]
    if is_plain(value):
        return list(leaves(value))
    text = f"`{name}` cannot be an argument of a func with its own adjoint: {describe(value)}"
    why = "Numbers, vectors, structs of them and arrays can."
    raise reader.error(text, "custom-argument", node, why, "one argument per field")


def region_of(
    reader: ReaderBase,
    fn: Callable[..., Any],
    args: dict[str, Any],
    flat: list[ir.Value],
    node: ast.AST,
    same_arrays: bool,
) -> tuple[ir.Region, Any]:
    """Read a function into a region of its own, over parameters in place of its arguments.

    same_arrays: the region uses the arrays around it, so that passes see what they are. Those of a replay lie in
    an attribute, where no pass looks: they are closed.
    """
    region = ir.Region(params=[ir.Value(v.type, v.name, v.where) for v in flat])
    here = zip(flat, region.params, strict=True)
    seen = [v if same_arrays and isinstance(v.type, Array) else p for v, p in here]
    return region, enclosed(reader, fn, region, inside_args(args, seen), node)


def inside_args(args: dict[str, Any], params: list[ir.Value]) -> dict[str, Any]:
    values = iter(params)
    inner: dict[str, Any] = {}
    for name, value in args.items():
        if isinstance(value, ArrayView):
            inner[name] = rebuild(replace(value, root=next(values)), values)
        else:
            inner[name] = rebuild(value, values)
    return inner


def enclosed(
    reader: ReaderBase,
    fn: Callable[..., Any],
    region: ir.Region,
    inner: dict[str, Any],
    node: ast.AST,
    gradients: dict[str, Any] | None = None,
    cells: dict[str, ir.Value] | None = None,
) -> Any:
    """Read `fn` into `region`; nothing of the caller is visible there but what was known of its integers."""
    outer, facts, reader.facts = reader.state, reader.facts, Facts()
    reader.push(fn, reader.where(node))
    reader.frame.gradients = gradients
    try:
        with reader.builder.inside(region):
            params = {name: reader.argument(name, value) for name, value in inner.items()}
            reader.state = State({**FRESH, **params}, dict(cells or {}))
            reader.body()
            result = reader.checked(reader.returned(), node) if reader.returned() is not None else None
            if cells is not None:
                cells.update(reader.state.cells)
            return result
    finally:
        reader.pop()
        reader.state, reader.facts = outer, facts


# ---- the adjoint


def own_adjoint(
    reader: ReaderBase,
    f: Func,
    args: dict[str, Any],
    flat: list[ir.Value],
    result: Meaning,
    arrays: tuple[int, ...],
    values: tuple[int, ...],
    node: ast.AST,
) -> ir.Region:
    """Read the func_grad of `f`: parameters, shadows, incoming gradients in; gradients of values out."""
    fn = f.grad
    assert fn is not None
    params = [ir.Value(v.type, v.name, v.where) for v in flat]
    shadows = {k: shadow_of(flat[k]) for k in arrays}
    incoming = [ir.Value(v.type, "g") for v in leaves(result) if is_float(v.type)] if result is not None else []
    region = ir.Region(params=[*params, *shadows.values(), *incoming])
    given = inside_args(args, params)
    names = list(fn.__code__.co_varnames[: fn.__code__.co_argcount])
    with reader.builder.inside(region):
        cells = {f"[]d_{k}": reader.zero(flat[k].type) for k in values}
        seeds = seeds_of(reader, result, incoming)
    gradients = gradient_places(args, names, params, shadows, values)
    if len(names) != len(given) + len(seeds):
        text = f"the adjoint of `{f.key}` takes {len(given) + len(seeds)} parameters, not {len(names)}"
        why = "They are those of the func, then one gradient per returned value."
        instead = ", ".join([*given, *[f"adj_{k}" for k in range(len(seeds))]])
        raise KernelError(text, slug="adjoint-signature", where=reader.where(node), why=why, instead=instead)
    inner = dict(zip(names, [*given.values(), *seeds], strict=True))
    every_gradient(reader, f, fn, gradients, node)
    enclosed(reader, fn, region, inner, node, gradients, cells)
    refuse_effects(f, region)
    region.results = tuple(cells[f"[]d_{k}"] for k in values)
    return region


def refuse_effects(f: Func, region: ir.Region) -> None:
    for s in ir.walk(region):
        if s.row is memory.STORE or s.row in memory.ATOMICS:
            text = f"the adjoint of `{f.key}` writes to an array"
            why = "The reverse pass adds to gradients and leaves all other memory as it was."
            instead = "adjoint[a][i] += ..., or a local variable"
            raise KernelError(text, slug="grad-effect", where=s.where, why=why, instead=instead)


def seeds_of(reader: ReaderBase, result: Meaning, incoming: list[ir.Value]) -> list[Any]:
    """One gradient per returned value, zero for those that have none."""
    if result is None:
        return []
    values = iter(incoming)
    full = [next(values) if is_float(v.type) else reader.zero(v.type) for v in leaves(result)]
    tree = rebuild(result, iter(full))
    return list(tree) if isinstance(tree, tuple) else [tree]


def gradient_places(
    args: dict[str, Any],
    names: list[str],
    params: list[ir.Value],
    shadows: dict[int, ir.Value],
    values: tuple[int, ...],
) -> dict[str, Any]:
    """The place of `adjoint[a]` (shadow view or local), by the name that the func_grad gives to `a`."""
    places: dict[str, Any] = {}
    at = 0
    for name, value in zip(names, args.values(), strict=False):
        if isinstance(value, ArrayView):
            if at in shadows:
                places[name] = rebuild(ArrayView(shadows[at], value.prefix), iter(params[at + 1 :]))
            at += 1 + len(list(leaves(value)))
            continue
        for path in paths(name, value):
            if at in values:
                places[path] = f"[]d_{at}"
            at += 1
    return places


def every_gradient(
    reader: ReaderBase, f: Func, fn: Callable[..., Any], gradients: dict[str, Any], node: ast.AST
) -> None:
    """A gradient that the adjoint never mentions was forgotten: zero is written, not left out."""
    reader.push(fn, reader.where(node))
    tree = reader.frame.source.tree
    found = [n for n in ast.walk(tree) if isinstance(n, ast.Subscript) and is_gradient(reader, n.value)]
    where = reader.where(tree)
    reader.pop()
    named = {ast.unparse(n.slice) for n in found}
    for name, place in gradients.items():
        if name not in named:
            instead = f"adjoint[{name}] += 0.0 * {name}" if isinstance(place, str) else f"adjoint[{name}][0] += ..."
            text = f"the adjoint of `{f.key}` never adds to adjoint[{name}]"
            why = f"The gradient of `{name}` would be zero in silence."
            raise KernelError(text, slug="adjoint-missing", where=where, why=why, instead=instead)


def is_gradient(reader: ReaderBase, node: ast.expr) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute)) and reader.python_object(node) is declare.adjoint


def gradient_named(reader: ReaderBase, node: ast.Subscript) -> Any:
    """The cell or shadow that `adjoint[a]` names."""
    places = reader.frame.gradients
    if places is None:
        raise reader.error("adjoint[...] stands only inside a func_grad", "adjoint-outside", node)
    name = ast.unparse(node.slice)
    if name not in places:
        text = "adjoint[...] takes the name of a float parameter, or of a field of one"
        raise reader.error(text, "adjoint-name", node, f"Here: {', '.join(places) or 'none'}.", "adjoint[a] += ...")
    return places[name]


def gradient_read(reader: ReaderBase, node: ast.Subscript) -> Any:
    place = gradient_named(reader, node)
    if isinstance(place, str):
        text = "the gradient of a value cannot be read"
        why = "What other uses of it have added so far is a matter of their order."
        raise reader.error(text, "adjoint-read", node, why, f"a local: g = ..., then {ast.unparse(node)} += g")
    return place


def gradient_place(reader: ReaderBase, node: ast.Subscript) -> Any:
    place = gradient_named(reader, node)
    if not isinstance(place, str):
        return place

    def store(v: ir.Value) -> None:
        reader.state.cells[place] = v

    return LocalPart(lambda: reader.state.cells[place], store)


def gradient_assigned(reader: ReaderBase, node: ast.AST) -> KernelError:
    text = "a gradient can only be added to, with `+=` or `-=`"
    why = "Other uses of the argument, and other threads, add to it too."
    return reader.error(text, "adjoint-assign", node, why, f"{ast.unparse(node)} += ...")


def refuse_gradient_assigned(reader: ReaderBase, target: ast.expr) -> None:
    """Raise KernelError for a target that is `adjoint[a]`, or a part of it."""
    part = target
    while isinstance(part, (ast.Subscript, ast.Attribute)):
        if isinstance(part, ast.Subscript) and is_gradient(reader, part.value):
            raise gradient_assigned(reader, target)
        part = part.value


def shadow_of(array: ir.Value) -> ir.Value:
    """The parameter of a func_grad in which the gradient of an array argument is added up."""
    companion = ir.Companion(ir.Role.SHADOW, array.name)
    return ir.Value(shadow_type(array.type), f"d_{array.name}", array.where, None, companion)


def is_plain(value: Meaning) -> bool:
    """True for a value (scalar or composite), or a struct of such."""
    return isinstance(value, ir.Value) or (isinstance(value, StructParts) and all(map(is_plain, value.fields.values())))


def paths(name: str, value: Meaning) -> list[str]:
    """The names of the leaves of a plain value: `x`, or `x.field` for each field of a struct."""
    if not isinstance(value, StructParts):
        return [name]
    return [path for field, part in value.fields.items() for path in paths(f"{name}.{field}", part)]
