"""A recorded simulation to look at before one has written any: eight rockets, one of which runs dry unnoticed."""

from __future__ import annotations

from .arrays.array import array
from .arrays.creation import zeros
from .kernels import kernel
from .kernels.ops import BUILTINS
from .kernels.reading.declare import tid
from .launches.launch import launch
from .tapes.tape import Tape

sqrt = BUILTINS["sqrt"]
STEPS, DT, GRAVITY, GOAL = 29, 0.1, 3.0, 9.0
TANKS = (1.9, 2.3, 2.6, 2.2, 2.8, 1.1, 2.5, 2.4)  # the sixth holds too little for the whole flight


@kernel
def burn(fuel: array[float], thrust: array[float], dt: float):
    i = tid()
    thrust[i] = 4.0 * sqrt(fuel[i])
    fuel[i] = fuel[i] - 0.6 * dt  # nobody asks whether any is left


@kernel
def fly(height: array[float], speed: array[float], thrust: array[float], gravity: float, dt: float):
    i = tid()
    speed[i] = speed[i] + dt * (thrust[i] - gravity - 0.1 * speed[i] * speed[i])
    height[i] = height[i] + dt * speed[i]


@kernel
def miss(height: array[float], goal: float, loss: array[float]):
    d = height[tid()] - goal
    loss[0] += 0.05 * d * d


def demo() -> Tape:
    """A tape with its gradient, ready to look at: the flight of eight rockets in 59 launches, with a mistake to find.

    `fuel`, `thrust`, `height` and `speed` hold 8 float32 numbers each, `loss` one: how far the rockets missed a height.
    In one of the steps a NaN is born, which makes the gradient of one tank NaN. Every value is kept (`keep="all"`).
    Nothing is random: each call computes the same numbers, in new arrays.

    >>> tape = wb.demo()
    >>> len(tape.launches)
    59
    >>> [fuel] = tape.gradients
    >>> fuel.name, int(np.isnan(fuel.grad.numpy()).sum())
    ('fuel', 1)
    >>> tape.diagnose()[0].launch
    '#38 burn'

    In a notebook, `wb.demo().explore()` opens the live view of it.
    """
    fuel = array(TANKS, dtype=float, requires_grad=True, name="fuel")
    thrust, height, speed = (zeros(len(TANKS), dtype=float, name=name) for name in ("thrust", "height", "speed"))
    loss = zeros(1, dtype=float, name="loss")
    with Tape(keep="all") as tape:
        for _ in range(STEPS):
            launch(burn, dim=len(TANKS), inputs=[fuel], outputs=[thrust, DT])
            launch(fly, dim=len(TANKS), inputs=[height, speed, thrust, GRAVITY, DT])
        launch(miss, dim=len(TANKS), inputs=[height, GOAL], outputs=[loss])
    tape.backward(loss)
    return tape
