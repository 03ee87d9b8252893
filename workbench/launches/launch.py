"""Launches: arguments are checked, a plan is looked up, and the kernel runs, recorded if a tape is open.

Ways in: 1. the launch cache knows the grid and the arrays, or their layouts (`LaunchCache.find`); 2. arguments are
checked and a plan is looked up or made (`_launch_anew`); 3. a command that was kept is launched again
(`RecordedLaunch.launch`).
Ways to run, in this order: 1. it waits for the replays of an open capture, where what it takes is built there
(`Command._wait`); 2. it runs and is noted for the replays (`Command._note`); 3. one call of compiled code with the
packed arguments (`Executable.native_call`); 4. the interpreter, a GPU, sums in shares and what can fail
(`Executable.run`); 5. its adjoint runs in its place (`pull_back`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

from ..arrays import allocation as memory, capture_log, ports
from ..arrays.allocation import caller_where
from ..arrays.array import array
from ..arrays.scalar import scalar
from ..arrays.workspace import Workspace, add_into, gradient_dtype, is_float_memory, shadow_view
from ..config import config
from ..device import DeviceLike, get_device
from ..errors import GradientError, KernelError, LaunchError
from ..kernels.parameter_types import IndexedArray, indexed_type
from ..kernels.program import Kernel, Program
from ..kernels.reading.declare import Instance, struct_of
from ..kernels.reading.optional_arrays import MissingArrays
from ..kernels.types import Array, Type, covers, float32, scalar_of
from .adjoint_arguments import AdjointArguments
from .adjoint_plan import Backward, adjoint_of
from .arguments import check_lists, flatten, shown, value_type
from .command import Command, through
from .handles import NotBuilt, hold
from .launch_cache import flat_of, launches_of
from .plan import GridLike, Plan, PlannedLaunch, grid, plan, switches


@through
def launch(
    kernel: Kernel,
    dim: GridLike,
    inputs: Sequence[Any] = (),
    outputs: Sequence[Any] = (),
    *,
    device: DeviceLike = None,
    record_tape: bool = True,
    record_cmd: bool = False,
    adjoint: bool = False,
    adj_inputs: Sequence[Any] = (),
    adj_outputs: Sequence[Any] = (),
    check_bounds: bool | str | None = None,
    **others: object,
) -> Any:
    """Run `kernel` once per cell of the grid `dim` (an int, or a tuple of 1 to 4).

    `inputs` then `outputs` are its arguments: arrays, torch tensors, numbers, vectors, structs. Under an open `Tape`
    the launch becomes an event. Raises LaunchError or BoundsError before anything runs, KernelError for its source.
    None for an array, or an array field, leaves it out: then `if a:` is false in the kernel, as for an array without
    elements, and what touches it is refused. Warp's `block_dim` and `max_blocks` change nothing. `check_bounds` takes
    the place of `config.check_bounds`: what it finds is raised when the kernel has run, on a GPU when the host waits.

    `adjoint=True` runs the kernel's adjoint once, without a tape, as in Warp: `adj_inputs` and `adj_outputs` are the
    gradients beside `inputs` and `outputs` (None where there is none). It adds to the gradients of what the kernel
    reads, and clears those of what it stores: they are zero afterwards, as a store forgets what was there before. The
    arrays must hold what they held when the kernel ran.

    >>> @wb.kernel
    ... def square(x: wb.array[float], y: wb.array[float]):
    ...     i = wb.tid()
    ...     y[i] = x[i] * x[i]
    >>> x, y = wb.array([1.0, 2.0, 3.0]), wb.zeros(3)
    >>> wb.launch(square, dim=3, inputs=[x], outputs=[y])
    >>> y
    array([1., 4., 9.], dtype=float32, shape=(3,))
    >>> d_x, d_y = wb.zeros(3), wb.ones(3)
    >>> wb.launch(square, 3, inputs=[x], outputs=[y], adjoint=True, adj_inputs=[d_x], adj_outputs=[d_y])
    >>> d_x.list(), d_y.list() == [0, 0, 0]
    ([2.0, 4.0, 6.0], True)
    >>> wb.launch(square, dim=4, inputs=[x], outputs=[y])
    Traceback (most recent call last):
    ...
    workbench.errors.BoundsError: ...
    """
    if check_bounds is not None:
        check_bounds = config.bounds(check_bounds)
    if others or adj_inputs or adj_outputs or kernel.__class__ is not Kernel:
        _refuse_odd(kernel, others, adjoint, adj_inputs, adj_outputs)
    if inputs.__class__ not in _LISTS or outputs.__class__ not in _LISTS:
        check_lists(kernel.__name__, inputs, outputs)
    args = (*inputs, *outputs)
    if kernel.generic:
        kernel = concrete(kernel, args)
    if (known := kernel.launches) and config.remember_launches and not (adjoint or record_cmd):
        found = known.find(dim, args, device, switches(check_bounds))
        if found is not None:
            return found.launch(record_tape)
    adjoints = (*adj_inputs, *adj_outputs) if adjoint else None
    return _launch_anew(Request(kernel, dim, args, device, check_bounds), adjoints, record_tape, record_cmd)


class Request(NamedTuple):
    """A launch as it was asked for. `bounds`: its own `check_bounds`."""

    kernel: Kernel
    dim: GridLike
    args: tuple
    device: DeviceLike
    bounds: bool | str | None


@through
def _launch_anew(request: Request, adjoints: tuple | None, record_tape: bool, record_cmd: bool) -> Any:
    """`launch` without the launch cache. `adjoints`: those of the arguments, where the adjoint is to run instead."""
    kernel, dim, args, device, bounds = request
    try:
        program, flat = _taken(kernel, args)
    except NotBuilt as refusal:
        return _wait(refusal, request, adjoints is not None or record_cmd)
    where = None if device is None else get_device(device)
    command = Command(program, plan(program, grid(program.name, dim), flat, where, bounds), flat)
    given = flat_of(program, args) if program.takes_numbers else ()
    if scalar in [a.__class__ for a in given]:
        command.declare(given, record_cmd)
    if adjoints is not None:
        return _pull_back(command, adjoints, record_cmd)
    if record_cmd:
        return RecordedLaunch(Request(kernel, dim, args, where, bounds), command.kept())
    if config.remember_launches and not command.declared:
        if kernel.launches is None or (kernel.launches and kernel.launches.program is not program):
            kernel.launches = launches_of(kernel, program) or False
        if kernel.launches:
            command.cached = kernel.launches.remember(dim, args, device, switches(bounds), command)
    return command.launch(record_tape)


_LISTS = {list, tuple}


def _wait(refusal: NotBuilt, request: Request, special: bool) -> None:
    """Defer a launch to the replays of the open capture, with copies of its value arguments.

    Raises the refusal where they may change (structs, declared scalars), under a tape, and for `special` launches.
    """
    kernel, dim, args, device, bounds = request
    changing = any(isinstance(a, Instance | scalar) for a in args)
    if special or changing or memory.recorder() is not None or memory.open_tapes:
        raise refusal.args[0] from None
    types = [type for _, type in kernel.program().params]
    given = tuple(a if isinstance(t, Array) else deepcopy(a) for a, t in zip(args, types, strict=True))
    capture_log.wait(lambda: launch(kernel, dim, given, device=device, check_bounds=bounds))


def _taken(kernel: Kernel, args: tuple) -> tuple[Program, list]:
    """The program of a launch, and its flat arguments. Raises KernelError, LaunchError."""
    if not kernel.reads_presence:
        try:
            program = kernel.program()
            flat = flatten(program, args)
            if not program.presence_tests:
                return program, flat
        except (KernelError, LaunchError):
            if not is_left_out(kernel, args):
                raise
        kernel.reads_presence = True
    return fitted(kernel, args)


@through
def launch_tiled(
    kernel: Kernel,
    dim: GridLike,
    inputs: Sequence[Any] = (),
    outputs: Sequence[Any] = (),
    *,
    block_dim: int = 256,
    **others: Any,
) -> Any:
    """Run `kernel` once per block of the grid `dim` (an int, or a tuple of 1 to 4): a kernel with tiles.

    A block is one thread of the program: its `tid()` gives the index of the block, and its tiles are its own. With one
    index more than `dim` has, that is the number of a thread in its block, which is 0. On a GPU the threads of a block
    share out the work on its tiles; on a processor one worker does it, in loops that compilers vectorise. `block_dim`
    is taken as in Warp and changes no result: sums have one order. `launch(kernel, dim)` is the same.

    >>> @wb.kernel
    ... def double(x: wb.array[float], y: wb.array[float]):
    ...     i = wb.tid()
    ...     t = wb.tile_load(x, shape=4, offset=i * 4)
    ...     wb.tile_store(y, 2.0 * t, offset=i * 4)
    >>> x, y = wb.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), wb.zeros(6)
    >>> wb.launch_tiled(double, dim=2, inputs=[x, y], block_dim=64)
    >>> y
    array([ 2.,  4.,  6.,  8., 10., 12.], dtype=float32, shape=(6,))
    """
    if isinstance(block_dim, bool) or not isinstance(block_dim, int) or block_dim < 1:
        raise LaunchError(f"launch_tiled(..., block_dim={shown(block_dim)}).", slug="dim", instead="block_dim=64")
    if kernel.__class__ is Kernel:
        dims, args = grid(kernel.__name__, dim), (*inputs, *outputs)
        dim = (*dims, 1) if _taken(concrete(kernel, args), args)[0].function.rank == len(dims) + 1 else dims
    return launch(kernel, dim, inputs, outputs, block_dim=block_dim, **others)


def _pull_back(command: Command, given: tuple, record_cmd: bool) -> None:
    if record_cmd or command.declared:
        what = "record_cmd=True" if record_cmd else "a declared scalar"
        text = f"launch(..., adjoint=True) with {what} is not supported."
        raise LaunchError(text, slug="launch-keyword", instead="tape.backward(grads={y: seed})")
    pull_back(command, given)


def concrete(kernel: Kernel, args: tuple) -> Kernel:
    """The kernel as it is read for the types of these arguments."""
    return kernel.overload(_generic_types(kernel, args)) if kernel.generic else kernel


def _generic_types(kernel: Kernel, args: tuple) -> dict[str, Type]:
    """The types of the generic parameters at this launch, from the arguments given for them. Raises LaunchError."""
    code = kernel.func.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if len(args) != len(names):
        text = f"Kernel {kernel.__name__!r} takes {len(names)} arguments, got {len(args)}."
        raise LaunchError(text, slug="argument-count", why=f"Its parameters are ({', '.join(names)}).")
    return {n: _generic_type(kernel, n, wanted, args[names.index(n)]) for n, wanted in kernel.generic.items()}


def _generic_type(kernel: Kernel, name: str, wanted: object, arg: object) -> Type:
    """The type for one generic parameter: numbers of Python have their default types, arrays keep the declared rank."""
    if not isinstance(arg, array):
        tensors = (wrap(arg, wanted if isinstance(wanted, Array) else Array(float32)) for wrap in ports.wrappers)
        arg = next((a for a in tensors if a is not None), arg)
    if isinstance(arg, array):
        made = indexed_type if isinstance(wanted, IndexedArray) else Array
        found = made(arg.dtype, wanted.ndim if isinstance(wanted, (Array, IndexedArray)) else arg.ndim)
    else:
        found = arg.dtype if isinstance(arg, scalar) else value_type(arg)
        found = scalar_of(found) if isinstance(found, type) else found
    if found is not None and covers(wanted, found):
        return found
    plain = wanted is Any or getattr(wanted, "dtype", None) is Any
    takes = str(wanted) if not plain else "any type" if wanted is Any else "an array"
    text = f"Kernel {kernel.__name__!r}, argument {name!r}: takes {takes}, got {shown(arg)}"
    raise LaunchError(text, slug="argument-type", instead="wb.array(..., dtype=...)")


# keywords of Warp that cannot change a result -> the values that say nothing
_SILENT: dict[str, Any] = {"block_dim": int, "max_blocks": int, "stream": None}


def _refuse_odd(kernel: object, others: dict[str, Any], adjoint: bool, *adjoints: Sequence[Any]) -> None:
    """Refuse what is no kernel, and keywords that launches do not have."""
    if any(adjoints) and not adjoint:
        what = "launch(..., adj_inputs=, adj_outputs=) without adjoint=True."
        why = "A launch forward has no use for adjoints."
        raise LaunchError(what, slug="launch-keyword", why=why, instead="launch(..., adjoint=True)")
    for name, value in others.items():
        if name not in _SILENT:
            import difflib

            known = [n for n in (*launch.__annotations__, *_SILENT) if n not in ("others", "return")]
            close = difflib.get_close_matches(name, known, n=1)
            what = f"launch has no argument {name!r}."
            instead = f"{close[0]}=..." if close else "launch(kernel, dim=n, inputs=[...], outputs=[...])"
            raise LaunchError(what, slug="launch-keyword", why=f"It has {', '.join(known)}.", instead=instead)
        wanted = _SILENT[name]
        if not (isinstance(value, int) if wanted is int else not value):
            what = f"launch(..., {name}={shown(value)}) is not supported."
            raise LaunchError(what, slug="launch-keyword", why="It would change what runs, so it is not ignored.")
    if kernel.__class__ is not Kernel:
        text = f"launch takes a kernel, got {shown(kernel)}"
        raise LaunchError(text, slug="not-a-kernel", instead="@wb.kernel above it")


class RecordedLaunch:
    """A launch to be repeated, with other arguments too: what `launch(..., record_cmd=True)` returns.

    Arrays and the constants of the kernel are seen as they are when it is launched, numbers as they were given.
    `device` and `stream` are those of the arrays.

    >>> @wb.kernel
    ... def scale(x: wb.array[float], a: float, y: wb.array[float]):
    ...     i = wb.tid()
    ...     y[i] = a * x[i]
    >>> x, y = wb.ones(2), wb.zeros(2)
    >>> command = wb.launch(scale, 2, [x, 3.0], [y], record_cmd=True)
    >>> command.launch()
    >>> command.set_param_by_name("a", 5.0)
    >>> command.set_dim(1)
    >>> command.launch()
    >>> y.list()
    [5.0, 3.0]
    """

    def __init__(self, request: Request, command: Command):
        self.kernel, self.dim, self.params, self.device, self.bounds = request
        self.command = hold(command.program, self.params, command)

    def __repr__(self) -> str:
        return f"<launch of {self.kernel.key} over {self.dim}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "command":
            raise AttributeError(name)
        return getattr(self.command, name)

    @through
    def launch(self, stream: object = None, *, record_tape: bool = True) -> None:
        """Run it, recorded if a tape is open and `record_tape` says so."""
        if (kernel := self.command.program.kernel) is not None and not kernel.reads(self.command.program):
            self._make(self.dim, self.params)
        self.command.launch(record_tape)

    def set_dim(self, dim: GridLike) -> None:
        """Set the grid. Raises what `launch` raises, and changes nothing then."""
        self._make(dim, self.params)

    def set_param_at_index(self, index: int, value: object, adjoint: bool = False) -> None:
        """Set the argument at this place. Raises what `launch` raises, and changes nothing then."""
        if adjoint:
            _pull_back(self.command, (), True)
        if not 0 <= index < len(self.params):
            text = f"Kernel {self.kernel.key!r} has no parameter {index}."
            raise LaunchError(text, slug="argument-count", why=f"There are {len(self.params)}, from 0.")
        self._make(self.dim, (*self.params[:index], value, *self.params[index + 1 :]))

    def set_param_by_name(self, name: str, value: object, adjoint: bool = False) -> None:
        """Set the argument of this parameter: see `set_param_at_index`."""
        names = [known for known, _ in self.command.program.params]
        if name not in names:
            text = f"Kernel {self.kernel.key!r} has no parameter {name!r}."
            raise LaunchError(text, slug="argument-count", why=f"Its parameters are ({', '.join(names)}).")
        self.set_param_at_index(names.index(name), value, adjoint)

    def set_params(self, params: Sequence[Any]) -> None:
        """Set all arguments. Raises what `launch` raises, and changes nothing then."""
        self._make(self.dim, tuple(params))

    def _make(self, dim: GridLike, args: tuple) -> None:
        made = launch(self.kernel, dim, args, device=self.device, record_cmd=True, check_bounds=self.bounds)
        self.dim, self.params, self.command = dim, args, made.command


# ---- optional arrays: launches with None for an array, for which the kernel is read anew without it


def is_left_out(kernel: Kernel, args: Sequence[Any]) -> frozenset[str]:
    """Paths of array arguments, and of array fields of structs, that are None."""
    names = kernel.func.__code__.co_varnames
    return frozenset(path for name, arg in zip(names, args, strict=False) for path in _missing(name, arg))


def _missing(path: str, arg: object) -> Iterator[str]:
    if arg is None:
        yield path
    elif isinstance(arg, Instance):
        for name, type in struct_of(arg).fields:
            part = getattr(arg, name)
            if isinstance(part, Instance) or isinstance(type, Array):
                yield from _missing(f"{path}.{name}", part)


def fitted(kernel: Kernel, args: Sequence[Any]) -> tuple[Program, list[Any]]:
    """The program of a kernel without the omitted arrays, and its flat arguments. Raises KernelError, LaunchError."""
    gaps = MissingArrays(is_left_out(kernel, args))
    while True:
        program = kernel.without(gaps).program()
        flat = flatten(program, args)
        names = frozenset(program.leaves[k].name for k in program.presence_tests if not flat[k].size)
        if names <= gaps.empty:
            return program, flat
        gaps = MissingArrays(gaps.absent, gaps.empty | names)


# ---- the adjoint of one launch without a tape, as in Warp: `launch(..., adjoint=True, adj_inputs=, adj_outputs=)`
# It runs on the memory as it is now. What the launch itself overwrites and its adjoint would read is therefore refused,
# as is whatever needs the contents before and after: those are a tape's business.


def pull_back(command: PlannedLaunch, given: Sequence[Any]) -> None:
    """Run the adjoint of a launch: each of `given` receives the derivative by the contents of its argument before it.

    `given`: one per argument of the kernel, an array like the argument, or None for the argument's own `.grad`, or for
    nothing where it has none. Those of arrays that are only read accumulate; those of arrays that the kernel stores to
    are the seeds, and read 0 afterwards. Raises LaunchError for what does not fit, GradientError for what would not be
    exact.
    """
    program, plan, flat = command.program, command.plan, command.flat
    adjoints = _adjoints(program, flat, given)
    if not adjoints:
        text = f"launch({program.name}, adjoint=True): no argument has an adjoint."
        instead = "adj_inputs=[wb.zeros_like(x)], adj_outputs=[seed]"
        raise LaunchError(text, slug="adjoint-count", why="Nothing would be computed.", instead=instead)
    tape = memory.recorder()
    read = [*(flat[k] for k in plan.floats), *adjoints.values()]
    if tape is None or not tape.follows(read):
        _run(command, adjoints)
        return
    reason = "the adjoint of a single launch has no second derivative."
    written = list(adjoints.values())
    tape.opaque_event(
        f"adjoint of {program.name}", read, written, lambda: _run(command, adjoints, tape), reason, caller_where()
    )


def _run(command: PlannedLaunch, adjoints: dict[int, array], by: memory.Recorder | None = None) -> None:
    program, plan, flat = command.program, command.plan, command.flat
    with memory.LOCK, memory.unrecorded():
        back = adjoint_of(plan, tuple(plan.floats), alone=True)
        _refuse(plan, back, adjoints)
        if back.races is not None:
            back.races.check(command)
        space = Workspace()
        for k, adjoint in adjoints.items():
            add_into(shadow_view(flat[k], space[flat[k].allocation]), adjoint.data, flat[k].span)
        shadows = [(k, space[flat[k].allocation]) for k in back.shadows]
        back.run(AdjointArguments(command, back.private, shadows))
        for k, adjoint in adjoints.items():
            adjoint.allocation.about_to_write(adjoint.span, program.name, None, by)
            adjoint.data[...] = shadow_view(flat[k], space[flat[k].allocation])
        space.release()


def _adjoints(program: Program, flat: Sequence[Any], given: Sequence[Any]) -> dict[int, array]:
    """Position of a float array -> the array that holds its adjoint."""
    if len(given) != len(program.params):
        text = f"Kernel {program.name!r} takes {len(program.params)} arguments, got {len(given)} adjoints."
        instead = "adj_inputs=[wb.zeros_like(a) for a in inputs], adj_outputs=[wb.ones_like(a) for a in outputs]"
        raise LaunchError(text, slug="adjoint-count", instead=instead)
    found: dict[int, array] = {}
    for k, leaf in enumerate(program.leaves):
        a, adjoint = flat[k], given[leaf.arg]
        if not isinstance(a, array) or not is_float_memory(a):
            continue
        if adjoint is None or leaf.path:
            adjoint = a.grad if adjoint is None else _part(adjoint, leaf.path)
        if adjoint is None:
            continue
        fits = isinstance(adjoint, array) and adjoint.shape == a.shape and adjoint.data.shape == a.data.shape
        if not fits or adjoint.data.dtype != gradient_dtype(a):
            raise LaunchError(
                f"Kernel {program.name!r}: the adjoint of {leaf.name!r} is {shown(adjoint)}; it must be an array of"
                f" {a.dtype}, shape {a.shape}.",
                slug="adjoint-argument",
                instead="wb.zeros_like(a)",
            )
        found[k] = adjoint
    return found


def _part(struct: object, path: Sequence[str]) -> Any:
    for k, name in enumerate(path):
        if isinstance(struct, array):  # of structs
            return struct.field(".".join(path[k:]))
        struct = getattr(struct, name)
    return struct


def _refuse(plan: Plan, back: Backward, adjoints: dict[int, array]) -> None:
    name, written = plan.program.name, {k for k, _ in plan.writes}
    lost = [plan.program.leaves[k].name for k in back.needs if k in written]
    reason = (
        f"it overwrites {lost[0]!r}, which its adjoint reads"
        if lost
        else "two of its arguments share memory"
        if plan.form.shared
        else "it uses atomic_min or atomic_max"
        if back.extremal
        else "it uses what an atomic returned"
        if back.reverse.ordered
        else "two of the adjoints share memory"
        if any(a.span.overlaps(b.span) is not False for a, b in itertools.combinations(adjoints.values(), 2))
        else ""
    )
    if reason:
        text = f"launch({name}, adjoint=True): {reason}."
        why = "Without a tape nobody knows what its memory held before and after."
        instead = "with wb.Tape() as tape: wb.launch(...), then tape.backward(grads={y: seed})"
        raise GradientError(text, slug="adjoint-launch", where=plan.program.function.where, why=why, instead=instead)
