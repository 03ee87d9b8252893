// @ts-check
// Another seed: an arrow of the last frame is pulled, the kernel walks back once from there, and all arrows are new.
import { wayOf } from "./camera.js";
import { h } from "./elements.js";
import { readerOf } from "./film_frames.js";
import { reachOf, scaleOf } from "./film_paint.js";

/** How the seed is changed, or why it is not. @param {any} f */
export function seedOf(f) {
  const given = f.meta.what_if, last = f.frames.count - 1;
  f.seed = { pulls: new Map(), note: "", first: f.frames.arrow?.(last), refused: given ? given.seed : "a page without a kernel cannot walk back again" };
  f.seed.walk = f.keen("what_if", () => ({ pulls: [...f.seed.pulls] }), (/** @type {any} */ found) => takeAdjoints(f, found), (/** @type {string} */ error) => { f.status.textContent = error; });
  return h("p", { class: "wb-muted" }, f.seed.refused ? `No other seed: ${f.seed.refused}.` : "another seed: at the last frame pull an arrow by its tip, or a point with Shift (or Shift and the arrow keys); Escape or a double click puts it back");
}

/** Pull the arrow of a point by a way on the canvas; `done`: walk back from there. @param {any} f @param {number} i @param {number} dx @param {number} dy */
export function pullArrow(f, i, dx, dy, done = true) {
  const { frames, camera, seed } = f, { width } = frames, early = f.k < frames.count - 1 && "the arrows are the seed at the last frame, where the key End goes";
  const why = seed.refused || early || (f.run && "these are no arrows of the new run; the button “as it was” leaves it") || (i < 0 && "no point is picked: the keys [ and ] go from one to the next");
  if (why) { f.status.textContent = `The seed stays: ${why}.`; return; }
  const pulls = new Map(seed.pulls), unit = (camera.zoom * scaleOf(f)) / reachOf(frames.many);
  wayOf(camera, dx, dy).slice(0, width).forEach((by, c) => pulls.set(i * width + c, (pulls.get(i * width + c) ?? 0) - by * unit)); // what falls is minus the adjoint
  f.pulled = seed.first.slice();
  for (const [n, by] of pulls) f.pulled[n] -= frames.turned * by;
  if (done) { seed.pulls = pulls; seed.walk(); }
  f.paint();
}

/** Put the old seed back; false if it is that. @param {any} f */
export function unpull(f) {
  if (!f.seed.pulls.size) return false;
  f.seed.pulls = new Map();
  f.seed.walk();
  return true;
}

/** @param {any} f @param {any} found */
function takeAdjoints(f, found) {
  const { frames } = f;
  found.layers.forEach((/** @type {string} */ role, /** @type {number} */ n) => {
    const read = readerOf(found.buffers[n], frames.count);
    if (role === "points") frames.adjoint = read;
    if (role === "arrows" || (role === "points" && frames.turned < 0)) frames.arrow = read;
    if (role === "colour") frames.colour = read;
    if (role === "field") frames.cellAdjoint = read;
    f.scales[role]?.(found.most[n]);
  });
  [f.pulled, f.least, f.seed.note] = [null, [], found.note];
  f.paint();
}
