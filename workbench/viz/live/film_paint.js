// @ts-check
// One frame on a canvas: mesh, lines, points, arrows, ghosts, the scale; or a plane of numbers in signed colours.
import { turnedTo, spotOf } from "./camera.js";
import { short } from "./elements.js";
import { largestOf, nice, shadeOf, sizeOf } from "./film_frames.js";

const REACH = 64, HEAD = 8, ARROWS_MOST = 1500, BATCH = 32, CROWDED = 20_000; // pixels of the arrow of the scale, and of a head; arrows that are drawn, of a path; points that are pixels

/** Inks of the theme. @param {HTMLElement} root @returns {(name: string) => string} */
export function inksOf(root) {
  const style = getComputedStyle(root);
  return (name) => style.getPropertyValue(`--wb-${name}`).trim() || "#888888";
}

/** A canvas as large as its box, sharp. @param {HTMLCanvasElement} canvas */
export function penOf(canvas) {
  const { clientWidth: wide, clientHeight: tall } = canvas, sharp = globalThis.devicePixelRatio || 1;
  if (canvas.width !== Math.round(wide * sharp)) canvas.width = Math.round(wide * sharp);
  if (canvas.height !== Math.round(tall * sharp)) canvas.height = Math.round(tall * sharp);
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  pen.setTransform(sharp, 0, 0, sharp, 0, 0);
  pen.clearRect(0, 0, wide, tall);
  pen.lineCap = pen.lineJoin = "round";
  return { pen, wide, tall };
}

/** The places of all points on the canvas, by threes. @param {any} camera @param {Float32Array} points @param {number} width */
export function placesOf(camera, points, width) {
  const many = points.length / width, found = new Float64Array(3 * many);
  const { zoom, at, wide, tall } = camera, left = wide / 2 - at[0] * zoom, top = tall / 2 + at[1] * zoom;
  for (let i = 0; i < many; i++) {
    if (camera.dims === 2) { // as `spotOf`, without its many small arrays
      found[3 * i] = left + points[i * width] * zoom;
      found[3 * i + 1] = top - points[i * width + 1] * zoom;
    } else found.set(spotOf(camera, points[i * width], points[i * width + 1], width > 2 ? points[i * width + 2] : 0), 3 * i);
  }
  return found;
}

/** The scene of a frame. @param {any} f */
export function paintScene(f) {
  const { frames, camera, k } = f, { pen, wide, tall } = penOf(f.scene), ink = inksOf(f.root);
  camera.wide = wide;
  camera.tall = tall;
  if (!camera.fitted && wide > 1) { camera.fitted = true; camera.refit(); }
  const shown = f.run ? f.run(k) : frames.point(k), known = f.run ? null : frames.known?.(k);
  f.places = placesOf(camera, shown, frames.width);
  if (known) known.forEach((/** @type {number} */ sure, /** @type {number} */ i) => { if (!sure) f.places.fill(NaN, 3 * i, 3 * i + 3); });
  f.tips = null;
  if (f.run || frames.beside) {
    pen.globalAlpha = f.run ? 0.3 : 0.65; // the run as it was, or another one, faint
    outline(f, pen, (f.run ? frames.point : frames.beside)(k), ink("muted"));
    pen.globalAlpha = 1;
  }
  if (frames.mesh) paintMesh(f, pen, ink, f.places);
  if (frames.lines) paintLines(f, pen, ink, f.places);
  paintPoints(f, pen, ink);
  if (f.ghost) outline(f, pen, f.ghost(k), ink("hot"), [5, 4]); // what the gradient predicts
  if (frames.arrow && f.phase !== "forward" && !f.run) paintArrows(f, pen, ink, tall);
  paintChosen(f, pen, ink);
}

/** The share of a colour by a number, or the plain ink. @param {any} f @param {number} many @param {any} ink @returns {((n: number) => [string, number]) | null} */
function colouring(f, many, ink) {
  const { colour } = f.frames.meta;
  if (!colour || colour.count !== many || (colour.adjoint && (f.phase === "forward" || f.run))) return null;
  const numbers = f.frames.colour(f.k), ramp = rampOf(ink);
  return (n) => {
    const shade = shadeOf(numbers[n], colour.most);
    return Number.isNaN(numbers[n]) ? [ink("bad"), 2] : [ramp(shade), Math.abs(shade)];
  };
}

/** Signed colours, as text. @param {any} ink */
function rampOf(ink) {
  const ends = [ink("minus"), ink("blank"), ink("plus")].map(rgb);
  return (/** @type {number} */ shade) => `rgb(${mixed(ends, shade).map(Math.round).join(" ")})`;
}

/** @param {string} hex @returns {number[]} */
const rgb = (hex) => {
  const whole = hex.length === 4 ? hex.replace(/[^#]/g, "$&$&") : hex;
  return [1, 3, 5].map((at) => parseInt(whole.slice(at, at + 2), 16) || 0);
};

/** @param {number[][]} ends @param {number} shade */
function mixed([minus, ground, plus], shade) {
  const end = shade < 0 ? minus : plus, part = Math.abs(shade);
  return ground.map((v, c) => v + (end[c] - v) * part);
}

/** @param {any} f @param {any} pen @param {any} ink @param {Float64Array} at */
function paintLines(f, pen, ink, at) {
  const { lines } = f.frames, many = lines.length / 2, coloured = colouring(f, many, ink);
  pen.strokeStyle = ink("absent");
  pen.lineWidth = many > 3000 ? 0.6 : 1.3;
  pen.beginPath();
  const add = (/** @type {number} */ n) => {
    const a = 3 * lines[2 * n], b = 3 * lines[2 * n + 1];
    pen.moveTo(at[a], at[a + 1]);
    pen.lineTo(at[b], at[b + 1]);
  };
  for (let n = 0; n < many; n++) add(n);
  pen.stroke();
  for (let n = 0; coloured && n < many; n++) {
    const [look, strong] = coloured(n);
    if (strong === 0) continue; // a line of the stage, no colour
    pen.beginPath();
    pen.strokeStyle = look;
    pen.lineWidth = 1.2 + 3 * strong;
    add(n);
    pen.stroke();
  }
}

/** Triangles, the far ones first. @param {any} f @param {any} pen @param {any} ink @param {Float64Array} at */
function paintMesh(f, pen, ink, at) {
  const { mesh } = f.frames, many = mesh.length / 3, coloured = colouring(f, many, ink), byPoint = colouring(f, f.frames.many, ink);
  const order = Uint32Array.from({ length: many }, (_, n) => n);
  const near = (/** @type {number} */ n) => at[3 * mesh[3 * n] + 2] + at[3 * mesh[3 * n + 1] + 2] + at[3 * mesh[3 * n + 2] + 2];
  if (f.camera.dims === 3) order.sort((a, b) => near(a) - near(b));
  pen.strokeStyle = ink("muted");
  pen.lineWidth = 0.5;
  for (const n of order) {
    const [a, b, c] = [0, 1, 2].map((m) => 3 * mesh[3 * n + m]);
    pen.fillStyle = coloured ? coloured(n)[0] : byPoint ? byPoint(mesh[3 * n])[0] : ink("tint");
    pen.beginPath();
    pen.moveTo(at[a], at[a + 1]);
    pen.lineTo(at[b], at[b + 1]);
    pen.lineTo(at[c], at[c + 1]);
    pen.closePath();
    pen.fill();
    if (many < 20_000) pen.stroke();
  }
}

/** @param {any} f @param {any} pen @param {any} ink */
function paintPoints(f, pen, ink) {
  const at = f.places, { many } = f.frames, r = many > 20_000 ? 0.8 : many > 2000 ? 1.5 : many > 300 ? 2.5 : 4.5, coloured = colouring(f, many, ink);
  if (f.frames.mesh && !coloured && many > 200) return;
  pen.fillStyle = ink("value");
  if (many > CROWDED && !coloured) { dot(f, pen, rgb(ink("value"))); return; }
  for (let i = 0; i < many; i++) {
    const x = at[3 * i], y = at[3 * i + 1];
    if (coloured) pen.fillStyle = coloured(i)[0];
    if (r < 2) { pen.fillRect(x - r, y - r, 2 * r, 2 * r); continue; }
    pen.beginPath();
    pen.arc(x, y, r, 0, 7);
    pen.fill();
    if (coloured) { pen.strokeStyle = ink("muted"); pen.lineWidth = 0.7; pen.stroke(); }
  }
}

/** Very many points, each as a few pixels. @param {any} f @param {any} pen @param {number[]} colour */
function dot(f, pen, [red, green, blue]) {
  const { canvas } = pen, image = pen.getImageData(0, 0, canvas.width, canvas.height), pixels = new Uint32Array(image.data.buffer), at = f.places;
  const sharp = canvas.width / canvas.clientWidth, ink = ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0, wide = canvas.width;
  for (let i = 0; i < at.length; i += 3) {
    const x = Math.round(at[i] * sharp), y = Math.round(at[i + 1] * sharp), n = y * wide + x;
    if (x >= 0 && y >= 0 && x + 1 < wide && y + 1 < canvas.height) pixels[n] = pixels[n + 1] = pixels[n + wide] = pixels[n + wide + 1] = ink;
  }
  pen.putImageData(image, 0, 0);
}

/** The pixels of the arrow of the scale. @param {number} many */
export const reachOf = (many) => (many > 300 ? REACH / 2 : REACH);

/** The scale of the arrows: that of the film, or of this frame. @param {any} f */
export function scaleOf(f) {
  const { frames } = f, { arrows } = frames.meta;
  return f.own ? nice(largestOf(frames.arrow(f.k), frames.width)[1]) : arrows.scale;
}

/** @param {any} f @param {any} pen @param {any} ink @param {number} tall */
function paintArrows(f, pen, ink, tall) {
  const { frames, camera, places } = f, last = f.k === frames.count - 1, arrow = (last && f.pulled) || frames.arrow(f.k), { width, many, turned: sign } = frames, scale = scaleOf(f);
  const look = ink(frames.meta.arrows.adjoint ? "hot" : "value"), reach = reachOf(many), least = many > ARROWS_MOST ? (f.least[f.k] ??= thresholdOf(arrow, width, many)) : 0;
  f.tips = last ? new Float64Array(3 * many).fill(NaN) : null; // what can be pulled
  let shafts = new Path2D(), heads = new Path2D(), inPath = 0;
  const flush = () => { // one path of all would take longer, and one of each too
    pen.stroke(shafts);
    pen.fill(heads);
    [shafts, heads, inPath] = [new Path2D(), new Path2D(), 0];
  };
  pen.strokeStyle = pen.fillStyle = look;
  pen.lineWidth = many > 300 ? 1.1 : 2;
  for (let i = 0; i < many; i++) {
    const size = sizeOf(arrow, i, width), x = places[3 * i], y = places[3 * i + 1];
    if (size > least && Number.isFinite(size)) {
      const [r, u] = turnedTo(camera, sign * arrow[i * width], sign * arrow[i * width + 1], width > 2 ? sign * arrow[i * width + 2] : 0);
      const x1 = x + (r / scale) * reach, y1 = y - (u / scale) * reach;
      addArrow(shafts, heads, x, y, x1, y1);
      if (last && Math.hypot(x1 - x, y1 - y) > HEAD) f.tips.set([x1, y1], 3 * i);
      if (++inPath === BATCH) flush();
    } else if (!Number.isFinite(size)) {
      pen.strokeStyle = ink("bad");
      pen.stroke(new Path2D(`M${x - 6} ${y - 6}l12 12m0 -12l-12 12`));
      pen.strokeStyle = look;
    }
  }
  const { name, adjoint } = frames.meta.arrows, text = `|${adjoint ? `adjoint of ${name}` : name}| = ${short(scale)}`;
  addArrow(shafts, heads, 16, tall - 16, 16 + reach, tall - 16);
  flush();
  pen.font = "12px system-ui, sans-serif";
  pen.fillStyle = ink(adjoint ? "hottext" : "ink");
  pen.fillText(least ? `${text} (the ${ARROWS_MOST} longest)` : text, 16, tall - 26);
}

/** The size from which an arrow is one of the longest. @param {Float32Array} arrow @param {number} width @param {number} many */
function thresholdOf(arrow, width, many) {
  const sizes = Float64Array.from({ length: many }, (_, i) => sizeOf(arrow, i, width) || 0).sort();
  return sizes[Math.max(many - ARROWS_MOST - 1, 0)];
}

/** Add an arrow to the paths of all shafts and of all heads. @param {Path2D} shafts @param {Path2D} heads @param {number} x @param {number} y @param {number} x1 @param {number} y1 */
function addArrow(shafts, heads, x, y, x1, y1) {
  const long = Math.hypot(x1 - x, y1 - y), head = Math.min(HEAD, 0.5 * long), dx = (x1 - x) / (long || 1), dy = (y1 - y) / (long || 1);
  if (long < 0.5) return;
  shafts.moveTo(x, y);
  shafts.lineTo(x1 - dx * head * 0.7, y1 - dy * head * 0.7);
  heads.moveTo(x1, y1);
  heads.lineTo(x1 - dx * head - dy * head * 0.45, y1 - dy * head + dx * head * 0.45);
  heads.lineTo(x1 - dx * head + dy * head * 0.45, y1 - dy * head - dx * head * 0.45);
  heads.closePath();
}

/** Lines and points as outlines. @param {any} f @param {any} pen @param {Float32Array} points @param {string} look @param {number[]} dash */
function outline(f, pen, points, look, dash = []) {
  const { lines, mesh, many, width } = f.frames, pairs = lines ?? edgesOf(mesh), at = placesOf(f.camera, points, width);
  pen.strokeStyle = look;
  pen.lineWidth = 1.4;
  pen.setLineDash(dash);
  pen.beginPath();
  for (let n = 0; pairs && n < pairs.length; n += 2) {
    pen.moveTo(at[3 * pairs[n]], at[3 * pairs[n] + 1]);
    pen.lineTo(at[3 * pairs[n + 1]], at[3 * pairs[n + 1] + 1]);
  }
  pen.stroke();
  pen.setLineDash([]);
  for (let i = 0; i < many && many <= 20_000; i++) {
    pen.beginPath();
    pen.arc(at[3 * i], at[3 * i + 1], many > 300 ? 2 : 5, 0, 7);
    pen.stroke();
  }
}

/** @param {Int32Array | null} mesh @returns {number[] | null} */
function edgesOf(mesh) {
  if (!mesh) return null;
  const pairs = [];
  for (let n = 0; n < mesh.length; n += 3) pairs.push(mesh[n], mesh[n + 1], mesh[n + 1], mesh[n + 2], mesh[n + 2], mesh[n]);
  return pairs;
}

/** A ring around what is picked, a thinner one around what is under the pointer. @param {any} f @param {any} pen @param {any} ink */
function paintChosen(f, pen, ink) {
  if (f.line >= 0) outline({ ...f, frames: { ...f.frames, many: 0, lines: f.frames.lines.subarray(2 * f.line, 2 * f.line + 2) } }, pen, (f.run ?? f.frames.point)(f.k), ink("cursor"));
  for (const [i, r, thick] of [[f.chosen, 10, 2], [f.hover, 8, 1]]) {
    if (i < 0 || i >= f.frames.many) continue;
    pen.strokeStyle = ink("cursor");
    pen.lineWidth = thick;
    pen.beginPath();
    pen.arc(f.places[3 * i], f.places[3 * i + 1], r, 0, 7);
    pen.stroke();
  }
}

/** A plane of numbers: signed colours; NaN is a hole with a rim, what was not kept is hatched. @param {any} f @param {any} panel */
export function paintField(f, panel) {
  const { pen, wide, tall } = penOf(panel.canvas), ink = inksOf(f.root), { rows, columns } = f.frames.meta.field;
  const numbers = panel.beside ? f.frames.cellBeside(f.k) : panel.adjoint ? f.frames.cellAdjoint(f.k) : f.run && !f.frames.point ? f.run(f.k) : f.frames.cell(f.k), known = panel.adjoint || panel.beside || f.run ? null : f.frames.cellKnown?.(f.k);
  const size = Math.min(wide / columns, tall / rows), left = (wide - size * columns) / 2, top = (tall - size * rows) / 2;
  Object.assign(panel, { size, left, top });
  if (panel.adjoint && (f.phase === "forward" || f.run)) return;
  const ends = [ink("minus"), ink("blank"), ink("plus")].map(rgb), hole = rgb(ink("ground")), image = new ImageData(columns, rows), ill = [];
  for (let n = 0; n < numbers.length; n++) {
    const sure = !known || known[n], fine = sure && Number.isFinite(numbers[n]);
    const colour = fine ? mixed(ends, shadeOf(numbers[n], panel.most)) : sure ? hole : [136, 136, 136];
    image.data.set([...colour, 255], 4 * n);
    if (sure && !fine) ill.push(n);
  }
  const small = new OffscreenCanvas(columns, rows);
  /** @type {any} */ (small.getContext("2d")).putImageData(image, 0, 0);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(small, left, top, size * columns, size * rows);
  pen.strokeStyle = ink("line");
  pen.strokeRect(left, top, size * columns, size * rows);
  rims(pen, ill, columns, left, top, size, ink("bad"));
  if (f.cell < 0) return;
  pen.strokeStyle = ink("cursor");
  pen.lineWidth = 2;
  pen.strokeRect(left + (f.cell % columns) * size - 1, top + Math.floor(f.cell / columns) * size - 1, size + 2, size + 2);
}

/** The rim around cells that are no numbers: only where a number is beside. @param {any} pen @param {number[]} ill @param {number} columns @param {number} left @param {number} top @param {number} size @param {string} look */
function rims(pen, ill, columns, left, top, size, look) {
  const all = new Set(ill);
  pen.strokeStyle = look;
  pen.lineWidth = 1.5;
  pen.beginPath();
  for (const n of ill) {
    const x = left + (n % columns) * size, y = top + Math.floor(n / columns) * size, c = n % columns;
    if (!all.has(n - columns)) { pen.moveTo(x, y); pen.lineTo(x + size, y); }
    if (!all.has(n + columns)) { pen.moveTo(x, y + size); pen.lineTo(x + size, y + size); }
    if (c === 0 || !all.has(n - 1)) { pen.moveTo(x, y); pen.lineTo(x, y + size); }
    if (c === columns - 1 || !all.has(n + 1)) { pen.moveTo(x + size, y); pen.lineTo(x + size, y + size); }
  }
  pen.stroke();
}
