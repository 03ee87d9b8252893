// @ts-check
// A heat-map of numbers on a canvas, with one cell chosen by mouse or keyboard. Knows nothing of tapes.
import { clamp, h, pageAround, short } from "./elements.js";

/** @typedef {{full: number[], axes: number[], fixed: number[], wrap: number, window: number[], block: number[]}} Frame
 * What is drawn of an array: its axes, the numbers at which the others are held, how a line is broken into rows, the
 * window of cells (row, column, rows, columns) and how many numbers one cell stands for.
 * @typedef {{rows: number, columns: number, cells: Float32Array, known: Uint8Array | null, frame: Frame,
 * least: number, most: number, nan: number, inf: number, zero: number}} Heat */

const CELL_MOST = 56, CELL_LEAST = 2, FEW_ROWS = 4, ROW_MOST = 28, DASH = 8; // pixels; rows of a line may be higher than wide

/** The element of the array behind a cell; of a block the first one; null behind the end of a last row.
 * @param {Frame} frame @param {number} r @param {number} c @returns {number[] | null} */
export function elementOf(frame, r, c) {
  const row = frame.window[0] + r * frame.block[0], column = frame.window[1] + c * frame.block[1];
  const index = [...frame.fixed.slice(0, frame.full.length)];
  if (frame.wrap) {
    const at = row * frame.wrap + column, axis = frame.axes[0];
    if (axis === undefined) return at ? null : index;
    if (at >= frame.full[axis]) return null;
    index[axis] = at;
  } else {
    index[frame.axes[0]] = row;
    index[frame.axes[1]] = column;
  }
  return index;
}

/** The cell of an element, null where it is not drawn. @param {Frame} frame @param {number[]} index */
export function cellOf(frame, index) {
  if (index.length !== frame.full.length) return null;
  const held = (/** @type {number} */ axis) => frame.axes.includes(axis) || index[axis] === frame.fixed[axis];
  if (!index.every((_, axis) => held(axis))) return null;
  const at = frame.axes.length ? index[frame.axes[0]] : 0;
  const [row, column] = frame.wrap ? [Math.floor(at / frame.wrap), at % frame.wrap] : [at, index[frame.axes[1]]];
  const r = Math.floor((row - frame.window[0]) / frame.block[0]);
  const c = Math.floor((column - frame.window[1]) / frame.block[1]);
  const inside = row >= frame.window[0] && column >= frame.window[1] &&
    row < frame.window[0] + frame.window[2] && column < frame.window[1] + frame.window[3];
  return inside ? [r, c] : null;
}

const FAINTEST = 0.15, ROUNDED = 2e-4; // share of full colour of the least number, where all are of about one size; what is no difference

/** The share of full colour that a number gets, with its sign: a square root, so that small ones are seen; from `least` on
 * even, where all numbers are of about one size. @param {number} v @param {number} most @param {number} [least] */
function shade(v, most, least = 0) {
  if (least) return Math.sign(v) * (most > least ? FAINTEST + ((1 - FAINTEST) * (Math.abs(v) - least)) / (most - least) : 1);
  return most > 0 ? Math.sign(v) * Math.sqrt(Math.min(Math.abs(v) / most, 1)) : 0;
}

/** The size from which the colours of a picture begin: 0, or the least, if all its numbers are of one sign and of about one
 * size, so that they can be told apart. @param {Heat} given */
function leastOf({ least, most, zero }) {
  const [low, high] = [Math.abs(least), Math.abs(most)].sort((a, b) => a - b);
  return !zero && least * most > 0 && low > high / 2 && high - low > ROUNDED * high ? low : 0;
}

/** The numbers beside a colour bar: [place from 0 to 1, number]. A side without numbers is left out.
 * As `scale_marks` of data/marks.py. @param {number} least @param {number} most @returns {number[][]} */
export function scaleMarks(least, most) {
  const size = Math.max(Math.abs(least), Math.abs(most)), first = least < 0 ? -1 : 0, last = most > 0 || !first ? 1 : 0;
  return Array.from({ length: 2 * (last - first) + 1 }, (_, k) => [k / (2 * (last - first)), Math.sign(first + k / 2) * size * (first + k / 2) ** 2]);
}

/** What the colours between two numbers mean: a bar with numbers below, and how they grow; from a size that is not 0 on
 * evenly. @param {number} least @param {number} most @param {number} [from] */
function colourBar(least, most, from = 0) {
  const ground = "var(--wb-blank, var(--wb-ground))", far = most || least, low = Math.sign(far) * from;
  const marks = from ? [[0, low], [0.5, (low + far) / 2], [1, far]] : scaleMarks(least, most), digits = from ? 4 : 2;
  const ink = `var(--wb-${far < 0 ? "minus" : "plus"})`;
  const inks = from ? [`color-mix(in srgb, ${ink} ${100 * FAINTEST}%, ${ground})`, ink] : [...(least < 0 ? ["var(--wb-minus)"] : []), ground, ...(most > 0 || least >= 0 ? ["var(--wb-plus)"] : [])];
  return h("div", { class: "wb-colours", role: "img", "aria-label": `colours: ${marks.map(([, v]) => short(v, digits)).join(", ")}` },
    h("span", { class: "wb-ramp", style: `background:linear-gradient(to right, ${inks.join(", ")})` }),
    ...marks.map(([at, v]) => h("span", { class: "wb-tickmark", style: `left:${at * 100}%` }, short(v, digits))), h("span", "wb-growth", from ? "linear" : "√"));
}

/** @param {HTMLElement} root @param {{label: string, room?: () => number, tall?: () => number,
 * pick?: (element: number[], cell: number[]) => void, follow?: boolean}} options
 * follow: the keyboard picks every cell that it comes to, and what is picked stays in words below. */
export function heatmap(root, options) {
  const canvas = /** @type {HTMLCanvasElement} */ (h("canvas", {
    class: "wb-heat", tabindex: "0", role: "application", "aria-roledescription": "heat-map", "aria-label": options.label,
  }));
  const readout = h("output", { class: "wb-readout", "aria-live": "polite" });
  const scale = h("div", {});
  root.append(canvas, scale, readout);
  /** @type {any} */ const m = { options, canvas, readout, scale, data: null, chosen: null, at: [0, 0], wide: 1, tall: 1 };
  const under = (/** @type {MouseEvent} */ event) => {
    const box = canvas.getBoundingClientRect();
    return [Math.floor((event.clientY - box.top) / m.tall), Math.floor((event.clientX - box.left) / m.wide)];
  };
  canvas.addEventListener("pointermove", (event) => {
    const [r, c] = under(event);
    readout.textContent = cellText(m, r, c);
  });
  canvas.addEventListener("click", (event) => pickCell(m, under(event)));
  canvas.addEventListener("focus", () => paintHeat(m));
  canvas.addEventListener("blur", () => paintHeat(m));
  canvas.addEventListener("keydown", (event) => keyOnHeat(m, event));
  return {
    element: canvas,
    focus: () => canvas.focus(),
    repaint: () => paintHeat(m),
    /** @param {number[] | null} index */
    select(index) {
      m.chosen = index && index.length ? index : null;
      const cell = m.data && m.chosen && cellOf(m.data.frame, m.chosen);
      if (cell) m.at = cell;
      if (options.follow) readout.textContent = cell ? cellText(m, cell[0], cell[1]) : "";
      paintHeat(m);
    },
    /** @param {Heat} given @param {string} [label] */
    draw(given, label) {
      m.data = given;
      if (label) options.label = label;
      canvas.setAttribute("aria-label", `${options.label}, ${given.rows} by ${given.columns} cells, ` +
        `${short(given.least)} to ${short(given.most)}`);
      readout.textContent = "";
      const most = largest(given.cells); // what has the full colour
      scale.replaceChildren(...(most ? [colourBar(given.least < 0 ? -most : 0, given.most > 0 ? most : 0, leastOf(given))] : []));
      m.at = [Math.min(m.at[0], given.rows - 1), Math.min(m.at[1], given.columns - 1)];
      paintHeat(m);
    },
  };
}

/** What a cell shows, in words. @param {any} m @param {number} r @param {number} c */
function cellText({ data, options }, r, c) {
  const index = data && elementOf(data.frame, r, c);
  if (!index) return "";
  const k = r * data.columns + c, [br, bc] = data.frame.block;
  const name = `${options.label.split(" ").pop()}[${index.join(", ")}]`;
  const what = data.known && !data.known[k] ? "not kept" : short(data.cells[k], 6);
  return br * bc > 1 ? `${name} and the ${br} × ${bc} after it: largest ${what}` : `${name} = ${what}`;
}

/** @param {any} m @param {number[]} cell */
function pickCell(m, cell) {
  const index = m.data && elementOf(m.data.frame, cell[0], cell[1]);
  if (!index) return;
  m.at = cell;
  m.chosen = index;
  paintHeat(m);
  m.options.pick?.(index, cell);
}

/** @param {any} m @param {KeyboardEvent} event */
function keyOnHeat(m, event) {
  const { data } = m, step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  if (!data) return;
  if (step) m.at = [m.at[0] + step[0], m.at[1] + step[1]];
  else if (event.key === "Home") m.at = [m.at[0], 0];
  else if (event.key === "End") m.at = [m.at[0], data.columns - 1];
  else if (event.key === "Enter" || event.key === " ") pickCell(m, m.at);
  else return;
  event.preventDefault();
  m.at = [clamp(m.at[0], 0, data.rows - 1), clamp(m.at[1], 0, data.columns - 1)];
  m.readout.textContent = cellText(m, m.at[0], m.at[1]);
  if (m.options.follow) pickCell(m, m.at);
  paintHeat(m);
}

/** The largest finite size of some numbers: what has the full colour. @param {Float32Array} values */
function largest(values) {
  let most = 0;
  for (const v of values) if (Number.isFinite(v)) most = Math.max(most, Math.abs(v));
  return most;
}

/** How large a cell is: as there is room. Square, but for a line and for few components, whose rows may be higher.
 * @param {number} rows @param {number} columns @param {number} wide @param {number} tall */
export function cellSize(rows, columns, wide, tall) {
  const held = (/** @type {number} */ room, /** @type {number} */ most) => Math.max(Math.min(Math.floor(room), most), CELL_LEAST);
  const across = held(wide / columns, CELL_MOST), down = held(tall / rows, CELL_MOST);
  return rows <= FEW_ROWS ? [across, Math.max(Math.min(down, ROW_MOST), Math.min(across, down))] : [Math.min(across, down), Math.min(across, down)];
}

/** @param {any} m */
function paintHeat(m) {
  const { data, canvas, options, chosen } = m;
  if (!data) return;
  const { rows, columns, frame } = data;
  [m.wide, m.tall] = cellSize(rows, columns, options.room?.() || 320, options.tall?.() ?? 220);
  const scale = Math.min(globalThis.devicePixelRatio || 1, 2);
  canvas.width = columns * m.wide * scale;
  canvas.height = rows * m.tall * scale;
  canvas.style.width = `${columns * m.wide}px`;
  canvas.style.height = `${rows * m.tall}px`;
  const pen = canvas.getContext("2d");
  if (!pen) return;
  pen.scale(scale, scale);
  const style = getComputedStyle(canvas), ink = (/** @type {string} */ name) => style.getPropertyValue(`--wb-${name}`).trim() || "#888888";
  const parts = (/** @type {string} */ name) => (ink(name).match(/[0-9a-f]{2}/gi) ?? ["88", "88", "88"]).map((x) => parseInt(x, 16));
  const look = { m, ink, palette: [parts("plus"), parts("minus")], most: largest(data.cells), least: leastOf(data), zero: parts("blank") };
  for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) if (elementOf(frame, r, c)) paintCell(pen, data, look, r, c);
  mark(m, pen, chosen ? cellOf(frame, chosen) : null, 2);
  if (pageAround(canvas).activeElement === canvas) mark(m, pen, m.at, 1);
}

/** One number: its colour, below 0 with a dash; hatched where it is not known, black where it is ill.
 * @param {CanvasRenderingContext2D} pen @param {any} data @param {any} look @param {number} r @param {number} c */
function paintCell(pen, data, look, r, c) {
  const { m, ink } = look, k = r * data.columns + c, v = data.cells[k], x = c * m.wide, y = r * m.tall;
  const w = m.wide - (m.wide > 5 ? 1 : 0), d = m.tall - (m.tall > 5 ? 1 : 0), middle = [x + w / 2, y + d / 2];
  const fill = (/** @type {string} */ paint) => { pen.fillStyle = paint; pen.fillRect(x, y, w, d); };
  if (data.known && !data.known[k]) {
    fill(ink("blank"));
    stroke(pen, ink("absent"), [[x, y + d, x + w, y]]);
  } else if (!Number.isFinite(v)) {
    fill(ink("ill"));
    if (Number.isNaN(v)) stroke(pen, ink("sign"), [[x + 1, y + 1, x + w - 1, y + d - 1], [x + w - 1, y + 1, x + 1, y + d - 1]]);
    else stroke(pen, "#fff", [[middle[0], y + 2, middle[0], y + d - 2]]);
  } else {
    const s = shade(v, look.most, look.least), to = look.palette[s < 0 ? 1 : 0], t = Math.abs(s);
    fill(`rgb(${look.zero.map((/** @type {number} */ z, /** @type {number} */ i) => Math.round(z + (to[i] - z) * t)).join(",")})`);
    if (v < 0 && Math.min(w, d) >= DASH) stroke(pen, ink("cursor"), [[middle[0] - w / 5, middle[1], middle[0] + w / 5, middle[1]]]);
    if (v === 0 && Math.min(m.wide, m.tall) > 5) {
      pen.strokeStyle = ink("absent");
      pen.lineWidth = 0.5;
      pen.strokeRect(x + 0.5, y + 0.5, w - 1, d - 1);
    }
  }
}

/** A frame around a cell. @param {any} m @param {CanvasRenderingContext2D} pen @param {number[] | null} cell @param {number} thick */
function mark({ canvas, wide, tall }, pen, cell, thick) {
  if (!cell) return;
  pen.lineWidth = thick;
  pen.strokeStyle = getComputedStyle(canvas).getPropertyValue("--wb-cursor").trim() || "#000";
  pen.strokeRect(cell[1] * wide + 0.5, cell[0] * tall + 0.5, Math.max(wide - 1, 2), Math.max(tall - 1, 2));
}

/** @param {CanvasRenderingContext2D} pen @param {string} ink @param {number[][]} lines */
function stroke(pen, ink, lines) {
  pen.strokeStyle = ink;
  pen.lineWidth = 1;
  pen.beginPath();
  for (const [x0, y0, x1, y1] of lines) {
    pen.moveTo(x0, y0);
    pen.lineTo(x1, y1);
  }
  pen.stroke();
}

/** Bytes of a message or a trait as numbers: they may lie unaligned.
 * @param {DataView | ArrayBuffer | null | undefined} bytes */
export function floats(bytes) {
  return new Float32Array(raw(bytes).buffer);
}

/** @param {DataView | ArrayBuffer | null | undefined} bytes */
export function raw(bytes) {
  if (!bytes) return new Uint8Array(0);
  const view = bytes instanceof ArrayBuffer ? new Uint8Array(bytes) : new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return view.slice();
}
