// @ts-check
// The whole tape in a strip below the lanes, with the window as a frame on it.
import { INF, NAN, VALUE, adjointsOf, stretches, thickOf } from "./envelope.js";
import { middleOf } from "./lanes.js";
import { RIGHT, eventAt, look } from "./window.js";

const PROFILE = 12; // height of the adjoint in the strip

/** @param {any} v */
export function paintMap(v) {
  const w = Math.max(Math.floor(v.wide - v.left - RIGHT), 50), tall = 34, pen = v.map.getContext("2d");
  v.map.width = w;
  v.map.height = tall;
  v.overview.style.marginLeft = `${v.left}px`;
  v.overview.style.width = `${w}px`;
  if (!pen) return;
  const style = getComputedStyle(v.rootEl), color = (/** @type {string} */ name) => style.getPropertyValue(`--wb-${name}`).trim() || "#888";
  const at = Float32Array.from({ length: v.n + 1 }, (_, e) => Math.floor(((e + 0.3) / Math.max(v.n, 1)) * w));
  paintTouches(v, pen, at, w, tall - PROFILE - 1, color("value"));
  paintFlags(v, pen, at, tall, color);
  if (v.levels && v.n) paintProfile(v, pen, w, tall, color);
  paintFrame(v);
}

/** How large the adjoint of any memory is, and where one is NaN or infinite: the worst in each pixel.
 * @param {any} v @param {CanvasRenderingContext2D} pen @param {number} w @param {number} tall @param {(name: string) => string} color */
function paintProfile(v, pen, w, tall, color) {
  const edges = stretches(0, v.n, w), n = edges.length - 1, full = v.meta.drawing.thick;
  const all = adjointsOf(v.tape, v.levels, [...v.meta.lanes.keys()], [edges]), hot = color("hot"), sign = color("sign");
  for (let k = 0; k < n; k++) {
    const has = all.has[k], most = all.most[k], ill = has & (NAN | INF), x = (k * w) / n, high = ill ? PROFILE : has & VALUE ? (thickOf(most, v.levels.scale, full) / full[1]) * PROFILE : 0;
    pen.fillStyle = ill ? "#000" : hot;
    pen.fillRect(x, tall - high, Math.max(w / n, 1), high);
    pen.fillStyle = sign;
    if (ill) pen.fillRect(x, tall - PROFILE, Math.max(w / n, 1), 2);
  }
}

/** Every access as a dot. @param {any} v @param {CanvasRenderingContext2D} pen @param {Float32Array} at @param {number} w @param {number} tall @param {string} paint */
function paintTouches(v, pen, at, w, tall, paint) {
  pen.fillStyle = paint;
  const seen = new Uint8Array((w + 2) * 64 * 3), high = Math.max(tall / Math.max(v.lanes.length, 1), 1), dot = Math.max(w / Math.max(v.n, 1), 1);
  for (let t = 0; t < v.tape.touchEvent.length; t++) {
    const lane = v.rowOf[v.tape.ranges[v.tape.touches.range[t]][0]], x = at[v.tape.touchEvent[t]], y = Math.floor((lane / v.lanes.length) * tall), how = v.tape.touches.how[t];
    const key = (x * 64 + Math.min(y, 63)) * 3 + how;
    if (seen[key]) continue;
    seen[key] = 1;
    pen.globalAlpha = how ? 0.9 : 0.45;
    pen.fillRect(x, y, Math.min(dot, 3), Math.max(high - 1, 1));
  }
  pen.globalAlpha = 1;
}

/** Where adjoints went wrong, and what the findings say. @param {any} v @param {CanvasRenderingContext2D} pen @param {Float32Array} at @param {number} tall @param {(name: string) => string} color */
function paintFlags(v, pen, at, tall, color) {
  const muted = color("muted"), ill = color("ill"), sign = color("sign");
  for (const name of ["nan", "inf", "died"]) {
    for (let e = 0; e < v.n; e++) {
      if (v.sums[name][e + 1] === v.sums[name][e]) continue;
      pen.fillStyle = name === "died" ? muted : ill;
      pen.fillRect(at[e], 0, 2, tall);
      pen.fillStyle = sign;
      if (name !== "died") pen.fillRect(at[e], 0, 2, 4);
    }
  }
  pen.fillStyle = color("bad");
  for (const f of v.findings) if (f.position >= 0 && f.severity !== "info") pen.fillRect(at[f.position] - 1, tall - 5, 4, 5);
}

/** @param {any} v */
export function paintFrame(v) {
  const w = Math.max(Math.floor(v.wide - v.left - RIGHT), 50), most = Math.max(v.n, 1), from = eventAt(v, v.u0), to = eventAt(v, v.u1);
  v.frame.style.left = `${((from / most) * w).toFixed(1)}px`;
  v.frame.style.width = `${Math.max(((to - from) / most) * w, 4).toFixed(1)}px`;
}

/** A press or a drag on the strip moves the window. @param {any} v */
export function listenToMap(v) {
  const jump = (/** @type {PointerEvent} */ event) => {
    const box = v.map.getBoundingClientRect(), at = middleOf(v.all, Math.floor(((event.clientX - box.left) / box.width) * v.n)), half = (v.u1 - v.u0) / 2;
    look(v, at - half, at + half);
  };
  v.map.addEventListener("pointerdown", (event) => { jump(event); v.map.setPointerCapture(event.pointerId); });
  v.map.addEventListener("pointermove", (event) => { if (event.buttons) jump(event); });
}
