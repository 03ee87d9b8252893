"""`descend`: the loop of an optimizer, recorded once and replayed, that keeps the best, can be stopped, and goes on."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from ..arrays.array import array, clone, read_values
from ..arrays.creation import copy
from ..display import ProgressBar, png
from ..errors import GradientError
from ..tapes.jit import Jit
from ..tapes.publish import clear_published
from ..tapes.tape import Tape
from .steps import Adam

PICTURES = 0.1  # seconds between two pictures, at least
USELESS = ("chaos", "flat", "noise")  # kinds of `Trust` that end a descent; of many minima it finds one


class Optimizer(Protocol):
    """Something with a step."""

    def step(self, grad: Sequence[array]) -> object:
        """Move the parameters by their gradients."""


class Descent:
    """A descent: what `descend` returns. `go(rounds)` goes on.

    losses    of each round, before its step; `best`: the lowest, `best_round` its number.
    trusts    {round: `Trust`} of the gradients that were looked at.
    shortened   the rounds whose step was.
    stopped   why it ended early; empty if it did not.

    >>> x = wb.array([2.0], requires_grad=True)
    >>> found = wb.descend(lambda x: wb.utils.array_inner(x, x, out=wb.zeros(1)), x, rounds=2, lr=0.5)
    >>> found.go(3)
    <descent: 5 rounds, best loss 0.0102399 in round 4>
    """

    def __init__(self, fn: Callable[..., array], params: Sequence[array], optimizer: Optimizer, trust: int, jit: bool):
        self.fn, self.params, self.optimizer, self.every = fn, list(params), optimizer, trust
        self.losses: list[float] = []
        self.best, self.best_round, self.stopped = math.inf, -1, ""
        self.trusts: dict[int, Any] = {}
        self.shortened: list[int] = []
        self._longest = math.inf
        self._before = [clone(p, requires_grad=False) for p in self.params]
        self._kept = [clone(p, requires_grad=False) for p in self.params]

        @functools.wraps(fn)
        def turn(optimizer: Optimizer) -> array:
            return self._once(optimizer)

        self._round = Jit(turn, off=not jit)

    def __repr__(self) -> str:
        state = f", stopped: {self.stopped}" if self.stopped else ""
        return f"<descent: {len(self.losses)} rounds, best loss {self.best:.6g} in round {self.best_round}{state}>"

    def go(self, rounds: int, progress: bool = True) -> Descent:
        """Make as many rounds more, and return this. Ctrl-C stops it, and what was reached is kept."""
        self.stopped, self._longest = "", math.inf
        try:
            for _ in _shown(self, rounds) if progress else range(rounds):
                if self.every and len(self.losses) % self.every == 0:
                    self._look()
                value = float(np.ravel(read_values(self._round(self.optimizer)))[0])
                self.losses.append(value)
                if not math.isfinite(value):
                    self.stopped = f"the loss is {value} in round {len(self.losses) - 1}"
                    break
                if value < self.best:
                    self.best, self.best_round = value, len(self.losses) - 1
                    for kept, p in zip(self._kept, self._before, strict=True):
                        copy(kept, p)
                if self._longest < math.inf and not self._shorten():
                    looked = max(self.trusts)
                    self.stopped = f"the gradient of round {looked} is {self.trusts[looked].sentence}"
                    break
        except KeyboardInterrupt:
            self.stopped = f"interrupted in round {len(self.losses)}"
        return self

    def use_best(self) -> list[array]:
        """Write the parameters of the best round into the arrays that are descended, and return these."""
        for p, kept in zip(self.params, self._kept, strict=True):
            copy(p, kept)
        return self.params

    def _look(self) -> None:
        """Look at the gradient, and note how long a step may be until the next look."""
        tape, loss = self._recorded("all")
        self.trusts[len(self.losses)] = found = tape.trust(loss, self.params)
        self._longest = 0.0 if found.kind in USELESS else math.inf
        if found.kind == "jump" or (found.kind == "kink" and found.radius):  # at a kink itself steps are as good as any
            self._longest = found.radius

    def _shorten(self) -> bool:
        """Scale the step just made down to the longest that is allowed. False if nothing is left of it."""
        starts, ends = ([read_values(a) for a in arrays] for arrays in (self._before, self.params))
        steps = [np.subtract(end, start, dtype=np.float64) for end, start in zip(ends, starts, strict=True)]
        length = math.sqrt(sum(float(np.sum(step * step)) for step in steps))
        if not length > self._longest:
            return self._longest > 0
        self.shortened.append(len(self.losses) - 1)
        for p, start, step in zip(self.params, starts, steps, strict=True):
            p.assign((start + step * (self._longest / length)).astype(start.dtype))
        return any(not np.array_equal(read_values(p), start) for p, start in zip(self.params, starts, strict=True))

    def _once(self, optimizer: Optimizer) -> array:
        for before, p in zip(self._before, self.params, strict=True):
            copy(before, p)
            if p.grad is not None:
                p.grad.zero_()
        tape, loss = self._recorded("needed")
        tape.backward(loss)
        optimizer.step([g for p in self.params if (g := p.grad) is not None])
        return loss

    def _recorded(self, keep: str) -> tuple[Tape, array]:
        with Tape(keep=keep) as tape:
            loss = self.fn(*self.params)
            clear_published(tape, self.params)
        if not isinstance(loss, array) or loss.data.size != 1:
            text = f"descend: the function returned a {type(loss).__name__}; a loss is an array of one element."
            raise GradientError(text, slug="loss-shape", instead="return loss")
        return tape, loss

    # ---- pictures

    def plot(self, ax: Any = None) -> Any:
        """Draw the losses by round, and the best. Returns matplotlib's axes."""
        if ax is None:
            from matplotlib.figure import Figure

            ax = Figure(figsize=(6.4, 2.6), layout="constrained").add_subplot()
        positive = self.losses and min(self.losses) > 0
        (ax.semilogy if positive else ax.plot)(self.losses, lw=1.2)
        if self.best_round >= 0:
            ax.plot([self.best_round], [self.best], "o", ms=5, label=f"best: {self.best:.4g}")
            ax.legend(fontsize="small")
        ax.set_xlabel("round")
        ax.set_ylabel("loss")
        return ax

    def _repr_png_(self) -> bytes:
        return png(self.plot().figure)


def _shown(descent: Descent, rounds: int) -> Iterator[int]:
    """The numbers of rounds, with a bar after a second: in a notebook with the losses, redrawn ten times a second."""
    drawn = time.monotonic()
    picture: Any = None
    with ProgressBar(rounds, "descend") as bar:
        for k in range(rounds):
            yield k
            if bar.update() and time.monotonic() - drawn > PICTURES:
                drawn = time.monotonic()
                bar.say(f"loss {descent.losses[-1]:.4g}, best {descent.best:.4g}")
                picture = _redrawn(descent, picture)
    if picture is not None:
        _redrawn(descent, picture)


def _redrawn(descent: Descent, picture: Any) -> Any:
    """Draw the losses in the notebook's output, where there is one: returns what is updated the next time."""
    try:
        from IPython import get_ipython  # pyright: ignore[reportPrivateImportUsage]
        from IPython.display import Image, display
    except ImportError:
        return None
    if getattr(get_ipython(), "kernel", None) is None:
        return None
    image = Image(descent._repr_png_(), alt=f"losses of {len(descent.losses)} rounds, the best {descent.best:.4g}")
    if picture is None:
        return display(image, display_id=True)
    picture.update(image)
    return picture


def descend(
    fn: Callable[..., array],
    params: array | Sequence[array],
    optimizer: Optimizer | None = None,
    rounds: int = 100,
    *,
    lr: float = 0.01,
    trust: int = 0,
    jit: bool = True,
    progress: bool = True,
) -> Descent:
    """Minimise a loss by an optimizer: the loop that is recorded once, replayed, shown, and can go on.

    fn         takes the arrays `params`, launches kernels, returns an array of one element (see `jit` for what it may
               do: it is recorded in the second round and replayed from then on).
    params     an array of floats, or a list, with `requires_grad`; they are changed.
    optimizer  with a `step(gradients)`, made with these params; by default `Adam(params, lr)`.
    trust      every so many rounds the gradient is looked at by `Tape.trust`, which may run it sixty times; 0: never.
               Where a jump or a kink ends the prediction, steps longer than its `radius` are scaled down to that
               until the next look. Chaos, a flat loss and noise end the descent, and so does a jump so near that no
               step is left: `stopped` says it in a sentence.
    jit        False runs every round as it stands: for a function that reads values, or calls `record_func`.
    progress   a bar after a second, in a notebook with a picture of the losses.

    Returns a `Descent`. A loss that is not finite ends it, and so does Ctrl-C: the best is kept (`use_best`). Raises
    GradientError [loss-shape], [no-grad]; what `backward` and `jit` raise.

    >>> x = wb.array([3.0, -4.0], requires_grad=True)
    >>> found = wb.descend(lambda x: wb.utils.array_inner(x, x, out=wb.zeros(1)), x, rounds=300, lr=0.1)
    >>> found.best < 1e-4, found.stopped, len(found.losses)
    (True, '', 300)
    """
    given = [params] if isinstance(params, array) else list(params)
    for p in given:
        if not (isinstance(p, array) and p.requires_grad):
            name = getattr(p, "label", type(p).__name__)
            text = f"descend: {name} has no requires_grad, so nothing says which way it goes."
            raise GradientError(text, slug="no-grad", instead="wb.array(values, requires_grad=True)")
    return Descent(fn, given, Adam(given, lr=lr) if optimizer is None else optimizer, trust, jit).go(rounds, progress)
