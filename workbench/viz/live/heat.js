// @ts-check
// A heat-map of numbers on a canvas, with one cell chosen by mouse or keyboard. Knows nothing of tapes.
import { h, short } from "./elements.js";

/**
 * @typedef {{full: number[], axes: number[], fixed: number[], wrap: number, window: number[], block: number[]}} Frame
 * What is drawn of an array: its axes, the numbers at which the others are held, how a line is broken into rows, the
 * window of cells (row, column, rows, columns) and how many numbers one cell stands for.
 * @typedef {{rows: number, columns: number, cells: Float32Array, known: Uint8Array | null, frame: Frame,
 *   least: number, most: number, nan: number, inf: number, zero: number}} Heat
 */

const PALETTES = { value: [[0, 114, 178], [213, 94, 0]], adjoint: [[217, 115, 13], [117, 79, 191]] };
const CELL_MOST = 26;

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

/** The share of full colour that a number gets, with its sign: a square root, so that small ones are seen.
 * @param {number} v @param {number} most */
export function shade(v, most) {
  return most > 0 ? Math.sign(v) * Math.sqrt(Math.min(Math.abs(v) / most, 1)) : 0;
}

/**
 * @param {HTMLElement} root @param {{label: string, palette?: "value" | "adjoint", width?: number, height?: number,
 *   pick?: (element: number[], cell: number[]) => void, hover?: (text: string) => void}} options
 */
export function heatmap(root, options) {
  const canvas = /** @type {HTMLCanvasElement} */ (h("canvas", {
    class: "wb-heat", tabindex: "0", role: "application", "aria-roledescription": "heat-map", "aria-label": options.label,
  }));
  const readout = h("output", { class: "wb-readout", "aria-live": "polite" });
  root.append(canvas, readout);
  /** @type {Heat | null} */ let data = null;
  /** @type {number[] | null} */ let chosen = null;
  let at = [0, 0], size = 1;
  const [plus, minus] = PALETTES[options.palette ?? "value"];

  /** @param {number} r @param {number} c */
  function say(r, c) {
    if (!data) return "";
    const index = elementOf(data.frame, r, c);
    if (!index) return "";
    const k = r * data.columns + c, [br, bc] = data.frame.block;
    const name = `${options.label.split(" ").pop()}[${index.join(", ")}]`;
    const what = data.known && !data.known[k] ? "not kept" : short(data.cells[k], 6);
    return br * bc > 1 ? `${name} and the ${br} × ${bc} after it: largest ${what}` : `${name} = ${what}`;
  }

  function paint() {
    if (!data) return;
    const { rows, columns, cells, known, frame } = data;
    const wide = options.width ?? 320, tall = options.height ?? 220;
    size = Math.max(Math.min(Math.floor(Math.min(wide / columns, tall / rows)), CELL_MOST), 2);
    const scale = Math.min(globalThis.devicePixelRatio || 1, 2);
    canvas.width = columns * size * scale;
    canvas.height = rows * size * scale;
    canvas.style.width = `${columns * size}px`;
    canvas.style.height = `${rows * size}px`;
    const pen = canvas.getContext("2d");
    if (!pen) return;
    pen.scale(scale, scale);
    const style = getComputedStyle(canvas);
    const ground = style.getPropertyValue("--wb-blank").trim() || "#fff";
    const line = style.getPropertyValue("--wb-absent").trim() || "#888";
    const zero = (ground.match(/[0-9a-f]{2}/gi) ?? ["ff", "ff", "ff"]).map((x) => parseInt(x, 16));
    let most = 0;
    for (const v of cells) if (Number.isFinite(v)) most = Math.max(most, Math.abs(v));
    const gap = size > 5 ? 1 : 0;
    for (let r = 0; r < rows; r++) {
      for (let c = 0; c < columns; c++) {
        if (!elementOf(frame, r, c)) continue;
        const k = r * columns + c, v = cells[k], x = c * size, y = r * size, side = size - gap;
        if (known && !known[k]) {
          pen.fillStyle = ground;
          pen.fillRect(x, y, side, side);
          stroke(pen, line, [[x, y + side, x + side, y]]);
        } else if (!Number.isFinite(v)) {
          pen.fillStyle = "#000";
          pen.fillRect(x, y, side, side);
          const m = x + side / 2;
          if (Number.isNaN(v)) stroke(pen, "#ff4fd8", [[x + 1, y + 1, x + side - 1, y + side - 1], [x + side - 1, y + 1, x + 1, y + side - 1]]);
          else stroke(pen, "#fff", [[m, y + 2, m, y + side - 2]]);
        } else {
          const s = shade(v, most), to = s < 0 ? minus : plus, t = Math.abs(s);
          pen.fillStyle = `rgb(${zero.map((z, i) => Math.round(z + (to[i] - z) * t)).join(",")})`;
          pen.fillRect(x, y, side, side);
          if (v === 0 && size > 5) {
            pen.strokeStyle = line;
            pen.lineWidth = 0.5;
            pen.strokeRect(x + 0.5, y + 0.5, side - 1, side - 1);
          }
        }
      }
    }
    mark(pen, chosen ? cellOf(frame, chosen) : null, 2);
    if (document.activeElement === canvas) mark(pen, at, 1);
  }

  /** @param {CanvasRenderingContext2D} pen @param {number[] | null} cell @param {number} wide */
  function mark(pen, cell, wide) {
    if (!cell) return;
    const ink = getComputedStyle(canvas).getPropertyValue("--wb-cursor").trim() || "#cf222e";
    pen.lineWidth = wide;
    pen.strokeStyle = ink;
    pen.strokeRect(cell[1] * size + 0.5, cell[0] * size + 0.5, Math.max(size - 1, 2), Math.max(size - 1, 2));
  }

  /** @param {MouseEvent} event */
  function under(event) {
    const box = canvas.getBoundingClientRect();
    return [Math.floor((event.clientY - box.top) / size), Math.floor((event.clientX - box.left) / size)];
  }

  /** @param {number[]} cell */
  function pick(cell) {
    const index = data && elementOf(data.frame, cell[0], cell[1]);
    if (!index) return;
    at = cell;
    chosen = index;
    paint();
    options.pick?.(index, cell);
  }

  canvas.addEventListener("pointermove", (event) => {
    const [r, c] = under(event);
    readout.textContent = say(r, c);
  });
  canvas.addEventListener("click", (event) => pick(under(event)));
  canvas.addEventListener("focus", paint);
  canvas.addEventListener("blur", paint);
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!data) return;
    if (step) at = [at[0] + step[0], at[1] + step[1]];
    else if (event.key === "Home") at = [at[0], 0];
    else if (event.key === "End") at = [at[0], data.columns - 1];
    else if (event.key === "Enter" || event.key === " ") pick(at);
    else return;
    event.preventDefault();
    at = [Math.min(Math.max(at[0], 0), data.rows - 1), Math.min(Math.max(at[1], 0), data.columns - 1)];
    readout.textContent = say(at[0], at[1]);
    paint();
  });

  return {
    element: canvas,
    focus: () => canvas.focus(),
    repaint: paint,
    /** @param {number[] | null} index */
    select(index) {
      chosen = index && index.length ? index : null;
      const cell = data && chosen && cellOf(data.frame, chosen);
      if (cell) at = cell;
      paint();
    },
    /** @param {Heat} given @param {string} [label] */
    draw(given, label) {
      data = given;
      if (label) options.label = label;
      canvas.setAttribute("aria-label", `${options.label}, ${given.rows} by ${given.columns} cells, ` +
        `${short(given.least)} to ${short(given.most)}`);
      readout.textContent = "";
      at = [Math.min(at[0], given.rows - 1), Math.min(at[1], given.columns - 1)];
      paint();
    },
  };
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

/** The widget that is a heat-map alone. @param {any} model @param {HTMLElement} el @param {AbortSignal} signal */
export function heatWidget(model, el, signal) {
  const root = h("div", { class: "wb-view wb-alone" });
  el.append(root);
  const map = heatmap(root, {
    label: model.get("label") || "heat-map",
    pick(element) {
      model.set("picked", element);
      model.save_changes();
    },
  });
  const draw = () => {
    const info = model.get("info");
    if (!info.frame) return;
    map.draw({ ...info, cells: floats(model.get("cells")), known: raw(model.get("known")) }, model.get("label"));
    map.select(model.get("picked"));
  };
  for (const name of ["info", "picked", "label"]) model.on(`change:${name}`, draw);
  signal?.addEventListener("abort", () => ["info", "picked", "label"].forEach((n) => model.off(`change:${n}`, draw)));
  draw();
  model.set("ready", true);
  model.save_changes();
}
