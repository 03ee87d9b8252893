"""`vmap`: a function of arrays over the rows of its arguments, every launch made once for all rows.

The function is called once, with arrays that stand for a row: their memory has no values. A launch on such arrays runs
as its batched kernel (`passes.batch`) on all rows, a host write likewise; what it writes stands for a row from then on.
All that is recorded is ordinary launches and copies on ordinary arrays, so tapes know nothing of this.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arrays import allocation as memory, capture_log
from ..arrays.allocation import Allocation
from ..arrays.array import array, array_on, copied, finished, new_array, whole_memory
from ..arrays.dtypes import itemsize_of
from ..arrays.host_copies import write_array, write_value, write_values
from ..arrays.span import Span
from ..errors import LaunchError
from ..kernels.ir import root, walk
from ..kernels.ops.memory import STORE
from ..kernels.passes.batch import MOST_AXES
from ..kernels.passes.simplify import forward
from ..kernels.program import Kernel
from ..launches.command import Command
from ..launches.plan import plan
from .call_arguments import CallScript, arrays_in, with_arrays


class Rows:
    """The rows for which an allocation stands: in `memory`, `step` bytes apart, each `shift` bytes further on."""

    def __init__(self, batch: Batch, memory: Allocation, step: int, shift: int = 0):
        self.batch, self.memory, self.step, self.shift = batch, memory, step, shift
        self.made: dict[tuple[Span, Any], array] = {}

    def of(self, a: array) -> array:
        """All rows of an array on that allocation, the same object at every asking."""
        if (found := self.made.get((a.span, a.dtype))) is None:
            shape, strides = (self.batch.size, *a.shape), (self.step, *a.strides)
            found = array_on(self.memory, a.dtype, shape, strides, self.shift + a.span.offset)
            self.made[a.span, a.dtype] = found
        return found


class Batch:
    """One call of a mapped function: the script that makes its launches and host writes for `size` rows at once."""

    def __init__(self, function: str, size: int):
        self.function, self.size = function, size
        self.around, self.tape = capture_log.told.script, memory.recorder()
        self.name = getattr(self.around, "name", None)  # of the jit function around, in messages
        self.write = getattr(self.around, "write", lambda *_: None)  # to new memory, of what is the same for all rows
        self.first, self.open = memory.next_id(), True  # what is from outside has smaller numbers than the first

    def refusal(self, text: str, why: str, instead: str) -> LaunchError:
        where = memory.caller_where()
        return LaunchError(f"vmap({self.function}): {text}", slug="vmap", where=where, why=why, instead=instead)

    # ---- what stands for what

    def row(self, a: array) -> array:
        """An array without values that stands for the rows of `a`; of numbers, each is an array of one element."""
        if a.ndim == 1:
            a = array_on(a.allocation, a.dtype, (*a.shape, 1), (*a.strides, itemsize_of(a.dtype)), a.span.offset)
        low, high = Span(a.allocation, a.span.offset, a.shape[1:], a.strides[1:], a.span.itemsize).hull()
        with capture_log.paused():
            own = memory.allocate(high - low, a.device, zeroed=False)
        own.bytes[...] = 0xFF  # NaN, wherever it may get to
        made = array_on(own, a.dtype, a.shape[1:], a.strides[1:], a.span.offset - low)
        finished(made, a.requires_grad, a.retain_grad, None, a.name)
        own.rows = Rows(self, a.allocation, a.strides[0], low)
        own.rows.made[made.span, a.dtype] = a
        self.first = memory.next_id()
        return made

    def stands(self, a: object) -> bool:
        """True for an array that stands for a row of this call."""
        return isinstance(a, array) and a.allocation.rows is not None and a.allocation.rows.batch is self

    def all_rows(self, a: array) -> array:
        """The rows for which an array stands; of one that is the same for all rows a copy for each."""
        if self.stands(a):
            return a.allocation.rows.of(a)
        with capture_log.following(self.around):
            return copied(self._repeated(a), requires_grad=a.requires_grad)

    def _repeated(self, a: array) -> array:
        return array_on(a.allocation, a.dtype, (self.size, *a.shape), (0, *a.strides), a.span.offset)

    def _written(self, a: array, what: str, stored: bool) -> array:
        """The rows of an array that is written for all rows at once. `stored`: what it held is all overwritten."""
        self.about_to_write(a.allocation, what, a)
        if self.stands(a):
            return a.allocation.rows.of(a)
        own, whole = a.allocation, whole_memory(a)
        if own.exposed or own.is_gradient:
            text = f"{what} writes {a.label}, {'a gradient' if own.is_gradient else 'whose address others have'}."
            raise self.refusal(text, "It would become an array with a row for each call.", "y = wb.zeros_like(...)")
        stored = stored and a.is_contiguous and a.nbytes == own.nbytes
        if stored or (own.blank == own.version and not own.bytes.any()):
            made = new_array((self.size, *whole.shape), whole.dtype, a.device, zeroed=not stored)
        else:
            made = copied(self._repeated(whole))
        finished(made, a.requires_grad, a.retain_grad, None, None)
        own.rows = Rows(self, made.allocation, own.nbytes)
        if self.tape is None and capture_log.opened is None:  # else something may read what it held
            own.bytes[...] = 0xFF
        return own.rows.of(a)

    # ---- as the script of a thread

    def about_to_write(self, memory: Allocation, what: str, a: array | None = None) -> None:
        """Called before memory is written. Raises LaunchError [vmap] if it is from outside, or of an argument."""
        if memory.id < self.first:
            text = f"{what} writes {memory if a is None else a.label}, which is not made in the function."
            instead = "wb.clone(x) or wb.zeros(...) in the function, and that returned"
            raise self.refusal(text, "All rows would write to it, or see what one has written.", instead)

    def launch(self, command: Command, record_tape: bool, frame: Any) -> bool:
        """Called before a launch: makes it for all rows if an array of it stands for a row. False: it is to go on."""
        what, flat = f"kernel {command.program.name!r}", command.flat
        if not any(map(self.stands, flat)):
            for k, _ in command.plan.writes:
                self.about_to_write(flat[k].allocation, what, flat[k])
            return self.around is not None and self.around.launch(command, record_tape, frame)
        if memory.recorder() is not self.tape:
            why = "It is recorded as a whole, of which this function sees one row."
            raise self.refusal(f"{what} runs in a step of another kind.", why, "vmap inside of that step")
        if isinstance(self.around, CallScript):
            self.around.launch(command)  # which looks at the user's kernel, too
        with capture_log.following(self.around):
            self._batched(command, what).launch(record_tape, frame)
        return True

    def _batched(self, command: Command, what: str) -> Command:
        """The launch for all rows."""
        of, dims, flat = command.program, command.plan.form.dims, list(command.flat)
        ahead, stores = of.once(forward, of.function, command.plan.changing), dict(command.plan.stores)
        read = {root(s.args[0]).name for s in walk(ahead.body) if s.row.touches and s.row is not STORE}
        for k, _ in command.plan.writes:
            stored = stores.get(k, ()) is None and of.function.params[k].name not in read
            flat[k] = self._written(flat[k], what, stored)
        flat = [a.allocation.rows.of(a) if self.stands(a) else a for a in flat]
        if len(dims) >= MOST_AXES or any(isinstance(a, array) and a.ndim > MOST_AXES for a in flat):
            text = f"{what} has a grid or an array of {MOST_AXES} axes."
            raise self.refusal(text, "The rows are one more, and there is no fifth.", "a loop over the rows")
        pairs = zip(of.function.params, flat, command.flat, strict=True)
        names = frozenset(p.name for p, a, b in pairs if a is not b)
        program = of.once(of.batched, names)
        made = Command(program, plan(program, (self.size, *dims), flat, None, command.plan.form.checked), flat)
        if not command.declared:
            return made
        places = [b if k in command.declared else a for k, (a, b) in enumerate(zip(flat, command.places, strict=True))]
        return made.declaring(places, command.declared)

    def host_write(self, kind: str, dst: Any, src: Any, value: Any, sources: tuple) -> bool:
        """Called before a host write: makes it for all rows if an array of it stands for one. False: it is to go on."""
        if not (self.stands(dst) or self.stands(src)):
            self.about_to_write(dst.allocation, kind, dst)
            return self.around is not None and self.around.host_write(kind, dst, src, value, sources)
        with capture_log.following(self.around):
            to = self._written(dst, kind, True)
            if src is not None:
                write_array(kind, to, src.allocation.rows.of(src) if self.stands(src) else self._repeated(src))
            elif kind == "assign":
                write_values(to, np.broadcast_to(value, to.data.shape), sources)
            else:
                write_value(kind, to, value, sources)
        return True


def vmap(fn: Callable[..., Any], in_axes: int | Sequence[int | None] | None = 0) -> Callable[..., Any]:
    """`fn` over the rows of its arguments, as `jax.vmap`: what it launches for one row is launched once for all.

    fn       takes arrays, launches kernels, returns arrays (or a tuple, list, dict or struct of arrays, or None).
    in_axes  for each argument, or for all: 0 maps over the rows of the arrays in it (in tuples, lists, dicts and
             structs too), None hands it to every row as it is.
    Returned is a function of arrays of shape (n, *shape), which returns such arrays; a row of an array of one axis is
    an array of one element. What is the same for all rows is repeated. Values and gradients are those of a loop over
    the rows, to the last bit where the kernels have one order; by a shared argument the gradient is the sum of theirs.
    Each launch is an ordinary one with a grid of one axis more, on whatever tape, capture or jit is open.

    `fn` is called once, with arrays that have no values, nor have they later. Raises LaunchError [vmap], which names
    the line: where the host looks at an array of a row (`numpy()`, `x[0]`, a custom op, a gradient), a tape is opened
    or walked, an argument or memory from outside is written; at a grid or an array of four axes; for arguments that do
    not fit. Random numbers are the same in all rows, unless their seed is mapped.

    Use it for many small programs: environments, initial states, samples, starting points of a search.

    >>> @wb.kernel
    ... def decay(x: wb.array[float], k: wb.array[float], y: wb.array[float]):
    ...     i = wb.tid()
    ...     y[i] = x[i] - k[0] * x[i]
    >>> def step(x, k):
    ...     y = wb.zeros_like(x)
    ...     wb.launch(decay, 2, [x, k], [y])
    ...     return y
    >>> xs, k = wb.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), wb.array([0.5], requires_grad=True)
    >>> with wb.Tape() as tape:
    ...     ys = wb.vmap(step, in_axes=(0, None))(xs, k)
    >>> tape.backward(grads={ys: wb.ones_like(ys)})
    >>> ys.numpy().tolist(), k.grad.list(), len(tape.events)
    ([[0.5, 1.0], [1.5, 2.0], [2.5, 3.0]], [-21.0], 1)
    """
    if isinstance(fn, Kernel) or not callable(fn):
        raise TypeError(f"vmap takes a function that launches kernels and returns arrays, not {fn!r}")

    @functools.wraps(fn)
    def mapped(*args: Any) -> Any:
        axes = list(in_axes) if isinstance(in_axes, Sequence) else [in_axes] * len(args)
        rows = {len(a) for arg, axis in zip(args, axes, strict=False) if axis is not None for a in arrays_in(arg)}
        batch = Batch(getattr(fn, "__name__", "function"), max(rows, default=0))
        if len(axes) != len(args) or any(axis not in (0, None) for axis in axes) or len(rows) != 1:
            text = f"{len(args)} arguments with in_axes={tuple(axes)}, of {' and '.join(map(str, sorted(rows)))} rows."
            raise batch.refusal(text, "", "0 or None for each argument, and arrays of one number of rows")
        given = [a if axis is None else with_arrays(a, batch.row) for a, axis in zip(args, axes, strict=True)]
        try:
            with capture_log.following(batch):
                return with_arrays(fn(*given), batch.all_rows)
        finally:
            batch.open = False

    return mapped
