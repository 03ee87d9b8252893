"""Queries of boxes and faces by blocks: the next results are a tile, of one element as a block is one thread."""

from __future__ import annotations

from ..kernels.reading.library import library
from ..kernels.types import Struct, bool_
from .box_queries import (
    BvhQuery,
    MeshQueryAABB,
    advance_boxes,
    advance_faces,
    bvh_query_aabb as boxes_in,
    bvh_query_ray,
    mesh_query_aabb as faces_in,
)
from .language import wb
from .mesh import MESH
from .tree import TREE

BvhQueryTiled = Struct("BvhQueryTiled", (("query", BvhQuery), ("more", bool_)))
MeshQueryAABBTiled = Struct("MeshQueryAABBTiled", (("query", MeshQueryAABB), ("more", bool_)))


@library()
def tile_bvh_query_aabb(bvh: TREE, low: wb.vec3, high: wb.vec3):
    """tile_bvh_query_aabb(bvh: uint64, low: vec3, high: vec3) -> query: `bvh_query_aabb` for `tile_bvh_query_next`."""
    return BvhQueryTiled(boxes_in(bvh, low, high), True)


@library()
def tile_bvh_query_ray(bvh: TREE, start: wb.vec3, dir: wb.vec3):
    """tile_bvh_query_ray(bvh: uint64, start: vec3, dir: vec3) -> query: `bvh_query_ray` for `tile_bvh_query_next`."""
    return BvhQueryTiled(bvh_query_ray(bvh, start, dir), True)


@library("query")
def tile_bvh_query_next(query: BvhQueryTiled):
    """tile_bvh_query_next(query) -> a tile of one int: the number of the next box, -1 behind the last."""
    moved, found = advance_boxes(query.query)
    query.query = moved
    query.more = found >= 0
    return wb.tile(found), query


@library()
def tile_mesh_query_aabb(mesh: MESH, low: wb.vec3, high: wb.vec3):
    """tile_mesh_query_aabb(mesh: uint64, low: vec3, high: vec3) -> query: `mesh_query_aabb` for the next name."""
    return MeshQueryAABBTiled(faces_in(mesh, low, high), True)


@library("query")
def tile_mesh_query_aabb_next(query: MeshQueryAABBTiled):
    """tile_mesh_query_aabb_next(query) -> a tile of one int: the number of the next face, -1 behind the last."""
    moved, found = advance_faces(query.query)
    query.query = moved
    query.more = found >= 0
    return wb.tile(found), query


@library()
def tile_query_valid(query):
    """tile_query_valid(query) -> bool: True if the last results had one, and before the first."""
    return query.more


# Their older names.
bvh_query_aabb_tiled, bvh_query_ray_tiled = tile_bvh_query_aabb, tile_bvh_query_ray
bvh_query_next_tiled = tile_bvh_query_next
mesh_query_aabb_tiled, mesh_query_aabb_next_tiled = tile_mesh_query_aabb, tile_mesh_query_aabb_next
