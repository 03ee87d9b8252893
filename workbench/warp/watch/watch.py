"""`watch`: a Warp program runs as it always does, and beside it runs its twin, recorded on a tape of ours.

Each call of Warp that changes memory is one event: host writes since the last one become events first, Warp's call
runs, ours runs on the twins, both results are compared, and the twins take Warp's bytes. So every adjoint is taken at
exactly the values that Warp's program had. A call that has no twin is an opaque event.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from warp._src import context

from ...arrays import allocation as memory
from ...arrays.array import array
from ...errors import GradientError, LaunchError
from .captures import Captures
from .compare import Differences, VerdictTable
from .copy_calls import Builds, CopyCalls
from .graph_launches import GraphLaunches
from .hooks import Hooks, refuse_walks
from .launch_calls import LaunchCalls
from .passes import Backwards, WarpBackward
from .pictures import by_module, picture, write_page
from .recorder import EventRecorder
from .session import Session, WarpStep

CHECKS = ("gradient", "forward", None)
_open: list[Watch] = []


def watch(keep: str = "needed", check: str | None = "gradient") -> Watch:
    """Run a Warp program, unchanged, with an exact tape beside it: `with wb.interop.warp.watch() as seen: ...`.

    keep    of the tape, as in `wb.Tape`: "needed", or "all" for views of every former value.
    check   "gradient": results of every event are compared with Warp's, and every gradient that Warp's `backward`
            publishes with the exact one. "forward": results alone. None: nothing is compared.
    Returns a `Watch`. The program runs to its end with the results that it has without the watch. What cannot be
    followed is an opaque event; gradients that depend on one are "unverified". Only CPU arrays have twins. Raises
    LaunchError for other values, and where a watch is open already.
    """
    if check not in CHECKS:
        raise LaunchError(f"watch(check={check!r})", slug="watch", instead='check="gradient", "forward" or None')
    return Watch(keep, check)


class Watch:
    """The record of a Warp program. In a notebook it shows the verdict, then the tape.

    tape       ours: `show explore seeds ledger microscope diagnose memory`, `wb.jacobian`, `wb.jvp` work on it.
    steps      one per call of Warp that changed memory.
    passes     one per `wp.Tape.backward`, with the rows that `compare` tells.
    gradients  after `backward`: {array of Warp: its gradient as NumPy}.
    """

    def __init__(self, keep: str = "needed", check: str | None = "gradient"):
        self.session = session = Session(keep, check)
        recorder = EventRecorder(session)
        captures = Captures(session, recorder)
        self.launches = LaunchCalls(session, recorder)
        self.backwards = Backwards(session, recorder, captures)
        self.tape, self.steps, self.passes = session.tape, session.steps, self.backwards.passes
        self.hooks = Hooks(lambda: session.inside, lambda name: refuse_walks(self.tape, name))
        self.hooked = (
            self.launches,
            CopyCalls(session, recorder),
            Builds(session, recorder),
            self.backwards,
            captures,
            GraphLaunches(session, recorder, captures, self.backwards),
        )

    # ---- open and close

    def __enter__(self) -> Watch:
        if _open:
            raise LaunchError("a watch inside a watch", slug="watch", instead="with watch() as seen:   once")
        context.init()
        self.session.programs.open()
        _open.append(self)
        memory.between.add("warp")
        for one in self.hooked:
            one.install(self.hooks)
        return self

    def __exit__(self, *exc: object) -> None:
        self.hooks.restore()
        _open.remove(self)
        memory.between.discard("warp")
        session = self.session
        session.tape.names.note(sys._getframe(1))
        session.tape.scopes.extend(by_module(session.steps, session.tape.events))  # blocks of pictures
        session.twins.close()
        session.programs.close()
        self.launches.progress.close()

    # ---- what was recorded

    @property
    def opaque_steps(self) -> list[WarpStep]:
        """The calls that could not be followed, each with its `reason`."""
        return [s for s in self.steps if s.reason]

    def compare(self) -> VerdictTable:
        """A row for each array and backward, then for those of launches with adjoint=True.

        Fields: `array verdict difference launch line cause remedy`.

        verdict     "agrees"; "wrong"; "unverified", where it depends on an opaque event or on one whose result differs;
                    "not asked", where Warp's `.grad` has no one meaning (what launches have overwritten); "meant",
                    where it ends at a clone with requires_grad=False, and is exact but for that.
        difference  the largest, as a share of the largest number in the gradient.
        """
        for one in self.passes:
            one.look_at_views()
            one.look_at_torch()
        return VerdictTable([row for one in (*self.passes, *self.launches.adjoints) for row in one.rows])

    def differences(self) -> Differences:
        """A row for each event whose result is not Warp's to the bit: where, how far apart, what rounds otherwise."""
        return Differences(self.session)

    # ---- the exact gradient

    def backward(self, grads: Mapping[Any, Any]) -> None:
        """Compute the exact gradient of the watched program, whether Warp has one or not.

        grads   {array of Warp: seed}, a seed being a Warp or NumPy array of its shape: for the contents at the end.
        After it `gradients[a]` is the derivative by the contents of `a` at the start (when the watch first met it).
        Nothing of Warp's is written. Raises GradientError [opaque] if an adjoint comes to an opaque event or to a
        gradient that Warp has computed (that would be a second derivative), and [watch-unknown] for arrays that the
        watched program did not touch.
        """
        seeds = {}
        for a, seed in grads.items():
            twin = self.twin_of(a)
            values = np.asarray(seed.numpy() if hasattr(seed, "numpy") else seed)
            dtype = twin.grad.dtype if twin.grad is not None else twin.dtype
            seeds[twin] = array(np.broadcast_to(values, twin.data.shape), dtype=dtype)
        self.tape.zero()
        self.tape.backward(grads=seeds)
        self.session.seeded = True

    def twin_of(self, a: object) -> array:
        """Our twin of an array of Warp. Raises GradientError [watch-unknown]."""
        return self.session.twin_of(a)

    @property
    def gradients(self) -> WarpGradients:
        """{array of Warp: its gradient as NumPy}, after `backward`."""
        return WarpGradients(self.session)

    # ---- pictures

    @property
    def shown(self) -> WarpBackward | None:
        """The backward that pictures are about: the first with a wrong gradient, else the last; None without any."""
        return self.backwards.shown

    def show(self) -> Any:
        """The static picture: the verdict, then their launches as lanes with the exact adjoints.

        Where a gradient of Warp's is wrong, what Warp's buffers held is drawn around the exact adjoints, and a tag says
        both numbers where they first part.
        """
        return picture(self.backwards, "show")

    def explore(self) -> Any:
        """The same as a live picture, as `tape.explore()`. The tools of `tape` are then about this backward."""
        return picture(self.backwards, "explore")

    def to_html(self, path: object) -> Path:
        """Write the verdict and the live picture as one file that needs no network. Returns the path."""
        return write_page(self.backwards, path, self.compare())

    def summary(self) -> str:
        """The number of events, opaque ones, differing results and backwards, in a line."""
        apart = [s.difference.ulps for s in self.steps if s.difference is not None]
        alone = f", adjoint launches: {len(self.launches.adjoints)}" if self.launches.adjoints else ""
        most = f" (by {max(apart):.3g} units in the last place at most: differences())" if apart else ""
        return (
            f"{len(self.steps)} events, {len(self.opaque_steps)} opaque, {len(apart)} with results that differ from"
            f" Warp's{most}, {len(self.passes)} backward{alone}"
        )

    def __repr__(self) -> str:
        return f"{self.summary()}\n{self.compare()}"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        html = f"<p>{escape(self.summary())}</p>{self.compare().html(asked=True)}"
        if self.tape.events:
            html += self.show()._repr_mimebundle_().get("text/html", "")
        return {"text/plain": repr(self), "text/html": html}


class WarpGradients:
    """A mapping from Warp arrays to their gradients, as NumPy arrays of their shape and components."""

    def __init__(self, session: Session):
        self.session = session

    def __getitem__(self, a: object) -> np.ndarray:
        if not self.session.seeded:
            text = "gradients before backward(): there is no seed."
            raise GradientError(text, slug="no-seed", instead="seen.backward(grads={y: seed}), then seen.gradients[x]")
        twin = self.session.twin_of(a)
        grad = twin.grad
        if grad is None:
            raise GradientError(f"{twin.label} is {twin.dtype}: it has no gradient.", slug="grad-of-int")
        return np.array(grad.data)
