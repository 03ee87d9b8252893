"""IR -> CUDA C++: the same statements as on the processor, one thread of the device per cell of the launch grid.

The arguments are one struct by value, byte for byte the block that `Signature` packs. A grid-stride loop takes any
grid, so a launch may use fewer threads than cells. Stacks of unknown height live in slices of `scratch`, one per
thread, the replay's log at the far end of the same slice; a full slice is reported in `status`. Needs no header.
"""

from __future__ import annotations

from ..errors import KernelError, Where
from .emit import PLAIN, Body, Signature, Variant, composites, typedef
from .emit_c import NEXT, TURNS, head, plain
from .ir import Function
from .ops.scalar import prelude
from .types import Scalar, float16

TYPES = """\
typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long int64_t;
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#define restrict __restrict__
#define WB_FN static __device__ __forceinline__
#define WB_INF __longlong_as_double(0x7ff0000000000000LL)
#define WB_INFF __int_as_float(0x7f800000)
#define WB_NAN __longlong_as_double(0x7ff8000000000000LL)
#define WB_NANF __int_as_float(0x7fc00000)
#define WB_AT(T, p, offset) (*(T *)((char *)(p) + (offset)))
"""

# float16 is stored as 16 bits and computed as float; the conversions are single instructions.
HALF = """\
struct _Float16 {
    unsigned short bits;
    _Float16() = default;
    template <class T> __device__ __forceinline__ _Float16(T x) {
        float f = (float)x;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(f));
    }
    __device__ __forceinline__ _Float16(double x) { asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(x)); }
    __device__ __forceinline__ operator float() const {
        float f;
        asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(bits));
        return f;
    }
};
"""

CHECKS = """\
#define wb_in(i, n) ((i) >= 0 && (int64_t)(i) < (int64_t)(n))
static __device__ __noinline__ void wb_fail(
    int64_t *status, int64_t code, int64_t access, int64_t thread, int64_t count, int64_t i0, int64_t i1, int64_t i2,
    int64_t i3, int64_t i4, int64_t i5, int64_t n0, int64_t n1, int64_t n2, int64_t n3, int64_t n4, int64_t n5) {
    int64_t all[15] = {access, thread, count, i0, i1, i2, i3, i4, i5, n0, n1, n2, n3, n4, n5};
    if (!status || atomicCAS((unsigned long long *)status, 0ULL, (unsigned long long)code)) return;
    for (int k = 0; k < 15; ++k) status[1 + k] = all[k];
}
#define wb_full(status, access, thread) wb_fail(status, 2, access, thread, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
"""

STACK = """\
#define wb_log wb_stack
#define WB_ROUND(size) (((int64_t)(size) + 7) & ~(int64_t)7)
struct wb_bytes { char *base; int64_t top, log, capacity; bool failed; };
struct wb_entry { char *place; int64_t size; };
WB_FN bool wb_room(wb_bytes *s, int64_t size) {
    if (!s->failed && s->top + s->log + WB_ROUND(size) <= s->capacity) return true;
    s->failed = true;
    return false;
}
WB_FN bool wb_left(wb_bytes *s, int64_t size) { return !s->failed && s->top >= WB_ROUND(size); }
#define WB_PUSH(T, v) (*(T *)(wb_stack.base + wb_stack.top) = (v), wb_stack.top += WB_ROUND(sizeof(T)))
#define WB_POP(T, v) (wb_stack.top -= WB_ROUND(sizeof(T)), (v) = *(T *)(wb_stack.base + wb_stack.top))
WB_FN int64_t wb_mark(wb_bytes *s) { return s->log; }
WB_FN bool wb_keep(wb_bytes *s, void *place, int64_t size) {
    int64_t whole = (int64_t)sizeof(wb_entry) + WB_ROUND(size);
    if (!wb_room(s, whole)) return false;
    s->log += whole;
    char *at = s->base + s->capacity - s->log;
    *(wb_entry *)at = wb_entry{(char *)place, size};
    for (int64_t k = 0; k < size; ++k) at[sizeof(wb_entry) + k] = ((char *)place)[k];
    return true;
}
WB_FN void wb_rollback(wb_bytes *s, int64_t mark) {
    while (s->log > mark) {
        char *at = s->base + s->capacity - s->log;
        wb_entry entry = *(wb_entry *)at;
        for (int64_t k = 0; k < entry.size; ++k) entry.place[k] = at[sizeof(wb_entry) + k];
        s->log -= (int64_t)sizeof(wb_entry) + WB_ROUND(entry.size);
    }
}
"""

_ATOMIC = {("int32", "add"), ("uint32", "add"), ("uint64", "add"), ("float32", "add"), ("float64", "add")}
_CAS_WORD = {16: "unsigned short", 32: "unsigned int", 64: "unsigned long long"}


def update(name: str, op: str, scalar: Scalar, shared: bool, where: Where | None) -> str:
    """One read-modify-write as a device function returning the old value.

    Raises KernelError [atomic-type] for 8-bit types, which the device cannot exchange.
    """
    if not shared:
        return plain(name, op, scalar)
    if (scalar.name, op) in _ATOMIC:
        return f"{head(name, op, scalar)} {{ return atomicAdd(p, v); }}"
    word = _CAS_WORD.get(scalar.bits)
    if word is None:
        raise KernelError(
            f"a GPU has no atomic operation on {scalar}", slug="atomic-type", where=where, instead="an array of int32"
        )
    T = scalar.c
    return f"""{head(name, op, scalar)} {{
    {word} *cell = ({word} *)p, seen = *(volatile {word} *)cell, before, after;
    {T} old;
    do {{
        before = seen;
        memcpy(&old, &before, sizeof old);
        {T} next = {NEXT[op].format(T=T)};
        memcpy(&after, &next, sizeof next);
        seen = atomicCAS(cell, before, after);
    }} while (seen != before);
    return old;
}}"""


def text(function: Function, variant: Variant = PLAIN) -> str:
    """The whole CUDA text; its entry is `NAME(const NAME_args args)`, the packed block by value."""
    signature = Signature(function)
    body = Body(function, variant, signature, update, "int32_t" if variant.index32 else "int64_t")
    for declared, argument in body.pointer_parameters():
        body.put(f"{declared} = {argument.replace('->', '.')};")
    body.unpack("args.")
    if body.fails:
        body.put("int64_t *status = args.status;")
    body.put("const int64_t wb_workers = (int64_t)gridDim.x * blockDim.x;")
    body.put("const int64_t wb_worker = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;")
    body.put(f"const int64_t wb_total = {' * '.join(['(int64_t)1', *body.dims])};")
    if body.grows or body.logs:
        body.put("wb_bytes wb_stack = {0, 0, 0, args.scratch_bytes / wb_workers / 8 * 8, false};")
        body.put("wb_stack.base = (char *)args.scratch + wb_worker * wb_stack.capacity;")
    with body.block("for (int64_t wb_thread = wb_worker; wb_thread < wb_total; wb_thread += wb_workers)"):
        _axes(body)
        body.region(function.body)
    return "\n".join([*_top(function, body, signature), *_entry(signature, body)])


def _axes(body: Body) -> None:
    """The thread's place in the grid from its linear index: the last axis runs fastest."""
    word = "uint32_t" if body.variant.index32 else "int64_t"
    body.put(f"{word} wb_rest = ({word})wb_thread;")
    for k in reversed(range(1, len(body.axes))):
        body.put(f"const int32_t {body.axes[k]} = (int32_t)(wb_rest % ({word}){body.dims[k]});")
        body.put(f"wb_rest /= ({word}){body.dims[k]};")
    body.put(f"const int32_t {body.axes[0]} = (int32_t)wb_rest;")
    if body.grows or body.logs:
        body.put("wb_stack.top = wb_stack.log = 0;")


def _top(function: Function, body: Body, signature: Signature) -> list[str]:
    code = "\n".join([*body.lines, *body.helpers.values()])
    lines = [TYPES]
    if float16.c in code + signature.c_declaration + "".join(map(typedef, composites(function))):
        lines.append(HALF)
    lines += [TURNS, prelude(code)]
    if body.fails:
        lines.append(CHECKS)
    if body.grows or body.logs:
        lines.append(STACK)
    return [*lines, *map(typedef, composites(function)), *body.helpers.values(), signature.c_declaration, ""]


def _entry(signature: Signature, body: Body) -> list[str]:
    name = signature.name
    return [f'extern "C" __global__ void {name}(const {name}_args args) {{', *body.used_lines(), "}", ""]
