"""A mirror-like blob over a wavy floor: rays on two meshes, one reflection, soft shading, an image of all that."""

import numpy as np
import warp as wp

Real = wp.float32
Vec = wp.types.vector(3, Real)
Number = wp.uint64
WIDTH, HEIGHT, AROUND, ACROSS, FLOOR = 9, 7, 8, 6, 5
FAR = 50.0
WARP_GRADIENT = "same"


def blob():
    """A closed surface around 0; its normals point outwards."""
    u, v = np.linspace(0, 2 * np.pi, AROUND + 1)[:-1], np.linspace(0, np.pi, ACROSS + 1)[1:-1]
    uu, vv = np.meshgrid(u, v, indexing="ij")
    r = 0.8 + 0.1 * np.sin(3 * uu) * np.sin(vv) ** 2
    ring = np.stack([r * np.cos(uu) * np.sin(vv), r * np.cos(vv), -r * np.sin(uu) * np.sin(vv)], -1).reshape(-1, 3)
    m, top = ACROSS - 1, AROUND * (ACROSS - 1)
    faces = []
    for i in range(AROUND):
        j = (i + 1) % AROUND
        faces += [[top, i * m, j * m], [top + 1, j * m + m - 1, i * m + m - 1]]
        for k in range(m - 1):
            faces += [[i * m + k, i * m + k + 1, j * m + k], [i * m + k + 1, j * m + k + 1, j * m + k]]
    return np.concatenate([ring, [[0, 0.8, 0], [0, -0.8, 0]]]), np.array(faces)


def floor():
    x, z = np.meshgrid(np.linspace(-4, 4, FLOOR), np.linspace(-4, 4, FLOOR), indexing="ij")
    points = np.stack([x, -1.2 + 0.1 * np.sin(2 * x) * np.cos(z), z], -1).reshape(-1, 3)
    i, j = (a.ravel() for a in np.meshgrid(np.arange(FLOOR - 1), np.arange(FLOOR - 1), indexing="ij"))
    a, b = i * FLOOR + j, (i + 1) * FLOOR + j
    return points, np.concatenate([np.stack([a, a + 1, b], -1), np.stack([a + 1, b + 1, b], -1)])


BLOB, FLOOR_MESH = blob(), floor()
PARAMETERS = {
    "vertices": BLOB[0],
    "ground": FLOOR_MESH[0],
    "camera": np.array([[0.4, 0.7, 3.2]]),
    "light": np.array([[0.6, 1.3, 0.5]]),
    "shine": np.array([3.0]),
}


@wp.struct
class Surface:
    mesh: Number
    points: wp.array(dtype=Vec)
    faces: wp.array2d(dtype=wp.int32)
    normals: wp.array(dtype=Vec)


@wp.struct
class Hit:
    face: wp.int32
    t: Real
    normal: Vec


@wp.func
def single(v: Vec):
    """As the mesh has it, in float32."""
    return wp.vec3(wp.float32(v[0]), wp.float32(v[1]), wp.float32(v[2]))


@wp.func
def soft(x: Real):
    """1 / (1 + exp(-4 x))"""
    return Real(1.0) / (Real(1.0) + wp.exp(Real(-4.0) * x))


@wp.kernel
def to_single(x: wp.array(dtype=Vec), out: wp.array(dtype=wp.vec3)):
    i = wp.tid()
    out[i] = single(x[i])


@wp.kernel
def sum_normals(x: wp.array(dtype=Vec), faces: wp.array2d(dtype=wp.int32), out: wp.array(dtype=Vec)):
    f = wp.tid()
    i, j, k = faces[f, 0], faces[f, 1], faces[f, 2]
    n = wp.cross(x[j] - x[i], x[k] - x[i])
    wp.atomic_add(out, i, n)
    wp.atomic_add(out, j, n)
    wp.atomic_add(out, k, n)


@wp.func
def look(s: Surface, start: Vec, dir: Vec):
    """What a ray meets first: the mesh says which face it is, the rest is computed here in `Real`."""
    hit = Hit()
    hit.face = -1
    query = wp.mesh_query_ray(s.mesh, single(start), single(dir), wp.float32(FAR))
    if query.result:
        f = query.face
        i, j, k = s.faces[f, 0], s.faces[f, 1], s.faces[f, 2]
        a, b, c = s.points[i], s.points[j], s.points[k]
        n = wp.cross(b - a, c - a)
        t = wp.dot(a - start, n) / wp.dot(dir, n)
        p = start + dir * t
        size = wp.dot(n, n)
        u = wp.dot(wp.cross(b - p, c - p), n) / size
        v = wp.dot(wp.cross(c - p, a - p), n) / size
        hit.face = f
        hit.t = t
        hit.normal = wp.normalize(s.normals[i] * u + s.normals[j] * v + s.normals[k] * (Real(1.0) - u - v))
    return hit


@wp.func
def sky(dir: Vec):
    return Real(0.5) + Real(0.3) * dir[1] + Real(0.1) * wp.sin(Real(3.0) * dir[0])


@wp.func
def lit(normal: Vec, at: Vec, light: Vec):
    to = light * Real(3.0) - at
    return soft(wp.dot(normal, to) / wp.length(to)) * Real(4.0) / (Real(1.0) + wp.dot(to, to) * Real(0.3))


@wp.func
def seen(blob: Surface, ground: Surface, start: Vec, dir: Vec, light: Vec, shine: Real):
    """The brightness from where a ray leads; from the blob, with what it mirrors."""
    color = sky(dir)
    near = look(blob, start, dir)
    below = look(ground, start, dir)
    if near.face >= 0 and (below.face < 0 or near.t < below.t):
        at = start + dir * near.t
        away = dir - near.normal * (Real(2.0) * wp.dot(dir, near.normal))
        mirrored = sky(away)
        other = look(ground, at, away)
        if other.face >= 0:
            mirrored = lit(other.normal, at + away * other.t, light)
        glint = wp.pow(Real(0.5) + Real(0.5) * wp.dot(away, wp.normalize(light)), shine)
        color = Real(0.5) * lit(near.normal, at, light) + Real(0.3) * mirrored + Real(0.2) * glint
    elif below.face >= 0:
        color = lit(below.normal, start + dir * below.t, light)
    return color


@wp.kernel
def render(
    blob: Surface,
    ground: Surface,
    camera: wp.array(dtype=Vec),
    light: wp.array(dtype=Vec),
    shine: wp.array(dtype=Real),
    image: wp.array2d(dtype=Real),
):
    i, j = wp.tid()
    x = (Real(i) + Real(0.43)) / Real(WIDTH) * Real(2.0) - Real(1.0)
    y = Real(1.0) - (Real(j) + Real(0.43)) / Real(HEIGHT) * Real(2.0)
    eye = camera[0]
    forward = wp.normalize(-eye)
    right = wp.normalize(wp.cross(forward, Vec(Real(0.0), Real(1.0), Real(0.0))))
    up = wp.cross(right, forward)
    dir = wp.normalize(forward + right * (x * Real(0.5)) + up * (y * Real(0.4)))
    image[i, j] = seen(blob, ground, eye, dir, light[0], shine[0])


@wp.kernel
def compare(image: wp.array2d(dtype=Real), loss: wp.array(dtype=Real)):
    i, j = wp.tid()
    wanted = Real(0.4) + Real(0.2) * wp.sin(Real(i)) * wp.cos(Real(2 * j))
    d = image[i, j] - wanted
    wp.atomic_add(loss, 0, d * d)


KEPT = []  # what was recorded names meshes by number


def surface(points, faces):
    """A mesh where the points are now, and an array for its normals."""
    made, at = Surface(), wp.zeros(len(points), dtype=wp.vec3)
    wp.launch(to_single, dim=len(points), inputs=[points], outputs=[at])
    mesh = wp.Mesh(points=at, indices=wp.array(faces.ravel(), dtype=wp.int32))
    KEPT.append(mesh)
    made.mesh, made.points, made.faces = mesh.id, points, wp.array(faces, dtype=wp.int32)
    made.normals = wp.zeros(len(points), dtype=Vec, requires_grad=True)
    return made


def simulate(values):
    types = {"shine": Real}
    arrays = {name: wp.array(a, dtype=types.get(name, Vec), requires_grad=True) for name, a in values.items()}
    blob, ground = surface(arrays["vertices"], BLOB[1]), surface(arrays["ground"], FLOOR_MESH[1])
    image = wp.zeros((WIDTH, HEIGHT), dtype=Real, requires_grad=True)
    loss = wp.zeros(1, dtype=Real, requires_grad=True)
    with wp.Tape() as tape:
        for s in (blob, ground):
            wp.launch(sum_normals, dim=len(s.faces), inputs=[s.points, s.faces], outputs=[s.normals])
        inputs = [blob, ground, arrays["camera"], arrays["light"], arrays["shine"]]
        wp.launch(render, dim=(WIDTH, HEIGHT), inputs=inputs, outputs=[image])
        wp.launch(compare, dim=(WIDTH, HEIGHT), inputs=[image], outputs=[loss])
    return tape, loss, arrays
