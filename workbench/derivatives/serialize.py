"""Serialisation of tapes, arrays, kernels and user functions to bytes that another process can load.

Memory travels as its bytes, once, however many arrays share it. A launch's program travels as its IR, so that a kernel
redefined since is no matter. Kernels and functions travel as source with the Python objects that they name: no
process need be able to import them, and a notebook's functions travel like any others.
"""

from __future__ import annotations

import ast
import copyreg
import importlib
import io
import linecache
import pickle
import sys
import textwrap
import types
from collections.abc import Callable
from operator import call
from typing import Any

import numpy as np

from ..arrays import allocation as memory
from ..arrays.allocation import Allocation
from ..arrays.array import array, array_on, exact
from ..arrays.copying import set_gradient
from ..arrays.host_reads import Supposed
from ..arrays.names import is_users
from ..arrays.read_values import HostRead
from ..arrays.scalar import scalar, scalar_on
from ..arrays.span import Span
from ..config import config
from ..device import cpu
from ..errors import GradientError, LaunchError
from ..kernels import types as T
from ..kernels.ops.row import ROWS
from ..kernels.program import Kernel, Program
from ..kernels.reading.declare import Func, same_struct
from ..kernels.reading.source import names_around, source
from ..kernels.row import Row
from ..launches.adjoint_plan import adjoint_of
from ..launches.command import Command
from ..launches.plan import backend_for, plan
from ..tapes.events import Event, KeptBytes, Scope
from ..tapes.kinds import KINDS
from ..tapes.reverse import verify
from ..tapes.tape import Tape


def pack(thing: object) -> bytes:
    """The serialised bytes. Raises LaunchError [travel] for what has no form outside this process."""
    out = io.BytesIO()
    try:
        _Packer(out).dump(thing)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        instead = "functions made with `def`, arrays, NumPy arrays, numbers"
        raise LaunchError(f"this cannot be sent to another process: {error}", slug="travel", instead=instead) from None
    return out.getvalue()


def unpack(data: bytes) -> Any:
    """A copy of what `pack` was given. Only for bytes that `pack` made: unpickling runs arbitrary code."""
    with memory.LOCK:
        return pickle.loads(data)


class _Packer(pickle.Pickler):
    def __init__(self, out: io.BytesIO):
        super().__init__(out, protocol=5)
        self.public = {id(v): k for k, v in vars(sys.modules[_PACKAGE]).items() if callable(v) and k[0] != "_"}

    def reducer_override(self, thing: object) -> Any:
        if isinstance(thing, types.ModuleType):
            return importlib.import_module, (thing.__name__,)
        if (name := self.public.get(id(thing))) is not None:
            return getattr, (sys.modules[_PACKAGE], name)
        for kind, reduce in _FORMS:
            if isinstance(thing, kind):
                return reduce(thing)
        return NotImplemented


_PACKAGE = __name__.partition(".")[0]


# ---- functions and kernels: their text, and what it names


def _function(fn: types.FunctionType) -> Any:
    if not is_users((fn.__module__ or "").partition(".")[0]):  # every process finds it
        return NotImplemented
    text = source(fn)
    around = {n: fn.__globals__[n] for n in sorted(names_around(fn.__code__)) if n in fn.__globals__}
    around |= {n: c.cell_contents for n, c in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)}
    given = fn.__defaults__, fn.__kwdefaults__, dict(fn.__annotations__)
    lines = [""] * (text.first - 1) + textwrap.dedent("\n".join(text.lines)).splitlines()
    whole = "\n".join(lines) + "\n"
    return _remade, (fn.__name__, fn.__qualname__, whole, text.first, text.file), (around, given), None, None, _fill


def _remade(name: str, qualname: str, text: str, first: int, file: str) -> types.FunctionType:
    """The function with this source; its globals are filled in later, as it may name itself."""
    tree = ast.parse(text)
    node = next(n for n in tree.body if isinstance(n, ast.FunctionDef))
    node.decorator_list, node.returns = [], None
    arguments = node.args
    for arg in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        arg.annotation = None
    for args in (arguments.defaults, arguments.kw_defaults):
        args[:] = [d and ast.copy_location(ast.Constant(None), d) for d in args]  # type: ignore[index]
    path = f"<{name} from {file}:{first} #{len(linecache.cache)}>"
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    space: dict[str, Any] = {"__builtins__": __builtins__, "__name__": "__travelled__"}
    exec(compile(ast.Module([node], []), path, "exec", dont_inherit=True), space)
    made = space[name]
    made.__qualname__ = qualname
    return made


def _fill(made: types.FunctionType, state: tuple) -> None:
    around, (defaults, keywords, annotations) = state
    made.__globals__.update(around)
    made.__defaults__, made.__kwdefaults__ = defaults, keywords
    made.__annotations__ = annotations


def _func(f: Func) -> Any:
    parts = [(p.fn, p.grad, p.replay, vars(p.fn).get("snippet")) for p in f.parts]
    return _func_again, (parts, f.parts.index(f))


def _func_again(parts: list[tuple], which: int) -> Func:
    made = [Func(fn) for fn, *_ in parts]
    for f, (_, grad, replay, snippet) in zip(made, parts, strict=True):
        f.grad, f.replay = grad, replay
        for own in (f.fn, grad, replay) if snippet is not None else ():
            if own is not None:
                vars(own)["snippet"] = snippet  # it is read as C
    made[which].overloads = tuple(made) if len(made) > 1 else ()
    return made[which]


# ---- IR: values are defined before they are used, so no chain of objects is long


def _row(name: str) -> Row:
    return ROWS[name]


for _kind in {type(row) for row in ROWS.values()}:
    copyreg.pickle(_kind, lambda row: (_row, (row.name,)))


# ---- memory


def _refuse_gpu(a: Allocation) -> None:
    if a.device.is_cuda:
        raise pickle.PicklingError("memory of a GPU stays there: send x.to('cpu')")


def _allocation(a: Allocation) -> Any:
    """An allocation without its gradient, as workers get it."""
    _refuse_gpu(a)
    return _allocated, (a.bytes.tobytes(), a.grad_scale), (list(a.required), list(a.retained), None), None, None, _mark


def _allocated(data: bytes, grad_scale: int | None) -> Allocation:
    made = memory.allocate(len(data), cpu, zeroed=False)
    made.bytes[...] = np.frombuffer(data, np.uint8)
    made.grad_scale = grad_scale
    return made


def _mark(a: Allocation, marks: tuple) -> None:
    required, retained, gradient = marks
    a.mark("required", required)
    a.mark("retained", retained)
    if gradient is not None:
        set_gradient(a, np.frombuffer(gradient, np.uint8))


def _array(a: array) -> Any:
    """An array, whose values count as read by an open tape, so that they are known when they come back under it."""
    if (tape := memory.recorder()) is not None and a.device.is_cpu:
        tape.numbers.read(a.carrying(a.data))
    return _placed, (a.allocation, a.dtype, a.shape, a.strides, a.span.offset, a.name)


def _placed(owner: Allocation, dtype: T.Type, shape: tuple, strides: tuple, offset: int, name: str | None) -> array:
    made = array_on(owner, dtype, shape, strides, offset)
    made.name = name
    if memory.recorder() is not None:
        exact.trace(made, made.data.copy())
    return made


# ---- tapes


def _tape(t: Tape) -> Any:
    for e in t.events:
        if e.kind.closed:
            text = f"a tape with {e.label!r} cannot be sent to another process."
            why = "It runs a function of yours when it is walked."
            instead = "executor=None, or wb.launch(...) in its place"
            raise GradientError(text, slug="travel", where=e.where, why=why, instead=instead)
    verify(t)
    for kept in (k for e in t.events for k in e.kept):
        kept.said = t.names.reason_of(kept)
    arrays = [(a, t.names.noted.get(id(a))) for a in t.arrays.values()]
    for a in t.last_seeds:
        _refuse_gpu(a)
    scopes = [(s.name, s.first, s.last) for s in t.scopes]
    seeds = list(t.last_seeds.items())
    within = None if t.within is None else [n for n, e in enumerate(t.events) if e in t.within]
    state = list(t.events), list(t.active), list(t.scalars.items()), arrays, scopes, seeds, within
    return Tape, (t.keep,), state, None, None, _record


def _record(t: Tape, state: tuple) -> None:
    events, active, scalars, arrays, scopes, seeds, within = state
    t.events += events
    t.scopes += [Scope(*s) for s in scopes]
    t.last_seeds.update(seeds)
    t.within = None if within is None else frozenset(t.events[n] for n in within)
    t.active.update(dict.fromkeys(active))
    t.scalars.update(scalars)
    t.arrays.update((id(a), a) for a, _ in arrays)
    t.names.noted.update((id(a), name) for a, name in arrays if name)
    t.needed.walked = bool(seeds)
    t.needed.watch_again()


def _event(e: Event) -> Any:
    kept = [(k.span, k.data, (), k.said) for k in e.kept]
    launch = None
    if e.command is not None:
        c = e.command
        back = None if e.reverse is None else e.reverse.shadows
        form, places = c.plan.form, c.places if c.declared else None
        launch = c.program, form.dims, form.backend, c.flat, places, c.declared, back
    sources = [(s.span, s.label, s.moment, s.where) for s in e.sources]
    marks = e.followed, e.checked, e.noted, e.theirs, e.value, (isinstance(e.sources, Supposed), sources)
    return _event_again, (e.id, e.kind.name, e.label, e.where, e.reads, e.writes, kept, e.arrays, marks, launch)


def _event_again(number: int, kind: str, label: str, where: Any, reads: tuple, writes: tuple, *more: Any) -> Event:
    kept, arrays, marks, launch = more
    made = Event(number, KINDS[kind], label, where, reads, writes)
    made.kept, made.arrays = tuple(KeptBytes(*k) for k in kept), arrays
    made.followed, made.checked, made.noted, made.theirs, made.value, (supposed, sources) = marks
    made.sources = (Supposed if supposed else tuple)(HostRead(*s, ()) for s in sources)  # type: ignore[call-arg]
    if launch is not None:
        program, dims, backend, flat, places, declared, shadows = launch
        before = config.backend
        if backend != backend_for((), cpu, program.name):
            config.backend = backend  # only where needed: other threads may launch meanwhile
        try:
            command = Command(program, plan(program, dims, flat, None), flat)
            if places is not None:
                command.places, command.declared = places, declared
            made.command = command
            made.reverse = None if shadows is None else adjoint_of(command.plan, tuple(shadows))
        finally:
            config.backend = before
    return made


# ---- the `pickle` of Python


def reduced(thing: object) -> Any:
    """The `__reduce__` value of an object: (callable, arguments). Sharing is kept within one pickle.

    Functions, and the kernels and funcs around them, go as the bytes of `pack`: Python's pickle would look them up.
    """
    if isinstance(thing, Kernel | Func):
        return unpack, (pack(thing),)
    if isinstance(thing, Allocation):  # with its gradient
        make, args, (required, retained, _), *rest = _allocation(thing)
        return make, args, (required, retained, None if thing.grad is None else thing.grad.bytes.tobytes()), *rest
    return next(reduce(thing) for kind, reduce in _FORMS if isinstance(thing, kind))


def duplicate(tape: Tape) -> Tape:
    """A copy of a tape on memory of its own: the result of `copy.copy` and `copy.deepcopy`."""
    with memory.LOCK, memory.unrecorded():
        return pickle.loads(pickle.dumps(tape))


_FORMS: list[tuple[type, Callable[[Any], Any]]] = [
    (T.Scalar, lambda t: (_scalar, (t.name,))),
    (T.Vector, lambda t: (T.vector, (t.length, t.scalar))),
    (T.Matrix, lambda t: (T.matrix, (t.shape, t.scalar))),
    (T.Quat, lambda t: (T.quaternion, (t.scalar,))),
    (T.Transform, lambda t: (T.transformation, (t.scalar,))),
    (T.Struct, lambda t: (same_struct, (t.name, t.fields))),
    (T.Small, lambda s: (call, (s.type, np.asarray(s))) if s.type is not None else (np.array, (np.asarray(s),))),
    (types.FunctionType, _function),
    (Func, _func),
    (Kernel, lambda k: (Kernel, (k.func, k.key, k.enable_backward, k.types, k.gaps))),
    (Program, lambda p: (Program, (p.name, p.function, p.params, p.leaves, p.enable_backward))),
    (Allocation, _allocation),
    (Span, lambda s: (Span, (s.allocation, s.offset, s.shape, s.strides, s.itemsize))),
    (T.Array, lambda t: t.__reduce_ex__(5)),  # before `array`, of which annotations are instances
    (array, _array),
    (scalar, lambda s: (scalar_on, (s.memory, s.detach()))),
    (Tape, _tape),
    (Event, _event),
]


def _scalar(name: str) -> T.Scalar:
    return next(s for s in T.SCALARS if s.name == name)
