"""`jax_kernel` and `jax_callable`: kernels, and Python functions that launch kernels, as functions of JAX.

The one idea: a call of JAX is one call of a Python function on arrays, some of which are inputs, some are inputs that
it changes, and the last are outputs. A derivative calls that function again under a tape. What it changes is a copy
made on that tape, so that the gradient by the contents before is that of the copy's source.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer

from ..arrays.array import array
from ..arrays.creation import copy, zeros
from ..device import ScopedDevice
from ..errors import LaunchError, Where
from ..kernels.program import Kernel
from ..kernels.reading.declare import parameters, resolve
from ..kernels.types import Array, Struct, Type
from ..launches.launch import launch
from ..launches.plan import grid
from .jax import argument, check_width, leaf, spec
from .jax_primitives import HostCall, called
from .pure_calls import Dims, Extent

OutputDims = Extent | dict[str, Extent] | None  # one shape for all outputs, or one for each by its name


class Form(NamedTuple):
    """The static part of a call, all but the contents of arrays: JAX compiles once for each."""

    grid: Dims | None  # of a kernel
    outputs: tuple[Dims, ...]  # shapes of the pure outputs, without component axes
    static: tuple[tuple[int, Any], ...]  # numbers of a Python function, by the place of their parameter


class JaxCall:
    """A function on arrays that JAX can call, jit and differentiate. Made by `jax_kernel` and `jax_callable`."""

    def __init__(self, what: str, fn: Any, num_outputs: int, in_out: Sequence[str], output_dims: OutputDims):
        self.what, self.fn, self.output_dims = f"{what} of {fn.__name__!r}", fn, output_dims
        self.__name__, self.__doc__ = fn.__name__, fn.__doc__
        self.num_outputs, self.in_out = num_outputs, tuple(in_out)
        self._params: list[tuple[str, Type]] | None = None

    def __repr__(self) -> str:
        return f"<{self.what} for JAX>"

    # ---- what kernels and functions differ in

    where: Where | None = None

    def _read(self) -> list[tuple[str, Type]]:
        raise NotImplementedError

    def _run(self, form: Form, arguments: list[Any]) -> None:
        raise NotImplementedError

    # ---- parameters and shapes

    def _refuse(self, text: str, instead: str = "", why: str = "") -> LaunchError:
        return LaunchError(f"{self.what}: {text}", slug="function", where=self.where, why=why, instead=instead)

    @property
    def params(self) -> list[tuple[str, Type]]:
        """The (name, type) of each parameter, checked once. Raises LaunchError [function]."""
        if self._params is None:
            self._params = self._checked(self._read())
        return self._params

    def _checked(self, params: list[tuple[str, Type]]) -> list[tuple[str, Type]]:
        pure = self.num_outputs - len(self.in_out)
        names = [name for name, _ in params]
        inputs = names[: len(names) - pure] if pure >= 0 else []
        if self.num_outputs < 1 or pure < 0 or pure > len(names) or any(n not in inputs for n in self.in_out):
            raise self._refuse(
                f"{self.num_outputs} outputs, {list(self.in_out)} changed in place, of ({', '.join(names)}).",
                "num_outputs=1",
                "The last parameters are the outputs; in_out_argnames come before, and count.",
            )
        for k, (name, type) in enumerate(params):
            written = k >= len(inputs) or name in self.in_out
            plain = not isinstance(type.dtype if isinstance(type, Array) else type, Struct)
            if not (plain and isinstance(type, Type)) or (written and not isinstance(type, Array)):
                raise self._refuse(f"{name!r} is {type}.", "an array of numbers, vectors or matrices, or a number")
        return params

    @property
    def split(self) -> int:
        """The number of inputs, those changed in place included: later parameters are pure outputs."""
        return len(self.params) - self.num_outputs + len(self.in_out)

    def _outer(self, args: Sequence[Any]) -> Dims:
        """The shape of the first array argument, without components. Raises LaunchError if there is none."""
        for (_, type), arg in zip(self.params, args, strict=False):
            if isinstance(type, Array):
                return tuple(np.shape(arg))[: type.ndim]
        raise self._refuse("no array is given that would say the shape.", "launch_dims=n, output_dims=n")

    def _shapes(self, output_dims: OutputDims, default: Callable[[], Dims]) -> tuple[Dims, ...]:
        found = []
        for name, type in self.params[self.split :]:
            dims = output_dims.get(name) if isinstance(output_dims, dict) else output_dims
            if dims is None and isinstance(output_dims, dict):
                raise self._refuse(f"output_dims says nothing about {name!r}.", f'output_dims={{"{name}": n}}')
            dims = default() if dims is None else (dims,) if isinstance(dims, int | np.integer) else tuple(dims)
            assert isinstance(type, Array)
            inner = getattr(type.dtype, "shape", ())
            outer = dims[: type.ndim]
            if len(outer) != type.ndim or dims[type.ndim :] not in ((), inner):
                raise self._refuse(f"the output {name!r} is {type}, its shape would be {dims}.", "output_dims={...}")
            check_width(type.dtype)
            found.append(tuple(int(n) for n in outer))
        return tuple(found)

    # ---- what JAX traces

    def _call(self, args: Sequence[jax.Array], form: Form) -> Any:
        """The outputs: one alone, or a list of the inputs changed in place, then the pure outputs."""
        changed = [args[self._arrays().index(k)] for k in self._changed()]
        specs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in changed]
        specs += [spec(type, s) for (_, type), s in zip(self.params[self.split :], form.outputs, strict=True)]
        made = called(HostCall(self, form, specs), args)
        return made[0] if len(made) == 1 else list(made)

    def _arrays(self) -> list[int]:
        """The positions of the arguments that JAX sees: all inputs but static numbers."""
        return list(range(self.split))

    def _changed(self) -> list[int]:
        """The positions of the inputs that are outputs too."""
        return [k for k, (name, _) in enumerate(self.params) if name in self.in_out]

    def evaluate(self, form: Form, values: Sequence[object], wanted: frozenset[int]) -> tuple[list[Any], list[array]]:
        """Run the function on these values. Returns (the leaves that get their gradients, the outputs)."""
        with ScopedDevice("cpu"):
            seen = zip(self._arrays(), values, strict=True)
            leaves = [leaf(self.params[k][1], value, at in wanted) for at, (k, value) in enumerate(seen)]
            given: dict[int, Any] = dict(form.static) | dict(zip(self._arrays(), leaves, strict=True))
            for k in self._changed():
                source, given[k] = given[k], zeros(given[k].shape, given[k].dtype)
                copy(given[k], source)
            rest = zip(self.params[self.split :], form.outputs, strict=True)
            made = [zeros(shape, type.dtype) for (_, type), shape in rest if isinstance(type, Array)]
            self._run(form, [*(given[k] for k in range(self.split)), *made])
        return leaves, [*(given[k] for k in self._changed()), *made]


class KernelCall(JaxCall):
    """A kernel as a function of JAX. Made by `jax_kernel`."""

    def __init__(
        self,
        kernel: Kernel,
        num_outputs: int,
        in_out: Sequence[str],
        output_dims: OutputDims,
        launch_dims: Extent | None,
    ):
        super().__init__("jax_kernel", kernel, num_outputs, in_out, output_dims)
        self.launch_dims = launch_dims

    def _read(self) -> list[tuple[str, Type]]:
        program = self.fn.program()
        self.where = program.function.where
        return list(program.params)

    def _run(self, form: Form, arguments: list[Any]) -> None:
        assert form.grid is not None
        launch(self.fn, form.grid, arguments, device="cpu")

    def __call__(
        self, *args: Any, output_dims: OutputDims = None, launch_dims: Extent | None = None, vmap_method: object = None
    ) -> Any:
        """The outputs for these inputs. Raises LaunchError [function], [dtype] for what does not fit."""
        _check_count(self, args)
        program = self.fn.program()
        given = tuple(argument(self.what, self.where, p, a) for p, a in zip(self.params, args, strict=False))
        launch_dims = self.launch_dims if launch_dims is None else launch_dims
        dims = self._outer(given) if launch_dims is None else grid(program.name, launch_dims)
        shapes = self._shapes(self.output_dims if output_dims is None else output_dims, lambda: dims)
        return self._call(given, Form(dims, shapes, ()))


class FunctionCall(JaxCall):
    """A Python function that launches kernels, as a function of JAX. Made by `jax_callable`."""

    def _read(self) -> list[tuple[str, Type]]:
        code = self.fn.__code__
        self.where = Where(code.co_filename, code.co_firstlineno, 0)
        resolve(self.fn, {})
        types = parameters(self.fn)
        return list(zip(inspect.signature(self.fn).parameters, types, strict=True))

    def _run(self, form: Form, arguments: list[Any]) -> None:
        self.fn(*arguments)

    def _arrays(self) -> list[int]:
        return [k for k in range(self.split) if isinstance(self.params[k][1], Array)]

    def __call__(self, *args: Any, output_dims: OutputDims = None, vmap_method: object = None) -> Any:
        """The outputs for these inputs. Raises LaunchError [function], [dtype] for what does not fit."""
        _check_count(self, args)
        arrays = self._arrays()
        static = []
        for k, (name, _) in enumerate(self.params[: self.split]):
            if k not in arrays:
                if isinstance(args[k], Tracer):
                    raise self._refuse(
                        f"the number {name!r} is traced.",
                        "static_argnames of jax.jit, or an array of one element",
                        "The function is called with numbers of Python, which have no gradient.",
                    )
                static.append((k, args[k].item() if hasattr(args[k], "item") else args[k]))
        given = tuple(argument(self.what, self.where, self.params[k], args[k]) for k in arrays)
        shapes = self._shapes(self.output_dims if output_dims is None else output_dims, lambda: self._outer(args))
        return self._call(given, Form(None, shapes, tuple(static)))


def _check_count(call: JaxCall, args: tuple) -> None:
    names = [name for name, _ in call.params]
    if len(args) != call.split:
        wanted = ", ".join(names[: call.split])
        raise call._refuse(f"{len(args)} arguments for its inputs ({wanted}).", why="The other parameters are outputs.")


def check_side_effects(what: str, has_side_effect: bool) -> None:
    """Raises LaunchError [launch-keyword] for has_side_effect=True: JAX may call a function any number of times."""
    if has_side_effect:
        text = f"{what}(..., has_side_effect=True)."
        why = "The reverse pass calls it again, so its effects would come twice."
        raise LaunchError(text, slug="launch-keyword", why=why, instead="what it changes, as an output")
