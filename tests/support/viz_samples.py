"""Three sample traces: a spring system, memory with overlapping names, and adjoints that went wrong."""

from __future__ import annotations

from collections.abc import Iterable

from workbench.viz.data.trace import (
    AdjointLevel,
    AllocationTrack,
    EventColumn,
    KeptRange,
    NameRange,
    Seed,
    TouchMark,
    Trace,
)

SIZE = 384


def track_of(key: str, nbytes: int, names: Iterable[tuple], text: str = "", itemsize: int = 0) -> AllocationTrack:
    """A track whose names are plain tuples."""
    return AllocationTrack(key, nbytes, [NameRange(*name) for name in names], text, itemsize)


def level(key: str, size: float, contributions: int = 0, lo: int = 0, hi: int = SIZE) -> AdjointLevel:
    return AdjointLevel(key, lo, hi, size, 2 * size, zero=size == 0, contributions=contributions)


def read(key: str, name: str, version: int, lo: int = 0, hi: int = SIZE, strided: bool = False) -> TouchMark:
    return TouchMark(key, name, lo, hi, "read", version, strided=strided)


def write(key: str, name: str, version: int, lo: int = 0, hi: int = SIZE, strided: bool = False) -> TouchMark:
    """A write after which the bytes have `version`."""
    return TouchMark(key, name, lo, hi, "write", version - 1, version, strided)


def springs() -> Trace:
    """Two steps of forces and integrate, then an energy: the picture everything else is measured by."""
    allocations = [
        track_of("m0", SIZE, [("positions", 0, SIZE), ("state[0]", 0, SIZE)], "vec3 (32,)", 12),
        track_of("m1", SIZE, [("velocities", 0, SIZE)], "vec3 (32,)", 12),
        track_of("m2", SIZE, [("forces", 0, SIZE)], "vec3 (32,)", 12),
        track_of("m3", 4, [("loss", 0, 4)], "float32 (1,)", 4),
    ]
    events = [*_spring_step(0, 0, (2e2, 0.4, 0.0)), *_spring_step(2, 1, (3.0, 2.0, 0.0)), _energy()]
    seeds = [Seed("loss[0] = 1", AdjointLevel("m3", 0, 4, 1.0, 1.0))]
    return Trace(allocations, events, seeds)


def _spring_step(n: int, v: int, sizes: tuple[float, float, float]) -> list[EventColumn]:
    position, velocity, force = sizes
    forces = EventColumn(
        f"L{n}",
        n,
        "launch",
        "forces",
        "springs.py:14",
        f"step {v}",
        [read("m0", "positions", v), write("m2", "forces", v + 1)],
        adjoint=[level("m0", position, 2), level("m2", force)],
    )
    integrate = EventColumn(
        f"L{n + 1}",
        n + 1,
        "launch",
        "integrate",
        "springs.py:27",
        f"step {v}",
        [
            read("m1", "velocities", v),
            read("m2", "forces", v + 1),
            read("m0", "positions", v),
            write("m1", "velocities", v + 1),
            write("m0", "positions", v + 1),
        ],
        [KeptRange("m0", 0, SIZE, SIZE, f"forces #{n} reads positions v{v}")],
        [level("m0", position / 5), level("m1", velocity, 2 if v else 0), level("m2", velocity / 20)],
        arrows=[(4, 0), (3, 1)],
    )
    return [forces, integrate]


def _energy() -> EventColumn:
    return EventColumn(
        "L4",
        4,
        "launch",
        "energy",
        "springs.py:35",
        "",
        [read("m0", "positions", 2), read("m1", "velocities", 2), TouchMark("m3", "loss", 0, 4, "accumulate", 0)],
        adjoint=[level("m0", 0.3), level("m1", 0.02), level("m3", 1.0, hi=4)],
    )


def overlap() -> Trace:
    """Views of a part, of every other element, and a whole array under two names."""
    n = 96
    allocations = [
        track_of("m0", n, [("x", 0, n), ("left", 0, 48), ("right", 32, 96)], "float32 (24,)", 4),
        track_of("m1", n, [("grid", 0, n), ("grid[:, 0]", 0, 92, True)], "float32 (12, 2)", 4),
        track_of("m2", 4, [("loss", 0, 4), ("state.loss", 0, 4)], "float32 (1,)", 4),
    ]
    events = [
        EventColumn(
            "F0", 0, "fill", "fill_", "views.py:8", "", [write("m1", "grid", 1, hi=n)], adjoint=[level("m1", 0.0, hi=n)]
        ),
        EventColumn(
            "L1",
            1,
            "launch",
            "halve",
            "views.py:12",
            "",
            [read("m0", "right", 0, 32, 96), write("m0", "left", 1, 0, 48)],
            [KeptRange("m0", 0, 48, 48, "halve #1 reads x v0 and overwrites it")],
            [level("m0", 0.0, lo=0, hi=32), level("m0", 0.5, 2, 32, 48), level("m0", 1.5, lo=48, hi=96)],
        ),
        EventColumn(
            "L2",
            2,
            "launch",
            "gather_columns",
            "views.py:15",
            "",
            [read("m0", "x", 1, 0, n), write("m1", "grid[:, 0]", 2, 0, 92, True)],
            adjoint=[level("m0", 1.0, 2, hi=n), level("m1", 0.1, hi=n)],
        ),
        EventColumn(
            "C3",
            3,
            "copy",
            "copy",
            "views.py:18",
            "",
            [read("m1", "grid", 2, 0, 48), write("m0", "right", 2, 32, 96)],
            [KeptRange("m0", 32, 96, 64, "gather_columns #2 reads x v1")],
            [level("m1", 0.01, hi=48), level("m0", 0.0, lo=32, hi=96)],
        ),
        EventColumn(
            "L4",
            4,
            "launch",
            "sum",
            "views.py:21",
            "",
            [read("m0", "x", 2, 0, n), TouchMark("m2", "loss", 0, 4, "accumulate", 0)],
            adjoint=[level("m0", 1e-3, hi=n), level("m2", 1.0, hi=4)],
        ),
    ]
    return Trace(allocations, events, [Seed("loss[0] = 1", level("m2", 1.0, hi=4))])


def ill() -> Trace:
    """A NaN from sqrt, an Inf, an exact zero from a clamp, and an adjoint that dies."""
    allocations = [
        track_of(f"m{n}", 64, [(name, 0, 64)], "float32 (16,)", 4)
        for n, name in enumerate(("x", "distance", "ratio", "clamped", "loss"))
    ]
    names = [track.names[0].name for track in allocations]
    bad = {
        0: AdjointLevel("m0", 0, 64, float("nan"), float("nan"), nan=True, inf=True),
        1: AdjointLevel("m1", 0, 64, float("inf"), float("inf"), inf=True),
        2: level("m2", 1e-9, hi=64),
        3: level("m3", 4e4, hi=64),
    }
    events = []
    for n, kernel in enumerate(("length", "divide", "clamp", "energy")):
        touches = [read(f"m{n}", names[n], 0 if n == 0 else 1, hi=64), write(f"m{n + 1}", names[n + 1], 1, hi=64)]
        events.append(
            EventColumn(
                f"L{n}",
                n,
                "launch",
                kernel,
                f"ill.py:{7 + 4 * n}",
                "",
                touches,
                adjoint=[bad[n], level(f"m{n + 1}", 0.0, hi=64)],
            )
        )
    side = [read("m3", "clamped", 1, hi=64), TouchMark("m2", "ratio", 0, 64, "accumulate", 1)]
    events.append(
        EventColumn(
            "L4", 4, "launch", "clamp_again", "ill.py:23", "", side, adjoint=[level("m3", 0.0, hi=64)], flags=["died"]
        )
    )
    seeds = [Seed("loss[:] = 1", level("m4", 1.0, hi=64)), Seed("ratio[:] = 2", level("m2", 2.0, hi=64))]
    return Trace(allocations, events, seeds)


def long(number: int, cells: int = 4) -> Trace:
    """A trajectory: event n reads row n of one memory and writes row n + 1, and accumulates into a loss."""
    row = 16
    allocations = [
        track_of("m0", row * (number + 1), [("path", 0, row * (number + 1))], "", cells),
        track_of("m1", 4, [("loss", 0, 4)], "", 4),
    ]
    events = [
        EventColumn(
            f"L{n}",
            n,
            "launch",
            "step",
            "long.py:3",
            "",
            [
                read("m0", "path", n, row * n, row * n + row),
                write("m0", "path", n + 1, row * n + row, row * n + 2 * row),
                TouchMark("m1", "loss", 0, 4, "accumulate", n),
            ],
            adjoint=[level("m0", 1.0, lo=row * n, hi=row * n + row), level("m1", 1.0, hi=4)],
            flags=["nan"] if n == number // 2 else (),
        )
        for n in range(number)
    ]
    return Trace(allocations, events, [Seed("loss[0] = 1", level("m1", 1.0, hi=4))])


def many_names(label: str, number: int) -> Trace:
    """As many events as asked for, all with the same (long) label."""
    allocations = [track_of("m0", 64, [(label, 0, 64), (label * 2, 16, 32)])]
    events = [EventColumn(f"L{n}", n, "launch", label, "", "", [read("m0", label, 0, hi=64)]) for n in range(number)]
    return Trace(allocations, events)
