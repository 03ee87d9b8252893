"""One runnable example for every builtin: what `help(wb.dot)` and the reference show, and a test runs.

To document a new builtin, add its line here. Values are those of the host, where a builtin called with numbers
computes at once.
"""

from __future__ import annotations

# name: (call, result); `...` stands for digits that differ between processors
EXAMPLES: dict[str, tuple[str, str]] = {
    "abs": ("wb.abs(-2.0)", "np.float32(2.0)"),
    "acos": ("wb.acos(0.5)", "np.float32(1.0471...)"),
    "add": ("wb.add(1.5, 2.0)", "np.float32(3.5)"),
    "argmax": ("wb.argmax(wb.vec3(1.0, 5.0, 2.0))", "np.uint32(1)"),
    "argmin": ("wb.argmin(wb.vec3(1.0, 5.0, 2.0))", "np.uint32(0)"),
    "asin": ("wb.asin(0.5)", "np.float32(0.5235...)"),
    "atan": ("wb.atan(1.0)", "np.float32(0.7853...)"),
    "atan2": ("wb.atan2(1.0, -1.0)", "np.float32(2.3561...)"),
    "bit_count": ("wb.bit_count(7)", "np.int32(3)"),
    "bit_and": ("wb.bit_and(6, 3)", "np.int32(2)"),
    "bit_or": ("wb.bit_or(6, 3)", "np.int32(7)"),
    "bit_xor": ("wb.bit_xor(6, 3)", "np.int32(5)"),
    "cbrt": ("wb.cbrt(8.0)", "np.float32(2.0)"),
    "ceil": ("wb.ceil(1.2)", "np.float32(2.0)"),
    "clamp": ("wb.clamp(1.5, 0.0, 1.0)", "np.float32(1.0)"),
    "copysign": ("wb.copysign(2.0, -1.0)", "np.float32(-2.0)"),
    "cos": ("wb.cos(0.0)", "np.float32(1.0)"),
    "cosh": ("wb.cosh(1.0)", "np.float32(1.5430...)"),
    "cross": ("wb.cross(wb.vec3(1.0, 0.0, 0.0), wb.vec3(0.0, 1.0, 0.0))", "Small([0., 0., 1.], dtype=float32)"),
    "cw_div": ("wb.cw_div(wb.vec2(1.0, 4.0), wb.vec2(2.0, 2.0))", "Small([0.5, 2. ], dtype=float32)"),
    "cw_mul": ("wb.cw_mul(wb.vec2(1.0, 4.0), wb.vec2(2.0, 2.0))", "Small([2., 8.], dtype=float32)"),
    "ddot": ("wb.ddot(wb.mat22(1.0, 2.0, 3.0, 4.0), wb.mat22(1.0, 0.0, 0.0, 1.0))", "np.float32(5.0)"),
    "degrees": ("wb.degrees(wb.pi)", "np.float32(180.0)"),
    "determinant": ("wb.determinant(wb.mat22(1.0, 2.0, 3.0, 4.0))", "np.float32(-2.0)"),
    "diag": ("wb.diag(wb.vec2(1.0, 2.0))", "Small([[1., 0.],\n       [0., 2.]], dtype=float32)"),
    "div": ("wb.div(1.0, 4.0)", "np.float32(0.25)"),
    "dot": ("wb.dot(wb.vec3(1.0, 2.0, 3.0), wb.vec3(1.0, 1.0, 1.0))", "np.float32(6.0)"),
    "erf": ("wb.erf(0.5)", "np.float32(0.5204...)"),
    "erfc": ("wb.erfc(0.5)", "np.float32(0.4795...)"),
    "erfcinv": ("wb.erfcinv(0.5)", "np.float32(0.4769...)"),
    "erfinv": ("wb.erfinv(0.5)", "np.float32(0.4769...)"),
    "exp": ("wb.exp(1.0)", "np.float32(2.7182...)"),
    "expm1": ("wb.expm1(0.5)", "np.float32(0.6487...)"),
    "floor": ("wb.floor(-1.2)", "np.float32(-2.0)"),
    "floordiv": ("wb.floordiv(-7, 2)", "np.int32(-4)"),
    "frac": ("wb.frac(-1.25)", "np.float32(-0.25)"),
    "get_diag": ("wb.get_diag(wb.mat22(1.0, 2.0, 3.0, 4.0))", "Small([1., 4.], dtype=float32)"),
    "identity": ("wb.identity(2)", "Small([[1., 0.],\n       [0., 1.]], dtype=float32)"),
    "inverse": (
        "wb.inverse(wb.mat22(2.0, 0.0, 0.0, 4.0))",
        "Small([[ 0.5 , -0.  ],\n       [-0.  ,  0.25]], dtype=float32)",
    ),
    "invert": ("wb.invert(5)", "np.int32(-6)"),
    "isfinite": ("wb.isfinite(wb.inf)", "np.False_"),
    "isinf": ("wb.isinf(wb.inf)", "np.True_"),
    "isnan": ("wb.isnan(wb.nan)", "np.True_"),
    "length": ("wb.length(wb.vec3(3.0, 0.0, 4.0))", "np.float32(5.0)"),
    "length_sq": ("wb.length_sq(wb.vec3(3.0, 0.0, 4.0))", "np.float32(25.0)"),
    "lerp": ("wb.lerp(1.0, 3.0, 0.25)", "np.float32(1.5)"),
    "log": ("wb.log(2.0)", "np.float32(0.6931...)"),
    "log10": ("wb.log10(100.0)", "np.float32(2.0...)"),
    "log1p": ("wb.log1p(0.5)", "np.float32(0.4054...)"),
    "log2": ("wb.log2(8.0)", "np.float32(3.0)"),
    "lshift": ("wb.lshift(3, 2)", "np.int32(12)"),
    "matrix_from_cols": (
        "wb.matrix_from_cols(wb.vec2(1.0, 2.0), wb.vec2(3.0, 4.0))",
        "Small([[1., 3.],\n       [2., 4.]], dtype=float32)",
    ),
    "matrix_from_rows": (
        "wb.matrix_from_rows(wb.vec2(1.0, 2.0), wb.vec2(3.0, 4.0))",
        "Small([[1., 2.],\n       [3., 4.]], dtype=float32)",
    ),
    "max": ("wb.max(1.0, 2.0)", "np.float32(2.0)"),
    "min": ("wb.min(wb.vec3(3.0, 1.0, 2.0))", "np.float32(1.0)"),
    "mod": ("wb.mod(-7.0, 3.0)", "np.float32(-1.0)"),
    "mul": ("wb.mul(wb.mat22(1.0, 2.0, 3.0, 4.0), wb.vec2(1.0, 1.0))", "Small([3., 7.], dtype=float32)"),
    "neg": ("wb.neg(2.0)", "np.float32(-2.0)"),
    "nonzero": ("wb.nonzero(0.5)", "np.float32(1.0)"),
    "norm_l1": ("wb.norm_l1(wb.vec2(-1.0, 2.0))", "np.float32(3.0)"),
    "normalize": ("wb.normalize(wb.vec2(3.0, 4.0))", "Small([0.6, 0.8], dtype=float32)"),
    "outer": ("wb.outer(wb.vec2(1.0, 2.0), wb.vec2(3.0, 4.0))", "Small([[3., 4.],\n       [6., 8.]], dtype=float32)"),
    "pos": ("wb.pos(2.0)", "np.float32(2.0)"),
    "pow": ("wb.pow(2.0, 3.0)", "np.float32(8.0)"),
    "quat_from_axis_angle": (
        "wb.quat_from_axis_angle(wb.vec3(0.0, 0.0, 1.0), 0.0)",
        "Small([0., 0., 0., 1.], dtype=float32)",
    ),
    "quat_identity": ("wb.quat_identity()", "Small([0., 0., 0., 1.], dtype=float32)"),
    "quat_inverse": ("wb.quat_inverse(wb.quat(0.0, 0.0, 1.0, 0.0))", "Small([-0., -0., -1.,  0.], dtype=float32)"),
    "quat_rotate": (
        "wb.quat_rotate(wb.quat(0.0, 0.0, 1.0, 0.0), wb.vec3(1.0, 2.0, 3.0))",
        "Small([-1., -2.,  3.], dtype=float32)",
    ),
    "quat_rotate_inv": (
        "wb.quat_rotate_inv(wb.quat(0.0, 0.0, 1.0, 0.0), wb.vec3(1.0, 2.0, 3.0))",
        "Small([-1., -2.,  3.], dtype=float32)",
    ),
    "quat_to_matrix": (
        "wb.quat_to_matrix(wb.quat(0.0, 0.0, 1.0, 0.0))",
        "Small([[-1.,  0.,  0.],\n       [ 0., -1.,  0.],\n       [ 0.,  0.,  1.]], dtype=float32)",
    ),
    "radians": ("wb.radians(180.0)", "np.float32(3.1415...)"),
    "rand_init": ("wb.rand_init(42)", "np.uint32(1223963391)"),
    "rint": ("wb.rint(2.5)", "np.float32(2.0)"),
    "round": ("wb.round(2.5)", "np.float32(3.0)"),
    "rshift": ("wb.rshift(-8, 1)", "np.int32(-4)"),
    "rsqrt": ("wb.rsqrt(4.0)", "np.float32(0.5)"),
    "sign": ("wb.sign(-2.0)", "np.float32(-1.0)"),
    "sin": ("wb.sin(0.5)", "np.float32(0.4794...)"),
    "sinh": ("wb.sinh(1.0)", "np.float32(1.1752...)"),
    "skew": (
        "wb.skew(wb.vec3(1.0, 2.0, 3.0))",
        "Small([[ 0., -3.,  2.],\n       [ 3.,  0., -1.],\n       [-2.,  1.,  0.]], dtype=float32)",
    ),
    "smoothstep": ("wb.smoothstep(0.0, 1.0, 0.25)", "np.float32(0.1562...)"),
    "sqrt": ("wb.sqrt(2.0)", "np.float32(1.4142...)"),
    "step": ("wb.step(-1.0)", "np.float32(1.0)"),
    "sub": ("wb.sub(3.0, 1.0)", "np.float32(2.0)"),
    "tan": ("wb.tan(0.5)", "np.float32(0.5463...)"),
    "tanh": ("wb.tanh(1.0)", "np.float32(0.7615...)"),
    "trace": ("wb.trace(wb.mat22(1.0, 2.0, 3.0, 4.0))", "np.float32(5.0)"),
    "transpose": ("wb.transpose(wb.mat22(1.0, 2.0, 3.0, 4.0))", "Small([[1., 3.],\n       [2., 4.]], dtype=float32)"),
    "trunc": ("wb.trunc(-1.7)", "np.float32(-1.0)"),
    "unot": ("wb.unot(0)", "np.True_"),
    "where": ("wb.where(True, 1.0, 2.0)", "np.float32(1.0)"),
}

_DRAW = """\
>>> @wb.kernel
... def draw(x: wb.array[{type}]):
...     i = wb.tid()
...     state = wb.rand_init(42, i)
...     x[i] = wb.{call}
>>> x = wb.zeros(3, dtype={dtype})
>>> wb.launch(draw, dim=3, inputs=[x])
>>> len(set(x.list()))
3"""
_ATOMIC = """\
>>> @wb.kernel
... def meet(x: wb.array[int], y: wb.array[int]):
...     wb.{call}
>>> y = wb.array([{start}], dtype=int)
>>> wb.launch(meet, dim=3, inputs=[wb.array([3, 1, 2], dtype=int), y])
>>> y.numpy()
array([{result}], dtype=int32)"""
_DETACH = """\
>>> @wb.kernel
... def relative(x: wb.array[float], y: wb.array[float]):
...     i = wb.tid()
...     y[i] = x[i] / wb.detach(x[i])  # the size it is measured by is a constant
>>> x, y = wb.array([2.0, 4.0], requires_grad=True), wb.zeros(2)
>>> with wb.Tape() as tape:
...     wb.launch(relative, dim=2, inputs=[x], outputs=[y])
...     z = y * wb.detach(y)
>>> tape.backward(grads={z: wb.ones(2)})
>>> x.grad.list()
[0.5, 0.25]"""
IN_KERNELS = {
    "detach": _DETACH,
    "randf": _DRAW.format(type="float", dtype="float", call="randf(state, 0.0, 10.0)"),
    "randn": _DRAW.format(type="float", dtype="float", call="randn(state)"),
    "randi": _DRAW.format(type="int", dtype="int", call="randi(state)"),
    "randu": _DRAW.format(type="wb.uint32", dtype="wb.uint32", call="randu(state)"),
    "atomic_add": _ATOMIC.format(call="atomic_add(y, 0, x[wb.tid()])", start=10, result=16),
    "atomic_sub": _ATOMIC.format(call="atomic_sub(y, 0, x[wb.tid()])", start=10, result=4),
    "atomic_min": _ATOMIC.format(call="atomic_min(y, 0, x[wb.tid()])", start=10, result=1),
    "atomic_max": _ATOMIC.format(call="atomic_max(y, 0, x[wb.tid()])", start=0, result=3),
    "atomic_and": _ATOMIC.format(call="atomic_and(y, 0, x[wb.tid()])", start=7, result=0),
    "atomic_or": _ATOMIC.format(call="atomic_or(y, 0, x[wb.tid()])", start=8, result=11),
    "atomic_xor": _ATOMIC.format(call="atomic_xor(y, 0, x[wb.tid()])", start=4, result=4),
    "atomic_exch": _ATOMIC.format(call="atomic_exch(y, 0, 7)", start=10, result=7),
    "atomic_cas": _ATOMIC.format(call="atomic_cas(y, 0, 10, 7)", start=10, result=7),
}


def documented(doc: str, name: str) -> str:
    """The docstring of the builtin `name`, with its example below it where there is one."""
    if name in EXAMPLES:
        call, result = EXAMPLES[name]
        return f"{doc}\n\n>>> {call}\n{result}"
    return f"{doc}\n\n{IN_KERNELS[name]}" if name in IN_KERNELS else doc
