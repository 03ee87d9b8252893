"""Twins of Warp's memory: for each buffer of Warp an allocation of ours, filled at first contact.

Views lie in the twin where they lie in the buffer. The two are never the same bytes: Warp's call and ours both write.
After every event both hold the same bytes again, Warp's.
"""

from __future__ import annotations

import ast
import ctypes
import mmap
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import warp
from warp._src import codegen, types as warp_types

from ...arrays import allocation as memory
from ...arrays.array import array, array_on
from ...arrays.dtypes import differentiable, dtype_of, itemsize_of, scalar_in
from ...arrays.indexed import indexedarray
from ...arrays.interval_index import Intervals
from ...arrays.ports import arrays_behind
from ...errors import LaunchError
from ...kernels.types import Struct, Type
from .handles import TwinHandles
from .rebind import Rebinder

LITTLE = 1 << 13  # bytes
MOST_RUNS = 64  # stretches of memory that a host write may have changed, before they count as one event


class Untranslated(Exception):
    """A thing of Warp's that has no twin; the message says why."""


class TwinBuffer:
    """One buffer of Warp and its twin. `keeper`: gives the array that owns the buffer, None once the memory is freed.

    live  Warp's present bytes (uint8).
    seen  Warp's bytes at the last event.
    gone  True once its array is gone: others may have its addresses.
    """

    __slots__ = ("low", "high", "size", "allocation", "keeper", "live", "dtype", "apart", "gone")

    def __init__(self, low: int, high: int, keeper: Any, dtype: Any):
        self.low, self.high, self.keeper, self.dtype = low, high, keeper, dtype
        self.size = high - low
        self.live = np.ctypeslib.as_array((ctypes.c_uint8 * self.size).from_address(low))
        self.allocation = memory.allocate(self.size, zeroed=False)
        self.allocation.bytes[...] = self.live
        self.apart: np.ndarray | None = None  # Warp's bytes when last seen, where the twin holds others on purpose
        self.gone = False

    @property
    def seen(self) -> np.ndarray:
        return self.allocation.bytes if self.apart is None else self.apart

    def changed(self) -> bool:
        """True if Warp's bytes differ from `seen`. False once the buffer is freed."""
        if self.keeper() is None:
            return False
        if self.size <= LITTLE:  # a call of C takes longer than two copies
            return self.live.tobytes() != self.seen[: self.size].tobytes()
        return _memcmp(self.low, self.seen.ctypes.data, self.size) != 0

    def accept(self, apart: bool) -> None:
        """Mark Warp's bytes as seen: copy them into the twin, or (`apart`) into a separate copy."""
        if apart:
            self.apart = self.live.copy()
        else:
            self.allocation.bytes[...] = self.live
            self.apart = None


_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_mincore = getattr(ctypes.CDLL(None), "mincore", None)
if _mincore is not None:
    _mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)


def _is_mapped(low: int, high: int) -> bool:
    """True if these addresses are still mapped: Warp is not told when memory that it only wraps is freed."""
    first = low - low % mmap.PAGESIZE
    pages = -(-(high - first) // mmap.PAGESIZE)
    return _mincore is None or _mincore(first, high - first, ctypes.create_string_buffer(pages)) == 0


class HostWrite(NamedTuple):
    """A host write to replay on a twin: values for all of it, or for these indices."""

    twin: array
    values: np.ndarray
    places: np.ndarray | None = None


class KnownArray(NamedTuple):
    """A Warp array that has a twin, its identity (pointer, shape, strides, dtype), and its buffer (None if empty)."""

    ref: weakref.ref[Any]
    identity: tuple[Any, ...]
    region: TwinBuffer | None
    twin: array

    def holds(self, a: Any) -> bool:
        """True if `a` is still this array over the same live memory."""
        same = self.ref() is a and self.identity == (a.ptr, a.shape, a.strides, a.dtype)
        return same and (self.region is None or not self.region.gone)


class Twins:
    """The twins of all memory that a watched program has touched."""

    def __init__(self, rebind: Rebinder):
        self.rebind = rebind
        self.buffers: Intervals[TwinBuffer] = Intervals()  # by their addresses
        self.made: dict[int, KnownArray] = {}  # by the id of the array
        self.forget = self.forgotten  # one object for all weak references
        self.types: dict[Any, Type] = {}
        self.handles = TwinHandles(self)
        self.uses: dict[int, tuple[Any, set[str]]] = {}  # of each kernel
        behind = weakref.WeakMethod(self.behind)
        named = lambda value: found(value) if (found := behind()) is not None else ()  # noqa: E731
        arrays_behind.append(named)
        weakref.finalize(self, arrays_behind.remove, named)

    def close(self) -> None:
        """Keep Warp's array names for their twins, and stop looking at Warp's buffers."""
        for region in self.buffers:
            region.live = region.live[:0]
            region.size = 0
        self.handles.close()

    def behind(self, value: object) -> tuple[array, ...]:
        """The twin of a Warp array as a one-element tuple; () without. Used by `names`."""
        found = self.made.get(id(value)) if isinstance(value, warp.array) else None
        return () if found is None or found.ref() is not value else (found.twin,)

    # ---- types

    def type(self, dtype: Any) -> Type:
        """Our element type for one of Warp's, with the same layout. Raises Untranslated."""
        if dtype not in self.types:
            try:
                made = dtype_of(self.rebind(dtype))
            except (LaunchError, TypeError, ValueError) as error:
                raise Untranslated(f"arrays of {warp_types.type_repr(dtype)}: {error}") from None
            if itemsize_of(made) != warp_types.type_size_in_bytes(dtype) or not _laid_out(made, dtype):
                raise Untranslated(f"arrays of {warp_types.type_repr(dtype)} have another layout here")
            self.types[dtype] = made
        return self.types[dtype]

    # ---- memory

    def array(self, a: object) -> array:
        """The twin of an array of Warp. Raises Untranslated."""
        return self.known(a).twin

    def known(self, a: Any) -> KnownArray:
        """The `KnownArray` of a Warp array, made at first contact. Raises Untranslated."""
        key = id(a)
        found = self.made.get(key)
        if found is not None and found.holds(a):
            return found
        if not a.device.is_cpu:
            raise Untranslated(f"memory on {a.device}")
        dtype = self.type(a.dtype)
        if a.ptr is None or a.size == 0:
            made, region = array(shape=a.shape, dtype=dtype), None
        else:
            region = self.region(a)
            made = array_on(region.allocation, dtype, tuple(a.shape), tuple(map(int, a.strides)), a.ptr - region.low)
            if differentiable(dtype):
                made.requires_grad = True
        identity = a.ptr, a.shape, a.strides, a.dtype
        found = self.made[key] = KnownArray(weakref.KeyedRef(a, self.forget, key), identity, region, made)
        return found

    def forgotten(self, ref: weakref.KeyedRef[int, Any]) -> None:
        """Drop a freed Warp array: another may get its id."""
        if (found := self.made.get(ref.key)) is not None and found.ref is ref:
            del self.made[ref.key]

    def region(self, a: object) -> TwinBuffer:
        """The buffer that an array of Warp lies in. Raises Untranslated where buffers overlap in part."""
        root = root_of(a)
        low, high = hull(a)
        first, last = hull(root)
        low, high = min(low, first), max(high, last)
        for region in self.meeting(low, high):
            if region.low <= low and high <= region.high:
                return region
            raise Untranslated("its memory overlaps other memory in part")
        owned = root.deleter is not None and getattr(root, "_ref", None) is None
        keeper = weakref.ref(root) if owned else lambda: root if _is_mapped(low, high) else None
        made = TwinBuffer(low, high, keeper, root.dtype)
        self.buffers.enter(made, low, high)
        return made

    def meeting(self, low: int, high: int) -> list[TwinBuffer]:
        """The live buffers that share a byte with [low, high). Those whose array is gone are forgotten."""
        found = self.buffers.meeting(low, high)
        for region in found:
            if region.keeper() is None:
                region.gone = True
                self.buffers.remove(region)
        return [region for region in found if not region.gone]

    def regions(self, arrays: Iterable[Any]) -> list[TwinBuffer]:
        """The buffers of these arrays of Warp, each once. Raises Untranslated."""
        return list(dict.fromkeys(region for a in arrays if (region := self.known(a).region) is not None))

    def written_behind(self, region: TwinBuffer) -> list[HostWrite]:
        """The host's changes to a buffer since it was last seen: one write per run of bytes, or one for many runs."""
        seen, flat = region.seen, self.flat(region)
        size = itemsize_of(flat.dtype)
        n = flat.size
        new, old = region.live[: n * size].reshape(n, size), seen[: n * size].reshape(n, size)
        values = region.live[: n * size].view(flat.dtype.numpy)  # type: ignore[attr-defined]
        changed = (new != old).any(axis=1)
        edges = np.flatnonzero(np.diff(np.concatenate(([0], changed.view(np.int8), [0]))))
        if len(edges) > 2 * MOST_RUNS:
            if changed.all():
                edges = np.array([0, n])
            else:
                places = np.flatnonzero(changed)
                return [HostWrite(flat, values[places], places.astype(np.int32))]
        runs = zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
        return [HostWrite(flat[i:j], values[i:j].copy()) for i, j in runs]

    def flat(self, region: TwinBuffer) -> array:
        """A 1-D view of a whole twin, of scalars (of structs, if it holds structs)."""
        dtype = self.type(region.dtype)
        element = dtype if isinstance(dtype, Struct) else scalar_in(dtype)
        size = itemsize_of(element)
        return array_on(region.allocation, element, (region.allocation.nbytes // size,), (size,), 0)

    def read_only(self, kernel: Any, values: Sequence[Any]) -> set[int]:
        """The ids of launch arguments that the kernel surely does not write: 1-D arrays that it only reads as `x[...]`.

        With more axes `x[i]` may be a row through which it writes.
        """
        if kernel is None or not values:
            return set()
        if id(kernel) not in self.uses:
            self.uses[id(kernel)] = kernel, _used_otherwise(kernel.adj.tree)
        uses, names = self.uses[id(kernel)][1], [arg.label for arg in kernel.adj.args]
        written = {id(v) for name, v in zip(names, values, strict=False) if name in uses}
        written |= {id(a) for v in values if not isinstance(v, warp.array) for a in arrays_in([v])}
        return {id(v) for v in values if isinstance(v, warp.array) and v.ndim == 1} - written

    # ---- arguments

    def arrays_of(self, values: list[Any]) -> list[Any]:
        """The Warp arrays that a launch may read: among its arguments, and those of meshes and BVHs given by id."""
        return [*arrays_in(values), *(a for thing in self.handles.things(values) for a in self.handles.arrays(thing))]

    def value(self, v: Any) -> Any:
        """A launch argument of Warp's as our launch takes it. Raises Untranslated."""
        if isinstance(v, warp.array):
            return self.array(v)
        if isinstance(v, warp.indexedarray):
            return self.indexed(v)
        if isinstance(v, codegen.StructInstance):
            kind: Any = type(v)
            made = self.rebind(kind._cls)()
            for name in kind._cls.vars:
                given = getattr(v, name)
                if given is not None:
                    setattr(made, name, self.value(given))
            return made
        if warp_types.is_array(v):
            raise Untranslated(f"an argument of type {type(v).__name__}")
        if type(v) in warp_types.scalar_types:
            return getattr(np, type(v).__name__)(v.value) if hasattr(np, type(v).__name__) else v.value
        return self.rebind.annotation(v)

    def indexed(self, v: Any) -> indexedarray:
        """The twin of an indexedarray."""
        return indexedarray(self.array(v.data), [None if i is None else self.array(i) for i in v.indices[: v.ndim]])


def arrays_in(values: Iterable[Any]) -> Iterator[Any]:
    """Yields the Warp arrays with memory among arguments, those in structs too."""
    for v in values:
        if isinstance(v, warp.array):
            if v.ptr:
                yield v
        elif isinstance(v, warp.indexedarray):
            yield from arrays_in([v.data, *(i for i in v.indices if i is not None)])
        elif isinstance(v, codegen.StructInstance):
            kind: Any = type(v)
            yield from arrays_in(getattr(v, name) for name in kind._cls.vars)


def _used_otherwise(tree: Any) -> set[str]:
    """The names in a program used other than by reading `x[...]` or an attribute such as `x.shape`."""
    nodes = list(ast.walk(tree))
    plain = {
        id(n.value)
        for n in nodes
        if isinstance(n, ast.Attribute) or (isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Load))
    }
    targets = [t for n in nodes if isinstance(n, ast.Assign) for t in n.targets]
    targets += [n.target for n in nodes if isinstance(n, ast.AugAssign | ast.AnnAssign | ast.For)]
    plain -= {id(n) for t in targets for n in ast.walk(t)}
    return {n.id for n in nodes if isinstance(n, ast.Name) and id(n) not in plain}


def root_of(a: Any) -> Any:
    """The array of Warp whose buffer this one is a view of."""
    while isinstance(getattr(a, "_ref", None), warp.array):
        a = a._ref
    return a


def hull(a: Any) -> tuple[int, int]:
    """The address range [low, high) that a Warp array spans."""
    size = warp_types.type_size_in_bytes(a.dtype)
    steps = [(n - 1) * int(s) for n, s in zip(a.shape, a.strides, strict=True)]
    low = a.ptr + sum(min(s, 0) for s in steps)
    high = a.ptr + sum(max(s, 0) for s in steps) + size
    return low, high


def _laid_out(ours: Type, theirs: Any) -> bool:
    """True if the fields of our struct have the offsets of Warp's."""
    if not isinstance(ours, Struct):
        return True
    fields = ours.numpy.fields or {}
    names = list(theirs.vars)
    return all(getattr(theirs.ctype, name).offset == fields[name][1] for name in names if name in fields)
