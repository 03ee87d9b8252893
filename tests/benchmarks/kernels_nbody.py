# ruff: noqa: F821
# Bodies under softened gravity, all pairs, as a user writes them. See `nbody.py` for what is solved.

vec3 = wb.vec3d if real is wb.float64 else wb.vec3f


@wb.kernel
def step(
    x: wb.array(dtype=vec3),
    v: wb.array(dtype=vec3),
    m: wb.array(dtype=real),
    dt: real,
    soft: real,
    n: int,
    x_new: wb.array(dtype=vec3),
    v_new: wb.array(dtype=vec3),
):
    i = wb.tid()
    p = x[i]
    a = vec3()
    for j in range(n):
        d = x[j] - p
        r2 = wb.dot(d, d) + soft
        a += (m[j] / (r2 * wb.sqrt(r2))) * d
    w = v[i] + dt * a
    v_new[i] = w
    x_new[i] = p + dt * w


@wb.kernel
def misfit(x: wb.array(dtype=vec3), target: wb.array(dtype=vec3), scale: real, loss: wb.array(dtype=real)):
    i = wb.tid()
    d = x[i] - target[i]
    wb.atomic_add(loss, 0, scale * wb.dot(d, d))
