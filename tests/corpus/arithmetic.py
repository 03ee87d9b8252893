"""Arithmetic and elementary functions of scalars."""

import math

import numpy as np

import workbench as wb

from . import ALL, floats, given, ints, program, zeros

# name -> (interval of the argument, NumPy's meaning): every function of one float
UNARY = {
    "abs": ((-2.0, 2.0), np.abs),
    "sign": ((0.5, 2.0), np.sign),
    "sin": ((-2.0, 2.0), np.sin),
    "cos": ((-2.0, 2.0), np.cos),
    "tan": ((-1.0, 1.0), np.tan),
    "asin": ((-0.9, 0.9), np.arcsin),
    "acos": ((-0.9, 0.9), np.arccos),
    "atan": ((-2.0, 2.0), np.arctan),
    "sinh": ((-2.0, 2.0), np.sinh),
    "cosh": ((-2.0, 2.0), np.cosh),
    "tanh": ((-2.0, 2.0), np.tanh),
    "exp": ((-2.0, 2.0), np.exp),
    "log": ((0.3, 3.0), np.log),
    "log2": ((0.3, 3.0), np.log2),
    "log10": ((0.3, 3.0), np.log10),
    "log1p": ((-0.5, 2.0), np.log1p),
    "expm1": ((-1.0, 2.0), np.expm1),
    "sqrt": ((0.3, 3.0), np.sqrt),
    "rsqrt": ((0.3, 3.0), lambda x: 1 / np.sqrt(x)),
    "cbrt": ((0.3, 3.0), np.cbrt),
    "floor": ((0.1, 0.9), np.floor),
    "ceil": ((0.1, 0.9), np.ceil),
    "trunc": ((0.1, 0.9), np.trunc),
    "round": ((0.6, 1.4), np.round),
    "rint": ((0.6, 1.4), np.rint),
    "frac": ((0.1, 0.9), lambda x: x - np.trunc(x)),
    "degrees": ((0.3, 3.0), np.degrees),
    "radians": ((0.3, 3.0), np.radians),
    "erf": ((-1.5, 1.5), np.vectorize(math.erf)),
    "erfc": ((-1.5, 1.5), np.vectorize(math.erfc)),
    "neg": ((-2.0, 2.0), np.negative),
    "pos": ((-2.0, 2.0), np.positive),
}


def one_argument(name, low, high, meaning):
    function = getattr(wb, name)

    def make(F):
        @wb.kernel
        def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
            i = wb.tid()
            y[i] = function(x[i]) * x[i]

        return k

    make.__name__ = f"function_{name}"
    program(x=floats(4, low=low, high=high), y=zeros(4), reference=lambda x, y: {"y": meaning(x) * x})(make)


for _name, ((_low, _high), _meaning) in UNARY.items():
    one_argument(_name, _low, _high, _meaning)


BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "pow": np.power,
    "min": np.minimum,
    "max": np.maximum,
    "atan2": np.arctan2,
    "mod": np.fmod,
    "copysign": np.copysign,
    "floordiv": np.floor_divide,
}


def two_arguments(name, meaning):
    function = getattr(wb, name)

    def make(F):
        @wb.kernel
        def k(x: wb.array(dtype=F), z: wb.array(dtype=F), y: wb.array(dtype=F)):
            i = wb.tid()
            y[i] = function(x[i], z[i]) * x[i] + z[i]

        return k

    make.__name__ = f"function_{name}"
    reference = lambda x, z, y: {"y": meaning(x, z) * x + z}  # noqa: E731
    program(x=floats(4), z=floats(4), y=zeros(4), reference=reference)(make)


for _name, _meaning in BINARY.items():
    two_arguments(_name, _meaning)


@program(
    x=floats(5),
    z=floats(5),
    y=zeros(5),
    dtypes=ALL,
    reference=lambda x, z, y: {"y": (x + z) * (x - z) / (x * z) + x**2 - (-z) + x**3 / 2 + x % z + x // z},
)
def operators(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), z: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        a = x[i]
        b = z[i]
        y[i] = (a + b) * (a - b) / (a * b) + a ** F(2.0) - (-b) + a**3 / F(2.0) + a % b + a // b

    return k


@program(x=floats(4), z=floats(4), y=zeros(4))
def augmented_assignments_of_a_local(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), z: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        s = x[i]
        s += z[i]
        s *= x[i]
        s -= z[i] * s
        s /= x[i] + s * s
        s **= F(2.0)
        y[i] = s

    return k


@program(x=floats(4, low=-2.0, high=2.0), y=zeros(4), reference=lambda x, y: {"y": np.clip(x, -0.5, 1.0) * x})
def clamp_inside_and_outside(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = wb.clamp(x[i], F(-0.5), F(1.0)) * x[i]

    return k


@program(x=floats(4), lo=floats(4, low=0.6, high=1.0), y=zeros(4))
def clamp_by_active_bounds(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), lo: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = wb.clamp(x[i], lo[i], lo[i] * F(1.5)) * x[i]

    return k


@program(x=floats(4), z=floats(4), t=floats(4, low=0.1, high=0.9), y=zeros(4))
def lerp_and_smoothstep(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), z: wb.array(dtype=F), t: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = wb.lerp(x[i], z[i], t[i]) + wb.smoothstep(F(0.0), F(1.0), t[i]) * x[i]

    return k


@program(x=floats(4), y=zeros(4))
def chained_functions(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = wb.exp(wb.sin(x[i]) * wb.sqrt(x[i] + wb.log(F(3.0) + wb.cos(x[i] * x[i]))))

    return k


@program(x=floats(4), n=ints(1, 2, 3, 0), y=zeros(4))
def integer_power(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), n: wb.array(dtype=int), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = x[i] ** n[i] + x[i] * F(n[i])

    return k


@program(x=given(0.0, 0.5, 1.0), y=zeros(3))
def a_guard_keeps_an_infinite_slope_out(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        safe = wb.where(x[i] > F(0.25), x[i], F(1.0))
        y[i] = wb.where(x[i] > F(0.25), wb.sqrt(safe) + F(1.0) / safe, x[i])

    return k


@program(x=floats(4, low=0.3, high=3.0), y=zeros(4))
def a_product_with_its_own_root(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        a = x[i] * x[i] + x[i]
        root = wb.sqrt(a)
        y[i] = a * root + x[i] / (wb.sqrt(a) * a) - root * x[i]

    return k


@program(x=floats(3), y=zeros(3))
def a_value_used_many_times(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        a = x[i] * x[i]
        b = a * a
        c = a + b
        a = b * c
        b = a - c
        y[i] = a * b + c * c * a

    return k


@program(x=floats(3), z=floats(3), y=zeros(3))
def tuple_swap_and_rebinding(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), z: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        a, b = x[i], z[i]
        a, b = b, a * b
        a, b = b * a, a
        c = a
        a = a * b
        y[i] = a * c * c + b

    return k
