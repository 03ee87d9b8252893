"""IR -> C for the machine's own processor: a loop nest over the launch grid around the statements of one thread.

One loop per launch dimension, the outermost cut into [begin, end) by the launch; `tid()` is the loop variable, so the
innermost loop is one the compiler can vectorise. Arrays arrive as parameters of a function of their own because gcc
honours `restrict` on parameters only. No header is included: reading one costs more time than compiling a kernel.
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import replace

from ...errors import Where
from ..ir import Function, Region, Value
from ..ops import memory as rows, prelude
from ..ops.c_text import c_texts
from ..ops.scalar import TIMES
from ..row import Row
from ..types import Scalar, float32, float64
from . import blocks
from .body import Body
from .c_names import MATH1, MATH2, composites, typedef
from .signature import NOTED, PLAIN, STATUS_WORDS, Signature, Variant
from .tiles import helpers as tile_helpers


def _prototypes() -> str:
    lines = []
    for type, f in (("double", ""), ("float", "f")):
        one = [f"{n}{f}({type})" for n in MATH1]
        two = [f"{n}{f}({type}, {type})" for n in MATH2]
        lines.append(f"{type} {', '.join([*one, *two, f'fma{f}({type}, {type}, {type})'])};")
    return "\n".join(lines)


TYPES, CHECKS, FIRST, TURNS, STACK, ASK, UPDATE, BOXED_ENTRY, AROUND, TESTED_ENTRY = c_texts(
    __file__, "processor.c", "TYPES CHECKS FIRST TURNS STACK ASK UPDATE BOXED_ENTRY AROUND TESTED_ENTRY"
)

FINITE = replace(TIMES, c="WB_FINITE({0}, {1}, __builtin_fma{f})")  # by a number that is finite and not 0

HEADER = TYPES + _prototypes() + "\n" + FIRST + TURNS


def head(name: str, row: Row, scalar: Scalar) -> str:
    """Of the function that does what an atomic row does: its parameters are the cell and the values."""
    expected = f"{scalar.c} expected, " if row is rows.ATOMIC_CAS else ""
    return f"WB_FN {scalar.c} {name}({scalar.c} *p, {expected}{scalar.c} v)"


def after(row: Row, scalar: Scalar) -> str:
    """The text of what a cell that held `old` holds after an atomic."""
    assert isinstance(row.c, str)
    return row.c.format("old", *(("expected", "v") if row is rows.ATOMIC_CAS else ("v",)), T=scalar.c)


def filled(template: str, name: str, row: Row, scalar: Scalar, word: str) -> str:
    """The text of an atomic: HEAD, T, WORD and AFTER are put in, `word` a type of whole numbers of that size."""
    words = {"HEAD": head(name, row, scalar), "T": scalar.c, "WORD": word, "AFTER": after(row, scalar)}
    return re.sub(r"\b(?:HEAD|T|WORD|AFTER)\b", lambda m: words[m[0]], template).rstrip()


def plain(name: str, row: Row, scalar: Scalar) -> str:
    """A read-modify-write of memory that no other worker touches."""
    return f"{head(name, row, scalar)} {{ {scalar.c} old = *p; *p = {after(row, scalar)}; return old; }}"


def update(name: str, row: Row, scalar: Scalar, shared: bool, where: Where | None) -> str:
    """One read-modify-write as a C function returning the old value; `shared`: other workers may touch the cell."""
    if not shared:
        return plain(name, row, scalar)
    return filled(UPDATE, name, row, scalar, f"uint{max(scalar.bits, 8)}_t")


def text(function: Function, variant: Variant = PLAIN) -> str:
    """The whole C text; its entry is `void NAME(const void *args, int64_t begin, int64_t end)`."""
    if variant.tests is not None:
        return _tested(function, variant, *variant.tests)
    function, form = blocks.lanes(function, variant)
    signature = Signature(function, boxed=variant.inner is not None)
    whole = _cells(function, variant, signature, form)
    if variant.inner is None:
        return "\n".join([*_top([whole], signature), *_loops(whole, "cells"), *_entry(whole)])
    inner = _cells(variant.inner, variant, Signature(variant.inner, boxed=True))
    loops = _loops(inner, "inner")
    if variant.alone:
        return "\n".join([*_top([inner], signature), *loops, *_boxed_entry(inner, "")])
    parts = [*_loops(whole, "cells"), *loops]
    return "\n".join([*_top([whole, inner], signature), *parts, *_boxed_entry(whole, AROUND)])


def _tested(function: Function, variant: Variant, tests: Function, free: Function) -> str:
    """The text of threads that are tested beforehand, a block of them at a time."""
    signature, plain = Signature(function), replace(variant, checked=frozenset(), tests=None)
    free, form = blocks.lanes(free, plain)
    forms = {"cells": (function, variant, None), "free": (free, plain, form), "tests": (tests, plain, None)}
    bodies = {name: _cells(f, v, Signature(f), blocked) for name, (f, v, blocked) in forms.items()}
    inner = " * ".join(["1", *(f"args->dim[{k}]" for k in range(1, function.rank))])
    words = {"NAME": signature.name, "INNER": inner, "WORDS": str(STATUS_WORDS), "NOTED": str(NOTED)}
    words |= {f"POINTERS_{name}": _pointers(body) for name, body in bodies.items()}
    loops = [line for name, body in bodies.items() for line in _loops(body, name)]
    entry = re.sub("|".join(sorted(words, reverse=True)), lambda m: words[m[0]], TESTED_ENTRY)
    return "\n".join([*_top([*bodies.values()], signature), *loops, entry])


def _cells(
    function: Function, variant: Variant, signature: Signature, form: blocks.ThreadStretches | None = None
) -> Body:
    """The loop nest around the statements of a thread."""
    body = Body(function, variant, signature, update, product="WB_PRODUCT")
    body.unpack()
    if body.fails:
        body.put("int64_t *status = args->status;")
    if body.notes:
        body.put("uint32_t wb_noted = 0;")
    kept = [f"wb_{n}" for n, used in (("stack", body.grows), ("log", body.logs)) if used]
    for name in kept:
        body.put(f"wb_bytes {name} = {{0}};")
    body.asks, start = True, len(body.lines)
    finite, region = _finite(function) if form is None and not variant.checked else ([], function.body)
    if finite:  # then products of adjoints need no tests; worth the time of compilers only where they optimise
        body.put("#ifdef __OPTIMIZE__")
        with body.block(f"if ({' && '.join(f'{x} - {x} == 0 && {x} != 0' for x in map(body.text, finite))})"):
            _nest(body, 0, kept, form, region)
        body.put("else")
        body.put("#endif")
    with body.block("") if finite else nullcontext():
        _nest(body, 0, kept, form, function.body)
    if body.asking:
        body.lines.insert(start, "    uint64_t wb_turn = 0;")
    if body.asking or body.leaving:
        body.put("wb_end: ;")
    for name in kept:
        body.put(f"free({name}.base);")
    if body.notes:
        words = f"(uint32_t *)(args->status + {NOTED})"
        body.put(f"if (wb_noted && args->status) __atomic_fetch_or({words}, wb_noted, __ATOMIC_RELAXED);")
    return body


def _finite(function: Function) -> tuple[list[Value], Region]:
    """(numbers of the launch by which adjoints are multiplied, the statements if each of these is finite and not 0)."""
    numbers = {p for p in function.params if p.type in (float32, float64)}
    by = {s: s.args[1] for s in function.body.body if s.row is TIMES and s.args[1] in numbers}
    stmts = [replace(s, row=FINITE) if s in by else s for s in function.body.body]
    return [*dict.fromkeys(by.values())], replace(function.body, body=stmts)


def _nest(body: Body, axis: int, kept: list[str], form: blocks.ThreadStretches | None, region: Region) -> None:
    if axis == len(body.axes):
        for name in kept:
            body.put(f"{name}.top = 0;")
        body.region(region)
        if body.asking:
            body.ask()
        return
    i = body.axes[axis]
    low, high = ("wb_first(begin)", "(int32_t)end") if axis == 0 else ("0", body.dims[axis])
    if body.variant.inner is not None:
        low, high = f"wb_first(wb_box[{2 * axis}])", f"(int32_t)wb_box[{2 * axis + 1}]"
    if form is not None and axis == len(body.axes) - 1:
        blocks.write(body, form, low, high)
        return
    with body.block(f"for (int32_t {i} = {low}; {i} < {high}; ++{i})"):
        _nest(body, axis + 1, kept, form, region)


def _top(bodies: list[Body], signature: Signature) -> list[str]:
    written = "\n".join(line for body in bodies for line in body.lines)
    lines = [HEADER, prelude(written)]
    if any(body.tiled for body in bodies):
        lines += tile_helpers(written)
    if any(body.fails for body in bodies):
        lines.append(CHECKS)
    if any(body.asking for body in bodies):
        lines.append(ASK)
    if any(body.grows or body.logs for body in bodies):
        lines.append(STACK)
    types = dict.fromkeys(typedef(t) for body in bodies for t in composites(body.function))
    helpers = dict.fromkeys(text for body in bodies for text in body.helpers.values())
    return [*lines, *types, *helpers, signature.c_declaration, ""]


def _loops(body: Body, suffix: str) -> list[str]:
    name = body.signature.name
    cut = "int64_t begin, int64_t end" if body.variant.inner is None else "const int64_t *wb_box"
    parameters = ", ".join([f"const {name}_args *args", cut, *[declared for declared, _ in body.pointer_parameters()]])
    begin = f"static __attribute__((noinline)) void {name}_{suffix}("
    return [begin, f"    {parameters}) {{", *body.used_lines(), "}", ""]


def _entry(body: Body) -> list[str]:
    name = body.signature.name
    return [
        f"void {name}(const void *block, int64_t begin, int64_t end) {{",
        f"    const {name}_args *args = block;",
        f"    {name}_cells(args, begin, end{_pointers(body)});",
        "}",
        "",
    ]


def _pointers(body: Body) -> str:
    return "".join(f", {argument}" for _, argument in body.pointer_parameters())


def _boxed_entry(body: Body, around: str) -> list[str]:
    """The box without tests, then what lies around it, slab by slab."""
    names = {"NAME": body.signature.name, "RANK": str(body.function.rank), "POINTERS": _pointers(body)}
    text = BOXED_ENTRY.replace("AROUND", around)
    return [re.sub("NAME|RANK|POINTERS", lambda m: names[m[0]], text)]
