"""IR -> C for the machine's own processor: a loop nest over the launch grid around the statements of one thread.

One loop per launch dimension, the outermost cut into [begin, end) by the launch; `tid()` is the loop variable, so the
innermost loop is one the compiler can vectorise. Arrays arrive as parameters of a function of their own because gcc
honours `restrict` on parameters only. No header is included: reading one costs more time than compiling a kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...errors import Where
from ..ir import Function
from ..ops import memory as rows
from ..ops import prelude
from ..passes.fewer_branches import fewer_branches
from ..row import Row
from ..types import Scalar
from . import blocks
from .body import Body
from .c_names import MATH1, MATH2, composites, typedef
from .signature import NOTED, PLAIN, Signature, Variant
from .tiles import helpers as tile_helpers


def _prototypes() -> str:
    lines = []
    for type, f in (("double", ""), ("float", "f")):
        one = [f"{n}{f}({type})" for n in MATH1]
        two = [f"{n}{f}({type}, {type})" for n in MATH2]
        lines.append(f"{type} {', '.join([*one, *two, f'fma{f}({type}, {type}, {type})'])};")
    return "\n".join(lines)


# WB_INT: gcc would make `(float)(int)x` the trunc of x, which has a -0.
TYPES = """\
typedef __INT8_TYPE__ int8_t; typedef __INT16_TYPE__ int16_t; typedef __INT32_TYPE__ int32_t;
typedef __INT64_TYPE__ int64_t; typedef __UINT8_TYPE__ uint8_t; typedef __UINT16_TYPE__ uint16_t;
typedef __UINT32_TYPE__ uint32_t; typedef __UINT64_TYPE__ uint64_t;
#define bool _Bool
#define true ((bool)1)
#define false ((bool)0)
#define WB_FN static inline __attribute__((unused))
#define WB_INF __builtin_inf()
#define WB_INFF __builtin_inff()
#define WB_NAN __builtin_nan("")
#define WB_NANF __builtin_nanf("")
#define WB_AT(T, p, offset) (*(T *)((char *)(p) + (offset)))
#if defined(__clang__)
#define WB_INT(x) (x)
#elif __GNUC__ >= 12
#define WB_INT(x) __builtin_assoc_barrier(x)
#else
#define WB_INT(x) __extension__({ __typeof__(x) wb_int = (x); __asm__("" : "+r"(wb_int)); wb_int; })
#endif
int printf(const char *, ...);
void *realloc(void *, __SIZE_TYPE__);
void free(void *);
double wb_pow(double, double) __asm__("pow") __attribute__((const));
float wb_powf(float, float) __asm__("powf") __attribute__((const));
"""

CHECKS = """\
#define wb_in(i, n) ((uint64_t)(i) < (uint64_t)(n))
static __attribute__((noinline, cold, unused)) void wb_fail(
    int64_t *status, int64_t code, int64_t access, int64_t thread, int64_t count, int64_t i0, int64_t i1, int64_t i2,
    int64_t i3, int64_t i4, int64_t i5, int64_t n0, int64_t n1, int64_t n2, int64_t n3, int64_t n4, int64_t n5) {
    int64_t none = 0, all[15] = {access, thread, count, i0, i1, i2, i3, i4, i5, n0, n1, n2, n3, n4, n5};
    if (!status || !__atomic_compare_exchange_n(status, &none, code, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return;
    for (int k = 0; k < 15; ++k) status[1 + k] = all[k];
}
#define wb_full(status, access, thread) wb_fail(status, 2, access, thread, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
"""

# Thread indices are no less than 0: without knowing it, compilers gather `a[i - 1]` number by number, in case it wraps.
FIRST = """\
WB_FN int32_t wb_first(int64_t n) {
    if (n < 0 || n > 2147483647) __builtin_unreachable();
    return (int32_t)n;
}
"""

TURNS = """\
WB_FN int64_t wb_turns(int64_t start, int64_t stop, int64_t step) {
    if (step > 0) return start < stop ? (stop - start - 1) / step + 1 : 0;
    if (step < 0) return start > stop ? (start - stop - 1) / -step + 1 : 0;
    return 0;
}
"""

STACK = """\
typedef struct { char *base; int64_t top, capacity; bool failed; } wb_bytes;
static __attribute__((noinline)) bool wb_grow(wb_bytes *s, int64_t size) {
    int64_t capacity = 2 * (s->capacity + size) + 4096;
    char *base = realloc(s->base, capacity);
    if (!base) { s->failed = 1; return 0; }
    s->base = base; s->capacity = capacity;
    return 1;
}
WB_FN bool wb_room(wb_bytes *s, int64_t size) {
    return !s->failed && (s->top + size <= s->capacity || wb_grow(s, size));
}
WB_FN bool wb_left(wb_bytes *s, int64_t size) { return !s->failed && s->top >= size; }
#define WB_PUSH(T, v) \\
    (__builtin_memcpy(wb_stack.base + wb_stack.top, &(v), sizeof(T)), wb_stack.top += (int64_t)sizeof(T))
#define WB_POP(T, v) \\
    (wb_stack.top -= (int64_t)sizeof(T), __builtin_memcpy(&(v), wb_stack.base + wb_stack.top, sizeof(T)))
typedef struct { char *place; int64_t size; } wb_entry;
WB_FN int64_t wb_mark(wb_bytes *s) { return s->top; }
WB_FN bool wb_keep(wb_bytes *s, void *place, int64_t size) {
    wb_entry entry = {place, size};
    if (!wb_room(s, size + (int64_t)sizeof entry)) return 0;
    __builtin_memcpy(s->base + s->top, place, size);
    __builtin_memcpy(s->base + s->top + size, &entry, sizeof entry);
    s->top += size + (int64_t)sizeof entry;
    return 1;
}
WB_FN void wb_rollback(wb_bytes *s, int64_t mark) {
    wb_entry entry;
    while (s->top > mark) {
        __builtin_memcpy(&entry, s->base + (s->top -= (int64_t)sizeof entry), sizeof entry);
        __builtin_memcpy(entry.place, s->base + (s->top -= entry.size), entry.size);
    }
}
"""

# What may never end asks after so many turns of its loops; not at each, so that it costs nothing beside a turn.
ASK = """\
int (*wb_ask)(void);
#define WB_ASK if (++wb_turn >= 262144) { wb_turn = 0; if (wb_ask && wb_ask()) goto wb_end; }
"""

HEADER = TYPES + _prototypes() + "\n" + FIRST + TURNS


def head(name: str, row: Row, scalar: Scalar) -> str:
    """Of the function that does what an atomic row does: its parameters are the cell and the values."""
    expected = f"{scalar.c} expected, " if row is rows.ATOMIC_CAS else ""
    return f"WB_FN {scalar.c} {name}({scalar.c} *p, {expected}{scalar.c} v)"


def after(row: Row, scalar: Scalar) -> str:
    """The text of what a cell that held `old` holds after an atomic."""
    assert isinstance(row.c, str)
    return row.c.format("old", *(("expected", "v") if row is rows.ATOMIC_CAS else ("v",)), T=scalar.c)


def plain(name: str, row: Row, scalar: Scalar) -> str:
    """A read-modify-write of memory that no other worker touches."""
    return f"{head(name, row, scalar)} {{ {scalar.c} old = *p; *p = {after(row, scalar)}; return old; }}"


def update(name: str, row: Row, scalar: Scalar, shared: bool, where: Where | None) -> str:
    """One read-modify-write as a C function returning the old value; `shared`: other workers may touch the cell."""
    if not shared:
        return plain(name, row, scalar)
    bits, T = f"uint{max(scalar.bits, 8)}_t", scalar.c
    return f"""{head(name, row, scalar)} {{
    union {{ {T} v; {bits} b; }} seen, next;
    {T} old;
    seen.b = __atomic_load_n(({bits} *)p, __ATOMIC_RELAXED);
    do {{ old = seen.v; next.v = {after(row, scalar)}; }}
    while (!__atomic_compare_exchange_n(({bits} *)p, &seen.b, next.b, 1, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
    return old;
}}"""


def text(function: Function, variant: Variant = PLAIN) -> str:
    """The whole C text; its entry is `void NAME(const void *args, int64_t begin, int64_t end)`."""
    function, form = blocks.lanes(fewer_branches(function), variant)
    signature = Signature(function, boxed=variant.inner is not None)
    whole = _cells(function, variant, signature, form)
    if variant.inner is None:
        return "\n".join([*_top([whole], signature), *_loops(whole, "cells"), *_entry(whole)])
    inner, positive = (
        _cells(variant.inner, variant, Signature(variant.inner, boxed=True), None, p) for p in (False, True)
    )
    loops = [*_loops(inner, "inner"), *(_loops(positive, "positive") if positive.factors else ())]
    if variant.alone:
        return "\n".join([*_top([inner], signature), *loops, *_boxed_entry(inner, "", positive.factors)])
    parts = [*_loops(whole, "cells"), *loops]
    return "\n".join([*_top([whole, inner], signature), *parts, *_boxed_entry(whole, AROUND, positive.factors)])


def _cells(
    function: Function,
    variant: Variant,
    signature: Signature,
    form: blocks.ThreadStretches | None = None,
    positive: bool = False,
) -> Body:
    """The loop nest around the statements of a thread. `positive`: see `Body`."""
    body = Body(function, variant, signature, update, positive=positive)
    body.unpack()
    if body.fails:
        body.put("int64_t *status = args->status;")
    if body.notes:
        body.put("uint32_t wb_noted = 0;")
    kept = [f"wb_{n}" for n, used in (("stack", body.grows), ("log", body.logs)) if used]
    for name in kept:
        body.put(f"wb_bytes {name} = {{0}};")
    body.asks, start = True, len(body.lines)
    _nest(body, 0, kept, form)
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


def _nest(body: Body, axis: int, kept: list[str], form: blocks.ThreadStretches | None) -> None:
    if axis == len(body.axes):
        for name in kept:
            body.put(f"{name}.top = 0;")
        body.region(body.function.body)
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
        _nest(body, axis + 1, kept, form)


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
    return [
        f"static __attribute__((noinline)) void {name}_{suffix}(",
        f"    {parameters}) {{",
        *body.used_lines(),
        "}",
        "",
    ]


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


INNER = "NAME_inner(args, inPOINTERS);"
BOXED_ENTRY = """\
void NAME(const void *block, int64_t begin, int64_t end) {
    const NAME_args *args = block;
    int64_t all[2 * RANK], in[2 * RANK];
    for (int k = 0; k < RANK; ++k) {
        all[2 * k] = k ? 0 : begin;
        all[2 * k + 1] = k ? args->dim[k] : end;
        for (int e = 2 * k; e < 2 * k + 2; ++e) {
            int64_t x = args->wb_box[e];
            in[e] = x < all[2 * k] ? all[2 * k] : x > all[2 * k + 1] ? all[2 * k + 1] : x;
        }
    }
    INSIDE
AROUND}
"""
AROUND = """\
    int64_t part[2 * RANK];
    for (int e = 0; e < 2 * RANK; ++e) part[e] = all[e];
    for (int k = 0; k < RANK; ++k) {
        part[2 * k + 1] = in[2 * k];
        NAME_cells(args, partPOINTERS);
        part[2 * k] = in[2 * k + 1];
        part[2 * k + 1] = all[2 * k + 1];
        NAME_cells(args, partPOINTERS);
        part[2 * k] = in[2 * k];
        part[2 * k + 1] = in[2 * k + 1];
    }
"""


def _boxed_entry(body: Body, around: str, factors: Iterable[str]) -> list[str]:
    """The box without tests, then what lies around it, slab by slab. `factors`: see `Body`."""
    names = {"NAME": body.signature.name, "RANK": str(body.function.rank), "POINTERS": _pointers(body)}
    test = " && ".join(f"args->{f}.v > 0 && args->{f}.v < WB_INF" for f in factors)
    inside = f"if ({test}) {INNER.replace('inner', 'positive')} else {INNER}" if test else INNER
    text = BOXED_ENTRY.replace("AROUND", around).replace("INSIDE", inside)
    return [re.sub("NAME|RANK|POINTERS", lambda m: names[m[0]], text)]
