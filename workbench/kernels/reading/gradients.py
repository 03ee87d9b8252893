"""`grad(f)(x, y)` in a kernel: the derivatives of a func or a builtin by its arguments, a `grad` statement of the IR.

The func is read into a region of that statement; `passes.gradients` puts the derivatives in its place, so what follows
sees ordinary statements and differentiates them again where that is asked for.
"""

from __future__ import annotations

import ast
from typing import Any

from .. import ir, ops
from ..ops import control, memory
from ..row import Row
from ..types import FUNCTION, Composite, Scalar, is_float
from . import python_names as names
from .base import Meaning, ReaderBase, reads
from .declare import Func
from .overload_calls import overload
from .scope import Unusable, describe, is_literal, leaves


class Gradient:
    """`grad(f)`."""

    def __init__(self, func: Meaning):
        self.func = func
        self.__name__ = f"grad({getattr(func, 'key', getattr(func, '__name__', 'f'))})"

    def __call__(self, *args: object, **kwargs: object) -> Any:
        raise TypeError(f"{self.__name__}(...) can only be called inside a kernel or a func")

    def __repr__(self) -> str:
        return f"<{self.__name__}>"


def grad(func: Meaning) -> Gradient:
    """In a kernel `grad(f)(x, y)`: the derivatives of `f` at x and y, by each argument; one value if there is one.

    `f` is a func or a builtin. Of several results, or of a vector, it is the derivative of the sum of all components,
    as in Warp; by integers it is 0. Unlike Warp's it is right for funcs with loops, and can itself be differentiated
    by a tape. Refused for a func that writes to memory or has an adjoint of its own.

    >>> @wb.func
    ... def energy(x: float, k: float):
    ...     return 0.5 * k * x * x
    >>> @wb.kernel
    ... def force(x: wb.array[float], f: wb.array[float]):
    ...     i = wb.tid()
    ...     by_x, by_k = wb.grad(energy)(x[i], 10.0)
    ...     f[i] = -by_x
    >>> f = wb.zeros(1)
    >>> wb.launch(force, 1, [wb.array([2.0]), f])
    >>> f
    array([-20.], dtype=float32, shape=(1,))
    """
    if isinstance(func, (Func, Row)) or func in _KNOWN:
        return Gradient(_KNOWN.get(func, func) if not isinstance(func, (Func, Row)) else func)
    raise TypeError(f"grad takes a func or a builtin, not {func!r}")


_KNOWN = {f: f for f in ops.BUILTINS.values() if not isinstance(f, Row)} | dict(ops.PYTHON)


@reads(grad)
def call_grad_of(reader: ReaderBase, node: ast.Call) -> Gradient:
    """`grad(f)` itself."""
    (f,) = reader.exactly(1, node)
    try:
        return grad(f)
    except TypeError:
        raise reader.error(
            f"grad takes a func or a builtin, not {describe(f)}", "grad", node, "", "grad(f)(x), with @func above f"
        ) from None


def call_gradient(reader: ReaderBase, g: Gradient, node: ast.Call) -> Any:
    args, named = reader.given(node)
    f = g.func
    if isinstance(f, Func):
        f = overload(reader, f, args, named, node)
        bound = {name: declared(reader, f, name, x) for name, x in reader.bound(f.fn, args, named, node).items()}
    else:
        bound = {f"argument {k}": reader.value(x) for k, x in enumerate(args)}
    wanted = [name for name, x in bound.items() if isinstance(x, ir.Value) and is_float(x.type)]
    number = reader.serial()
    inner = {n: ir.Value(bound[n].type, f"{n} of grad {number}") if n in wanted else x for n, x in bound.items()}
    region = ir.Region(params=[inner[n] for n in wanted])
    with reader.builder.inside(region):
        if isinstance(f, Func):
            result = reader.checked(reader.call_bound(f, inner, node), node)
        else:
            result = reader.builtin(f, [*inner.values(), *(reader.value(x) for x in named.values())], node)
        region.results = tuple(v for v in leaves(reader.materialised(result, "")) if is_float(v.type))
    differentiable(reader, g, region, node)
    made = reader.builder.append(control.GRAD, [bound[n] for n in wanted], [inner[n].type for n in wanted], (region,))
    outs = dict(zip(wanted, made.outs, strict=True))
    kinds = dict(zip(f.fn.__code__.co_varnames, f.types, strict=False)) if isinstance(f, Func) else {}
    found = [outs.get(n) or no_derivative(reader, n, x) for n, x in bound.items() if kinds.get(n) is not FUNCTION]
    return found[0] if len(found) == 1 else tuple(found)


def declared(reader: ReaderBase, f: Func, name: str, x: Meaning) -> Any:
    """An argument as a value; a literal has the type that the parameter declares."""
    wanted = names.annotation(f.fn, name, names.surroundings(f.fn), reader.located(None), reader.lookups)
    return reader.typed(x, wanted) if is_literal(x) and isinstance(wanted, Scalar) else reader.materialised(x, name)


def no_derivative(reader: ReaderBase, name: str, x: Meaning) -> Any:
    """The derivative by an argument that has none: 0 for a number or vector, else `Unusable`."""
    if isinstance(x, ir.Value) and isinstance(x.type, (Scalar, Composite)):
        return reader.zero(x.type)
    text, why = f"grad gives no derivative by `{name}`, {describe(x)}", "There are those by numbers and vectors."
    return Unusable(lambda at: reader.error(text, "grad", None, why, "one argument per number"))


def differentiable(reader: ReaderBase, g: Gradient, region: ir.Region, node: ast.Call) -> None:
    """Refuse what has no derivative of this kind."""
    if not region.results:
        raise reader.error(f"{g.__name__}: the function gives no float", "grad", node)
    for s in ir.walk(region):
        if s.row.writes or s.row is memory.STORE or s.row in memory.ATOMICS:
            why = "It is for the derivative of what a function returns."
            text = f"{g.__name__}: the function writes to memory"
            raise reader.error(text, "grad", node, why, "a func that returns a value")
        if s.row is control.CALL:
            raise reader.error(
                f"{g.__name__}: `{s.attr.func.key}` in it has an adjoint or a replay of its own",
                "grad",
                node,
                "They say how gradients pass in the reverse pass, not what the derivative is.",
                "a func without them",
            )
