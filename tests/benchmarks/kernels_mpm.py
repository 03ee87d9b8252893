# ruff: noqa: F821
# Elastic bodies by the material point method (MLS-MPM), as a user writes it. See `mpm.py` for what it solves.

vec2, vec3, mat22 = (wb.vec2, wb.vec3, wb.mat22) if real is wb.float32 else (wb.vec2d, wb.vec3d, wb.mat22d)


@wb.func
def spline(t: real):
    """Quadratic B-spline weights of three nodes for a particle `t` cells right of the first."""
    left = real(1.5) - t
    middle = t - real(1.0)
    right = t - real(0.5)
    return vec3(real(0.5) * left * left, real(0.75) - middle * middle, real(0.5) * right * right)


@wb.func
def stress(f: mat22, e: real):
    """Fixed corotated Kirchhoff stress for Young's modulus 100 `e` and Poisson's ratio 1/3."""
    cosine = f[0, 0] + f[1, 1]
    sine = f[1, 0] - f[0, 1]
    r = wb.sqrt(cosine * cosine + sine * sine)
    rotation = mat22(cosine / r, -sine / r, sine / r, cosine / r)
    j = wb.determinant(f)
    pressure = real(75.0) * e * j * (j - real(1.0))
    return (real(75.0) * e) * ((f - rotation) @ wb.transpose(f)) + mat22(pressure, real(0.0), real(0.0), pressure)


@wb.kernel
def p2g(
    x: wb.array(dtype=vec2),
    v: wb.array(dtype=vec2),
    c: wb.array(dtype=mat22),
    f: wb.array(dtype=mat22),
    e: wb.array(dtype=real),
    momentum: wb.array2d(dtype=vec2),
    mass: wb.array2d(dtype=real),
    dt: real,
):
    p = wb.tid()
    cells = real(mass.shape[0])
    xp = x[p] * cells
    bi = int(xp[0] - real(0.5))
    bj = int(xp[1] - real(0.5))
    wx = spline(xp[0] - real(bi))
    wy = spline(xp[1] - real(bj))
    affine = c[p] - stress(f[p], e[p]) * (real(4.0) * dt * cells * cells)
    for i in range(3):
        for j in range(3):
            offset = (vec2(real(bi + i), real(bj + j)) - xp) / cells
            w = wx[i] * wy[j]
            wb.atomic_add(momentum, bi + i, bj + j, w * (v[p] + affine @ offset))
            wb.atomic_add(mass, bi + i, bj + j, w)


@wb.kernel
def grid_op(momentum: wb.array2d(dtype=vec2), mass: wb.array2d(dtype=real), velocity: wb.array2d(dtype=vec2), dt: real):
    i, j = wb.tid()
    n = mass.shape[0]
    if i >= 3 and i < n - 3 and j >= 3 and j < n - 3:
        velocity[i, j] = momentum[i, j] / (mass[i, j] + real(1.0e-10)) - vec2(real(0.0), real(9.8) * dt)


@wb.kernel
def g2p(
    x: wb.array(dtype=vec2),
    f: wb.array(dtype=mat22),
    velocity: wb.array2d(dtype=vec2),
    x_new: wb.array(dtype=vec2),
    v_new: wb.array(dtype=vec2),
    c_new: wb.array(dtype=mat22),
    f_new: wb.array(dtype=mat22),
    dt: real,
):
    p = wb.tid()
    cells = real(velocity.shape[0])
    xp = x[p] * cells
    bi = int(xp[0] - real(0.5))
    bj = int(xp[1] - real(0.5))
    wx = spline(xp[0] - real(bi))
    wy = spline(xp[1] - real(bj))
    v = vec2()
    b = mat22()
    for i in range(3):
        for j in range(3):
            offset = vec2(real(bi + i), real(bj + j)) - xp
            g = (wx[i] * wy[j]) * velocity[bi + i, bj + j]
            v += g
            b += wb.outer(g, offset)
    c = b * (real(4.0) * cells)
    x_new[p] = x[p] + dt * v
    v_new[p] = v
    c_new[p] = c
    f_new[p] = f[p] + dt * (c @ f[p])


@wb.kernel
def distance(x: wb.array(dtype=vec2), target: vec2, loss: wb.array(dtype=real)):
    p = wb.tid()
    d = x[p] - target
    wb.atomic_add(loss, 0, wb.dot(d, d) / real(x.shape[0]))
