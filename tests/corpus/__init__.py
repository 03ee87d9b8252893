"""Small programs of the kernel language as data: kernels for one float type, and the contents of the arrays they use.

`@program(x=floats(4), y=zeros(4))` registers a factory. Called with a float type F, the factory gives a kernel (which
is launched over `dim` with all arrays in order), or a function of the arrays that launches what it likes.
Every float element of every array is an input (its contents before) and an output (its contents after), so a test
needs no list of either. Contents are multiples of 1/256 with few digits: the same numbers in every float type.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

import workbench as wb

MODULES = (
    "arithmetic",
    "branches",
    "loops",
    "memories",
    "composites",
    "geometry",
    "fields",
    "funcs",
    "overloads",
    "scattered",
    "types",
    "combined",
    "corners",
    "names",
    "words",
    "slices",
    "chosen",
)
BOTH = (wb.float32, wb.float64)
ALL = (wb.float16, wb.float32, wb.float64)


@dataclass(frozen=True)
class Contents:
    """What an array holds before the program runs. `of` makes the element type from F; None is F itself."""

    shape: tuple[int, ...]
    of: Any = None
    low: float = 0.0
    high: float = 0.0
    values: Any = None

    def element(self, F: Any) -> Any:
        return F if self.of is None else self.of if isinstance(self.of, wb.types.Type) else self.of(F)

    def numpy(self, name: str) -> np.ndarray:
        """The numbers, components as last axes; floats in float64."""
        element = self.element(wb.float64)
        shape = (*self.shape, *element.shape)
        if self.values is not None:
            return np.array(self.values, element.numpy).reshape(shape)
        if self.low == self.high:
            return np.full(shape, self.low, element.numpy)
        grid = np.arange(round(self.low * 256) + 1, round(self.high * 256), dtype=np.float64) / 256
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        return rng.choice(grid, int(np.prod(shape)), replace=False).reshape(shape).astype(element.numpy)


def floats(*shape: int, low: float = 0.5, high: float = 2.0, of: Any = None, values: Any = None) -> Contents:
    return Contents(shape, of, low, high, values)


def zeros(*shape: int, of: Any = None) -> Contents:
    return Contents(shape, of)


def given(*values: Any, of: Any = None) -> Contents:
    """Exactly these elements."""
    array = np.array(values)
    depth = 0 if of is None else np.ndim(np.zeros((of if isinstance(of, wb.types.Type) else of(wb.float64)).shape))
    return Contents(array.shape[: array.ndim - depth], of, values=array)


def ints(*values: Any) -> Contents:
    return given(*values, of=wb.int32)


def vec2(F: Any) -> Any:
    return wb.types.vector(2, F)


def vec3(F: Any) -> Any:
    return wb.types.vector(3, F)


def vec4(F: Any) -> Any:
    return wb.types.vector(4, F)


def mat22(F: Any) -> Any:
    return wb.types.matrix((2, 2), F)


def mat33(F: Any) -> Any:
    return wb.types.matrix((3, 3), F)


def mat44(F: Any) -> Any:
    return wb.types.matrix((4, 4), F)


def quat(F: Any) -> Any:
    return wb.types.quaternion(F)


@dataclass(eq=False)
class Program:
    """A factory with its arrays. `reference`, where given, computes the contents after from those before in NumPy.

    `loose` widens the tolerance between backends, for functions whose last bits differ between math libraries.
    """

    name: str
    make: Callable[[Any], Any]
    contents: dict[str, Contents]
    dim: Any
    dtypes: tuple[Any, ...]
    reference: Callable[..., dict[str, Any]] | None
    loose: float
    made: dict[Any, Any]

    def __repr__(self) -> str:
        return self.name

    def start(self) -> dict[str, np.ndarray]:
        return {name: c.numpy(f"{self.name}.{name}") for name, c in self.contents.items()}

    def arrays(self, F: Any, values: dict[str, np.ndarray], only: str | None = None) -> dict[str, wb.array]:
        """The arrays holding `values`; all float ones require a gradient, or `only` one."""
        out = {}
        for name, c in self.contents.items():
            element = c.element(F)
            grad = wb.types.is_float(element) and only in (None, name)
            out[name] = wb.array(values[name].astype(element.numpy), dtype=element, requires_grad=grad)
        return out

    def run(self, F: Any, arrays: dict[str, wb.array]) -> None:
        """Launch the program on `arrays`."""
        if F not in self.made:
            self.made[F] = self.make(F)
        made = self.made[F]
        if isinstance(made, wb.Kernel):
            wb.launch(made, dim=self.dim, inputs=list(arrays.values()))
        else:
            made(SimpleNamespace(**arrays))


PROGRAMS: dict[str, Program] = {}


def program(
    dim: Any = None, dtypes: tuple[Any, ...] = BOTH, reference: Any = None, loose: float = 1.0, **contents: Contents
) -> Callable:
    """Register a factory. `dim` is by default the extent of the first array."""

    def register(make: Callable) -> Callable:
        name = make.__name__
        assert name not in PROGRAMS, f"two programs named {name}"
        grid = dim if dim is not None else next(iter(contents.values())).shape[0]
        PROGRAMS[name] = Program(name, make, contents, grid, dtypes, reference, loose, {})
        return make

    return register


def load() -> dict[str, Program]:
    """All programs by name."""
    for module in MODULES:
        importlib.import_module(f"{__name__}.{module}")
    return PROGRAMS
