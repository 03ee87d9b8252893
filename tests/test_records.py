"""`@record` makes of a class what `dataclasses.dataclass` makes of it: compared with it, feature by feature."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

import pytest

from workbench.records import record, replace


class Point:
    x: int
    y: float = 2.0
    tags: list[str] = field(default_factory=list)
    note: Any = field(default=None, compare=False)
    hidden: int = field(default=5, repr=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", self.x + 1)


def both(plain: type, **options: Any) -> tuple[Any, Any]:
    """The class made by `record` and by the standard decorator, of the same body and bases."""
    inside = {n: v for n, v in vars(plain).items() if n not in ("__dict__", "__weakref__")}
    made = []
    for decorate in (record, dataclass):
        own = {n: copy.copy(v) if isinstance(v, dataclasses.Field) else v for n, v in inside.items()}
        made.append(decorate(**options)(type(plain.__name__, plain.__bases__, own)))
    return made[0], made[1]


OPTIONS = [{}, {"frozen": True}, {"eq": False}, {"repr": False}, {"frozen": True, "eq": False}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_record_is_what_dataclass_makes(options: dict[str, bool]) -> None:
    for made in both(Point, **options):
        a, b, other = made(1), made(x=1, tags=[], note="other"), made(2, 3.0, ["t"])
        assert (a.x, a.y, a.tags, a.note, a.hidden, a.size) == (1, 2.0, [], None, 5, 2)
        assert a.tags is not made(1).tags, "a default that is made is made anew"
        assert (a == b, a != other, a == (1, 2.0)) == (options.get("eq", True), True, False)
        if options.get("repr", True):
            assert repr(other) == "Point(x=2, y=3.0, tags=['t'], note=None, size=3)"
        else:
            assert repr(other).startswith("<")
        assert made.__match_args__ == ("x", "y", "tags", "note", "hidden")
        with pytest.raises(TypeError, match=r"Point\.__init__\(\) missing 1 required positional argument: 'x'"):
            made()
        with pytest.raises(TypeError, match="unexpected keyword argument 'size'"):
            made(1, size=3)
        if options.get("frozen"):
            for change in (
                lambda a=a: setattr(a, "x", 3),
                lambda a=a: setattr(a, "new", 3),
                lambda a=a: delattr(a, "x"),
            ):
                with pytest.raises(dataclasses.FrozenInstanceError):
                    change()
        else:
            a.x = 7
            assert a.x == 7


def test_hashes_follow_what_is_compared() -> None:
    class Pair:
        a: int
        b: Any = field(default=None, compare=False)

    class OwnEq(Pair):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    class OwnHash(Pair):
        def __hash__(self) -> int:
            return 7

    for made in both(Pair, frozen=True):
        assert hash(made(1, [])) == hash(made(1)) == hash((1,))
        assert len({made(1), made(1, 2), made(2)}) == 2
    for options in ({}, {"frozen": True}, {"eq": False}):
        for plain in (Pair, OwnEq, OwnHash):
            ours, theirs = both(plain, **options)
            assert (ours.__hash__ is None) == (theirs.__hash__ is None)
            assert (ours.__hash__ is object.__hash__) == (theirs.__hash__ is object.__hash__)
            assert (ours.__eq__ is object.__eq__) == (theirs.__eq__ is object.__eq__)


@record(frozen=True)
class Base:
    a: int
    b: int = 2


@record(frozen=True)
class Derived(Base):
    b: int = 3
    c: tuple[int, ...] = ()


class Named(Base):
    """No record: it may have names of its own."""


@record
class Ring:
    inner: Any = None


def test_fields_of_a_base_come_first_and_keep_their_place() -> None:
    made = Derived(1, c=(4,))
    assert repr(made) == "Derived(a=1, b=3, c=(4,))"
    assert Base(1, 3) != made and made != Base(1, 3)
    named = Named(1)
    named.other = 5  # type: ignore[attr-defined]
    with pytest.raises(dataclasses.FrozenInstanceError):
        named.a = 2  # type: ignore[misc]


def test_the_functions_of_dataclasses_and_pickle_take_records() -> None:
    made = Derived(1)
    assert [f.name for f in dataclasses.fields(made)] == ["a", "b", "c"]
    assert dataclasses.is_dataclass(Derived) and dataclasses.asdict(made) == {"a": 1, "b": 3, "c": ()}
    assert dataclasses.replace(made, a=9) == Derived(9)
    assert pickle.loads(pickle.dumps(made)) == made and copy.deepcopy(made) == made
    match made:
        case Derived(a, b):
            assert (a, b) == (1, 3)


def test_a_record_with_fields_changed_is_made_anew() -> None:
    ours, _ = both(Point)
    first = ours(1, 5.0, note="n")
    second = replace(first, x=2)
    assert (second.x, second.y, second.note, second.size) == (2, 5.0, "n", 3), "`size` follows from `x`"
    assert second.tags is first.tags
    with pytest.raises(TypeError, match="size"):
        replace(first, size=9)


def test_a_record_that_holds_itself_is_printed() -> None:
    ring = Ring()
    ring.inner = ring
    assert repr(ring) == "Ring(inner=...)"


def test_importing_the_package_makes_few_classes_by_the_standard_decorator() -> None:
    """Each costs 0.7 ms. With `slots=True` it makes a new class, which is left to it."""
    text = (
        "import numpy, dataclasses\nmade = []\n"
        "def standard(cls=None, **options):\n"
        "    made.append(options)\n"
        "    return given(**options) if cls is None else given(cls, **options)\n"
        "given, dataclasses.dataclass = dataclasses.dataclass, standard\n"
        "import workbench\nprint([o for o in made if not o.get('slots')], len(made))"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("[] ") and int(done.stdout.split()[-1]) < 10
