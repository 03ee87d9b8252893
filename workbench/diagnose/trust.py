"""`tape.trust(loss, x)`: how far an exact gradient can be followed, and what ends that.

The recorded program runs again along its gradient, over eight decades of step length and both ways, and its loss is
compared with the straight line of the gradient. Nothing about the derivative is computed anew. Sources: Metz et al.,
"Gradients are not all you need" (2021), for chaos; Suh et al., "Do differentiable simulators give better policy
gradients?" (2022), for contacts; Hu et al., "DiffTaichi" (2020), for the time of impact.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np

from ..arrays import allocation as memory
from ..arrays.array import array, on_device
from ..arrays.workspace import Workspace, is_float_memory
from ..derivatives.sweep import spread
from ..display import ProgressBar, png
from ..errors import GradientError, Where
from ..kernels.ir import walk as statements
from ..kernels.ops.memory import ATOMIC_MAX, ATOMIC_MIN
from ..tapes.events import Event
from ..tapes.jvp import carry_tangents, check_directions, shadow_of
from ..tapes.private_copies import leaves
from ..tapes.replay import keep_all
from ..tapes.seeds import check_seed, check_tape, seeds_of
from ..tapes.tape import Tape
from .loop_turns import Loops, first_count
from .probe import Decision, LossSample, Probe
from .saturated import DeadSlopes
from .series import lines_reached
from .walk_record import WalkRecord, norm_of
from .walk_step import EventAccess, WalkObserver, accesses

MOST = 60  # runs
HOLDS = 0.1  # relative error up to which the linear prediction holds
SCALES = (-7, -5, -3, -2, -1, 0, 3)  # powers of ten of the size of the inputs that are tried as steps
PARTS = 4  # of the way between two of them, where something is decided otherwise
HALVINGS = 2  # of the last part
JUMPS = 10  # halvings until a jump is known to be one
KINKS = 5  # halvings until a kink is located
WORKERS = 4  # parts in which an executor gets the first samples
TURNS = 10_000  # statements that are looked at for growth in loops
MANY = 1_000_000  # in those whose turns cannot be counted
PART = 0.05  # of the slope: a change by more is a kink; of the predicted change: a jump
CHAOS = 1e3  # the adjoint grows at least by this, exponentially
FLAT = 1e-6  # the predicted change over the size of the inputs, relative to what happens there
BLIND = 1e-5  # a singular value over the largest: a direction that is not seen
FADES = 1e-4  # what a launch passes on at least of a direction that it sees
RESIDUALS = 64  # parameters up to which directions that the loss does not see are looked for

REMEDIES = {
    "jump": "an event located inside its step (time of impact), or a smoothed loss (notebook 18, parts 1 and 2)",
    "kink": "smaller steps on that side of it, or a smooth function in its place",
    "chaos": "a shorter horizon, several shooting intervals, or a loss averaged over many starts (notebook 18, part 3)",
    "flat": "a start outside of the flat part, other units, or a loss that does not saturate (notebook 18, part 4)",
    "noise": "float64, or a loss without large terms that cancel",
    "mismatch": "tape.diagnose(), which names ties and rules of yours, and wb.gradcheck(tape)",
    "ill-posed": "fewer parameters, more data, or a penalty on that combination",
}


@dataclass(eq=False)
class Trust:
    """The answer of `tape.trust`: how far a gradient can be followed.

    kind         "smooth", "kink", "jump", "chaos", "flat", "noise", "ill-posed"; "mismatch" where no step, however
                 short, changes the loss as the gradient says: two launches take a tie to different sides, or a rule of
                 the user's own is wrong.
    radius       the longest step along the gradient (Euclidean, in the units of x) up to which the loss is within 10 %
                 of the linear prediction, both ways; infinity where it always was.
    slope        the derivative of the loss along the gradient: its length.
    launch, line, thread   where that ends: "#41 step", the source line, the thread's index; None where unknown.
    turn         how many decisions of that line the thread makes before.
    step         which launch of its line it is, from 0.
    size         of a jump: by how much the loss jumps; of a kink: by how much its slope changes.
    noise_floor  by how much the loss in the program's own precision differs from that in float64.
    growth       factor by which the adjoint grows a step; `horizon`: steps until rounding is as large as the gradient.
    unseen       {input: direction} that the loss does not see, of length 1.
    others       {direction: step up to which its own prediction holds}, where that is less than half the radius: the
                 input of the largest slope alone, and two random directions.
    samples      step lengths (negative: against the gradient) and losses, sorted; `replays`: how often it ran.

    >>> def loss(x):
    ...     return wb.utils.array_inner(x, x, out=wb.zeros(1))
    >>> found = wb.trust(loss, np.array([3.0, 4.0], np.float32))
    >>> bool(found), 0.5 < found.radius < 2, round(found.slope)
    (True, True, 10)
    """

    kind: str
    radius: float
    slope: float
    loss: float
    samples: tuple[np.ndarray, np.ndarray]
    noise_floor: float
    replays: int
    launch: str | None = None
    line: Where | None = None
    thread: tuple[int, ...] | None = None
    turn: int | None = None
    step: int | None = None
    size: float | None = None
    growth: float | None = None
    horizon: float | None = None
    unseen: dict[str, np.ndarray] = field(default_factory=dict)
    others: dict[str, float] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """True for a gradient that can be followed: a smooth one."""
        return self.kind == "smooth"

    def __repr__(self) -> str:
        return f"<trust: {self.sentence}>"

    @property
    def sentence(self) -> str:
        """One sentence: how far, what ends it, where, and what helps."""
        first = min(self.others, key=self.others.__getitem__, default=None)
        sideways = "" if first is None else f" Along {first} it parts at {self.others[first]:.2g} already."
        far = "at every step length tried" if math.isinf(self.radius) else f"for steps up to {self.radius:.2g}"
        if self.kind == "smooth":
            good = f"good {far}" if self.slope else "zero: nothing changes in first order"
            return f"exact, and {good}.{sideways}"
        helps = f"{sideways} What helps: {REMEDIES[self.kind]}."
        if self.kind == "mismatch":
            return f"at no step length does the loss change as this gradient says.{helps}"
        if self.kind in ("flat", "noise"):
            return f"exact, and of no use: {self._what()}.{helps}"
        then = "but blind to" if self.kind == "ill-posed" else "then"
        return f"exact; good {far}, {then} {self._what()}.{helps}"

    def _what(self) -> str:
        place = "" if self.line is None else f" in line {self.line.line} ({self.line.text.strip()})"
        place += f" of {self.launch}" if self.launch else ""
        place += f", thread {self.thread[0] if len(self.thread) == 1 else self.thread}" if self.thread else ""
        if self.kind in ("jump", "kink"):
            changed = "loss jumps" if self.kind == "jump" else "slope changes"
            return f"a decision falls otherwise{place}, and the {changed} by {self.size:.2g}"
        if self.kind == "chaos":
            grows = f"chaos: the adjoint grows by a factor of {self.growth:.5g} a turn{place}"
            return f"{grows}; beyond {self.horizon:.0f} of them rounding is as large as the gradient"
        if self.kind == "flat":
            return f"the loss is flat here; the gradient dies{place}" if place else "the loss is flat here"
        if self.kind == "noise":
            return f"the loss is known to {self.noise_floor:.2g} only, in the program's own precision"
        parts = [(c, _cell(n, at)) for n, v in self.unseen.items() for at, c in np.ndenumerate(v)]
        largest = sorted(parts, key=lambda p: -abs(p[0]))[:4]
        return "a combination of inputs: " + " ".join(f"{c:+.2g} {name}" for c, name in largest if abs(c) > 0.05)

    def plot(self, ax: Any = None) -> Any:
        """Draw the loss along the gradient beside the exact slope, by step length. Returns matplotlib's axes."""
        if ax is None:
            from matplotlib.figure import Figure

            ax = Figure(figsize=(6.4, 3.2), layout="constrained").add_subplot()
        steps, losses = self.samples
        for sign, label in ((1, "along the gradient"), (-1, "against it")):
            there = steps * sign > 0
            secants = (losses[there] - self.loss) / steps[there]
            ax.semilogx(np.abs(steps[there]), secants, "o-", ms=3, lw=1, label=label)
        ax.axhline(self.slope, color="0.5", lw=1, ls="--", label="exact slope")
        if np.isfinite(self.radius) and self.radius > 0:
            ax.axvspan(np.abs(steps[steps != 0]).min(), self.radius, color="tab:green", alpha=0.12, lw=0)
        middle, reach = self.slope, 3 * abs(self.slope) or 1.0
        ax.set(ylim=(middle - reach, middle + reach), xlabel="step length", ylabel="change of the loss / step")
        ax.set_title(self.sentence.partition(" What helps")[0], fontsize="small", wrap=True)
        ax.legend(fontsize="x-small")
        return ax

    def _repr_png_(self) -> bytes:
        return png(self.plot().figure)


def trust(
    tape: Tape,
    loss: array,
    x: array | Sequence[array] | None = None,
    executor: Executor | None = None,
    progress: bool = True,
) -> Trust:
    """Find how far the gradient of a loss can be followed, what ends that, and where.

    loss       an array of one element.
    x          the array, or arrays, to move; by default all that the tape started from and that require gradients.
    executor   its workers run the program at the first step lengths, all at once (see `sweep`).
    progress   a bar after a second.

    The recorded program runs again at most sixty times, on private copies, in float64 where it can be widened: along
    the gradient, both ways, and along the largest entry alone and two random directions. Raises GradientError
    [loss-shape], [not-active] for an x on no active path, [trust] for a gradient that is not finite, and what `replay`
    raises.

    Use it before an optimizer: an exact gradient of a bouncing ball points the wrong way beyond the next contact.

    >>> @wb.kernel
    ... def stairs(x: wb.array[float], out: wb.array[float]):
    ...     i = wb.tid()
    ...     out[i] = wb.floor(10.0 * x[i]) + x[i]
    >>> x, out = wb.array([0.55], requires_grad=True), wb.zeros(1)
    >>> with wb.Tape(keep="all") as tape:
    ...     wb.launch(stairs, 1, [x, out])
    >>> found = tape.trust(out, x)
    >>> found.kind, round(found.radius, 2), found.line.line, found.thread
    ('jump', 0.05, 4, (0,))
    """
    check_tape("tape.trust(loss, x)", tape, loss)
    check_seed(tape, loss)
    if loss.data.size != 1:
        text = f"trust() of {loss.label} of shape {loss.shape}; a loss is one number."
        raise GradientError(text, slug="loss-shape", instead="a kernel that adds up by wb.atomic_add")
    with ProgressBar(MOST, "trust", progress) as bar, np.errstate(all="ignore"):
        with memory.LOCK, memory.unrecorded():
            given = None if x is None else [x] if isinstance(x, array) else list(x)
            check_directions(tape, *given or ())
            if tape.keep != "all":
                again = keep_all(tape)
                given = None if given is None else [again.of(a) for a in given]
                tape, loss = again, again.of(loss)
            search = _Search(tape, loss, given, bar)
        if executor is not None:
            search.spread(executor)
        with memory.LOCK, memory.unrecorded():
            return search.found()


def trust_function(
    fn: Callable[..., array], *args: Any, argnums: int | tuple[int, ...] = 0, executor: Executor | None = None
) -> Trust:
    """`Tape.trust` for a function of arrays that launches and returns the loss, as `value_and_grad` takes it.

    args      its arguments: NumPy arrays, torch tensors (on the CPU) or arrays, of which it gets copies.
    argnums   the argument, or the tuple of arguments, to move; `executor` as for `Tape.trust`, whose errors it raises.

    >>> @wb.kernel
    ... def bend(x: wb.array[float], out: wb.array[float]):
    ...     wb.atomic_add(out, 0, wb.abs(x[wb.tid()] - 1.0))
    >>> def loss(x):
    ...     out = wb.zeros(1)
    ...     wb.launch(bend, 2, [x, out])
    ...     return out
    >>> wb.trust(loss, np.array([0.5, 3.0], np.float32)).kind
    'kink'
    """
    from ..derivatives.jacobian import copied_input

    picked = (argnums,) if isinstance(argnums, int) else argnums
    given = [copied_input(a, None) if k in picked else a for k, a in enumerate(args)]
    for name, a in zip(inspect.signature(fn).parameters, given, strict=False):
        if isinstance(a, array) and a.name is None:
            a.name = name
    with Tape(keep="all") as tape:
        loss = fn(*given)
    return trust(tape, loss, [given[k] for k in picked], executor)


class _Growth(NamedTuple):
    """Growth of the adjoint by `total`, by `rate` a turn: through launches like one, or turns of a loop in it."""

    total: float
    rate: float
    title: str
    where: Where | None


class _Search:
    """The search along one line, by step length (negative: against the gradient); `f` is the change of the loss."""

    def __init__(self, tape: Tape, loss: array, x: list[array] | None, bar: ProgressBar):
        self.tape, self.end, self.bar = tape, loss, bar
        self.inputs = inputs = _inputs(tape, x)
        self.own = Probe(tape, inputs, loss, False)
        try:
            self.probe = Probe(tape, inputs, loss, True)
        except GradientError:  # memory seen as floats of several widths
            self.probe = self.own
        self.gradient = g = self.probe.gradient()
        self.slope = float(np.linalg.norm(g))
        self.seen: dict[float, LossSample] = {0.0: self.probe.look(np.zeros(g.size))}
        self.base = self.seen[0.0].loss
        if not math.isfinite(self.slope) or not math.isfinite(self.base):
            what = "gradient" if math.isfinite(self.base) else "loss"
            text = f"the {what} is not finite, so there is no line to follow."
            raise GradientError(text, slug="trust", instead="tape.diagnose(loss=loss), which finds the first NaN")
        self.reach = float(np.linalg.norm(self.probe.start())) or 1.0
        self.way = g / self.slope if self.slope else np.full(g.size, 1 / math.sqrt(g.size))
        eps = 1e-15 if self.probe is not self.own else float(np.finfo(loss.data.dtype).eps)
        self.noise = 64 * eps * abs(self.base) + 1e-300

    @property
    def runs(self) -> int:
        return self.probe.runs + (self.own.runs if self.own is not self.probe else 0)

    def sample(self, h: float) -> LossSample:
        if h not in self.seen:
            self.seen[h] = self.probe.look(h * self.way)
            self.bar.update()
        return self.seen[h]

    def f(self, h: float) -> float:
        return self.sample(h).loss - self.base

    def error(self, h: float) -> float:
        """The distance of the loss from the straight line."""
        return self.f(h) - h * self.slope

    def holds(self, h: float) -> bool:
        return abs(self.error(h)) <= HOLDS * self.slope * abs(h) + self.noise

    def fails(self, h: float) -> int:
        """0 if the prediction holds at +-h, else the sign of the side on which it does not."""
        return next((s for s in (1, -1) if not self.holds(s * h)), 0)

    def decided(self, a: float, b: float) -> bool:
        """True if something is decided otherwise at b than at a."""
        return self.sample(a).decisions != self.sample(b).decisions

    def found(self) -> Trust:
        radius, beyond, side = self._radius()
        floor = self._noise_floor(radius)
        made = Trust("smooth", radius, self.slope, self.base, self._samples(), floor, 0)
        for look in (self._chaos, self._decision, self._flat, self._noisy, self._unseen):
            if look(made, beyond, side):
                break
        if made.kind == "smooth" and self.slope and not radius:
            made.kind = "mismatch"
        if made.kind in ("smooth", "kink", "jump"):
            self._sideways(made)
        made.samples, made.replays = self._samples(), self.runs
        return made

    def _samples(self) -> tuple[np.ndarray, np.ndarray]:
        steps = sorted(self.seen)
        return np.array(steps), np.array([self.seen[h].loss for h in steps])

    def spread(self, executor: Executor) -> None:
        """Take the samples of all scales on the workers of an executor."""
        points = [s * self.reach * 10.0**k for k in SCALES for s in (1, -1)]
        parts = [points[n::WORKERS] for n in range(WORKERS)]
        shared = self.tape, self.end, list(self.inputs.values()), self.probe is not self.own
        moves = [[h * self.way for h in part] for part in parts]
        for part, samples in zip(parts, spread(_looked, shared, moves, executor, "trust"), strict=True):
            self.seen |= zip(part, samples, strict=True)
            self.probe.runs += len(part)

    def _radius(self) -> tuple[float, float, int]:
        """(the radius, a slightly longer step that fails or infinity, the side on which it does)."""
        below = self._shortest()
        for h in (self.reach * 10.0**k for k in SCALES):
            if h <= below:
                continue
            ways = [s for s in (1, -1) if self.fails(h) or self.decided(s * below, s * h)]
            first = below or h / 1e4
            between = first * (h / first) ** np.arange(1 / PARTS, 1, 1 / PARTS)
            for middle in between.tolist() if ways and self.runs < MOST - 25 else ():
                if not all(self.holds(s * middle) for s in ways):
                    return self._narrowed(below, middle)
                below = middle
            if self.fails(h):
                return self._narrowed(below, h)
            below = h
        return math.inf, math.inf, 0

    def _narrowed(self, below: float, beyond: float) -> tuple[float, float, int]:
        low, side = below or beyond / 1e2, self.fails(beyond)
        for _ in range(HALVINGS):
            middle = math.sqrt(low * beyond)
            if failing := self.fails(middle):
                beyond, side = middle, failing
            else:
                low = below = middle
        return below, beyond, side

    def _shortest(self) -> float:
        """A step so short that the prediction holds, or 0 where there is none; the noise is measured on the way."""
        h = self.reach * 10.0 ** SCALES[0]
        while (side := self.fails(h)) and h > self.reach * 1e-14:
            shorter, off = h / 100, [abs(self.error(side * k)) for k in (h, h / 100)]
            unseen = bool(self.slope) and self.f(side * shorter) == 0
            if (off[1] > 0.5 * off[0] or unseen) and not self.decided(0, side * h):
                self.noise = max(self.noise, 2 * max(off))
            h = shorter
        return 0.0 if side else h

    # ---- what ends it: each returns True where it is that

    def _decision(self, made: Trust, beyond: float, side: int) -> bool:
        """A decision on the way falls otherwise, and the loss or its slope is another one behind it."""
        if not side or beyond > self.reach:
            return False
        start = -beyond if made.radius == 0 and not self.decided(0, side * beyond) else 0.0  # a kink at the very point
        picks = next((n for n, e in enumerate(self.tape.events) if e.reverse is not None and e.reverse.extremal), None)
        if not self.decided(side * start, side * beyond) and picks is None:
            return False
        found = self._jump(start or made.radius, beyond, side) or self._kink(start, beyond, side)
        if not found:
            return False
        made.kind, made.size, low, high = found
        if made.kind == "kink" and not self.slope and made.radius:  # the far side of what is flat up to there
            made.kind = "flat"
        self._name(made, self.probe.first_difference(side * low * self.way, side * high * self.way), picks)
        return made.line is not None or made.launch is not None

    def _jump(self, low: float, high: float, side: int) -> tuple[str, float, float, float] | None:
        """("jump", its size, the steps around it): a change that stays as large however close these are."""
        enough = PART * max(self.slope * high, self.noise) + self.noise

        def gap(a: float, b: float) -> float:
            return abs(self.error(side * b) - self.error(side * a))

        for _ in range(JUMPS):
            if gap(low, high) <= enough or not self.decided(side * low, side * high):
                return None
            middle = (low + high) / 2
            low, high = (low, middle) if gap(low, middle) >= gap(middle, high) else (middle, high)
        return ("jump", gap(low, high), low, high) if gap(low, high) > enough else None

    def _kink(self, start: float, end: float, side: int) -> tuple[str, float, float, float] | None:
        """("kink", by how much the slope changes, the steps around it): where the loss is bent most on the way."""
        unit, low, many = (end - start) / 2 ** (KINKS + 1), 0, 2 ** (KINKS + 1)

        def f(k: float) -> float:
            return self.f(side * (start + k * unit))

        while many > 2 and self.runs < MOST - 10:
            part = many // 4
            bends = [abs(f(k) - 2 * f(k + part) + f(k + 2 * part)) for k in range(low, low + 3 * part, part)]
            low, many = low + part * int(np.argmax(bends)), many // 2
        high = low + many
        before, after = (f(low) - f(low - many)) / many, (f(high + many) - f(high)) / many
        if not abs(after - before) > PART * max(abs(before), self.slope * unit) + self.noise / many:
            return None
        corner = low + (f(high) - f(low) - after * many) / (before - after)  # where the two straight lines meet
        near = max(corner - many / 64, low), min(corner + many / 64, high)
        steps = [start + k * unit for k in (low, high)]
        if low <= corner <= high and self.decided(*(side * (start + k * unit) for k in near)):
            steps = [start + k * unit for k in near]
        return "kink", abs(after - before) / unit, steps[0], steps[1]

    def _name(self, made: Trust, found: Decision | None, picks: int | None) -> None:
        if found is None and picks is not None:
            event = self.tape.events[picks]
            stmt = next(s for s in statements(event.command.program.function.body) if s.row in (ATOMIC_MIN, ATOMIC_MAX))
            found = Decision(event, picks, stmt.where or event.where, None, None)
        if found is not None:
            made.launch, made.line = f"#{found.number} {found.event.label}", found.where
            made.thread, made.turn = found.thread, found.turn
            call = found.event.label, found.event.line
            made.step = sum((e.label, e.line) == call for e in self.tape.events[: found.number])

    def _sideways(self, made: Trust) -> None:
        """Look along the input of the largest slope alone, and two random directions, for those that part earlier."""
        far = made.radius if 0 < made.radius < math.inf else self.reach
        if self.way.size < 2 or not made.radius or not self.slope:
            return
        for name, way in self._directions():
            slope = float(way @ self.gradient)

            def parts(h: float, way: np.ndarray = way, slope: float = slope) -> bool:
                changes = [self.probe.look(s * h * way).loss - self.base - s * h * slope for s in (1, -1)]
                return not max(map(abs, changes)) <= HOLDS * self.slope * h + self.noise

            if self.runs > MOST - 8:
                return
            h = far / 2  # the same to a factor of two is no news
            while self.runs < MOST - 1 and parts(h):
                made.others[name] = h = h / 2

    def _directions(self) -> Iterator[tuple[str, np.ndarray]]:
        """(name, direction of length 1): the entry of the largest slope, and two random directions."""
        one = np.zeros(self.way.size)
        one[np.argmax(np.abs(self.gradient))] = 1.0
        (name,) = (_cell(n, at) for n, v in self.probe.parts(one).items() for at in np.argwhere(v))
        yield f"{name} alone", one
        rng = np.random.default_rng(0)
        for name in ("a random direction", "another random direction"):
            way = rng.standard_normal(one.size)
            yield name, way / np.linalg.norm(way)

    def _chaos(self, made: Trust, beyond: float, side: int) -> bool:
        """The adjoint grows exponentially, and the slope says more than the loss ever does."""
        if not side or beyond > 1e-2 * self.reach or self.slope * self.reach < 100 * self._range():
            return False
        growing = (found for found in self._growths() if found.total >= CHAOS)
        growth = max(growing, key=lambda found: found.rate, default=None)
        if growth is None:
            return False
        made.kind, made.growth, made.launch, made.line = "chaos", growth.rate, growth.title, growth.where
        made.horizon = -math.log(float(np.finfo(self.end.data.dtype).eps)) / math.log(growth.rate)
        return True

    def _range(self) -> float:
        """The largest known change of the loss within the size of the inputs."""
        near = (s.loss - self.base for h, s in self.seen.items() if abs(h) <= self.reach)
        changes = [abs(change) for change in near if math.isfinite(change)]
        return max(*changes, self.noise)

    def _growths(self, most: int = TURNS) -> Iterator[_Growth]:
        """The repeated launches, and the loops in kernels, through which the adjoint comes back as another one.

        Loops too long for the interpreter are taken with the whole of their launch.
        """
        loops = Loops()
        loops.share = most
        trail = self._walked(loops)
        lines = lines_reached(trail)
        series = [([s.flowing for s in steps], steps[-1].title, steps[-1].event.where) for steps in lines]
        for event, seen in loops.seen.items():
            step = trail.of[event]
            for (line, _), squares in seen.adjoints.items():  # float32 ends before float64 does
                series.append((np.sqrt(list(takewhile(math.isfinite, squares))).tolist(), step.title, line))
            turns, line = (0, None) if seen.adjoints else first_count(event)
            if turns > 3:
                gave = math.hypot(*step.gave.values())
                total = (gave if math.isfinite(gave) else self.slope) / step.flowing
                yield _Growth(total, total ** (1 / turns), step.title, line)
            elif not seen.adjoints and most < MANY:  # a `while`: nobody knows how many turns
                yield from self._growths(MANY)
        for sizes, title, where in series:
            first = 0 if not sizes[0] or not FLAT < sizes[-1] / sizes[0] < CHAOS else int(np.argmin(sizes))
            if (turns := len(sizes) - first - 1) > 3 and sizes[first]:
                total = sizes[-1] / sizes[first]
                yield _Growth(total, total ** (1 / turns), title, where)

    def _walked(self, observer: WalkObserver) -> WalkRecord:
        return WalkRecord(self.tape, seeds_of(self.tape, self.end, None), None, (observer,))

    def _flat(self, made: Trust, beyond: float, side: int) -> bool:
        """The loss hardly changes here, and does farther away, or what it has of the inputs has faded on the way."""
        reached = self.slope * self.reach
        if not reached < FLAT * max(1.0, abs(self.base)):
            return False
        ends = [[max(abs(self.f(s * h * self.reach)) for s in (1, -1)) for h in (by, by * 1e-2)] for by in (1, 10)]
        ends[0][0] = max(ends[0][0], self._range())
        flat = any(max(reached, near) < FLAT * away + self.noise for away, near in ends if math.isfinite(away))
        found = self._walked(DeadSlopes()).observer(DeadSlopes).flattest if flat else None
        if found is not None:
            made.launch, made.thread = found.step.title, found.thread
            made.line = found.stmt.where or found.step.event.where
        else:
            fading = min(self._growths(), key=lambda found: found.total, default=None) if self.slope else None
            if fading is not None and fading.total < FLAT:
                flat, made.launch, made.line = True, fading.title, fading.where
        made.kind = "flat" if flat else made.kind
        return flat

    def _noise_floor(self, radius: float) -> float:
        """The largest known difference between the loss in the program's own precision and in float64."""
        if self.own is self.probe:
            return self.noise
        self.short = 0.5 * min(radius, self.reach) if radius > 0 else self.reach * 1e-3
        ends = [(self.own.value(h * self.way), self.f(h) + self.base) for h in (0.0, self.short)]
        self.coarse = ends[1][0] - ends[0][0]
        return max(abs(a - b) for a, b in ends)

    def _noisy(self, made: Trust, beyond: float, side: int) -> bool:
        """No step that is short enough shows the slope in the program's own precision."""
        if self.own is self.probe or not self.slope:
            return False
        seen = abs(self.coarse - self.f(self.short)) <= 0.5 * abs(self.f(self.short))
        made.kind = made.kind if seen else "noise"
        return not seen

    def _unseen(self, made: Trust, beyond: float, side: int) -> bool:
        """The loss sees fewer combinations of the inputs than it has terms to see them by."""
        if not 1 < self.way.size <= RESIDUALS:
            return False
        rows = _terms(self.tape, self.end, list(self.inputs.values()))
        if rows is None or rows.shape[0] < rows.shape[1]:
            return False
        columns = np.linalg.norm(rows, axis=0)
        columns[columns == 0] = 1
        _, sigma, right = np.linalg.svd(rows / columns)
        if sigma[-1] > BLIND * sigma[0]:
            return False
        v = right[-1] / columns
        unseen = self.probe.parts(v / np.linalg.norm(v))
        if self._fades(unseen):
            return False
        made.kind, made.unseen = "ill-posed", unseen
        return True

    def _fades(self, way: dict[str, np.ndarray]) -> bool:
        """True if launch after launch passes a direction on, to what the loss is summed from: it is forgotten, slowly.

        A combination that is not seen ends in one launch.
        """
        space, before, came, ends = Workspace(), list[EventAccess](), 0.0, False
        live = {a.allocation for a in self.inputs.values()}
        for name, v in way.items():
            shadow_of(self.inputs[name], space)[...] = on_device(self.inputs[name], v)

        def size(found: list[EventAccess], space: Workspace) -> float:
            return math.hypot(*(norm_of(space, x) for x in found))

        def look(event: Event, space: Workspace) -> None:
            nonlocal came, ends
            written = [x for x in before if x.writes]
            if came:
                passed = size(written, space) > FADES * came
                (live.update if passed else live.difference_update)({x.span.allocation for x in written})
            before[:] = accesses(self.tape, event)
            read = [x for x in before if not x.writes and x.span.allocation in live]
            came = size(read, space)
            if any(x.writes and x.span.overlaps(self.end.span) is not False for x in before):
                ends = bool(read)

        carry_tangents(self.tape, space, observe=look)
        return ends


def _inputs(tape: Tape, x: list[array] | None) -> dict[str, array]:
    """The arrays to move, by name. Raises GradientError [trust] if there is none."""
    if x is None:
        tape.log.tally()
        x = [a for a in tape.arrays.values() if a.requires_grad and a.allocation in tape.active]
        x = [a for a in x if not ((m := tape.log.written.get(a.allocation)) and m.touch(a.span))]
    found: dict[str, array] = {}
    for whole in x:
        for a in leaves(whole):
            if a.size and is_float_memory(a) and all(a.span.overlaps(b.span) is False for b in found.values()):
                name = tape.names.of(whole)
                found[name if name not in found else f"{name} ({len(found)})"] = a
    if not found:
        text = "no array of floats to move: none that the tape started from requires a gradient."
        raise GradientError(text, slug="trust", instead="tape.trust(loss, x)   with an x that launches read")
    return found


def _looked(shared: tuple[Tape, array, list[array], bool], moves: list[np.ndarray]) -> list[LossSample]:
    """The samples of some moves, by a worker."""
    tape, loss, x, widened = shared
    with memory.LOCK, memory.unrecorded(), np.errstate(all="ignore"):
        probe = Probe(tape, _inputs(tape, x), loss, widened)
        return [probe.look(move) for move in moves]


def _terms(tape: Tape, loss: array, inputs: list[array]) -> np.ndarray | None:
    """The derivatives of what the loss was summed from (rows) by the inputs (columns); None where that is unknown."""
    last = next((e for e in reversed(tape.events) if any(s.overlaps(loss.span) is not False for s in e.writes)), None)
    if last is None or last.command is None:
        return None
    from ..derivatives.jacobian import jacobian

    read = [a for a in last.places if isinstance(a, array) and is_float_memory(a) and a.allocation in tape.active]
    terms = [a for a in read if a.span.overlaps(loss.span) is False and 1 < a.size <= 4096]
    if not terms:
        return None
    try:
        blocks = [[jacobian(tape, y, x).reshape(y.data.size, x.data.size) for x in inputs] for y in terms]
    except GradientError:
        return None
    return np.block(blocks)


def _cell(name: str, at: Iterable[int]) -> str:
    return f"{name}[{', '.join(map(str, at))}]"
