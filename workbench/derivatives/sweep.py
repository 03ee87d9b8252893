"""Many independent gradients on other processes and machines: rows of a Jacobian, parameter studies, batches.

Any `concurrent.futures.Executor` will do: processes of this machine, or `Client.get_executor()` of a Dask cluster. What
is sent is `serialize.pack`ed, so nothing need be importable there. A worker that is killed loses nothing: what did not
come back is computed here.
"""

from __future__ import annotations

import logging
import os
import pickle
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, as_completed
from typing import Any

from ..arrays.allocation import LOCK
from ..config import config
from ..display import ProgressBar
from ..errors import LaunchError
from .serialize import pack, unpack

log = logging.getLogger("workbench")

TASKS = 32  # in which a large set is cut: enough to balance, few enough that what all of them share is sent seldom
_SETTINGS = ("backend", "threads", "check_bounds", "check_races", "race_guard")  # what results depend on
_PROCESS = uuid.uuid4().hex
_LOST = ("KilledWorker", "CommClosedError", "LostRun", "FutureCancelledError")  # Dask's, which need not be here


def sweep(fn: Callable[..., Any], inputs: Iterable[Any], executor: Executor | None = None) -> list[Any]:
    """[fn(x) for x in inputs], for tuples fn(*x): a parameter study, or a batch of initial states.

    fn        a function, for gradients most often `value_and_grad(loss)`. It runs where nothing of this process is
              there but what it names: kernels, functions, arrays and numbers are sent along, as source and as bytes.
    executor  a `concurrent.futures.Executor`; None runs here, in order. Results are the same to the last bit on
              machines alike; the settings of `config` go along.

    Shows a progress bar when it takes more than a second. Arrays in results come back as copies. Raises what `fn`
    raises; LaunchError [travel] for what cannot be sent.

    >>> wb.sweep(abs, [-1.0, 2.0])
    [1.0, 2.0]
    """
    if not callable(fn):
        raise TypeError(f"sweep takes a function first, not {fn!r}: sweep(fn, inputs)")
    given = [x if isinstance(x, tuple) else (x,) for x in inputs]
    return spread(_call, fn, given, executor, getattr(fn, "__name__", "sweep"))


def _call(fn: Callable[..., Any], args: tuple) -> Any:
    return fn(*args)


def spread(
    task: Callable[[Any, Any], Any], shared: object, items: Sequence[Any], executor: Executor | None, title: str
) -> list[Any]:
    """[task(shared, item) for item in items], on the workers of an executor if there is one.

    `task` is a function of a module; `shared` is sent once per portion of the items.
    """
    with ProgressBar(len(items), title) as bar:
        if executor is None:
            return [_counted(bar, task(shared, item)) for item in items]
        return _sent(task, shared, items, executor, bar)


def _counted(bar: ProgressBar, result: object) -> Any:
    bar.update(1)
    return result


def _sent(
    task: Callable[[Any, Any], Any], shared: object, items: Sequence[Any], executor: Executor, bar: ProgressBar
) -> list:
    size = -(-len(items) // TASKS)
    portions = [range(k, min(k + size, len(items))) for k in range(0, len(items), size)]
    with LOCK:
        whole = pack((_home(), {name: getattr(config, name) for name in _SETTINGS}, shared))
    results: list[Any] = [None] * len(items)
    left: list[range] = []
    waiting: dict[Future, range] = {}
    for portion in portions:
        part = pack([items[k] for k in portion])
        try:
            waiting[executor.submit(work, task, whole, part)] = portion
        except (BrokenExecutor, RuntimeError):  # a worker died while we were still sending
            left.append(portion)
    try:
        for future in as_completed(waiting):
            portion = waiting[future]
            try:
                results[portion.start : portion.stop] = unpack(future.result())
            except Exception as error:
                if not _lost(error):
                    raise
                left.append(portion)
                continue
            bar.update(len(portion))
    finally:  # also when the user interrupts
        for future in waiting:
            future.cancel()
    if left:
        log.warning("workers were lost: %d of %d results are computed here", sum(map(len, left)), len(items))
    for portion in left:
        for k in portion:
            results[k] = _counted(bar, task(shared, items[k]))
    return results


def _lost(error: BaseException) -> bool:
    """True if the worker was lost, False if the work itself failed. Dask's executor may misread the report of one."""
    if isinstance(error, BrokenExecutor | CancelledError) or type(error).__name__ in _LOST:
        return True
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_name == "_cascade_future"


def _home() -> tuple[str, int]:
    """The identity of this process; a forked one has another."""
    return _PROCESS, os.getpid()


def work(task: Callable[[Any, Any], Any], shared: bytes, items: bytes) -> bytes:
    """Run one portion of the items in a worker: packed items to packed results."""
    try:
        (home, settings, thing), part = unpack(shared), unpack(items)
    except (AttributeError, ImportError) as error:
        text = f"this cannot be made anew in a worker: {error}"
        why = "Classes and installed packages are looked up there by name."
        instead = "the class in a module that the workers can import"
        raise LaunchError(text, slug="travel", why=why, instead=instead) from None
    if home != _home():
        for name, value in settings.items():
            setattr(config, name, value)
    try:
        return pack([task(thing, item) for item in part])
    except Exception as error:
        raise _portable(error) from None


def _portable(error: Exception) -> Exception:
    """The error, or a substitute with its text if it cannot be unpickled: that would bring the executor down."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001  whatever its class does
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
