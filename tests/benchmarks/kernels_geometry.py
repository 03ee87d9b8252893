# ruff: noqa: F821, RUF046, UP018  (as programs for Warp are written)
# Queries as users write them, forward and to be differentiated.


@wb.kernel
def closest(mesh: wb.uint64, x: wb.array(dtype=wb.vec3), out: wb.array(dtype=float)):
    i = wb.tid()
    q = wb.mesh_query_point_no_sign(mesh, x[i], 10.0)
    if q.result:
        out[i] = wb.length(x[i] - wb.mesh_eval_position(mesh, q.face, q.u, q.v))


@wb.kernel
def signed(mesh: wb.uint64, x: wb.array(dtype=wb.vec3), out: wb.array(dtype=float)):
    i = wb.tid()
    q = wb.mesh_query_point(mesh, x[i], 10.0)
    if q.result:
        out[i] = q.sign * wb.length(x[i] - wb.mesh_eval_position(mesh, q.face, q.u, q.v))


@wb.kernel
def cast(mesh: wb.uint64, x: wb.array(dtype=wb.vec3), out: wb.array(dtype=float)):
    i = wb.tid()
    q = wb.mesh_query_ray(mesh, x[i], wb.normalize(-x[i]), 10.0)
    out[i] = q.t


@wb.kernel
def boxes(mesh: wb.uint64, x: wb.array(dtype=wb.vec3), out: wb.array(dtype=float)):
    i = wb.tid()
    size = wb.vec3(0.02, 0.02, 0.02)
    count = int(0)
    for _f in wb.mesh_query_aabb(mesh, x[i] - size, x[i] + size):
        count += 1
    out[i] = float(count)


@wb.kernel
def density(grid: wb.uint64, x: wb.array(dtype=wb.vec3), h: float, rho: wb.array(dtype=float)):
    i = wb.tid()
    total = float(0.0)
    for j in wb.hash_grid_query(grid, x[i], h):
        d = x[i] - x[j]
        q = h * h - wb.dot(d, d)
        if q > 0.0:
            total += q * q * q
    rho[i] = total
