// @ts-check
// The time of a film: a slider with a ruler of steps, buttons, and the show: physics forward, then adjoints back.
import { button, h, s } from "./elements.js";

const WAY = 6000, FRAME_LEAST = 60, SLOW_FRAME = 1200, STOPS = 10, SAVED = 250; // milliseconds of one way, and between frames; where motion is not wanted; between messages

/** @param {any} f */
export function barOf(f) {
  const last = f.frames.count - 1;
  f.slider = h("input", {
    type: "range", min: 0, max: last, step: 1, class: "wb-time", "aria-label": `${f.meta.unit} of the film`,
    oninput: () => { stop(f); f.go(Number(f.slider.value)); },
  });
  f.ruler = s("svg", { class: "wb-ruler", "aria-hidden": "true", height: 16 });
  f.playing = button("play", "play: the physics forward, then the adjoints back", () => playFilm(f));
  f.when = h("span", "wb-when");
  const to = (/** @type {number} */ k) => { stop(f); f.go(k); };
  const buttons = h("span", "wb-steps",
    button("◀◀", "first frame: all is reversed", () => to(0)), button("◀ step", "one frame back", () => to(f.k - 1)), f.playing,
    button("step ▶", "one frame on", () => to(f.k + 1)), button("▶▶", "last frame: nothing is reversed", () => to(last)));
  const ways = f.frames.adjoint || f.frames.cellAdjoint ? [h("span", "wb-muted", h("span", "wb-blue", "■"), " forward, values   ", h("span", "wb-hot", "■"), " already reversed, adjoints known")] : [];
  return h("div", "wb-filmbar", h("div", "wb-timeline", f.slider, f.ruler), h("div", "wb-tools", buttons, f.when, ...ways));
}

/** Show where the cursor is. @param {any} f */
export function showTime(f) {
  const { says, moments } = f.meta, last = f.frames.count - 1;
  f.slider.value = String(f.k);
  f.slider.setAttribute("aria-valuetext", says[f.k]);
  f.slider.style.setProperty("--wb-done", last ? String(f.k / last) : "1");
  f.slider.classList.toggle("wb-forward", f.phase === "forward" || !f.reversible);
  f.when.textContent = says[f.k];
  f.when.dataset.moment = String(moments[f.k]);
}

/** Step numbers below the slider, as many as there is room for. @param {any} f */
export function drawRuler(f) {
  const { steps, count } = f.meta, last = f.frames.count - 1, wide = f.ruler.clientWidth || f.slider.clientWidth, pad = 8;
  if (!wide) return;
  const most = Math.max(wide / 56, 2), by = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000].find((n) => count / n <= most) ?? count;
  const marks = [];
  for (let k = 0; k <= last; k++) {
    const step = steps[k], x = pad + (last ? k / last : 0) * (wide - 2 * pad), end = k === last;
    const named = end || (step % by === 0 && (count - step >= by * 0.6));
    if (last < wide / 4 || named) marks.push(s("path", { d: `M${x} 0v${named ? 5 : 3}`, class: "wb-tickline" }));
    if (named) marks.push(s("text", { x: end ? Math.min(x, wide - 2) : x, y: 15, "font-size": 10, "text-anchor": end ? "end" : k ? "middle" : "start" }, String(step)));
  }
  f.ruler.replaceChildren(...marks);
}

/** The show, or its end. @param {any} f */
export function playFilm(f) {
  if (f.timer) { stop(f); return; }
  const last = f.frames.count - 1, stops = f.still ? Math.min(last, STOPS) : last, way = f.still ? SLOW_FRAME * stops : Math.min(WAY, Math.max(last * 250, 1200));
  const from = f.k >= last ? 0 : f.k, there = way * (last ? 1 - from / last : 0), begun = performance.now();
  let shown = 0, saved = begun;
  f.phase = "forward";
  label(f, "pause");
  const frame = (/** @type {number} */ now) => {
    if (!f.timer) return;
    f.timer = requestAnimationFrame(frame);
    if (f.signal?.aborted) { stop(f); return; }
    const gone = now - begun, back = gone > there;
    if (now - shown < (f.still ? SLOW_FRAME : FRAME_LEAST / 2)) return;
    shown = now;
    const part = back ? 1 - Math.min((gone - there) / way, 1) : from / (last || 1) + (1 - from / (last || 1)) * Math.min(gone / (there || 1), 1);
    if (back && (!f.reversible || gone >= there + way)) { f.phase = "both"; f.go(f.reversible ? 0 : last); stop(f); return; }
    f.phase = back ? "back" : "forward";
    const parts = f.meta.parted?.[0], to = Math.round(part * stops) * (last / (stops || 1));
    if (!back && from < parts && to >= parts) { f.go(parts); stop(f); return; } // play goes on from there
    const save = now - saved > SAVED;
    if (save) saved = now;
    f.go(to, save);
  };
  f.timer = requestAnimationFrame(frame);
}

/** @param {any} f */
export function stop(f) {
  if (!f.timer) return;
  cancelAnimationFrame(f.timer);
  f.timer = 0;
  f.phase = "both";
  label(f, "play");
  f.go(f.k);
}

/** @param {any} f @param {string} what */
function label(f, what) {
  f.playing.textContent = what;
  f.playing.setAttribute("aria-label", what === "play" ? "play: the physics forward, then the adjoints back" : "pause the film");
}
