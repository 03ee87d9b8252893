"""The kinds of events, a record each: what walks, refusals, pickles and pictures ask of an event beside its bytes.

To add a kind: its record here, and a program that makes such an event in `tests/tapes/test_kinds.py`. If no step of
`reverse` and `jvp` fits, one there too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False, repr=False)
class Kind(str):
    """A kind of event. As text it is its name: `event.kind == "launch"`.

    name        as `event.kind` prints, and what pickles hold.
    step        what walks do at it, in `reverse.STEPS` and `jvp.STEPS`: "launch" (the kernel's adjoint), "write" (a
                copy passes adjoints on to its source, every write clears those of its target), "func", "op" (a rule of
                the user's, of the values then), "loop", "backward" (second derivatives of another tape), "opaque",
                "gradient" (refused), "none".
    words       one and several of it, as pictures count them.
    drawn       the kind that pictures call it, where that is another one.
    own         False: not a step of the program, but bytes that others changed.
    passes      True if adjoints pass from what it wrote to what it read, by rules that are known here.
    active      True if all it writes counts as dependent on memory with a gradient.
    cuts        True if it stops gradients on purpose: what it writes is a leaf.
    opaque      True if its adjoint is not known: a walk is refused where one arrives.
    calls_back  True if its reverse step is a function of the user's: no walk that only looks may take it.
    closed      what a refusal calls it if it cannot run again, here on copies or in another process; else "".
    from_host   True if what it writes may have come from outside of all recorded memory.
    fills       True if it writes the same value to all elements.
    pinned      True if what it wrote belongs to the recorded inputs: it cannot run again on others.
    recurs      True if it comes about anew where the program is called again, as steps of checkpointed loops are.
    """

    name: str
    step: str
    words: tuple[str, str]
    drawn: str = ""
    own: bool = True
    passes: bool = False
    active: bool = False
    cuts: bool = False
    opaque: bool = False
    calls_back: bool = False
    closed: str = ""
    from_host: bool = False
    fills: bool = False
    pinned: bool = False
    recurs: bool = False

    def __new__(cls, name: str, *facts: object, **more: object) -> Kind:
        return super().__new__(cls, name)

    def __reduce__(self) -> Any:
        return named, (self.name,)

    @property
    def repeatable(self) -> bool:
        """True if the event can run again, on copies of its memory: a launch, or a write of the host's."""
        return self.own and not self.closed and not self.pinned


LAUNCH = Kind("launch", "launch", ("launch", "launches"), passes=True)
COPY = Kind("copy", "write", ("copy", "copies"), passes=True)
CUT = Kind("cut", "none", ("cut", "cuts"), cuts=True)
ROOT = Kind("root", "none", ("root", "roots"), drawn="cut", cuts=True, pinned=True, recurs=True)
FILL = Kind("fill_", "write", ("fill", "fills"), passes=True, from_host=True, fills=True)
ZERO = Kind("zero_", "write", ("zero", "zeros"), drawn="fill", passes=True, from_host=True, fills=True)
ASSIGN = Kind("assign", "write", ("assign", "assigns"), passes=True, from_host=True)
FUNC = Kind("func", "func", ("func", "funcs"), active=True, calls_back=True, closed="record_func")
OP = Kind("op", "op", ("custom op", "custom ops"), passes=True, active=True, closed="a custom op", recurs=True)
OPAQUE = Kind("opaque", "opaque", ("opaque step", "opaque steps"), opaque=True, closed="an opaque event")
LOOP = Kind("loop", "loop", ("time loop", "time loops"), passes=True, active=True, closed="a checkpointed loop")
BACKWARD = Kind(
    "backward",
    "backward",
    ("backward pass", "backward passes"),
    drawn="func",
    passes=True,
    active=True,
    closed="a backward of another tape",
)
GRADIENT = Kind("gradient", "gradient", ("gradient met", "gradients met"), drawn="assign", own=False)
FOREIGN = Kind("foreign", "none", ("foreign write", "foreign writes"), drawn="assign", own=False, from_host=True)

# in the order in which pictures count
_ALL = (LAUNCH, COPY, CUT, ROOT, FILL, ZERO, ASSIGN, FUNC, OP, OPAQUE, LOOP, BACKWARD, GRADIENT, FOREIGN)
KINDS = {k.name: k for k in _ALL}


def named(name: str) -> Kind:
    """The kind with this name."""
    return KINDS[name]
