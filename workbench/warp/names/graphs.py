"""Captures in Warp's words, on top of `tapes.capture`; conditions and loops that memory decides."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from ...arrays import capture_log
from ...arrays.allocation import recorder
from ...arrays.array import array
from ...errors import LaunchError
from ...tapes.capture import Capture, Graph, ScopedCapture

Body: TypeAlias = Callable | Graph | Capture | None

_open: list[Capture] = []


def capture_begin(device: object = None, stream: object = None, **_: object) -> None:
    """Begin to record what is launched, until `capture_end`. As in Warp it is not done until `capture_launch`.

    `with wb.ScopedCapture() as scope:` is the same with an end that is never forgotten.
    Raises LaunchError [capture] inside another capture.

    >>> x = wb.zeros(2)
    >>> wb.capture_begin()
    >>> _ = x.fill_(1.0)
    >>> graph = wb.capture_end()
    >>> x.list()
    [0.0, 0.0]
    >>> wb.capture_launch(graph)
    >>> x.list()
    [1.0, 1.0]
    """
    made = ScopedCapture()
    made.__enter__()
    _open.append(made)


def capture_end(device: object = None, stream: object = None) -> Graph:
    """The graph of what was launched since `capture_begin`, for `capture_launch`.

    Raises LaunchError [capture] where none was begun.
    """
    if not _open:
        raise LaunchError("capture_end() without capture_begin().", slug="capture", instead="wb.capture_begin() first")
    made = _open.pop()
    made.__exit__(None, None, None)
    assert made.graph is not None
    return made.graph


def capture_while(condition: array, while_body: Body, stream: object = None, **kwargs: object) -> None:
    """Run the body, a function of `kwargs` or a graph, for as long as `condition[0]` is not 0.

    Under a tape every turn is recorded, so gradients are exact. In a capture each replay makes as many turns as the
    condition then asks for; under a tape in a capture that is refused [capture], as a tape has a fixed number of them.

    >>> @wb.kernel
    ... def count(left: wb.array[int], total: wb.array[float]):
    ...     left[0] = left[0] - 1
    ...     total[0] = total[0] + 0.5
    >>> left, total = wb.array([3]), wb.zeros(1)
    >>> wb.capture_while(left, lambda: wb.launch(count, 1, [left, total]))
    >>> total.item()
    np.float32(1.5)
    """

    def turns(body: Body) -> None:
        while condition.flatten()[0]:
            _run(body, kwargs)

    _do("capture_while", condition, turns, (while_body,), kwargs)


def capture_if(
    condition: array, on_true: Body = None, on_false: Body = None, stream: object = None, **kwargs: object
) -> None:
    """Run `on_true` if `condition[0]` is not 0, else `on_false`: functions of `kwargs`, or graphs.

    Under a tape what runs is recorded. In a capture each replay looks at the condition; under a tape in a capture that
    is refused [capture].

    >>> x = wb.zeros(1)
    >>> wb.capture_if(wb.array([1]), on_true=lambda: x.fill_(2.0), on_false=lambda: x.fill_(3.0))
    >>> x.item()
    np.float32(2.0)
    """

    def choose(on_true: Body, on_false: Body) -> None:
        _run(on_true if condition.flatten()[0] else on_false, kwargs)

    _do("capture_if", condition, choose, (on_true, on_false), kwargs)


def _do(
    what: str, condition: array, run: Callable[..., None], bodies: tuple[Body, ...], kwargs: dict[str, Any]
) -> None:
    """Run `run(*bodies)`; in an open capture, in each of its replays too, which test the condition anew."""
    if not isinstance(condition, array) or condition.size < 1:
        raise LaunchError(f"{what} takes an array of one whole number", slug="argument-type", instead="wb.array([1])")
    notes = capture_log.active_capture()
    if notes is None:
        run(*bodies)
        return
    if recorder() is not None:
        capture_log.refuse(f"{what}() under a tape", f"the same line outside: {what}(condition, graph)")
    graphs = [_captured(body, kwargs) for body in bodies]
    given = [graph for graph in graphs if graph is not None]
    if any(graph.tapes for graph in given):
        capture_log.refuse(f"{what}() of a block with a tape", f"the same line outside: {what}(condition, graph)")
    for graph in given:
        graph.tell(notes)
        for memory in (*graph.notes.first, *graph.notes.written):
            notes.use(memory, "read")
    if not notes.late:
        with capture_log.paused():
            run(*graphs)
    notes.steps.append(partial(run, *graphs))


def _captured(body: Body, kwargs: dict[str, Any]) -> Graph | None:
    """A body as a graph; a function is captured by a run that is undone. None for None."""
    if callable(body):
        with capture_log.interrupted(), ScopedCapture() as scope:
            body(**kwargs)
        return scope.graph
    return body.graph if isinstance(body, Capture) else body


def _run(body: Body, kwargs: dict[str, Any]) -> None:
    if isinstance(body, (Graph, Capture)):
        body.replay()
    elif body is not None:
        body(**kwargs)
