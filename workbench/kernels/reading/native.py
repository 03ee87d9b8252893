"""`func_native`: funcs given as a snippet of C, read as ordinary funcs; and C's conversions between numbers in them."""

from __future__ import annotations

import inspect
import linecache
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from types import FunctionType, SimpleNamespace
from typing import Any

from ...errors import KernelError
from .. import ops, types as T
from ..ops.functions import ATOMICS
from .c_snippets import Snippet, assigned
from .declare import Func, adjoint, resolve, type_from
from .overloads import beside, cell
from .source import source


def func_native(
    snippet: str, adj_snippet: str | None = None, replay_snippet: str | None = None
) -> Callable[[Callable[..., Any]], Func]:
    """Decorator: a func whose body is a snippet of C; what is decorated gives name, parameters and result.

    The snippet is read as a func, so it runs on every backend and is differentiated like any other. What has the same
    form in Python is read: declarations of a variable, assignments, `if`, `while`, `for` over a range, numbers,
    operators, components, elements (`a[i]`, `a.data[i]`), functions of C and of Warp, atomics. A kernel that calls one
    with anything else in it (pointers, arrays of C, shared memory, other threads) is refused [native-snippet]: write
    the func in Python. Where `#if defined(__CUDA_ARCH__)` divides it, the side of a processor is read, and a launch on
    a GPU is refused.

    adj_snippet     an adjoint of its own, as `func_grad`: `adj_x += ...` for each argument, the result's is `adj_ret`.
                    It is not needed. `wb.verify.check_rule` compares it with the snippet's own derivative.
    replay_snippet  what the reverse pass runs in its place, as `func_replay`.

    >>> @wb.func_native("return x > 0.0f ? x * x : 0.0f;")
    ... def half_parabola(x: float) -> float: ...
    >>> @wb.kernel
    ... def run(x: wb.array[float], y: wb.array[float]):
    ...     i = wb.tid()
    ...     y[i] = half_parabola(x[i])
    >>> x, y = wb.array([-1.0, 3.0], requires_grad=True), wb.zeros(2)
    >>> with wb.Tape() as tape:
    ...     wb.launch(run, 2, [x, y])
    >>> tape.backward(grads={y: wb.ones(2)})
    >>> x.grad
    array([0., 6.], dtype=float32, shape=(2,))
    """
    around = sys._getframe(1).f_locals

    def make(fn: Callable[..., Any]) -> Func:
        resolve(fn, around)
        try:
            made = _made(fn, snippet, adj_snippet, replay_snippet)
        except KernelError as error:  # it is no mistake to have it: programs ask for their device first
            made = Func(fn)
            made.refused = error.with_traceback(None)
        made.key, made.__doc__, made.cell = fn.__qualname__.replace("<locals>.", ""), fn.__doc__, cell()
        made.__module__ = fn.__module__
        made.overloads = beside(made, around.get(fn.__name__))
        return made

    return make


def _made(fn: Callable[..., Any], snippet: str, adj_snippet: str | None, replay_snippet: str | None) -> Func:
    lines, differs = _lines(fn, snippet, fn.__name__)
    made = Func(_function(fn, lines, fn.__name__, differs))
    if adj_snippet is not None:
        name = f"adj_{fn.__name__}"
        more, differs = _lines(fn, adj_snippet, name, True)
        made.grad = _function(fn, more + _cleared(fn, lines, more), name, differs, True)
    if replay_snippet is not None:
        more, differs = _lines(fn, replay_snippet, f"replay_{fn.__name__}")
        made.replay = _function(fn, more, f"replay_{fn.__name__}", differs)
    return made


def _params(stub: Callable[..., Any], is_adjoint: bool) -> tuple[str, ...]:
    returns = is_adjoint and stub.__annotations__.get("return") is not None
    return (*inspect.signature(stub).parameters, *(("adj_ret",) if returns else ()))


def _lines(stub: Callable[..., Any], snippet: str, name: str, is_adjoint: bool = False) -> tuple[list[str], bool]:
    """(body lines in Python, True if CUDA's side differs) of a snippet. Raises KernelError [native-snippet]."""
    text = source(stub)
    kinds = {p: _type(stub.__annotations__.get(p)) for p in inspect.signature(stub).parameters}
    return Snippet(
        snippet,
        replace(text.where(text.tree), function=name),
        _params(stub, is_adjoint),
        frozenset(vars(_words())),
        adjoint=is_adjoint,
        types={p: k.name for p, k in kinds.items() if isinstance(k, T.Scalar)},
        several=frozenset(p for p, k in kinds.items() if isinstance(k, T.Tile) or getattr(k, "ndim", 1) > 1),
        converts=isinstance(_type(stub.__annotations__.get("return")), T.Scalar) and not is_adjoint,
    ).translated()


def _function(
    stub: Callable[..., Any], lines: list[str], name: str, differs: bool, is_adjoint: bool = False
) -> FunctionType:
    """A Python function with these lines, and the parameters and annotations of the stub."""
    params = _params(stub, is_adjoint)
    lines = [f"def {name}({', '.join(params)}):", *lines]
    path = f"<snippet of {name} #{len(linecache.cache)}>"
    linecache.cache[path] = (len("\n".join(lines)), None, [line + "\n" for line in lines], path)
    space = {"wp": _words(), "own": _type(stub.__annotations__.get("return")), "__name__": stub.__module__}
    exec(compile("\n".join(lines), path, "exec"), space)  # the user's own statements, in another language
    made = space[name]
    made.__annotations__ = {p: a for p, a in stub.__annotations__.items() if p in params}
    made.__defaults__, made.__kwdefaults__ = stub.__defaults__, getattr(stub, "__kwdefaults__", None)
    made.__qualname__, made.snippet = stub.__qualname__, differs
    return made


_STORE = re.compile(r"(\s*)(\w+)\[(.*?)\](\S*) ([-*/%&|^]|<<|>>)?= ")


def _cleared(stub: Callable[..., Any], lines: list[str], adjoint_lines: list[str]) -> list[str]:
    """The lines that an adjoint snippet lacks: they clear the gradient of each element that the snippet stores to.

    In Warp it stays, and adds to what the element held before. Raises KernelError where it cannot be told which
    elements these are, unless the adjoint snippet sets or takes away gradients of that array itself.
    """
    kinds = {p: _type(stub.__annotations__.get(p)) for p in inspect.signature(stub).parameters}
    text, known = "\n".join(adjoint_lines), _known(tuple(kinds), lines)
    leaves = any(line.strip().startswith("return") for line in (*lines, *adjoint_lines))
    found = []
    for m in filter(None, map(_STORE.match, lines)):
        indent, name, index, part, sign = m.groups()
        kind = kinds.get(name)
        adjoint_name = f"wp.adjoint[{name}]"
        if not (isinstance(kind, T.Array) and T.is_float(kind)) or re.search(re.escape(adjoint_name) + r".* -= ", text):
            continue
        clear = _written(index, known) if len(indent) == 4 and not (part or sign or leaves) else None
        if clear is None or re.search(re.escape(adjoint_name) + r".* \+= ", text):
            where = source(stub)
            what = f"the adjoint snippet of `{stub.__name__}` says nothing of adj_{name}, which ends"
            why = f"The snippet stores to {name}, so the gradient of what was there before ends here."
            instead = f"adj_{name}[i] = 0.0f; at its end, or no adj_snippet: the snippet is differentiated itself"
            raise KernelError(what, slug="native-adjoint", where=where.where(where.tree), why=why, instead=instead)
        found.append(f"    {adjoint_name}[{clear}] -= {adjoint_name}[{clear}]")
    return list(dict.fromkeys(found))


def _known(params: tuple[str, ...], lines: list[str]) -> dict[str, str]:
    """Name -> its expression in parameters, for names constant in a snippet: parameters, locals assigned once."""
    every = [assigned(line) for line in lines]
    known = {p: p for p in params if p not in every} | {"wp": "wp"}
    for line in lines:
        found = re.match(r"    (\w+) = (.*)$", line)
        if found and every.count(found[1]) == 1 and (value := _written(found[2], known)) is not None:
            known[found[1]] = f"({value})"
    return known


def _written(text: str, known: dict[str, str]) -> str | None:
    """An expression in terms of parameters; None where it has other names, or reads memory."""
    names = re.findall(r"(?<![\w.])[A-Za-z_]\w*", text)
    if "[" in text or not known.keys() >= set(names):
        return None
    return re.sub(r"(?<![\w.])[A-Za-z_]\w*", lambda m: known[m[0]], text)


def _type(annotation: object) -> Any:
    try:
        return type_from(annotation)
    except TypeError:
        return None


def _words() -> SimpleNamespace:
    words = {s.name: s for s in T.SCALARS} | T.names() | ops.BUILTINS | ops.STATEFUL
    return SimpleNamespace(**words, **ATOMICS, adjoint=adjoint, inf=float("inf"))
