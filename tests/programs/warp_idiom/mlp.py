"""A network on tiles learns a picture by Adam; then the derivatives of its error by layers, bias and picture."""

import functools

import numpy as np
import warp as wp
import warp.optim

Real = wp.float32
FREQUENCIES = wp.constant(3)
FEATURES, HIDDEN, COLORS, BATCH = 12, 16, 3, 16
SIDE, EPOCHS, THREADS = 8, 12, 32
COUNT = SIDE * SIDE
WARP_GRADIENT = "same"
ROUNDING = 2e-4  # training amplifies it

rng = np.random.default_rng(45)
row, col = np.mgrid[0:SIDE, 0:SIDE].reshape(2, -1) / SIDE
PARAMETERS = {
    "w0": 0.05 * rng.normal(size=(HIDDEN, FEATURES)),
    "b0": 0.05 * rng.normal(size=(HIDDEN, 1)),
    "w1": 0.05 * rng.normal(size=(HIDDEN, HIDDEN)),
    "b1": 0.05 * rng.normal(size=(HIDDEN, 1)),
    "w2": 0.05 * rng.normal(size=(COLORS, HIDDEN)),
    "b2": 0.05 * rng.normal(size=(COLORS, 1)),
    "picture": np.stack([row, 0.5 + 0.5 * np.sin(6 * col), row * col]),
}
LAYERS = ("w0", "b0", "w1", "b1", "w2", "b2")


@wp.func
def soft(x: Real):
    """Like a ramp, without its corner."""
    return x / (Real(1.0) + wp.exp(-x))


@wp.func
def squash(x: Real):
    return Real(0.5) * (wp.tanh(x) + Real(1.0))


@wp.func
def squared(x: Real):
    return x * x


@wp.kernel
def encode(out: wp.array2d(dtype=Real)):
    """Sines and cosines of the place of a pixel, one column for each pixel."""
    k = wp.tid()
    x = (Real(k // SIDE) / Real(SIDE) - Real(0.5)) * Real(2.0)
    y = (Real(k % SIDE) / Real(SIDE) - Real(0.5)) * Real(2.0)
    local = wp.types.vector(dtype=Real, length=FEATURES)
    for s in range(FREQUENCIES):
        scale = wp.pow(Real(2.0), Real(s)) * Real(wp.half_pi)
        local[4 * s] = wp.sin(x * scale)
        local[4 * s + 1] = wp.cos(x * scale)
        local[4 * s + 2] = wp.sin(y * scale)
        local[4 * s + 3] = wp.cos(y * scale)
    for f in range(4 * FREQUENCIES):
        out[f, k] = local[f]


@wp.kernel
def compute(
    features: wp.array2d(dtype=Real),
    w0: wp.array2d(dtype=Real),
    b0: wp.array2d(dtype=Real),
    w1: wp.array2d(dtype=Real),
    b1: wp.array2d(dtype=Real),
    w2: wp.array2d(dtype=Real),
    b2: wp.array2d(dtype=Real),
    reference: wp.array2d(dtype=Real),
    loss: wp.array(dtype=Real),
    out: wp.array2d(dtype=Real),
):
    """One block takes one batch of pixels through all layers."""
    batch = wp.tid()
    first = batch * BATCH
    f = wp.tile_load(features, shape=(FEATURES, BATCH), offset=(0, first))

    layer = wp.tile_load(w0, shape=(HIDDEN, FEATURES))
    bias = wp.tile_load(b0, shape=(HIDDEN, 1))
    z = wp.tile_map(soft, wp.tile_matmul(layer, f) + wp.tile_broadcast(bias, shape=(HIDDEN, BATCH)))

    layer1 = wp.tile_load(w1, shape=(HIDDEN, HIDDEN))
    bias1 = wp.tile_load(b1, shape=(HIDDEN, 1))
    y = wp.tile_map(soft, wp.tile_matmul(layer1, z) + wp.tile_broadcast(bias1, shape=(HIDDEN, BATCH)))

    layer2 = wp.tile_load(w2, shape=(COLORS, HIDDEN))
    bias2 = wp.tile_load(b2, shape=(COLORS, 1))
    seen = wp.tile_map(squash, wp.tile_matmul(layer2, y) + wp.tile_broadcast(bias2, shape=(COLORS, BATCH)))
    wanted = wp.tile_load(reference, shape=(COLORS, BATCH), offset=(0, first))
    if loss:
        error = wp.tile_sum(wp.tile_map(squared, seen - wanted)) * Real(1.0 / float(COLORS * COUNT))
        wp.tile_atomic_add(loss, error)
    if out:
        wp.tile_store(out, seen, offset=(0, first))


@wp.kernel
def moved(base: wp.array2d(dtype=Real), by: wp.array2d(dtype=Real), out: wp.array2d(dtype=Real)):
    i, j = wp.tid()
    out[i, j] = base[i, j] + by[i, j]


def new(values):
    return wp.array(values, dtype=Real, requires_grad=True)


def features():
    made = wp.zeros((FEATURES, COUNT), dtype=Real)
    wp.launch(encode, dim=COUNT, inputs=[], outputs=[made])
    return made


def error_of(found, params, picture, loss, out=None):
    wp.launch_tiled(
        compute, dim=[COUNT // BATCH], inputs=[found, *params, picture], outputs=[loss, out], block_dim=THREADS
    )


@functools.cache
def trained():
    """The layers after some epochs of Adam, as NumPy arrays, and the error of each epoch."""
    start = np.random.default_rng(7)
    params = []
    for name in LAYERS:
        shape = PARAMETERS[name].shape
        bound = 1.0 / np.sqrt(shape[1])
        params.append(new(start.uniform(-bound, bound, shape)))
    found, picture, errors = features(), new(PARAMETERS["picture"]), []
    optimizer_grads = [p.grad.flatten() for p in params]
    optimizer_inputs = [p.flatten() for p in params]
    optimizer = wp.optim.Adam(optimizer_inputs, lr=0.02)
    loss = wp.zeros(1, dtype=Real, requires_grad=True)
    for _ in range(EPOCHS):
        loss.zero_()
        with wp.Tape() as tape:
            error_of(found, params, picture, loss)
        tape.backward(loss)
        optimizer.step(optimizer_grads)
        tape.zero()
        errors.append(float(loss.numpy()[0]))
    assert errors[-1] < 0.5 * errors[0], errors
    return [p.numpy() for p in params], errors


def simulate(values):
    """The error of the trained network, its layers moved a little, and of what it paints."""
    layers, _ = trained()
    arrays = {name: new(a) for name, a in values.items()}
    loss = wp.zeros(1, dtype=Real, requires_grad=True)
    out = wp.zeros((COLORS, COUNT), dtype=Real, requires_grad=True)
    found, params = features(), []
    with wp.Tape() as tape:
        for name, layer in zip(LAYERS, layers):
            by, base = arrays[name], wp.array(layer, dtype=Real)
            made = wp.zeros(by.shape, dtype=Real, requires_grad=True)
            wp.launch(moved, dim=by.shape, inputs=[base, by], outputs=[made])
            params.append(made)
        error_of(found, params, arrays["picture"], None, out)
        error_of(found, params, arrays["picture"], loss)
        error_of(out_features(out), params, arrays["picture"], loss)
    return tape, loss, arrays


@wp.kernel
def fold(out: wp.array2d(dtype=Real), made: wp.array2d(dtype=Real)):
    f, k = wp.tid()
    made[f, k] = wp.sin(out[f % COLORS, k] * Real(f + 1))


def out_features(out):
    """What was painted, as features of a second look."""
    made = wp.zeros((FEATURES, COUNT), dtype=Real, requires_grad=True)
    wp.launch(fold, dim=(FEATURES, COUNT), inputs=[out], outputs=[made])
    return made
