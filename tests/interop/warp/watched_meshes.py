"""Kernels of Warp that ask meshes and trees of boxes."""
# ruff: noqa: RUF046, UP018  `int(0)` declares a variable in Warp, `0` a constant

from __future__ import annotations

import warp as wp

wp.config.log_level = wp.LOG_WARNING
wp.config.optimization_level = 0


@wp.struct
class Scene:
    mesh: wp.uint64
    scale: float


@wp.kernel
def distances(mesh: wp.uint64, x: wp.array(dtype=wp.vec3), y: wp.array(dtype=float), face: wp.array(dtype=int)):
    i = wp.tid()
    q = wp.mesh_query_point(mesh, x[i], 1.0e3)
    if q.result:
        p = wp.mesh_eval_position(mesh, q.face, q.u, q.v)
        y[i] = q.sign * wp.length(x[i] - p)
        face[i] = q.face


@wp.kernel
def plain_distances(mesh: wp.uint64, x: wp.array(dtype=wp.vec3), y: wp.array(dtype=float)):
    i = wp.tid()
    q = wp.mesh_query_point_no_sign(mesh, x[i], 1.0e3)
    if q.result:
        y[i] = wp.length_sq(x[i] - wp.mesh_eval_position(mesh, q.face, q.u, q.v))


@wp.kernel
def in_scene(scene: Scene, x: wp.array(dtype=wp.vec3), y: wp.array(dtype=float)):
    i = wp.tid()
    q = wp.mesh_query_point_no_sign(scene.mesh, x[i], 1.0e3)
    if q.result:
        y[i] = scene.scale * wp.length_sq(x[i] - wp.mesh_eval_position(scene.mesh, q.face, q.u, q.v))


@wp.kernel
def chosen(meshes: wp.array(dtype=wp.uint64), x: wp.array(dtype=wp.vec3), y: wp.array(dtype=float)):
    i = wp.tid()
    mesh = meshes[i % 2]
    q = wp.mesh_query_point_no_sign(mesh, x[i], 1.0e3)
    if q.result:
        y[i] = wp.length_sq(x[i] - wp.mesh_eval_position(mesh, q.face, q.u, q.v))


@wp.kernel
def rays(
    mesh: wp.uint64,
    x: wp.array(dtype=wp.vec3),
    way: wp.array(dtype=wp.vec3),
    t: wp.array(dtype=float),
    face: wp.array(dtype=int),
):
    i = wp.tid()
    q = wp.mesh_query_ray(mesh, x[i], way[i], 1.0e3)
    t[i] = -1.0
    if q.result:
        t[i] = q.t
        face[i] = q.face


@wp.kernel
def near_boxes(bvh: wp.uint64, x: wp.array(dtype=wp.vec3), middles: wp.array(dtype=wp.vec3), y: wp.array(dtype=float)):
    i = wp.tid()
    reach = wp.vec3(0.4, 0.4, 0.4)
    query = wp.bvh_query_aabb(bvh, x[i] - reach, x[i] + reach)
    k = int(0)
    while wp.bvh_query_next(query, k):
        y[i] += wp.length_sq(x[i] - middles[k])


@wp.kernel
def first_boxes(
    bvh: wp.uint64, x: wp.array(dtype=wp.vec3), middles: wp.array(dtype=wp.vec3), out: wp.array(dtype=wp.vec3)
):
    """What it gives depends on the order of boxes, which is nobody's promise."""
    i = wp.tid()
    reach = wp.vec3(9.0, 9.0, 9.0)
    found = int(0)
    query = wp.bvh_query_aabb(bvh, x[i] - reach, x[i] + reach)
    k = int(0)
    while wp.bvh_query_next(query, k):
        if found == 0:
            out[i] = 2.0 * middles[k]
        found += 1


@wp.kernel
def moved(x: wp.array(dtype=wp.vec3), by: wp.array(dtype=wp.vec3), out: wp.array(dtype=wp.vec3)):
    i = wp.tid()
    out[i] = x[i] + wp.cw_mul(x[i], by[i])
