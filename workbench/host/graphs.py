"""Captures in Warp's words, on top of `tapes.capture`; conditions and loops that memory decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..arrays import capture_log
from ..arrays.array import array
from ..errors import LaunchError
from ..tapes.capture import Capture, Graph, ScopedCapture

_open: list[Capture] = []


def capture_begin(device: Any = None, stream: Any = None, **_: Any) -> None:
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


def capture_end(device: Any = None, stream: Any = None) -> Graph:
    """The graph of what was launched since `capture_begin`, for `capture_launch`.

    Raises LaunchError [capture] where none was begun.
    """
    if not _open:
        raise LaunchError("capture_end() without capture_begin().", slug="capture", instead="wb.capture_begin() first")
    made = _open.pop()
    made.__exit__(None, None, None)
    assert made.graph is not None
    return made.graph


def capture_while(condition: array, while_body: Callable | Graph | Capture, stream: Any = None, **kwargs: Any) -> None:
    """Run the body, a function of `kwargs` or a graph, for as long as `condition[0]` is not 0.

    Under a tape every turn is recorded, so gradients are exact. In a capture it is refused [capture]: how many turns a
    replay makes would have to be read there.

    >>> @wb.kernel
    ... def count(left: wb.array[int], total: wb.array[float]):
    ...     left[0] = left[0] - 1
    ...     total[0] = total[0] + 0.5
    >>> left, total = wb.array([3]), wb.zeros(1)
    >>> wb.capture_while(left, lambda: wb.launch(count, 1, [left, total]))
    >>> total.item()
    np.float32(1.5)
    """
    while _holds("capture_while", condition):
        _run(while_body, kwargs)


def capture_if(
    condition: array, on_true: Callable | Graph | Capture | None = None,
    on_false: Callable | Graph | Capture | None = None,
    stream: Any = None, **kwargs: Any,
) -> None:  # fmt: skip
    """Run `on_true` if `condition[0]` is not 0, else `on_false`: functions of `kwargs`, or graphs.

    Under a tape what runs is recorded. In a capture it is refused [capture].

    >>> x = wb.zeros(1)
    >>> wb.capture_if(wb.array([1]), on_true=lambda: x.fill_(2.0), on_false=lambda: x.fill_(3.0))
    >>> x.item()
    np.float32(2.0)
    """
    _run(on_true if _holds("capture_if", condition) else on_false, kwargs)


def _holds(what: str, condition: array) -> bool:
    capture_log.refuse(f"{what}()", f"the same line outside: {what}(condition, graph) runs one that was captured")
    if not isinstance(condition, array) or condition.size < 1:
        raise LaunchError(f"{what} takes an array of one whole number", slug="argument-type", instead="wb.array([1])")
    return bool(condition.flatten()[0])


def _run(body: Callable | Graph | Capture | None, kwargs: dict[str, Any]) -> None:
    if isinstance(body, (Graph, Capture)):
        body.replay()
    elif body is not None:
        body(**kwargs)


def is_conditional_graph_supported() -> bool:
    """False: a graph has no conditions of its own; `capture_while` and `capture_if` run outside of captures.

    >>> wb.is_conditional_graph_supported()
    False
    """
    return False
