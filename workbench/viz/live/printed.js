// @ts-check
// On paper everything lies open: every panel, findings and table, and the picture in rows of launches; the tape as it was
// before it was opened at its first finding.
import { s } from "./elements.js";
import { placeRows } from "./families.js";
import { unitAt } from "./lanes.js";
import { widen } from "./panel_height.js";
import { fillTable } from "./table.js";
import { NARROW, bunch, look, refold, room } from "./window.js";

const PAPER = 700, EACH = 6, BELOW = 6; // width of a row, launches in it if there are few, and rows at most

/** @param {any} v */
export function listenToPrinter(v) {
  const { draw } = v;
  /** @type {Element[]} */ let opened = [];
  let screen = {};
  v.draw = () => (v.printing ? wrapped(v, draw) : draw());
  const print = (/** @type {boolean} */ now) => {
    if (now === v.printing) return;
    v.printing = now;
    if (now) {
      opened = [...v.rootEl.querySelectorAll("details:not([open])")];
      screen = { wide: v.wide, left: v.left };
      widen(v, PAPER);
    } else {
      oneRow(v);
      Object.assign(v, screen);
    }
    placeRows(v);
    for (const one of opened) one.toggleAttribute("open", now);
    if (v.whole) {
      const was = { open: v.open, u0: v.u0, u1: v.u1 };
      v.open = v.whole.open;
      refold(v);
      look(v, v.whole.u0, v.whole.u1);
      v.whole = was;
    }
    v.draw();
    v.panels.print();
  };
  const media = globalThis.matchMedia?.("print"), until = { signal: v.signal ?? undefined };
  window.addEventListener("beforeprint", () => print(true), until);
  window.addEventListener("afterprint", () => print(false), until);
  media?.addEventListener("change", () => print(media.matches), until);
}

/** @param {any} v */
const oneRow = (v) => [...v.plot.children].slice(0, -2).forEach((one) => one.remove());

/** The window in rows of launches, each as a picture of its own. @param {any} v @param {() => void} draw */
function wrapped(v, draw) {
  const { all, u0, u1, uid, tape: { number } } = v, size = u1 - u0, rows = Math.min(Math.ceil(size / EACH), BELOW), g = bunch(size / rows, room(v) - NARROW), cols = [];
  oneRow(v);
  for (let k = 0; k < rows; k++) {
    const [from, to] = [k, k + 1].map((n) => (n < rows ? all.at[Math.floor(unitAt(all, u0 + (n * size) / rows) / g) * g] : u1));
    Object.assign(v, { u0: from, u1: to, uid: uid + (rows - 1 - k || "") }); // the legend refers to the last one
    draw();
    cols.push(...v.cols);
    if (rows > 1) v.picture.append(s("text", { class: "faint", x: 16, y: v.head - 31, "font-size": 10 }, `row ${k + 1} of ${rows}: #${number(v.cols[0].a)} to #${number(v.cols.at(-1).b - 1)}${k < rows - 1 ? ", goes on below" : ""}`));
    if (k < rows - 1) v.plot.insertBefore(v.picture.cloneNode(true), v.picture);
  }
  Object.assign(v, { u0, u1, cols });
  fillTable(v);
}
