"""The types of the kernel language. A type is an immutable object, equal by content, shown as users write it.

`Scalar`, `Vector`, `Matrix`, `Quat`, `Transform` are value types; `Array` names memory; `Struct` exists only in the
user's source and at the launch: the reader takes structs apart, so IR never holds one. `Stack` is made by `adjoint`
alone. A type is callable on the host: `vec3(1.0, 2.0, 3.0)` is a small NumPy array that knows its type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache
from typing import Any, Self

import numpy as np

from . import host_products, type_queries


class Itself:
    """Base of objects of which there is one: `copy` and `deepcopy` give the object itself."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self


class Type(Itself, type_queries.Asked):
    """Base of all types."""

    def __repr__(self) -> str:
        return str(self)

    @property
    def __name__(self) -> str:  # type: ignore[override]
        """As classes have it, which Warp's types are."""
        return str(self)


@dataclass(frozen=True, repr=False)
class Scalar(Type):
    """One number. `kind` is NumPy's: f float, i signed, u unsigned, b bool; `suffix` that of vectors of it: vec3d."""

    name: str
    kind: str
    bits: int
    c: str
    suffix: str

    def __str__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash(self.name)

    @cached_property
    def numpy(self) -> np.dtype:
        return np.dtype(self.name)

    @cached_property
    def _type_(self) -> Any:
        """The type of ctypes of that size, as Warp's scalar types have it: `ctypes.sizeof(float32._type_)` is 4."""
        return np.ctypeslib.as_ctypes_type(np.uint16 if self.kind == "f" and self.bits == 16 else self.numpy)

    def __instancecheck__(self, value: object) -> bool:
        return isinstance(value, np.generic) and value.dtype == self.numpy

    @property
    def scalar(self) -> Scalar:
        return self

    shape = ()
    size = 1

    @property
    def itemsize(self) -> int:
        return max(self.bits // 8, 1)

    def over(self, scalar: Scalar) -> Scalar:
        """Of a composite: the same shape over another scalar. Of a scalar: that scalar."""
        return scalar

    def __call__(self, value: object = 0):
        return carried(self.numpy.type(value), (value,))


def carried(made: object, parts: Sequence[Any]) -> Any:
    """A host value made of `parts`, with what they know of where they came from (numbers read while a tape records)."""
    for part in parts:
        carry = getattr(type(part), "carry_to", None)
        if carry is not None:
            return carry(part, made, parts)
        if isinstance(part, (list, tuple)) and (known := carried(made, part)) is not made:
            return known
    return made


class Composite(Type):
    """Vector, matrix, quaternion or transform: `size` components of `scalar`, laid out row by row."""

    scalar: Scalar

    @property
    def __name__(self) -> str:  # type: ignore[override]
        """The name of NVIDIA Warp's class: vec3f, mat33d, quatf; vec_t and mat_t for other lengths."""
        kind = str(self).partition("(")[0]
        if kind != str(self):
            return {"vector": "vec_t", "matrix": "mat_t"}.get(kind, kind)
        return kind if self.scalar.suffix else f"{kind}f"

    def over(self, scalar: Scalar) -> Self:
        """The same shape over another scalar."""
        *own, _ = [getattr(self, f.name) for f in fields(self)]  # type: ignore[arg-type]  all of them are dataclasses
        return _COMPOSITES[type(self)](*own, scalar)

    @property
    def shape(self) -> tuple[int, ...]:
        raise NotImplementedError

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    _shape_ = property(lambda self: self.shape)  # as programs ask Warp's types
    _length_ = property(lambda self: self.size)
    _wp_scalar_type_ = property(lambda self: self.scalar)

    @property
    def numpy(self) -> np.dtype:
        return self.scalar.numpy

    @property
    def itemsize(self) -> int:
        return self.size * self.scalar.itemsize

    def __call__(self, *components) -> Small:
        """Host value from components, parts as (vec3, number), one scalar for all of them, nested rows, or zeros."""
        given = components
        if len(components) > 1 and any(np.ndim(c) for c in components) and len(self.shape) == 1:
            components = tuple(x for c in components for x in np.ravel(c))
        if not components:
            data = np.zeros(self.shape, self.numpy)
        elif len(components) == 1 and np.ndim(components[0]) == 0:
            data = np.full(self.shape, components[0], self.numpy)
        else:
            flat = np.array(components[0] if len(components) == 1 else components, self.numpy)
            if flat.size != self.size:
                raise ValueError(f"{self} takes {self.size} components, got {flat.size}")
            data = flat.reshape(self.shape)
        small = data.view(Small)
        small.type = self
        return carried(small, given)


@dataclass(frozen=True, repr=False)
class Vector(Composite):
    """`length` numbers of one type: `vec3`."""

    length: int
    scalar: Scalar

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.length,)

    def __str__(self) -> str:
        if self.length in (2, 3, 4):
            return f"vec{self.length}{self.scalar.suffix}"
        return f"vector(length={self.length}, dtype={self.scalar})"


@dataclass(frozen=True, repr=False)
class Matrix(Composite):
    """`rows` times `cols` numbers of one type, row by row: `mat33`."""

    rows: int
    cols: int
    scalar: Scalar

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.rows, self.cols)

    def __str__(self) -> str:
        if self.rows == self.cols and self.rows in (2, 3, 4):
            return f"mat{self.rows}{self.cols}{self.scalar.suffix}"
        return f"matrix(shape=({self.rows}, {self.cols}), dtype={self.scalar})"


@dataclass(frozen=True, repr=False)
class Quat(Composite):
    """Quaternion (x, y, z, w), w the real part."""

    scalar: Scalar

    @property
    def shape(self) -> tuple[int, ...]:
        return (4,)

    def __str__(self) -> str:
        return f"quat{self.scalar.suffix}"


@dataclass(frozen=True, repr=False)
class Transform(Composite):
    """Rigid transform: position p (components 0 to 2), then rotation q, a quaternion (3 to 6)."""

    scalar: Scalar

    @property
    def shape(self) -> tuple[int, ...]:
        return (7,)

    @property
    def parts(self) -> dict[str, tuple[int, Composite]]:
        """Its two parts: where each starts, and its type."""
        return {"p": (0, vector(3, self.scalar)), "q": (3, quaternion(self.scalar))}

    def __call__(self, *components, **named) -> Small:
        """Host value from seven numbers, or from p and q: without q (or both) the rotation is none."""
        if set(named) - {"p", "q"} or (named and len(components) + len(named) > 2):
            raise ValueError(f"{self} takes p and q, or seven components, got {', '.join(named)}")
        if named or not components or (np.size(components[0]) == 3 and len(components) < 3):
            given = dict(zip("pq", components, strict=False)) | named
            components = (given.get("p", (0, 0, 0)), given.get("q", (0, 0, 0, 1)))
        return super().__call__(*components)

    def __str__(self) -> str:
        return f"transform{self.scalar.suffix}"


@dataclass(frozen=True, repr=False)
class Tile(Composite):
    """A value of fixed shape that a block owns: many numbers, kept in memory near the processor."""

    dims: tuple[int, ...]
    scalar: Scalar

    @property
    def shape(self) -> tuple[int, ...]:
        return self.dims

    def __str__(self) -> str:
        return f"tile(dtype={self.scalar}, shape={self.dims})"


@dataclass(frozen=True, repr=False)
class Array(Type):
    """Memory of `ndim` axes holding `dtype`. Not a value: arrays are parameters, never results."""

    dtype: Type
    ndim: int = 1

    def __str__(self) -> str:
        return f"array{'' if self.ndim == 1 else f'{self.ndim}d'}(dtype={'Any' if self.dtype is Any else self.dtype})"


def _note(annotation: Array, name: str, value: object) -> None:
    if name in ("dtype", "ndim"):
        raise AttributeError(f"the {name} of {annotation} is fixed")
    object.__setattr__(annotation, name, value)


Array.__setattr__ = _note  # programs note things of their own on annotations, as `shape`


@dataclass(frozen=True, repr=False)
class Struct(Type):
    """A user's struct: named fields in order. `host` is the class whose instances carry values (not compared)."""

    name: str
    fields: tuple[tuple[str, Type], ...]
    host: type | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return self.name

    @cached_property
    def numpy(self) -> np.dtype:
        """Aligned C layout; components of composites are sub-array axes. Fields may not be arrays."""
        parts = []
        for name, type in self.fields:
            if isinstance(type, Array):
                raise TypeError(f"field {name!r} of {self.name} is an array: an array of this struct has no layout")
            assert isinstance(type, Scalar | Composite | Struct)
            parts.append((name, type.numpy, getattr(type, "shape", ())))
        return np.dtype(parts, align=True)

    def path(self, name: str, field: str) -> str:
        """The path of a field of a parameter of this type: `name.field`."""
        return f"{name}.{field}"

    def __call__(self, *args, **fields):
        assert self.host is not None
        return self.host(*args, **fields)


@dataclass(frozen=True, repr=False)
class Handle(Struct):
    """A struct that kernels take by number (`mesh.id`): the reader opens it into its fields, a launch finds those.

    The object behind the number has the fields as attributes. `empty()` makes the one that the number 0 stands for.
    `every`: this one holds those of all living objects at once, each field with one more axis in front.
    """

    empty: Any = field(default=None, compare=False)
    every: bool = False


@dataclass(frozen=True, repr=False)
class Query(Struct):
    """A struct that `for` runs over. `next(query)`, a func, gives the query moved on, and an index or -1 at its end."""

    next: Any = field(default=None, compare=False)


@dataclass(frozen=True, repr=False)
class Open(Type):
    """An annotation that leaves a number's type to the call or the launch: any scalar of NumPy's `kinds`."""

    name: str
    kinds: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, repr=False)
class OpenComposite(Type):
    """A vector, matrix, quaternion or transform that leaves lengths (None) or its scalar (`Any`, `Open`) open."""

    name: str
    shape: tuple[int | None, ...]
    scalar: Any

    def __str__(self) -> str:
        sizes = ", ".join("Any" if n is None else str(n) for n in self.shape)
        return f"{self.name}({sizes}, dtype={'Any' if self.scalar is Any else self.scalar})"


def is_open(type: object) -> bool:
    """True for annotations that stand for more than one type."""
    return (
        type is Any
        or isinstance(type, (Open, OpenComposite, AnyTile))
        or (isinstance(type, (Array, Struct)) and is_open(getattr(type, "dtype", None)))
    )


def covers(general: object, special: object) -> bool:
    """True if every type that `special` stands for is one that `general` stands for. Either may be one type.

    >>> covers(Float, float64), covers(float64, Float)
    (True, False)
    """
    if general is Any or general == special:
        return True
    if special is Any:
        return False
    if isinstance(general, Array) or (isinstance(general, Struct) and is_open(general)):  # or an indexedarray
        pair: tuple[Any, Any] = general, special
        a, b = pair
        return type(b) is type(a) and a.ndim == b.ndim and covers(a.dtype, b.dtype)
    if isinstance(general, AnyTile):
        return general.fits(special)
    if isinstance(general, Open):
        if isinstance(special, Open):
            return set(special.kinds) <= set(general.kinds)
        return isinstance(special, Scalar) and special.kind in general.kinds
    if not isinstance(general, OpenComposite) or not isinstance(special, (Composite, OpenComposite)):
        return False
    shapes = len(general.shape) == len(special.shape) and not isinstance(special, Tile)
    sizes = zip(general.shape, special.shape, strict=False)
    return shapes and all(n in (None, k) for n, k in sizes) and covers(general.scalar, special.scalar)


@dataclass(frozen=True, repr=False)
class TileOf(Struct):
    """A tile of composites or structs: `fields` are the tiles of their components, which is all that IR has of it."""

    dims: tuple[int, ...] = ()
    dtype: Any = None


@dataclass(frozen=True, repr=False)
class AnyTile(Type):
    """Pattern of the tiles that a func's parameter takes: `of` is their type or Any, `dims` None for any shape."""

    of: Any
    dims: tuple[int, ...] | None

    def fits(self, type: object) -> bool:
        """True for the type of a tile that is meant."""
        if not isinstance(type, (Tile, TileOf)):
            return False
        held = type.dtype if isinstance(type, TileOf) else type.scalar
        return self.of in (Any, held) and self.dims in (None, type.dims)

    def __str__(self) -> str:
        return f"tile(dtype={self.of}, shape={'Any' if self.dims is None else self.dims})"


@dataclass(frozen=True, repr=False)
class TileStack(Struct):
    """A stack of a block: its values in a tile, from the first, and how many there are."""


def tile_type(dims: tuple[int, ...], dtype: object) -> Tile | TileOf:
    """The type of a tile of `dtype`. Raises TypeError for a struct that holds an array."""
    if isinstance(dtype, Struct):
        for name, type in dtype.fields:
            if isinstance(type, Array):
                raise TypeError(f"field {name!r} of {dtype.name} is an array: a tile holds numbers")
        fields = tuple((name, tile_type(dims, type)) for name, type in dtype.fields)
    elif isinstance(dtype, Composite):
        fields = tuple((_part_name(dtype, at), Tile(dims, dtype.scalar)) for at in np.ndindex(dtype.shape))
    else:
        return Tile(dims, scalar_of(dtype))
    return TileOf(f"tile(dtype={dtype}, shape={dims})", fields, dims=dims, dtype=dtype)


def _part_name(dtype: Composite, at: tuple[int, ...]) -> str:
    return "xyzw"[at[0]] if dtype.shape in ((2,), (3,), (4,)) else f"c{''.join(map(str, at))}"


@dataclass(frozen=True, repr=False)
class Stack(Type):
    """Last in, first out storage of one thread, for loop-carried values. `capacity` None: known only at run time."""

    dtype: Type
    capacity: int | None = None

    def __str__(self) -> str:
        return f"stack(dtype={self.dtype}, capacity={self.capacity})"


class Small(np.ndarray):
    """Host value of a composite type: a NumPy array with `.type` and component names."""

    type: Composite

    def __array_finalize__(self, obj):
        self.type = getattr(obj, "type", None)  # type: ignore[assignment]

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        for part in value if isinstance(value, (list, tuple)) else (value,):
            if (put := getattr(type(part), "put_into", None)) is not None:
                put(part, self)

    def fill(self, value: object) -> None:
        self[...] = value

    def __mul__(self, other: Any) -> Any:
        """`*` as in a kernel: products of matrices, quaternions and transforms; else component by component."""
        made = host_products.product(self, other) if isinstance(other, Small) else None
        return super().__mul__(other) if made is None else self._product(made, other)

    def __eq__(self, other: Any) -> Any:
        """One truth value, as in a kernel, of two whole values or beside a list or tuple; else by component.

        It is NumPy's, so that `(a == b).all()` means the same. NaN equals nothing.
        """
        return np.bool_(np.array_equal(self, other)) if _as_wholes(self, other) else super().__eq__(other)

    def __ne__(self, other: Any) -> Any:
        return ~np.bool_(np.array_equal(self, other)) if _as_wholes(self, other) else super().__ne__(other)

    __hash__ = None  # its components may change

    def __str__(self) -> str:
        """The components as Python's numbers in lists, a matrix row by row, as Warp prints them."""
        if not _is_whole(self):
            return super().__str__()
        return str(self.tolist()).replace("], [", "],\n [")

    def __array_function__(self, function: Any, types: Any, args: Any, choices: Any) -> Any:
        if function is np.isclose:  # it asks `==` which infinities are equal
            args = tuple(np.asarray(a) if isinstance(a, Small) else a for a in args)
            choices = {k: np.asarray(v) if isinstance(v, Small) else v for k, v in choices.items()}
            return function(*args, **choices)
        return super().__array_function__(function, types, args, choices)

    def __imul__(self, other: object) -> Any:
        return self * other if isinstance(other, Small) else super().__imul__(other)

    def _product(self, made: np.ndarray, other: np.ndarray) -> Small:
        small = made.view(Small)
        small.type = self.type if made.shape == self.shape else vector(len(made), self.type.scalar)
        if made.ndim == 2:
            small.type = matrix(made.shape, self.type.scalar)
        return carried(small, (self, other))


def _as_wholes(a: Small, b: object) -> bool:
    return _is_whole(a) and (isinstance(b, list | tuple) or _is_whole(b))


def _is_whole(x: object) -> bool:
    """True for a value of its type: not for a slice of one, nor for what NumPy makes of `v > 0`."""
    if not isinstance(x, Small) or x.type is None or x.shape != x.type.shape:
        return False
    return (x.dtype.kind == "b") == (x.type.numpy.kind == "b")


def _component(i: int) -> property:
    def read(self):
        return self[i]

    def write(self, value):
        self[i] = value

    return property(read, write)


def _part(name: str) -> property:
    def place(self) -> tuple[slice, Composite]:
        parts = getattr(self.type, "parts", {})
        if name not in parts or self.shape != self.type.shape:
            raise AttributeError(f"{self.type} has no component {name!r}")
        start, type = parts[name]
        return slice(start, start + type.size), type

    def read(self):
        where, type = place(self)
        part = self[where]
        part.type = type
        return part

    def write(self, value):
        self[place(self)[0]] = value

    return property(read, write)


for _i, _name in enumerate("xyzw"):
    setattr(Small, _name, _component(_i))
for _name in "pq":
    setattr(Small, _name, _part(_name))

float16 = Scalar("float16", "f", 16, "_Float16", "h")
float32 = Scalar("float32", "f", 32, "float", "")
float64 = Scalar("float64", "f", 64, "double", "d")
int8 = Scalar("int8", "i", 8, "int8_t", "b")
int16 = Scalar("int16", "i", 16, "int16_t", "s")
int32 = Scalar("int32", "i", 32, "int32_t", "i")
int64 = Scalar("int64", "i", 64, "int64_t", "l")
uint8 = Scalar("uint8", "u", 8, "uint8_t", "ub")
uint16 = Scalar("uint16", "u", 16, "uint16_t", "us")
uint32 = Scalar("uint32", "u", 32, "uint32_t", "ui")
uint64 = Scalar("uint64", "u", 64, "uint64_t", "ul")
bool_ = Scalar("bool", "b", 8, "bool", "bool")
Float, Int, AnyScalar = Open("Float", "f"), Open("Int", "iu"), Open("Scalar", "fiu")
FUNCTION = Open("Callable", "")  # a parameter that stands for a func or a builtin

SCALARS = (float16, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool_)
_PLAIN = {float: float32, int: int32, bool: bool_} | {name: s for s in SCALARS for name in (s.numpy, s.numpy.type)}


def shadow_type(type: Type) -> Any:
    """The type of an adjoint or a tangent: the value's own, but float32 for float16."""
    if isinstance(type, Array):
        return Array(shadow_type(type.dtype), type.ndim)
    if isinstance(type, Scalar):
        return float32 if type is float16 else type
    return type.over(float32) if isinstance(type, Composite) and type.scalar is float16 else type


def is_float(type: Type) -> bool:
    """True for types that have a derivative: a float scalar, or a composite or array of one."""
    if isinstance(type, Array):
        return is_float(type.dtype)
    return isinstance(type, (Scalar, Composite)) and type.scalar.kind == "f"


def is_int(type: Type) -> bool:
    return isinstance(type, Scalar) and type.kind in "iu"


def scalar_of(dtype) -> Scalar:
    """The scalar type that a user's name stands for: ours, Python's, or NumPy's."""
    if isinstance(dtype, Scalar):
        return dtype
    with suppress(KeyError, TypeError):
        return _PLAIN[dtype]
    with suppress(KeyError, TypeError, ValueError):
        return _PLAIN[np.dtype(dtype).newbyteorder("=")]
    error = TypeError(f"{dtype!r} is not a scalar type of the kernel language")
    error.slug = "dtype"  # type: ignore[attr-defined]  # in a kernel, the reader adds the line
    raise error


# one object per type, however it was asked for
_COMPOSITES: dict[type, Callable[..., Any]] = {
    of: lru_cache(None)(of) for of in (Vector, Matrix, Quat, Transform, Tile)
}


def _opened(name: str, shape: Sequence[Any], dtype: object) -> Any:
    """The annotation of a composite that leaves a length or its scalar open; None if it leaves nothing."""
    if not is_open(dtype) and Any not in shape:
        return None
    sizes = tuple(None if n is Any else int(n) for n in shape)
    return OpenComposite(name, sizes, dtype if is_open(dtype) else scalar_of(dtype))


def vector(length: Any, dtype) -> Any:
    """The vector type of `length` components of scalar `dtype`. Either may be left open: `Any`, `Float`, `Int`.

    >>> wb.vector(5, wb.float64)
    vector(length=5, dtype=float64)
    >>> from typing import Any
    >>> wb.vector(Any, wb.Float)
    vector(Any, dtype=Float)
    """
    return _opened("vector", (length,), dtype) or _COMPOSITES[Vector](int(length), scalar_of(dtype))


def matrix(shape: Sequence[Any], dtype) -> Any:
    """The matrix type of `shape` (rows, cols) and scalar `dtype`. Each may be left open: `Any`, `Float`, `Int`.

    >>> wb.matrix((2, 3), wb.float32)
    matrix(shape=(2, 3), dtype=float32)
    """
    rows, cols = shape
    if found := _opened("matrix", shape, dtype):
        return found
    return _COMPOSITES[Matrix](int(rows), int(cols), scalar_of(dtype))


def quaternion(dtype: object = Any) -> Any:
    """The quaternion type over float scalar `dtype`. In a kernel `quaternion(x, y, z, w)` makes a value.

    >>> wb.quaternion(wb.float64)
    quatd
    """
    return _opened("quaternion", (4,), dtype) or _COMPOSITES[Quat](scalar_of(dtype))


def transformation(dtype: object = Any) -> Any:
    """The type of rigid transforms over float scalar `dtype`, of a position p and a rotation q.

    In a kernel `transformation(p, q)` makes a value.

    >>> wb.transformation(wb.float64)
    transformd
    """
    return _opened("transformation", (7,), dtype) or _COMPOSITES[Transform](scalar_of(dtype))


def names() -> dict[str, Type]:
    """Every predefined composite name a user may write: vec3, vec3f, vec3d, vec3i, mat33, quatd, transform ..."""
    out: dict[str, Type] = {}
    for s in (s for s in SCALARS if s is not bool_):
        for suffix in ("", "f") if s is float32 else (s.suffix,):
            for n in (2, 3, 4):
                out[f"vec{n}{suffix}"] = vector(n, s)
                if s.kind == "f":
                    out[f"mat{n}{n}{suffix}"] = matrix((n, n), s)
            if s.kind == "f":
                out[f"quat{suffix}"] = quaternion(s)
                out[f"transform{suffix}"] = transformation(s)
                out[f"spatial_vector{suffix}"] = vector(6, s)
                out[f"spatial_matrix{suffix}"] = matrix((6, 6), s)
    return out


# ---- questions that programs for NVIDIA Warp ask about types and values


def _known(t: object) -> Any:
    """A type of ours for what a user may write for one; None for anything else."""
    if isinstance(t, Type):
        return t
    try:
        return scalar_of(t)
    except TypeError:
        return None


def _asks(test: Callable[[Any], bool], what: str, on_value: bool) -> Callable[[Any], bool]:
    def ask(t: object) -> bool:
        return test(_type_of_value(t) if on_value else _known(t))

    ask.__doc__ = f"True for {'a value of' if on_value else 'a type that is'} {what}."
    return ask


def _type_of_value(v: Any) -> Any:
    """The type of a value of the host: a small array, a number, an array or a struct instance."""
    dtype = getattr(v, "dtype", None)
    if isinstance(dtype, Type) and hasattr(v, "ndim"):
        return Array(dtype, v.ndim)
    found = getattr(v, "type", None) or getattr(v, "_struct", None)
    return found if isinstance(found, Type) else None if isinstance(v, Type | type) else _known(type(v))


_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "array": (lambda t: isinstance(t, Array), "an array"),
    "composite": (lambda t: isinstance(t, Composite), "a vector, matrix, quaternion or transform"),
    "matrix": (lambda t: isinstance(t, Matrix), "a matrix"),
    "quaternion": (lambda t: isinstance(t, Quat), "a quaternion"),
    "scalar": (lambda t: isinstance(t, Scalar), "a number"),
    "struct": (lambda t: isinstance(t, Struct), "a struct"),
    "tile": (lambda t: isinstance(t, Tile), "a tile"),
    "transformation": (lambda t: isinstance(t, Transform), "a transform"),
    "value": (lambda t: isinstance(t, Scalar | Composite), "a number, vector, matrix, quaternion or transform"),
    "vector": (lambda t: isinstance(t, Vector), "a vector"),
}
for _kind, (_test, _what) in _KINDS.items():
    globals()[f"type_is_{_kind}"] = _asks(_test, _what, False)
    globals()[f"is_{_kind}"] = _asks(_test, _what, True)
type_is_float = _asks(lambda t: isinstance(t, Scalar) and t.kind == "f", "a float", False)
type_is_int = _asks(is_int, "a whole number", False)


def type_size(dtype: object) -> int:
    """The number of scalars in a value of this type."""
    return _known(dtype).size


def type_size_in_bytes(dtype: object) -> int:
    """The size of a value of this type in an array, in bytes."""
    t = _known(dtype)
    return t.numpy.itemsize if isinstance(t, Struct) else t.itemsize


def type_ctype(dtype: object) -> Any:
    """The type of `ctypes` for a number, `c_float` for float32; of a vector or matrix an array of that type.

    Raises TypeError for float16, which ctypes lacks, and for what is no number or vector.

    >>> wb.types.type_ctype(wb.int64)
    <class 'ctypes.c_long'>
    """
    t = _known(dtype)
    if not isinstance(t, Scalar | Composite) or t.scalar is float16:
        raise TypeError(f"ctypes has no type for {dtype}")
    number = np.ctypeslib.as_ctypes_type(t.numpy)
    return number if isinstance(t, Scalar) else number * t.size


def type_repr(t: object) -> str:
    """A type as Warp shows it: `vec3f`, `float32`, `array(ndim=1, dtype=vec3f)`."""
    known = _known(t) or t
    if isinstance(known, Array):
        return f"array(ndim={known.ndim}, dtype={type_repr(known.dtype)})"
    return known.__name__ if isinstance(known, Composite) and "(" not in str(known) else str(known)


def types_equal(a: object, b: object, match_generic: bool = False) -> bool:
    """True for two names of one type."""
    return (_known(a) or a) == (_known(b) or b)
