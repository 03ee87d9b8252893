// @ts-check
// The camera of a stage: what of space is seen where on the canvas. Two axes stay flat; three are turned, without perspective.

const MARGIN = 0.86, STEEP = 1.5;

/** @param {number} dims @param {number[][]} box [least, most] of each axis */
export function cameraOf(dims, box) {
  return { dims, wide: 1, tall: 1, zoom: 1, at: [0, 0, 0], yaw: dims === 3 ? 0.6 : 0, pitch: dims === 3 ? 0.4 : 0, box };
}

/** See all of a box. @param {any} camera @param {number[][]} [box] */
export function fitCamera(camera, box = camera.box) {
  const size = (/** @type {number} */ c) => (box[c] ? box[c][1] - box[c][0] : 0);
  camera.box = box;
  camera.at = [0, 1, 2].map((c) => (box[c] ? (box[c][0] + box[c][1]) / 2 : 0));
  if (camera.dims === 2) {
    const [w, t] = [size(0), size(1)], most = Math.max(w, t, 1e-30);
    camera.zoom = MARGIN * Math.min(camera.wide / Math.max(w, 0.25 * most), camera.tall / Math.max(t, 0.25 * most));
    return;
  }
  let right = 1e-30, up = 1e-30; // of the corners, as they are turned now
  for (let n = 0; n < 8; n++) {
    const [r, u] = turnedTo(camera, ...[0, 1, 2].map((c) => (((n >> c) & 1 ? 1 : -1) * size(c)) / 2));
    [right, up] = [Math.max(right, Math.abs(r)), Math.max(up, Math.abs(u))];
  }
  camera.zoom = MARGIN * Math.min(camera.wide / (2 * right), camera.tall / (2 * up));
}

/** A vector, turned: right, up, and towards the eye. @param {any} camera @param {number} x @param {number} y @param {number} z @returns {[number, number, number]} */
export function turnedTo(camera, x, y, z) {
  if (camera.dims === 2) return [x, y, 0];
  const { yaw, pitch } = camera, c = Math.cos(yaw), s = Math.sin(yaw), cp = Math.cos(pitch), sp = Math.sin(pitch);
  const right = c * x + s * z, back = -s * x + c * z;
  return [right, cp * y - sp * back, sp * y + cp * back];
}

/** The place of a point on the canvas, and its nearness. @param {any} camera @param {number} x @param {number} y @param {number} z @returns {[number, number, number]} */
export function spotOf(camera, x, y, z) {
  const [right, up, near] = turnedTo(camera, x - camera.at[0], y - camera.at[1], z - camera.at[2]);
  return [camera.wide / 2 + right * camera.zoom, camera.tall / 2 - up * camera.zoom, near];
}

/** The vector of space, in the plane of the canvas, of a way on the canvas. @param {any} camera @param {number} dx @param {number} dy @returns {number[]} */
export function wayOf(camera, dx, dy) {
  const r = dx / camera.zoom, u = -dy / camera.zoom;
  if (camera.dims === 2) return [r, u, 0];
  const { yaw, pitch } = camera, c = Math.cos(yaw), s = Math.sin(yaw), cp = Math.cos(pitch), sp = Math.sin(pitch);
  const back = -sp * u; // the turning undone
  return [c * r - s * back, cp * u, s * r + c * back];
}

/** @param {any} camera @param {number} dx @param {number} dy */
export function pan(camera, dx, dy) {
  const way = wayOf(camera, dx, dy);
  camera.at = camera.at.map((/** @type {number} */ v, /** @type {number} */ c) => v - way[c]);
}

/** @param {any} camera @param {number} dx @param {number} dy */
export function orbit(camera, dx, dy) {
  camera.yaw += dx / 150;
  camera.pitch = Math.min(Math.max(camera.pitch + dy / 150, -STEEP), STEEP);
}

/** Nearer by a factor, with a place of the canvas held. @param {any} camera @param {number} by @param {number} x @param {number} y */
export function nearer(camera, by, x = camera.wide / 2, y = camera.tall / 2) {
  const dx = x - camera.wide / 2, dy = y - camera.tall / 2;
  pan(camera, -dx, -dy);
  camera.zoom *= by;
  pan(camera, dx, dy);
}
