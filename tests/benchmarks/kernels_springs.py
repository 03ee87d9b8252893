# ruff: noqa: F821
# The kernels as a user writes them. `peers.load` runs this file once for each module that is measured, as `wb`.

vec2 = wb.vec2d if real is wb.float64 else wb.vec2f


@wb.kernel
def pull(
    x: wb.array(dtype=vec2),
    v: wb.array(dtype=vec2),
    a: wb.array(dtype=wb.int32),
    b: wb.array(dtype=wb.int32),
    rest: wb.array(dtype=real),
    stiffness: real,
    damping: real,
    f: wb.array(dtype=vec2),
):
    s = wb.tid()
    i = a[s]
    j = b[s]
    d = x[j] - x[i]
    length = wb.length(d)
    u = d / length
    g = (stiffness * (length - rest[s]) + damping * wb.dot(v[j] - v[i], u)) * u
    wb.atomic_add(f, i, g)
    wb.atomic_add(f, j, -g)


@wb.kernel
def move(
    x: wb.array(dtype=vec2),
    v: wb.array(dtype=vec2),
    f: wb.array(dtype=vec2),
    dt: real,
    drag: real,
    gravity: real,
    ground: real,
    x1: wb.array(dtype=vec2),
    v1: wb.array(dtype=vec2),
):
    i = wb.tid()
    p = x[i]
    depth = wb.min(p[1], real(0.0))
    w = drag * (v[i] + dt * (f[i] + vec2(real(0.0), ground * depth * depth - gravity)))
    v1[i] = w
    x1[i] = p + dt * w


@wb.kernel
def distances(x: wb.array(dtype=vec2), target: vec2, weight: real, width: int, rows: wb.array(dtype=real)):
    i = wb.tid()
    d = x[i] - target
    wb.atomic_add(rows, i // width, weight * wb.dot(d, d))


@wb.kernel
def total(rows: wb.array(dtype=real), loss: wb.array(dtype=real)):
    wb.atomic_add(loss, 0, rows[wb.tid()])
