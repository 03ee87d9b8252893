"""A workload: one program written for several systems, on the same data, whose losses and gradients must agree."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from .hand import EXACT, FAST, THREADS
from .peers import load, peer

Data = dict[str, np.ndarray]


class Size(NamedTuple):
    """How large a run is: what `n` counts is the workload's business."""

    n: int
    steps: int


class System(Protocol):
    """One contender, made for a size and its data. Calls may be repeated: each starts from the data again."""

    def forward(self) -> None:
        """All steps and the loss."""

    def both(self) -> None:
        """All steps, the loss, and the gradient."""

    def loss(self) -> float:
        """Of the last call."""
        ...

    def gradients(self) -> Data:
        """Of the last `both`, by name; the same names and shapes in every system."""
        ...


Maker = Callable[[Size, Data], System | None]  # None: not installed here, or not able to


@dataclass(frozen=True)
class Workload:
    """`data(size, dtype)`: seeded inputs. `systems`: by name, "c" first: what all others are compared with."""

    name: str
    sizes: Mapping[str, Size]
    tiny: Size  # what the tests run
    data: Callable[[Size, Any], Data]
    systems: Mapping[str, Maker]
    elements: Callable[[Size], int]

    def size(self, name: str) -> Size:
        return self.tiny if name == "tiny" else self.sizes[name]


class Launched:
    """A workload as launches of kernels, for the APIs of Warp and of the workbench alike.

    A subclass names its `file` of kernels, in which `wb` is the module and `real` the scalar type, makes arrays in
    `prepare(data)` (those in `leaves` get their gradients read) and launches in `run()`, which ends in `self.result`.
    """

    file = ""
    device = "cpu"

    def __init__(self, api: Any, size: Size, data: Data, graph: bool = False) -> None:
        self.api, self.size = api, size
        wide = next(iter(data.values())).dtype == np.float64
        self.real = api.float64 if wide else api.float32
        self.kernels = load(api, self.file, real=self.real)
        self.result = self.zeros(1)
        self.leaves: dict[str, Any] = {}
        self.prepare(data)
        self.tape = api.Tape()
        self.replays: tuple[Any, Any] | None = None
        if graph:
            self.replays = self.capture(self.forward), self.capture(self.both)

    def prepare(self, data: Data) -> None:
        raise NotImplementedError

    def run(self) -> None:
        raise NotImplementedError

    def array(self, values: np.ndarray, dtype: Any = None, requires_grad: bool = True) -> Any:
        return self.api.array(values, dtype=dtype or self.real, device=self.device, requires_grad=requires_grad)

    def zeros(self, shape: Any, dtype: Any = None) -> Any:
        """What a run computes: Warp needs the mark on all of it, the workbench on what the gradient is asked of."""
        marked = self.api.__name__ == "warp"
        return self.api.zeros(shape, dtype=dtype or self.real, device=self.device, requires_grad=marked)

    def launch(self, kernel: Any, dim: Any, inputs: list[Any], outputs: list[Any] = []) -> None:  # noqa: B006
        self.api.launch(kernel, dim=dim, inputs=inputs, outputs=outputs, device=self.device)

    def capture(self, call: Callable[[], None]) -> Any:
        """The calls' launches as one graph. They have run once before, so that everything is compiled and allocated."""
        call()
        with self.api.ScopedCapture(device=self.device) as captured:
            call()
        return captured.graph

    def forward(self) -> None:
        if self.replays:
            self.api.capture_launch(self.replays[0])
        else:
            self.result.zero_()
            self.run()

    def both(self) -> None:
        if self.replays:
            self.api.capture_launch(self.replays[1])
            return
        self.tape.reset()
        self.result.zero_()
        with self.tape:
            self.run()
        self.tape.backward(self.result)

    def loss(self) -> float:
        return float(self.result.numpy()[0])

    def gradients(self) -> Data:
        return {name: a.grad.numpy() for name, a in self.leaves.items()}


def hand(made: Callable[..., System], more: dict[str, dict[str, Any]] | None = None) -> dict[str, Maker]:
    """The hand-written C, `made(size, data, flags=..., threads=...)`, in all its forms; `more`: by name, what else."""

    def maker(how: dict[str, Any]) -> Maker:
        return lambda size, data: made(size, data, **{"flags": EXACT, "threads": THREADS, **how})

    forms = {"c": {}, "c fast": {"flags": FAST}, "c 1 thread": {"threads": 1}, **(more or {})}
    return {name: maker(how) for name, how in forms.items()}


def imported(module: str, made: Callable[[Any, Size, Data], System]) -> Maker:
    """A system made with a module of somebody else; None where that is not installed."""

    def make(size: Size, data: Data) -> System | None:
        try:
            found = importlib.import_module(module)
        except ImportError:
            return None
        return made(found, size, data)

    return make


def beside(name: str, of: str) -> Maker:
    """The class of this name in a file here that cannot be imported without a system, `peer_taichi` or `peer_drjit`."""
    return imported(f"{__package__}.{of}", lambda module, size, data: getattr(module, name)(size, data))


def launched(made: type[Launched]) -> dict[str, Maker]:
    """The systems that such a class stands for: both modules, plain and as a graph."""

    def maker(name: str, graph: bool) -> Maker:
        def make(size: Size, data: Data) -> System | None:
            api = peer(name)
            if api is None or (graph and not hasattr(api, "ScopedCapture")):
                return None
            return made(api, size, data, graph)

        return make

    return {
        "workbench": maker("workbench", False),
        "workbench graph": maker("workbench", True),
        "Warp": maker("warp", False),
        "Warp graph": maker("warp", True),
    }
