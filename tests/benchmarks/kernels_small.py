# ruff: noqa: F821
# Small kernels for what surrounds the arithmetic. `peers.load` runs this file once per module, as `wb`.


@wb.kernel
def step(x: wb.array(dtype=float), a: wb.array(dtype=float), b: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = x[i] * a[i] + b[i]


@wb.kernel
def ten_lines(
    x: wb.array(dtype=wb.vec3), v: wb.array(dtype=wb.vec3), y: wb.array(dtype=wb.vec3), stiffness: float, dt: float
):
    i = wb.tid()
    p = x[i]
    r = wb.length(p) + 0.1
    pull = p * (-stiffness / (r * r * r))
    drag = v[i] * (-0.05 * wb.length(v[i]))
    w = v[i] + (pull + drag) * dt
    if p[2] < 0.0:
        w = w + wb.vec3(0.0, 0.0, p[2] * p[2] * stiffness * dt)
    s = wb.sin(p[0]) * wb.exp(-r)
    y[i] = p + w * dt + wb.vec3(s, s * 0.5, 0.0)
