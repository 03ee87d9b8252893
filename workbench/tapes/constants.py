"""Constant writes on active paths: values computed only from memory that was filled with constants.

A kernel between arrays on an active path has an adjoint, whatever they hold. Its results depend on nothing with a
gradient if all that it read was overwritten with numbers before. Only what is certain counts as constant.
"""

from __future__ import annotations

from ..arrays.allocation import Allocation
from ..arrays.span import Span
from .events import Event


class Constants:
    """State after each event of a tape: `spans` hold constants, `live` may depend on something with a gradient."""

    def __init__(self, all_events: list[Event]) -> None:
        self.all_events, self.done = all_events, 0
        self.spans: dict[Allocation, dict[Span, None]] = {}
        self.live: dict[Allocation, dict[Span, None]] = {}
        self.events: set[Event] = set()

    def follow(self) -> None:
        """Update to the last event of the tape."""
        events = self.all_events[self.done :]
        if not self.spans and not any(e.kind.from_host for e in self.all_events):
            return
        self.done = len(self.all_events)
        for event in events:
            constant = self._is_constant(event)
            if constant:
                self.events.add(event)
            for span in event.writes:
                if not constant:
                    for old in [s for s in self.spans.get(span.allocation, ()) if s.overlaps(span) is not False]:
                        del self.spans[span.allocation][old]
                    self.live.setdefault(span.allocation, {})[span] = None
                elif event.command is None:
                    for known in (self.live, self.spans):
                        for old in [s for s in known.get(span.allocation, ()) if span.contains(s)]:
                            del known[span.allocation][old]
                    self.spans.setdefault(span.allocation, {})[span] = None

    def _is_constant(self, event: Event) -> bool:
        if event.command is None:
            if event.kind.step != "write":
                return False
            return not event.sources if event.source is None else self._all_constant(event.reads)
        back = event.reverse
        if back is None or event.command.declared or not self.spans:
            return False
        plan, read, others = event.command.plan, [], []
        for (k, _), span in zip(plan.reads, event.reads, strict=False):
            if k in plan.floats:
                (read if k in back.shadows else others).append(span)
        return bool(read) and self._all_constant(read) and not any(map(self._may_live, (*others, *event.writes)))

    def _all_constant(self, read: list[Span] | tuple[Span, ...]) -> bool:
        return all(any(s.contains(span) for s in self.spans.get(span.allocation, ())) for span in read)

    def _may_live(self, span: Span) -> bool:
        """True if these bytes may depend on something with a gradient."""
        a = span.allocation
        if any(s.contains(span) for s in self.spans.get(a, ())):
            return False
        before = a.required.touch(span) or bool(a.origins and a.origins.met(span))
        return before or any(s.overlaps(span) is not False for s in self.live.get(a, ()))
