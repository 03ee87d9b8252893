"""Values read while a tape records: NumPy arrays and numbers that carry their provenance (`sources`).

Under a recording tape `numpy()`, indexing and iteration of float arrays give the classes of this file; what NumPy makes
of them keeps the union of their sources. Code that writes such values into memory calls `sources_of`, and tells the
tape. One gap of NumPy's protocols: `np.float64(2) * v` for an element `v` of a float32 array calls neither.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self, SupportsIndex, TypeVar

import numpy as np

from ..kernels import ir
from ..kernels.ops import Row
from ..kernels.ops.functions import mean
from ..kernels.reading.declare import Instance
from ..kernels.types import Small
from .allocation import caller_where, known_memory, recorder
from .read_values import WHOLE, HostRead, checksum, source_of, united
from .span import Span
from .strided import StridedArray

V = TypeVar("V")

# ---- arrays

# their results are piecewise constant: nothing depends on them smoothly
_FLAT = {np.floor, np.ceil, np.rint, np.trunc, np.sign, np.heaviside}
# they write to their first argument
_INTO = {np.copyto, np.put, np.place, np.putmask, np.fill_diagonal, np.put_along_axis}


class HostValues(np.ndarray):
    """Array from `numpy()` of a float array under a tape, or made from one by NumPy. `sources`: its provenance."""

    sources: tuple[HostRead, ...] = ()

    def __array_finalize__(self, other: object) -> None:
        self.sources = getattr(other, "sources", ())

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: object, out: tuple | None = None, **choices: object
    ) -> Any:
        if any(isinstance(i, StridedArray) for i in inputs):
            return NotImplemented
        if ufunc in _FLAT:
            sources = ()
        else:  # into an array that may be memory of ours: what is only supposed counts too
            sources = united(map(sources_of, inputs)) if out is None else origin_of_any(inputs)
        if out is not None:
            choices["out"] = tuple(map(stripped, out))
        choices = {k: stripped(v) for k, v in choices.items()}
        result = getattr(ufunc, method)(*map(stripped, inputs), **choices)
        if method == "at":
            received(inputs[0], sources)
            return None
        if out is None:
            return carrying(result, sources)
        for target in out:
            received(target, sources)
        return out[0] if len(out) == 1 else out

    def __array_function__(
        self, function: Callable[..., Any], types: Iterable[type], args: Any, choices: Mapping[str, Any]
    ) -> Any:
        sources = united((sources_of(args), sources_of(tuple(choices.values()))))
        result = function(*stripped(args), **{k: stripped(v) for k, v in choices.items()})
        target = choices.get("out", args[0] if function in _INTO else None)
        if target is not None:
            received(target, sources)
            return target if "out" in choices else None
        return carrying(result, sources)

    def apply_row(self, row: Row, args: tuple, attr: object) -> Any:
        """Compute a builtin of the kernel language on the host; the result carries the sources of `args`."""
        plain = stripped(args)
        if any(isinstance(a, ir.Value) for a in plain):
            return row(*plain, attr=attr)
        sources = () if row.adjoint is None and row.expand is None else united(map(sources_of, args))
        return carrying(row.compute(*plain, attr=attr), sources)

    def carry_to(self, made: object, parts: Sequence[Any]) -> Any:
        """`made`, a host value constructed from `parts`, carrying their sources."""
        same = len(parts) == 1 and made.__class__ is getattr(self, "plain", None).__class__
        return carrying(made, united(map(sources_of, parts)), getattr(self, "cell", None) if same else None)

    def put_into(self, target: object) -> None:
        """Note that a vector or matrix of the host, which is no `HostValues`, has got this as a part."""
        received(target, sources_of(self))

    def __getitem__(self, key: object) -> Any:
        return carrying(super().__getitem__(stripped(key)), self.sources)

    def __setitem__(self, key: object, value: object) -> None:
        sources = origin_of(value)
        super().__setitem__(stripped(key), stripped(value))
        part = super().__getitem__(_as_slices(key)) if _is_basic(key) else None
        if isinstance(part, np.ndarray):
            received(part, sources, self)
        else:  # some elements, the others stay what they were
            received(self, self.sources if isinstance(sources, Supposed) else united((sources, self.sources)))

    def __float__(self) -> float:
        return given_away(float(self.view(np.ndarray)), self.sources)

    def item(self, *place: Any) -> Any:
        return carrying(self.view(np.ndarray).item(*place), self.sources)

    def tolist(self) -> Any:
        return carrying(self.view(np.ndarray).tolist(), self.sources)

    def fill(self, value: object) -> None:
        self[...] = value

    def detach(self) -> np.ndarray:
        """A plain NumPy copy without sources (for `wb.detach`)."""
        return mean(np.array(stripped(self), subok=True))

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return self.view(np.ndarray).__reduce_ex__(protocol)

    def __repr__(self) -> str:
        return repr(self.view(np.ndarray))

    def __str__(self) -> str:
        return str(self.view(np.ndarray))

    def __format__(self, how: str) -> str:
        return format(self.view(np.ndarray), how)


def _is_basic(key: object) -> bool:
    """True for a basic index (integers, slices, `...`, a field name), which makes a view."""
    keys = key if isinstance(key, tuple) else (key,)
    return all(isinstance(k, (int, np.integer, slice, str, type(...))) for k in keys)


def _as_slices(key: object) -> Any:
    """The key with each integer k as the slice k:k+1, so that indexing always makes an array."""
    keys = key if isinstance(key, tuple) else (key,)
    found = tuple(slice(k, k + 1 or None) if isinstance(k, (int, np.integer)) else k for k in keys)
    return found if isinstance(key, tuple) else found[0]


def _reduction(name: str) -> Callable[..., Any]:
    def reduced(self: HostValues, *args: object, **choices: object) -> Any:
        sources = united((self.sources, sources_of(args)))
        target = choices.get("out")
        choices = {k: stripped(v) for k, v in choices.items()}
        result = getattr(self.view(np.ndarray), name)(*stripped(args), **choices)
        if target is None:
            return carrying(result, sources)
        received(target, sources)
        return target

    reduced.__name__ = name
    return reduced


for _name in "sum prod mean std var max min dot trace take cumsum cumprod clip round".split():
    setattr(HostValues, _name, _reduction(_name))


class HostSmall(HostValues, Small):
    """A vector, matrix or quaternion read from an array. `cell`: the array element it was read from, until changed."""

    cell: Any = None

    def __array_finalize__(self, other: object) -> None:
        HostValues.__array_finalize__(self, other)
        Small.__array_finalize__(self, other)

    __repr__, __str__ = np.ndarray.__repr__, np.ndarray.__str__

    def copy(self, order: Any = "C") -> Self:
        made = super().copy(order)
        made.cell = self.cell
        return made

    def __setitem__(self, key: object, value: object) -> None:
        super().__setitem__(key, value)
        self.cell = None
        self.sources = united((self.sources, sources_of(value)))


# ---- numbers


class _HostNumber:
    """A float read from an array, or computed from one. `cell`: the array element it was read from, else None.

    A template: its members are copied into four classes, as NumPy needs its scalar type right behind theirs in the MRO.
    One is for the floats of Python that `item()` and `tolist()` return; `float(v)` can only be a plain one.
    """

    sources: tuple[HostRead, ...]
    cell: Any
    plain: Any  # the same number as NumPy's, or Python's, own class
    __array_ufunc__ = HostValues.__array_ufunc__
    __array_function__ = HostValues.__array_function__
    apply_row, carry_to, put_into = HostValues.apply_row, HostValues.carry_to, HostValues.put_into

    def __round__(self, digits: int | None = None) -> Any:
        return round(self.plain) if digits is None else carrying(round(self.plain, digits), self.sources)

    def __float__(self) -> float:
        return given_away(float(self.plain), self.sources, self.cell)

    def item(self) -> Any:
        return carrying(self.plain.item(), self.sources, self.cell)

    def detach(self) -> Any:
        return mean(self.plain * 1)  # another object: the first may be known as read

    def astype(self, dtype: np.typing.DTypeLike, *rest: Any, **choices: Any) -> Any:
        return carrying(np.float64(self.plain).astype(dtype, *rest, **choices), self.sources, self.cell)

    def copy(self, memo: object = None) -> Any:
        return self

    __copy__ = __deepcopy__ = copy
    tolist = item

    def __reduce__(self) -> Any:
        return self.plain.__class__, (self.plain,)


def _arithmetic(does: Callable[..., Any], reflected: bool = False) -> Callable[..., Any]:
    def apply(self: _HostNumber, *others: object, **choices: object) -> Any:
        if any(isinstance(o, StridedArray) for o in others):
            return NotImplemented
        args = (self.plain, *map(stripped, others))
        result = does(*reversed(args)) if reflected else does(*args, **choices)
        return carrying(result, united(map(sources_of, (self, *others))))

    return apply


def _number_class(plain: Any) -> Any:
    def new(cls: type, value: Any, sources: tuple[HostRead, ...], cell: object = None) -> Any:
        made = plain.__new__(cls, value)
        made.plain, made.sources, made.cell = value, sources, cell
        return made

    members = {n: m for n, m in vars(_HostNumber).items() if callable(m) and (hasattr(plain, n) or n in _OWN)}
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "neg", "pos", "abs"):
        does = getattr(operator, name)
        members |= {f"__{name}__": _arithmetic(does), f"__r{name}__": _arithmetic(does, True)}
    members |= {"__divmod__": _arithmetic(divmod), "__rdivmod__": _arithmetic(divmod, True)}
    for name in ("round", "clip", "sum", "prod", "mean", "max", "min", "squeeze", "ravel", "reshape", "conjugate"):
        if (does := getattr(plain, name, None)) is not None:
            members[name] = _arithmetic(does)
    return type(f"Host{plain.__name__.capitalize()}", (plain,), {**members, "__new__": new})


_OWN = ("apply_row carry_to put_into astype detach __array_ufunc__ __array_function__ __copy__ __deepcopy__").split()
_NUMBERS: dict[type, Any] = {plain: _number_class(plain) for plain in (np.float16, np.float32, np.float64, float)}
_HOST_NUMBERS: tuple[type[_HostNumber], ...] = tuple(_NUMBERS.values())


class HostRecord(np.void):
    """One struct read from an array of structs. `cell`: the array element it was read from, until changed."""

    sources: tuple[HostRead, ...] = ()
    cell: Any = None

    def __getitem__(self, key: Any) -> Any:
        value = super().__getitem__(key)
        cell = self.cell.field(key) if self.cell is not None and isinstance(key, str) else None
        return carrying(value, self.sources, cell)

    def __setitem__(self, key: Any, value: object) -> None:
        super().__setitem__(key, stripped(value))
        self.cell, self.sources = None, united((self.sources, sources_of(value)))

    def copy(self, order: object = "C") -> Any:
        return _record(plain_record(self), self.sources, self.cell)

    __copy__ = __deepcopy__ = copy

    def item(self, *place: object) -> Any:
        return carrying(plain_record(self).item(*place), self.sources)

    tolist = item

    def detach(self) -> np.void:
        return plain_record(self)

    def __reduce__(self) -> Any:
        return plain_record(self).__reduce__()


def plain_record(record: np.void) -> np.void:
    """A copy of the record as a plain `np.void`."""
    fields: Any = record.dtype.fields
    formats, offsets = [f[0] for f in fields.values()], [f[1] for f in fields.values()]
    layout = {"names": list(fields), "formats": formats, "offsets": offsets, "itemsize": record.dtype.itemsize}
    kind: Any = layout  # NumPy's own stubs want the keys of this dict to be literal
    return np.frombuffer(record.tobytes(), np.dtype(kind))[0].copy()


# ---- going in and out


def carrying(result: object, sources: tuple[HostRead, ...], cell: object = None) -> Any:
    """A result of NumPy's wrapped to carry these sources; integers, bools and text are returned as they are."""
    if not sources:
        return result
    if isinstance(result, np.generic | float):
        made = _NUMBERS.get(stripped(result).__class__)
        if made is not None:
            number = made(stripped(result), sources, cell)
            if (tape := recorder()) is not None:
                tape.numbers.note(number.plain, sources)
            return number
        return _record(result, sources, cell) if isinstance(result, np.void) and result.dtype.names else result
    if isinstance(result, np.ndarray):
        if result.dtype.kind not in "fcV":
            return result.view(np.ndarray) if isinstance(result, HostValues) else result
        if not isinstance(result, HostValues) and known_memory(result) is None:
            note(result, sources)
        elif (tape := recorder()) is not None and result.nbytes <= WHOLE:
            tape.numbers.made(checksum(np.asarray(result)), result.nbytes, sources)
        type = result.type if isinstance(result, Small) else None
        values: Any = result.view(HostValues if type is None else HostSmall)
        values.sources = sources
        if type is not None:
            values.type, values.cell = type, cell
        return values
    if isinstance(result, list | tuple):
        items = [carrying(r, sources) for r in result]
        return items if isinstance(result, list) else _tuple(result, items)
    return result


def _tuple(like: list | tuple, items: list) -> Any:
    return type(like)(*items) if hasattr(like, "_fields") else tuple(items)


def _record(value: np.void, sources: tuple[HostRead, ...], cell: object) -> Any:
    dtype = np.dtype((HostRecord, value.dtype))
    made: Any = np.array(value, value.dtype).view(dtype)[()]
    made.sources, made.cell = sources, cell
    return made


def stripped(value: object) -> Any:
    """The same values as plain NumPy or Python objects, inside lists and tuples too."""
    if isinstance(value, HostSmall):
        plain = value.view(np.ndarray).view(Small)
        plain.type = value.type
        return plain
    if isinstance(value, HostValues):
        return value.view(np.ndarray)
    if isinstance(value, _HOST_NUMBERS):
        return value.plain
    if isinstance(value, HostRecord):
        return plain_record(value)
    if isinstance(value, list | tuple):
        items = [stripped(v) for v in value]
        return items if isinstance(value, list) else _tuple(value, items)
    return value


def sources_of(value: object) -> tuple[HostRead, ...]:
    """The certain sources of values about to be written; () if there are none, or no tape records."""
    tape = recorder()
    if tape is None:
        return ()
    if isinstance(value, (HostValues, HostRecord, *_HOST_NUMBERS)):
        return value.sources
    if value.__class__ is float or (value.__class__ is np.ndarray and id(value) in tape.numbers.held):
        return tape.numbers.of(value)
    if isinstance(value, np.ndarray):
        return _sources_of_plain(value)
    if isinstance(value, list | tuple):
        return united(map(sources_of, value))
    if isinstance(value, Instance):
        return united(map(sources_of, vars(value).values()))
    if isinstance(value, StridedArray) and (found := source_of(value.span, value)) is not None:
        return (found,)
    known = getattr(value, "sources", ())  # a tensor's
    return known if isinstance(known, tuple) else ()


def _sources_of_plain(value: np.ndarray) -> tuple[HostRead, ...]:
    """`sources_of` a plain `np.ndarray`: found if it views memory of an array, or values with known sources."""
    root: Any = value
    while isinstance(root, np.ndarray):
        if isinstance(root, HostValues):
            return root.sources
        known = _noted.get(id(root))
        if known is not None and known[0]() is root:
            return known[1] if known[2] == checksum(root) else ()
        root = root.base
    if value.dtype.kind not in "fV" or (found := known_memory(value)) is None or found[0].is_gradient:
        return ()
    memory, offset = found
    label = next(iter(memory.names), repr(memory))
    source = source_of(Span(memory, offset, value.shape, value.strides, value.itemsize), label)
    return () if source is None else (source,)


_noted: dict[int, tuple[weakref.ref, tuple[HostRead, ...], int]] = {}  # of NumPy's own class, by id, with a checksum


def note(values: np.ndarray, sources: tuple[HostRead, ...]) -> None:
    """Remember the sources of a plain `np.ndarray`, valid while its checksum stays the same."""
    root: Any = values
    while isinstance(root.base, np.ndarray):
        root = root.base
    key, digits = id(root), checksum(values)
    if not isinstance(root, HostValues):
        kept = digits if root is values else checksum(root)
        _noted[key] = weakref.ref(root, lambda _: _noted.pop(key, None)), sources, kept
    if (tape := recorder()) is not None and values.nbytes:
        tape.numbers.made(digits, values.nbytes, sources)


def received(target: object, sources: tuple[HostRead, ...], whole: object = None) -> None:
    """Note that NumPy wrote values with these sources into `target`; tells the tape if that is memory of an array."""
    tape = recorder()
    if tape is None or not isinstance(target, np.ndarray):
        return
    supposed = isinstance(sources, Supposed)  # the tape is told, the values themselves do not carry it
    for values in (target, whole) if not supposed else ():
        if isinstance(values, HostValues):
            values.sources = united((values.sources, sources))
    found = known_memory(target)
    if found is None:
        if kept := united((getattr(target, "sources", ()), () if supposed else sources)):
            note(target, kept)
    elif not found[0].is_gradient:
        tape.values_written(*found, stripped(target), sources, caller_where())


# ---- numbers that left NumPy


def given_away(value: V, sources: tuple[HostRead, ...], cell: object = None) -> V:
    """Return `value`, a Python float or the components for a launch; its sources are remembered by its identity."""
    tape = recorder()
    if tape is not None and sources:
        tape.numbers.add(value, sources, cell)
    return value


class Supposed(tuple):
    """Supposed sources: the values are another object with the bytes of what was read (`read_values`)."""

    text = "got values equal to what was read from"


class AfterReading(Supposed):
    """Supposed sources: another library made the values, which may have read these before."""

    text = "got values of another library, which may have made them of"


def origin_of(value: object) -> tuple[HostRead, ...]:
    """The sources of values about to be written: `sources_of`, else readings of the same bytes, as a `Supposed`."""
    tape = recorder()
    if tape is None:
        return ()
    certain = sources_of(value)
    if certain or not tape.numbers.any:
        return certain
    return Supposed(tape.numbers.supposed(value))


def origin_of_any(values: Iterable[Any]) -> tuple[HostRead, ...]:
    """`origin_of` for several values that are combined: all certain sources, else all supposed ones."""
    groups = [origin_of(v) for v in values]
    certain = united(g for g in groups if not isinstance(g, Supposed))
    return certain or Supposed(united(groups))
