"""Names of NVIDIA Warp that are not in the language, each with the reason and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .examples import text_of
from .functions import BUILTINS
from .samples import STATEFUL

_TEXT = text_of("warp_names.txt")
REFUSED = {n: reason for reason, names in re.findall(r"^(\S.*)\n((?:    .*\n)+)", _TEXT, re.M) for n in names.split()}


def why_refused(name: str) -> str | None:
    """The reason why a name of Warp is not in the language; None for names that are, or that Warp lacks."""
    if name in BUILTINS or name in STATEFUL:
        return None
    families = (reason for known, reason in REFUSED.items() if known.endswith("_") and name.startswith(known))
    return REFUSED.get(name) or next(families, None)


# What is asked for under the name that other libraries have for it.
_ELSEWHERE = {
    "wb.array(data)": "Array asarray tensor Tensor as_tensor ndarray DeviceArray array_from_numpy",
    "tape.backward(loss), then x.grad": "backward gradient grad_of vjp autodiff",
    "wb.detach(a), or the launch outside of the tape": "no_grad stop_gradient",
    "with wb.Tape() as tape:": "GradientTape tape record",
    "wb.utils.array_sum(a)": "sum mean reduce array_sum",
    "wb.utils.array_inner(a, b, out=...)": "inner vdot array_inner",
    "wb.scalar(value, requires_grad=True)": "Variable Parameter parameter variable",
    "@wb.kernel above the function": "jit njit vectorize compile",
    "wb.where(cond, a, b)": "cond ifelse",
    "wb.from_numpy(data) or wb.array(data)": "from_array fromarray asarray_numpy",
    "x.numpy()": "to_numpy as_numpy numpy",
    "wb.empty(shape)": "zeros_uninitialized alloc malloc",
    "wb.jacobian(tape, y, x)": "jac jacrev jacfwd",
    "wb.hvp(tape, loss, {x: v})": "hessian hess",
    "np.arange, linspace and random of NumPy, then wb.array(...)": "arange linspace random rand randint eye",
    "wb.length(v)": "norm magnitude",
    "wb.config.backend": "set_backend backend",
    "wb.optim.linear: cg, bicgstab, gmres": "linalg solve solver inv lu cholesky",
    "a kernel for one step of the method, launched once per step": "odeint solve_ivp ode rk4 integrate integrator",
}


def instead_of(name: str, known: Iterable[str], module: str = "wb") -> str:
    """The replacement for an unknown `wb.` name: its counterpart, else the closest spelling, else ""."""
    import difflib

    close = difflib.get_close_matches(name, known, n=1) or difflib.get_close_matches(name.lower(), known, n=1)
    if size := re.fullmatch(r"vec(\d+)([fdhi]?)", name):
        return f"wb.types.vector({size[1]}, {_SCALARS[size[2]]})"
    if size := re.fullmatch(r"mat(\d)(\d)([fdh]?)", name):
        return f"wb.types.matrix(({size[1]}, {size[2]}), {_SCALARS[size[3]]})"
    meant = next((line for line, names in _ELSEWHERE.items() if name in names.split()), None)
    return meant or (f"{module}.{close[0]}" if close else "")


_SCALARS = {"": "float", "f": "float", "d": "wb.float64", "h": "wb.float16", "i": "int"}
