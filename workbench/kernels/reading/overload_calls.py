"""Calls of funcs with overloads, and arguments that stand for the caller's variables (`ref`)."""

from __future__ import annotations

import ast
from typing import Any

from ..parameter_types import Ref
from .base import ReaderBase
from .declare import Func
from .overloads import Overload, bound, candidates, described, signature
from .scope import atoms, is_array


def overload(reader: ReaderBase, f: Overload, args: list[Any], named: dict[str, Any], node: ast.AST | None) -> Any:
    """The func that a call with these arguments means. Raises KernelError [overload]."""
    if not f.overloads:
        return f
    found = candidates(f, args, named)
    if len(found) == 1:
        return found[0]
    parts = [*map(described, args), *(f"{name}={described(x)}" for name, x in named.items())]
    given = f"`{f.__name__}({', '.join(parts)})`"
    have = "; ".join(map(signature, found or f.parts))
    if found:
        why = f"These fit: {have}. Warp takes the first, which says no more of its parameters than the others."
        instead = "the one with the narrower types first, or another name for one of them"
        raise reader.error(f"{given} may mean several of its overloads", "overload", node, why, instead)
    text = f"{given} fits none of its overloads"
    why = f"There are {have}. Nothing is converted silently."
    raise reader.error(text, "overload", node, why, "arguments of these types, or one more @func of that name")


# ---- parameters that are the caller's variables


def references(reader: ReaderBase, f: Func, node: ast.Call, values: list[Any]) -> dict[str, ast.expr]:
    """The arguments of a call that stand for parameters annotated with `ref`. Raises KernelError [ref].

    They are assigned to after the call. So an element of an array can be one where the func cannot reach that
    memory in another way (`values`: what it is given), and where its index means the same afterwards.
    """
    fn, kinds = f.fn, f.fn.__annotations__
    if not any(isinstance(kind, Ref) for kind in kinds.values()):
        return {}
    if f.custom:
        text = f"`{f.key}` sets a variable of its caller and has an adjoint or a replay of its own"
        raise reader.error(text, "ref", node, "Its adjoint would not see that.", "a func that returns the new value")
    given = bound(fn, node.args, {str(k.arg): k.value for k in node.keywords}) or {}
    found = {name: given[name] for name in given if isinstance(kinds.get(name), Ref)}
    elements = [target for target in found.values() if not is_local(reader, target)]
    for k, (name, target) in enumerate(found.items()):
        twice = ast.dump(target) in map(ast.dump, list(found.values())[:k])
        alone = target not in elements or (len(elements) == 1 and is_apart(target, found, values))
        if twice or not alone:
            text = f"`{fn.__name__}` sets its `{name}`, which takes a local variable of its own"
            instead = f"v = {ast.unparse(target)}, then: {fn.__name__}(... v ...), then: {ast.unparse(target)} = v"
            raise reader.error(text, "ref", target, "It may be the same memory as another argument.", instead)
    return found


def is_apart(target: ast.expr, found: dict[str, ast.expr], values: list[Any]) -> bool:
    """True if no other argument can reach this array element, and its index has no calls."""
    if not isinstance(target, (ast.Subscript, ast.Attribute)) or any(map(is_array, atoms(tuple(values)))):
        return False
    named = {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
    others = {n.id for t in found.values() if t is not target for n in ast.walk(t) if isinstance(n, ast.Name)}
    return not named & others and not any(isinstance(n, ast.Call) for n in ast.walk(target))


def is_local(reader: ReaderBase, node: ast.expr) -> bool:
    """True for a local variable, and a field or a named component of one."""
    while isinstance(node, ast.Attribute):
        node = node.value
    found = reader.state.names.get(node.id) if isinstance(node, ast.Name) else None
    return found is not None and not is_array(found)
