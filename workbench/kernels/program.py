"""A kernel: the user's function, and the programs read from it.

`Kernel` is what the decorator returns. `Program` is one reading of it, fixed for ever: its IR, its adjoints and their
compiled forms. When a func or constant that the kernel uses is redefined, the next launch reads a new program; events
on a tape keep the one they ran.
"""

from __future__ import annotations

import ast
import inspect
import operator
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..config import config
from ..display import offers
from ..errors import KernelError, LaunchError
from . import show
from .analysis import launch_ranges
from .analysis.accesses import relevant_scalars
from .analysis.launch_form import Groups
from .analysis.motion import moving_numbers
from .compile import c_library
from .emit import c as emit_c
from .emit.c_names import c_name
from .emit.signature import Variant, to_check
from .ir import Function, numeric, root, type_as, used, walk
from .lru import RecentlyUsed
from .modules import Module, get_module, result
from .ops import control
from .parameter_types import IndexedArray
from .passes import batch, gradients, simplify
from .passes.adjoint import Reverse, adjoint
from .passes.named import kept_passes
from .reading import refused_syntax
from .reading.declare import parameters, resolve, type_from
from .reading.lookups import Lookups
from .reading.optional_arrays import NONE, MissingArrays, certain
from .reading.reader import Reading, read
from .reading.source import Source, source
from .recursion import recursive
from .types import Array, Composite, Handle, Itself, Scalar, Struct, Type, covers, is_float, is_open

MOST_PLANS = 3000  # of one program, 2 to 6 kB each: every number that an index uses has a plan, made or moved

if TYPE_CHECKING:
    from concurrent.futures import Future

    from .compile.cubin import Resources


@dataclass(frozen=True)
class Leaf:
    """One flat parameter: where in the user's arguments it comes from."""

    name: str
    type: Type
    arg: int  # -1: of none
    path: tuple[str, ...]  # fields to follow from the argument
    structs: int | None = None  # how many of them lead to an array of structs; the others are of its elements
    opened: Handle | None = None  # the last of `path` is a field (`a.b`) of the object whose number the others lead to

    @property
    def array(self) -> str:
        """The path of the array that this is, or is a field of the elements of."""
        return self.name if self.structs is None else ".".join([self.name.split(".")[0], *self.path[: self.structs]])


def leaves(name: str, type: Type, arg: int, path: tuple[str, ...] = ()) -> list[Leaf]:
    """The flat parameters of one user parameter, in the order of the IR's parameters."""
    if isinstance(type, Struct):
        return [leaf for f, t in type.fields for leaf in leaves(type.path(name, f), t, arg, (*path, f))]
    if isinstance(type, Array) and isinstance(type.dtype, Struct):
        inner = leaves(name, type.dtype, arg)
        return [Leaf(x.name, Array(x.type, type.ndim), arg, path + x.path, len(path)) for x in inner]
    return [Leaf(name, type, arg, path)]


@dataclass(eq=False)
class Program:
    """One reading of a kernel, and everything derived from it."""

    name: str
    function: Function
    params: tuple[tuple[str, Type], ...]
    leaves: tuple[Leaf, ...]
    enable_backward: bool = True
    reverses: dict[tuple[frozenset[str], Groups], Reverse] = field(init=False, default_factory=dict)
    compiled: dict[tuple, Any] = field(init=False, default_factory=dict)
    made: dict[tuple, Any] = field(init=False, default_factory=dict)
    coming: dict[tuple, Future] = field(init=False, default_factory=dict)  # what is being compiled
    plans: RecentlyUsed = field(init=False, default_factory=lambda: RecentlyUsed(MOST_PLANS))
    presence_tests: tuple[int, ...] = ()  # positions of arrays used as conditions: it holds for ones with elements
    kernel: Kernel | None = None  # whose reading it is; None for a function mapped over arrays
    lookups: Lookups = field(default_factory=Lookups)  # what it took from Python

    def reverse(self, active: frozenset[str], groups: Groups = ()) -> Reverse:
        """The adjoint for these active parameters. Raises KernelError where there is none."""
        key = active, groups
        if key not in self.reverses:
            self.reverses[key] = recursive(adjoint)(self.function, active, groups)
        return self.reverses[key]

    def with_function(self, function: Function) -> Program:
        """The same reading, with another function that does what its own does."""
        return replace(self, function=function)

    def batched(self, names: frozenset[str]) -> Program:
        """The program, not a reading of its kernel, over a grid of one axis more, as have the arrays in `names`."""
        function = batch.batched(self.function, names)
        pairs = zip(self.leaves, function.params, strict=True)
        return replace(self, function=function, leaves=tuple(replace(f, type=p.type) for f, p in pairs), kernel=None)

    @property
    def floats(self) -> frozenset[str]:
        """The array parameters that can have a gradient."""
        return frozenset(p.name for p in self.function.arrays if is_float(p.type))

    @cached_property
    def array_positions(self) -> tuple[int, ...]:
        """Positions of the arrays among the flat parameters."""
        return tuple(k for k, leaf in enumerate(self.leaves) if isinstance(leaf.type, Array))

    @cached_property
    def index_positions(self) -> tuple[int, ...]:
        """Positions of the numbers that indices use: a plan holds for their values only."""
        wanted = set(relevant_scalars(self.function))
        return tuple(k for k, leaf in enumerate(self.leaves) if leaf.name in wanted)

    @cached_property
    def moving_positions(self) -> frozenset[int]:
        """Those of `index_positions` whose numbers do nothing but move what a launch touches."""
        moving = moving_numbers(self.function)
        return frozenset(k for k in self.index_positions if self.leaves[k].name in moving)

    @cached_property
    def sources(self) -> tuple[tuple[Leaf, Callable[[Any], Any] | None, str], ...]:
        """Per flat parameter: the leaf, what takes it out of a struct, and its kind: one of "array", "f", "i", "small".

        The kind is "" where it takes more to find it, and the getter None where it is the argument itself.
        """
        found = []
        for leaf in self.leaves:
            type = leaf.type
            kind = "array" if type.__class__ is Array else "small" if isinstance(type, Composite) else ""
            if isinstance(type, Scalar):
                kind = {"f": "f", "i": "i", "u": "i"}.get(type.kind, "")
            own = leaf.opened is None and leaf.structs is None
            own = own and not isinstance(self.params[leaf.arg][1], IndexedArray)
            getter = operator.attrgetter(".".join(leaf.path)) if own and leaf.path else None
            found.append((leaf, getter, kind if own else ""))
        return tuple(found)

    @cached_property
    def constants(self) -> frozenset[float]:
        """The floats that it took from Python."""
        return frozenset(float(x) for x in self.lookups.values() if isinstance(x, float | np.floating))

    @cached_property
    def structless(self) -> bool:
        """True if the user's arguments are the flat ones."""
        return all(leaf.arg == k and not leaf.path for k, leaf in enumerate(self.leaves))

    @cached_property
    def handles(self) -> tuple[tuple[int, int, Handle, str], ...]:
        """(position of the id or -1 for all objects, position of the field, Handle, field name) per opened leaf."""
        places = {(leaf.arg, leaf.path): k for k, leaf in enumerate(self.leaves) if leaf.opened is None}
        opened = [(k, leaf, leaf.opened) for k, leaf in enumerate(self.leaves) if leaf.opened is not None]
        return tuple((places.get((leaf.arg, leaf.path[:-1]), -1), k, of, leaf.path[-1]) for k, leaf, of in opened)

    @cached_property
    def chooses(self) -> bool:
        """True if it chooses meshes, trees or grids by numbers from arrays: from all that live."""
        return any(handle.every for _, _, handle, _ in self.handles)

    @cached_property
    def takes_numbers(self) -> bool:
        """True if any flat parameter is not an array."""
        return len(self.array_positions) < len(self.leaves)

    @cached_property
    def asks_thread(self) -> bool:
        """True if the kernel asks which thread it is."""
        return any(s.row is control.TID for s in walk(self.function.body))

    def once(self, make: Callable[..., Any], *args: object) -> Any:
        """make(*args), the same object for the same arguments: what is compiled for one launch serves the next."""
        key = make, args
        if key not in self.made:
            self.made[key] = make(*args)
        return self.made[key]

    def prepare(self, function: Function, backend: str, variant: Variant, hurry: bool = False) -> Any:
        """Start to compile the primal or one of its adjoints, where that can go on beside other work.

        Returns the `Future` of it; None if there is nothing to wait for. `hurry`: not optimised will do.
        """
        key = function, backend, variant, hurry
        if key in self.coming and c_library.lost(self.coming[key]):
            del self.coming[key]
        if backend == "c" and key not in self.compiled and key not in self.coming:
            begun = c_library.begin(recursive(emit_c.text)(function, variant), c_name(function.name), hurry)
            if isinstance(begun, c_library.Compiled):
                self.compiled[key] = begun
            else:
                self.coming[key] = begun
        return self.coming.get(key)

    def executable(
        self,
        function: Function,
        backend: str,
        variant: Variant,
        wait: Callable[[Future], Any] = result,
        hurry: bool = False,
    ) -> Any:
        """The compiled form of the primal or of one of its adjoints; `hurry`: not optimised will do."""
        key = function, backend, variant, hurry
        if key not in self.compiled:
            if self.prepare(*key) is not None:
                self.compiled[key] = wait(self.coming.pop(key))
            elif backend != "c":
                self.compiled[key] = on_gpu(function, variant)
        return self.compiled[key]

    def ahead(self) -> list[tuple[Function, Variant]]:
        """Start to compile what first launches ask for on a CPU, and their adjoint by all arrays of floats.

        For small grids, and contiguous arrays of fewer than 2**31 elements that do not overlap. Without the adjoint
        where there is none: a backward says so.
        """
        functions = [self.function]
        if self.enable_backward and self.floats:
            with suppress(KernelError):
                functions.append(self.reverse(self.floats).function)
        found = []
        for function in functions:
            names = frozenset(p.name for p in function.arrays)
            tested = config.check_bounds is True and function is self.function
            checked = to_check(function, launch_ranges.inside(function, None)) if tested else frozenset()
            variant = Variant(contiguous=names, restrict=True, checked=checked, index32=True)
            self.prepare(function, "c", variant)
            found.append((function, variant))
        return found


def on_gpu(function: Function, variant: Variant) -> Any:
    """A function compiled for the current GPU, in the words that the addresses of each launch allow."""
    from .compile import nvrtc
    from .emit import cuda as emit_cuda

    name, wide = c_name(function.name), emit_cuda.wide_pointers(function, variant)
    if wide:
        return nvrtc.Fitting(lambda aligned: emit_cuda.text(function, replace(variant, aligned=aligned)), name, wide)
    return nvrtc.load(emit_cuda.text(function, variant), name)


def program(reading: Reading, name: str, enable_backward: bool = True) -> Program:
    """The program of a reading. Raises KernelError, LaunchError [array-left-out]."""
    function = simplify.primal(gradients.expanded(reading.function))
    if (missing := certain(function)) is not None:
        claim = missing.attr
        text = f"Kernel {name!r}: {claim.text}"
        raise LaunchError(text, slug=claim.slug, where=missing.where, why=claim.why, instead=claim.instead)
    every = [leaf for k, (n, t) in enumerate(reading.params) for leaf in leaves(n, t, k)]
    flat = [leaf for leaf in every if not (isinstance(leaf.type, Array) and leaf.array in reading.gaps.absent)]
    read = {root(v) for v in used(function.body)}
    function.body.params = [p for p in function.params if p.name not in reading.behind or p in read]
    ids = {leaf.name: leaf for leaf in flat}
    for p in function.params[len(flat) :]:
        id, handle, field = reading.behind[p.name]
        at = ids.get(id)  # None for those of all objects, which no argument names
        flat.append(Leaf(p.name, p.type, at.arg if at else -1, (*(at.path if at else ()), field), None, handle))
    asked = tuple(k for k, leaf in enumerate(flat) if leaf.name in reading.presence_tests)
    return Program(name, function, tuple(reading.params), tuple(flat), enable_backward, asked, lookups=reading.lookups)


@offers("adjoint c cuda enable_backward func ir key module overload resources source steps types")
class Kernel(Itself):
    """A function over a launch grid. Launch it with `launch(kernel, dim, inputs, outputs)`.

    `source`, `ir`, `adjoint`, `c`, `cuda`, `steps` show every stage of it; they print in a terminal and in a notebook.
    `resources` tells what it takes on a GPU.

    >>> @wb.kernel
    ... def scale(a: float, x: wb.array[float]):
    ...     i = wb.tid()
    ...     x[i] = a * x[i]
    >>> print(scale.ir)
    kernel scale(a: float32, x: array(dtype=float32)):
        # 3: i = wb.tid()
        i: int32 = tid(0)
        # 4: x[i] = a * x[i]
        v0: float32 = x[i]
        v1: float32 = a * v0
        x[i] = v1
    <BLANKLINE>
    """

    def __init__(
        self,
        func: Callable,
        key: str | None = None,
        enable_backward: bool | None = None,
        types: dict[str, Type] | None = None,
        gaps: MissingArrays = NONE,
        *,
        module: object = None,
        options: dict[str, Any] | None = None,
    ):
        self.func = func
        self.types, self.gaps = types or {}, gaps
        self.reads_presence = False  # has a launch left out an array, or does it use one as a condition
        self.key = key or func.__qualname__.replace("<locals>.", "")
        self.module = module if isinstance(module, Module) else get_module(func.__module__ or "__main__")
        self.enable_backward = enable_backward is not False and (options or {}).get("enable_backward") is not False
        self.__name__, self.__doc__ = func.__name__, func.__doc__
        self._reading: Reading | None = None
        self._program: Program | None = None
        self.launches: Any = None  # what is remembered of its launches, by whoever launches it; False: nothing is
        self._overloads: dict[tuple, Kernel] = {}
        if not self.types and gaps == NONE:
            self.module.kernels[id(self)] = self
        self._unread: Source | None = recursive(refused_syntax.check)(func)
        resolve(func, {})
        self.generic = {name: t for name, t in generic_parameters(func).items() if name not in self.types}

    def __repr__(self) -> str:
        return f"<kernel {self.key}>"

    def __call__(self, *args, **kwargs):
        raise TypeError(f"a kernel is launched, not called: wb.launch({self.__name__}, dim=n, inputs=[...])")

    def reads(self, program: Program) -> bool:
        """True if `program` is the present reading."""
        return program is self._program and self._reading.lookups.current()  # type: ignore[union-attr]

    def program(self) -> Program:
        """The present reading. Raises KernelError."""
        if self.generic:
            named, text = ", ".join(f"{name!r}: ..." for name in self.generic), source(self.func)
            raise KernelError(
                f"kernel {self.key!r} takes any type as {' and '.join(map(repr, self.generic))}.",
                slug="generic",
                where=text.where(text.tree),
                why="It is read for the types of each launch.",
                instead=f"overload({self.__name__}, {{{named}}})",
            )
        if self._program is not None and self._reading is not None and self._reading.lookups.current():
            return self._program
        reading = self._read()
        self._program = recursive(program)(reading, self.__name__, self.enable_backward)
        self._program.kernel = self
        self._reading, self._unread = replace(reading, function=self._program.function), None  # the tidied one alone
        return self._program

    @recursive
    def _read(self) -> Reading:
        try:
            return read(self.func, name=self.__name__, generic_types=self.types, gaps=self.gaps)
        except KernelError as error:
            raise error.with_traceback(None) from error.__cause__  # it names the user's line: our frames hide that

    def overload(self, types: dict[str, Type]) -> Kernel:
        """This kernel for these types of its generic parameters: an ordinary kernel, the same one at every asking."""
        key = tuple(types.items())
        odd = types.keys() - self.generic.keys()
        if odd:
            text = f"kernel {self.key!r} takes no type for {min(odd)!r}."
            instead = f"types for {', '.join(self.generic) or 'none: it is not generic'}"
            raise KernelError(text, slug="generic", instead=instead)
        return self._form(key, self.types | types, NONE)

    def without(self, gaps: MissingArrays) -> Kernel:
        """This kernel for launches that leave out some arrays, the same one at every asking."""
        return self if gaps == self.gaps else self._form(gaps, self.types, gaps)

    def _form(self, key: tuple, types: dict[str, Type], gaps: MissingArrays) -> Kernel:
        if key not in self._overloads:
            self._overloads[key] = Kernel(self.func, self.key, self.enable_backward, types, gaps)
        return self._overloads[key]

    def ahead(self) -> list[tuple[Program, Function, Variant]]:
        """Start to compile it for a CPU, and what it was overloaded to. Raises KernelError."""
        kernels = [k for k in self._overloads.values() if k.gaps == NONE] if self.generic else [self]
        programs = [kernel.program() for kernel in kernels]
        return [(program, *begun) for program in programs for begun in program.ahead()]

    # ---- every stage, to look at

    def _reverse(self) -> Reverse:
        program = self.program()
        return program.reverse(program.floats)

    @property
    def source(self) -> show.Listing:
        """The user's text."""
        return show.Listing(self.program().function.source)

    @property
    def ir(self) -> show.Listing:
        """The IR of the kernel as it was read: typed, structured SSA."""
        return show.Listing(recursive(show.text)(self.program().function))

    @property
    def adjoint(self) -> show.SideBySide:
        """The adjoint program, beside the user's lines: primal statement, replayed or recorded values, adjoint.

        Below it, in words: what is computed again, what is recorded, what is read again, and why. A `*` or `/` whose
        left operand is an adjoint passes an adjoint of exactly 0 as 0, whatever the other operand is: `k.c` says so.
        """
        rows = recursive(show.beside)(self.program().function, self._reverse().function)
        rows.notes = self._reverse().notes
        return rows

    @property
    def c(self) -> show.Listing:
        """The C text of the kernel and its adjoint, for contiguous arrays that do not overlap."""
        return show.Listing("\n\n".join(self._texts(gpu=False)))

    @property
    def cuda(self) -> show.Listing:
        """The CUDA text of the kernel and its adjoint, for contiguous arrays that do not overlap.

        Fewer than 2**31 threads, and elements of each array, are taken for granted.
        """
        return show.Listing("\n\n".join(self._texts(gpu=True)))

    @property
    def resources(self) -> dict[str, Resources]:
        """Resource usage per thread of the kernel and its adjoint on a GPU: registers, bytes of local memory.

        For the GPU that is here, else for an H100; of the texts that `cuda` shows. Needs NVRTC, but no GPU.
        Raises CompileError [no-nvrtc].
        """
        from .compile import nvrtc

        arch = nvrtc.current_architecture()
        return {n: r for text in self._texts(gpu=True) for n, r in nvrtc.resources(text, arch).items()}

    def _texts(self, gpu: bool) -> list[str]:
        from .emit import cuda as emit_cuda

        texts, emit = [], emit_cuda.text if gpu else emit_c.text
        for function in (self.program().function, self._reverse().function):
            names = frozenset(p.name for p in function.arrays)
            atomic = frozenset(p.name for p in function.arrays if numeric(type_as(p, Array).dtype).scalar.bits > 8)
            variant = Variant(
                contiguous=names, restrict=True, atomic=atomic if gpu else frozenset(), index32=gpu, aligned=True
            )
            texts.append(recursive(emit)(function, variant))
        return texts

    @property
    def steps(self) -> list[tuple[str, show.Listing]]:
        """Every stage by name, first to last: what was read, what each pass changed, and the texts."""
        self.program()  # raises what there is to raise
        with kept_passes() as made:
            reading = self._read()
            made += [("source", str(self.source)), ("read", show.text(reading.function))]
            again = program(reading, self.__name__)
            made.append(("ir", str(self.ir)))
            again.reverse(again.floats)
            made.append(("adjoint", str(self.adjoint)))
            made.append(("c", str(self.c)))
            made.append(("cuda", str(self.cuda)))
        return [(name, show.Listing(text)) for name, text in made if name != "simplify"]


def overload(kernel: Kernel, arg_types: dict[str, Any] | Sequence[Any] | None = None) -> Any:
    """A generic kernel for these types of its parameters: `overload(k, {"x": array(dtype=vec3)}).ir`.

    `arg_types` by name, or one for each parameter of the kernel. Launches find it by themselves, so this is for what
    can be said beforehand. As a decorator, of a function without body with the kernel's name and parameters, it gives
    the kernel. Raises KernelError [generic] for types that the kernel does not leave open, and for parameters left out.

    >>> from typing import Any
    >>> @wb.kernel
    ... def twice(x: wb.array(dtype=Any)):
    ...     i = wb.tid()
    ...     x[i] = x[i] + x[i]
    >>> wb.overload(twice, {"x": wb.array(dtype=wb.vec3)})
    <kernel twice>
    """
    if not isinstance(kernel, Kernel):
        return _overloaded(kernel, sys._getframe(1).f_locals)
    code = kernel.func.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if not isinstance(arg_types, dict):
        given = () if arg_types is None else tuple(arg_types)
        if len(given) != len(names):
            raise _no_overload(kernel, f"has {len(names)} parameters, not {len(given)}", ", ".join(names))
        arg_types = dict(zip(names, given, strict=True))
    return kernel.overload(_closed(kernel, {name: type_from(t) for name, t in arg_types.items()}))


def _closed(kernel: Kernel, types: dict[str, Type]) -> dict[str, Type]:
    """The types of the open parameters alone. Raises KernelError for those that do not fit."""
    declared = parameters(kernel.func)
    wanted = dict(zip(inspect.signature(kernel.func).parameters, declared, strict=True)) | kernel.generic
    for name, type in types.items():
        if name not in wanted:
            raise _no_overload(kernel, f"takes no type for {name!r}", ", ".join(wanted))
        if is_open(type) or not covers(wanted[name], type):
            text = f"takes {wanted[name]} as {name!r}, not {type}"
            raise _no_overload(kernel, text, "a type that the parameter stands for")
    return {name: types[name] for name in kernel.generic if name in types}


def _no_overload(kernel: Kernel, what: str, instead: str) -> KernelError:
    text = source(kernel.func)
    return KernelError(f"kernel {kernel.key!r} {what}", slug="generic", where=text.where(text.tree), instead=instead)


def _overloaded(fn: Callable, around: dict[str, Any]) -> Kernel:
    """The kernel that has the name of a decorated function, after its overload for the types of that one."""
    found = around.get(fn.__name__) or getattr(fn, "__globals__", {}).get(fn.__name__)
    if not isinstance(found, Kernel):
        raise TypeError(f"overload takes a kernel, or decorates a function with the name of one, not {fn!r}")
    text = source(fn)
    for stmt in text.tree.body:
        if not (isinstance(stmt, ast.Pass) or (isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant))):
            raise KernelError(
                f"an overload of kernel {found.key!r} has a body of its own",
                slug="generic",
                where=text.where(stmt),
                why="It says types; the statements are those of the kernel.",
                instead="...",
            )
    resolve(fn, around)
    overload(found, list(parameters(fn)))
    return found


def generic_parameters(func: Callable) -> dict[str, Any]:
    """The parameters whose type the launch decides, and what is open of it: `Any`, `Float`, an Array of one ..."""
    return {name: raw for name, raw in func.__annotations__.items() if name != "return" and is_open(raw)}


# Options of Warp's kernels beside `enable_backward`; all but `name` and `module` change nothing here.
KERNEL_OPTIONS = frozenset(
    "name module launch_bounds cuda_max_registers enable_cuda_smem_spilling cluster_dim module_options"
    " entry_point_abi grid_stride".split()
)


def kernel(func: Callable | None = None, *, enable_backward: bool | None = None, **options: Any) -> Any:
    """Decorator: make a Python function a kernel.

    enable_backward=False  its launches refuse to lie between an array with requires_grad and a gradient.
    name                   its key, in messages and pictures; by default the function's.
    Warp's other options (`module`, `launch_bounds`, `grid_stride` ...) are taken and change nothing.
    Raises KernelError for what the language does not have, with the line to write instead; TypeError for an option that
    does not exist.

    >>> @wb.kernel
    ... def scale(a: float, x: wb.array[float]):
    ...     i = wb.tid()
    ...     x[i] = a * x[i]
    >>> x = wb.array([1.0, 2.0])
    >>> wb.launch(scale, dim=2, inputs=[3.0, x])
    >>> x
    array([3., 6.], dtype=float32, shape=(2,))
    """
    unknown = options.keys() - KERNEL_OPTIONS
    if unknown:
        raise TypeError(f"kernel() has no option {min(unknown)!r}; it has enable_backward and name")
    local = sys._getframe(1).f_locals

    def make(f: Callable) -> Kernel:
        resolve(f, local)
        return Kernel(f, options.get("name"), enable_backward, module=options.get("module"))

    return make if func is None else make(func)
