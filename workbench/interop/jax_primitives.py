"""Calls as primitives of JAX, which know their derivatives in both modes, to any order.

Three of them, each a callback to the host: a call, its derivative in a direction (`pushed`), its gradient (`pulled`).
The latter two are linear in the directions and the seeds, and each is the transpose of the other; what their own
derivatives are is said by `DerivativeCall`. Nothing is kept between two callbacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import jax
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ..arrays import allocation as memory
from ..arrays.array import array
from ..arrays.scalar import scalar
from ..errors import GradientError
from ..kernels.types import is_float
from ..tapes.tape import Tape
from .pure_calls import DerivativeCall, PureCall, RecordedCall

Values = Sequence[Any]  # of JAX: arrays and tracers


class Evaluates(Protocol):
    """A kernel, or a function that launches some, to be run on values of JAX."""

    def evaluate(self, form: Any, values: Values, wanted: frozenset[int]) -> tuple[list[Any], list[array]]: ...


class HostCall(PureCall):
    """One call of `owner`. `form`: all that it depends on but the values of its inputs; `specs`: of its outputs."""

    def __init__(self, owner: Evaluates, form: tuple[Any, ...], specs: Sequence[jax.ShapeDtypeStruct]):
        self.owner, self.form, self.specs, self.count = owner, form, tuple(specs), len(specs)
        self.floats = [k for k, s in enumerate(specs) if np.dtype(s.dtype).kind == "f"]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HostCall) and self.owner is other.owner and self.form == other.form

    def __hash__(self) -> int:
        return hash((id(self.owner), self.form))

    def record(self, values: Values, wanted: frozenset[int], keep: str) -> RecordedCall:
        with Tape(keep) as tape:
            inputs, outs = self.owner.evaluate(self.form, values, wanted)
        behind = [a.memory if isinstance(a, scalar) else a if isinstance(a, array) else None for a in inputs]
        return RecordedCall(tape, [a if a is not None and is_float(a.dtype) else None for a in behind], outs)

    def run(self, values: Values) -> list[np.ndarray]:
        with memory.unrecorded():
            return [a.numpy() for a in self.owner.evaluate(self.form, values, frozenset())[1]]


def called(call: PureCall, values: Values) -> list[Any]:
    """The outputs of a call, as JAX traces it."""
    return _called.bind(*values, call=call)


def pushed(call: PureCall, values: Values, directions: Mapping[int, Any]) -> dict[int, Any]:
    """The tangent of each float output, for directions of some inputs."""
    if not directions:
        return {}
    return dict(zip(call.floats, _pushed.bind(*values, *directions.values(), call=call, which=tuple(directions))))


def pulled(call: PureCall, values: Values, seeds: Mapping[int, Any], wanted: Iterable[int]) -> dict[int, Any]:
    """The gradient of each wanted input, for seeds of some outputs."""
    wanted = tuple(k for k in wanted if np.dtype(values[k].dtype).kind == "f")
    if not seeds or not wanted:
        return {}
    found = _pulled.bind(*values, *seeds.values(), call=call, seeded=tuple(seeds), wanted=wanted)
    return dict(zip(wanted, found, strict=True))


# ---- on the host


def _specs(call: PureCall) -> list[jax.ShapeDtypeStruct]:
    if isinstance(call, HostCall):
        return list(call.specs)
    assert isinstance(call, DerivativeCall)
    base = _specs(call.base)
    return [*base, *(base[k] for k in call.base.floats)]


def _run_call(values: Values, call: PureCall) -> list[np.ndarray]:
    if isinstance(call, HostCall):
        return call.run(values)
    return [a.numpy() for a in call.record(values, frozenset(), "all").outputs]


def _run_pushed(values: Values, call: PureCall, which: tuple[int, ...]) -> list[np.ndarray]:
    count = len(values) - len(which)
    made = DerivativeCall(call, which, count).record(values, frozenset(), "all")
    return [a.numpy() for a in made.outputs[call.count :]]


def _run_pulled(values: Values, call: PureCall, seeded: tuple[int, ...], wanted: tuple[int, ...]) -> list[np.ndarray]:
    count = len(values) - len(seeded)
    made = call.record(values[:count], frozenset(wanted), "needed")
    found = made.gradients(dict(zip(seeded, values[count:], strict=True)), wanted)
    return [np.asarray(found[k]) if k in found else np.zeros(values[k].shape) for k in wanted]


# ---- the primitives


def _primitive(name: str, run: Callable[..., list[np.ndarray]], specs: Callable[..., list[Any]]) -> Primitive:
    made = Primitive(f"workbench_{name}")
    made.multiple_results = True

    def host(shapes: list[Any], values: Values, **params: object) -> list[np.ndarray]:
        found = run([np.asarray(v) for v in values], **params)
        return [np.array(a, s.dtype).reshape(s.shape) for a, s in zip(found, shapes, strict=True)]

    def impl(*values: jax.Array, **params: object) -> list[jax.Array]:  # at once: our errors arrive as they are
        return [jax.numpy.asarray(a) for a in host(specs(*values, **params), values, **params)]

    def lowered(*values: jax.Array, **params: object) -> list[Any]:
        shapes = specs(*values, **params)
        return list(jax.pure_callback(lambda *given: host(shapes, given, **params), shapes, *values))

    def abstract(*values: jax.Array, **params: object) -> list[Any]:
        return [ShapedArray(s.shape, s.dtype) for s in specs(*values, **params)]

    def batched(values: Values, dims: Sequence[int | None], **params: object) -> tuple[list[Any], list[int]]:
        places = {k: d for k, d in enumerate(dims) if d is not None}

        def one(parts: list[Any]) -> list[Any]:
            given = dict(zip(places, parts, strict=True))
            return made.bind(*(given.get(k, v) for k, v in enumerate(values)), **params)

        found = jax.lax.map(one, [jax.numpy.moveaxis(values[k], d, 0) for k, d in places.items()])
        return found, [0] * len(found)

    made.def_impl(impl)
    made.def_abstract_eval(abstract)
    mlir.register_lowering(made, mlir.lower_fun(lowered, multiple_results=True))
    batching.primitive_batchers[made] = batched
    return made


_called = _primitive("call", _run_call, lambda *_, call: _specs(call))
_pushed = _primitive("pushed", _run_pushed, lambda *_, call, which: [_specs(call)[k] for k in call.floats])
_pulled = _primitive("pulled", _run_pulled, lambda *values, call, seeded, wanted: [values[k] for k in wanted])


# ---- their derivatives


def _moving(tangents: Values) -> dict[int, Any]:
    return {k: t for k, t in enumerate(tangents) if type(t) is not ad.Zero}


def _or_zero(found: Mapping[int, Any], like: Values) -> list[Any]:
    kinds = [v.dtype if np.dtype(v.dtype).kind == "f" else jax.dtypes.float0 for v in like]
    zeros = [ad.Zero(ShapedArray(v.shape, kind)) for v, kind in zip(like, kinds, strict=True)]
    return [found.get(k, zero) for k, zero in enumerate(zeros)]


def _jvp_of_call(values: Values, tangents: Values, *, call: PureCall) -> tuple[list[Any], list[Any]]:
    outs = called(call, values)
    return outs, _or_zero(pushed(call, values, _moving(tangents)), outs)


def _jvp_of_pushed(
    values: Values, tangents: Values, *, call: PureCall, which: tuple[int, ...]
) -> tuple[list[Any], list[Any]]:
    outs = _pushed.bind(*values, call=call, which=which)
    lifted = DerivativeCall(call, which, len(values) - len(which))
    found = pushed(lifted, values, _moving(tangents))
    # the outputs of `lifted` are those of `call`, then what `outs` are
    return outs, _or_zero({at: found[k] for at, k in enumerate(lifted.tangents.values()) if k in found}, outs)


def _transpose_of_pushed(cotangents: Values, *values: jax.Array, call: PureCall, which: tuple[int, ...]) -> list[Any]:
    count = len(values) - len(which)
    _refuse_undefined(values[:count])
    seeds = {call.floats[at]: ct for at, ct in _moving(cotangents).items()}
    found = pulled(call, values[:count], seeds, which)
    return [None] * count + [found.get(k) if ad.is_undefined_primal(v) else None for k, v in zip(which, values[count:])]


def _jvp_of_pulled(
    values: Values, tangents: Values, *, call: PureCall, seeded: tuple[int, ...], wanted: tuple[int, ...]
) -> tuple[list[Any], list[Any]]:
    outs = _pulled.bind(*values, call=call, seeded=seeded, wanted=wanted)
    count = len(values) - len(seeded)
    first, moved = values[:count], _moving(tangents[:count])
    turned = {seeded[at]: t for at, t in _moving(tangents[count:]).items()}
    lifted = DerivativeCall(call, tuple(moved), count)
    seeds = {lifted.tangents[k]: s for k, s in zip(seeded, values[count:], strict=True)}
    second = pulled(lifted, [*first, *moved.values()], seeds, wanted) if moved else {}
    parts = [pulled(call, first, turned, wanted), second]
    sums = [[part[k] for part in parts if k in part] for k in wanted]
    return outs, _or_zero({at: t[0] if len(t) == 1 else t[0] + t[1] for at, t in enumerate(sums) if t}, outs)


def _transpose_of_pulled(
    cotangents: Values, *values: jax.Array, call: PureCall, seeded: tuple[int, ...], wanted: tuple[int, ...]
) -> list[Any]:
    """Linear in the seeds, and in the directions of a `DerivativeCall` seeded in its tangents alone (symmetric)."""
    count = len(values) - len(seeded)
    first, seeds = values[:count], values[count:]
    given = {wanted[at]: ct for at, ct in _moving(cotangents).items()}
    if not any(map(ad.is_undefined_primal, first)):
        found = pushed(call, first, given)
        return [None] * count + [found.get(k) if ad.is_undefined_primal(s) else None for k, s in zip(seeded, seeds)]
    if not isinstance(call, DerivativeCall) or any(k >= call.inputs for k in wanted):
        _refuse_undefined(first)
    assert isinstance(call, DerivativeCall)
    _refuse_undefined([*first[: call.inputs], *seeds])
    other = DerivativeCall(call.base, tuple(given), call.inputs)
    places = {at: k for k, at in call.tangents.items()}
    turned = {other.tangents[places[at]]: s for at, s in zip(seeded, seeds, strict=True)}
    found = pulled(other, [*first[: call.inputs], *given.values()], turned, call.which) if given else {}
    moved = dict(zip(range(call.inputs, count), call.which, strict=True))
    return [found.get(moved.get(k, -1)) for k in range(count)] + [None] * len(seeded)


def _refuse_undefined(values: Values) -> None:
    if any(map(ad.is_undefined_primal, values)):
        text = "JAX transposes the derivative of a kernel in a direction in which it is not linear."
        why = "Only directions and seeds can be transposed."
        raise GradientError(text, slug="transpose", why=why, instead="jax.grad, jax.jvp, jax.vjp, jax.hessian")


ad.primitive_jvps[_called] = _jvp_of_call
ad.primitive_jvps[_pushed] = _jvp_of_pushed
ad.primitive_jvps[_pulled] = _jvp_of_pulled
ad.primitive_transposes[_pushed] = _transpose_of_pushed
ad.primitive_transposes[_pulled] = _transpose_of_pulled
