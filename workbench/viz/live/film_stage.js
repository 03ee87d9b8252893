// @ts-check
// The stage: where a film is drawn, looked at, picked from and dragged. It stands alone (film.js) or above the lanes.
import { asker } from "./ask.js";
import { cameraOf, fitCamera, nearer, orbit, pan } from "./camera.js";
import { button, clamp, count, h, short } from "./elements.js";
import { barOf, drawRuler, playFilm, showTime, stop } from "./film_bar.js";
import { frameAt, framesOf, indexOf, largestOf } from "./film_frames.js";
import { paintField, paintScene, scaleOf } from "./film_paint.js";
import { pullArrow, unpull } from "./film_seed.js";
import { dragPoint, whatIfOf } from "./film_what_if.js";

const NEAR = 14, PULL = 8, TABLE_ROWS = 60; // pixels around the pointer, and of a key; rows of the table

/** A stage. `pick(index, role)` is told what was picked; `root`: the element whose theme it has.
 * @param {any} model @param {AbortSignal} signal @param {HTMLElement} root @param {(index: number[], role: string) => void} pick */
export function stageOf(model, signal, root, pick) {
  const meta = structuredClone(model.get("film_meta")), frames = framesOf(meta, model.get("film_data"));
  /** @type {any} */ const f = {
    model, signal, root, pick, meta, frames, k: 0, phase: "both", hover: -1, chosen: -1, line: -1, cell: -1, own: false, timer: 0, run: null, ghost: null, least: [], pulled: null, tips: null, scales: {},
    still: globalThis.matchMedia?.("(prefers-reduced-motion: reduce)").matches ?? false, reversible: Boolean(frames.adjoint || frames.cellAdjoint || meta.colour?.adjoint),
    camera: cameraOf(meta.dims, meta.points?.box ?? []), panels: [],
  };
  f.status = h("p", { class: "wb-status", role: "status", "aria-live": "polite" });
  Object.assign(f, asker(model, `film${Math.random().toString(36).slice(2, 9)}`, (text) => { if (text) f.status.textContent = text; }, 0));
  f.paint = () => paintStage(f);
  f.go = (/** @type {number} */ k, save = true) => go(f, k, save);
  f.k = frameAt(meta.moments, model.get("cursor"));
  const sights = h("div", "wb-sights", ...scenesOf(f));
  f.table = h("tbody", {});
  const table = h("details", { class: "wb-table", ontoggle: () => fillNumbers(f) }, h("summary", {}, "the numbers of this frame as a table"), h("div", {}, h("table", {}, headOf(f), f.table)));
  f.element = h("section", { class: "wb-film", "aria-label": "film of the simulation" },
    h("div", "wb-filmtop", h("div", "wb-seen", h("p", "wb-caption", meta.caption[0]), sights, barOf(f)), h("div", "wb-side", whatIfOf(f), pickedOf(f))),
    h("ul", "wb-remarks", ...meta.caption.slice(1).map((/** @type {string} */ text) => h("li", {}, text))), f.status, table);
  f.element.addEventListener("keydown", (/** @type {any} */ event) => typedOnStage(f, event));
  listen(f);
  return f;
}

/** @param {any} f @returns {HTMLElement[]} */
function scenesOf(f) {
  const { meta, frames } = f, found = [], field = meta.field;
  if (frames.point) {
    f.scene = h("canvas", { class: "wb-scene", tabindex: "0", role: "application", "aria-roledescription": "scene", "aria-label": `${meta.caption[0]}. Arrows left and right step the film, square brackets go from point to point, Enter picks, plus and minus zoom, f shows all. At the last frame Shift and an arrow pull the arrow of the picked point: another seed, which Escape puts back.` });
    f.tip = h("div", { class: "wb-callout", "aria-hidden": "true" });
    f.camera.refit = () => fitCamera(f.camera, meta.points.box);
    const views = [button("−", "zoom out", () => { nearer(f.camera, 0.8); f.paint(); }), button("+", "zoom in", () => { nearer(f.camera, 1.25); f.paint(); }),
      button("fit", "show all of the film", () => { f.camera.refit(); f.paint(); }), button("fit frame", "show all of this frame", () => { fitCamera(f.camera, boxOf(f)); f.camera.box = meta.points.box; f.paint(); })];
    if (frames.arrow) views.push(h("label", { class: "wb-muted" }, h("input", { type: "checkbox", onchange: (/** @type {any} */ ev) => { f.own = ev.target.checked; f.paint(); say(f); } }), "arrows to the scale of this frame"));
    const { colour } = meta, bar = colour ? [h("div", { class: "wb-colouring" }, `${colour.adjoint ? "adjoint of " : ""}${colour.name}`, scaleBar(f, "colour", colour))] : [];
    found.push(h("div", { class: "wb-sight" }, f.scene, f.tip, h("div", { class: "wb-views" }, ...views, ...bar)));
    listenToScene(f);
  }
  if (field) {
    for (const kind of ["", ...(frames.cellBeside ? ["other run"] : []), ...(frames.cellAdjoint ? ["adjoint"] : [])]) {
      const adjoint = kind === "adjoint", most = adjoint ? field.most_adjoint : field.most, name = adjoint ? `adjoint of ${field.name}` : kind ? `${field.name} of the ${kind}` : field.name;
      const canvas = h("canvas", { class: "wb-plane", role: "img", "aria-label": `${name}, ${field.rows} by ${field.columns} cells` });
      const panel = { canvas, adjoint, beside: kind === "other run", most, name };
      f.panels.push(panel);
      found.push(h("figure", { class: "wb-sight" }, h("figcaption", { class: adjoint ? "wb-hot" : "" }, name), canvas, scaleBar(f, adjoint ? "field" : kind, panel)));
      listenToPlane(f, panel);
    }
  }
  return found;
}

/** What the signed colours mean, up to `of.most`; `f.scales[role]` puts that to another number. @param {any} f @param {string} role @param {any} of */
function scaleBar(f, role, of) {
  const low = h("span", {}), high = h("span", {}), bar = h("div", { class: "wb-scale", role: "img" }, low, h("span", { class: "wb-ramp" }), high);
  f.scales[role] = (/** @type {number} */ most) => {
    of.most = most;
    [low.textContent, high.textContent] = [short(-most, 2), short(most, 2)];
    bar.setAttribute("aria-label", `colours from ${short(-most)} to ${short(most)}`);
  };
  f.scales[role](of.most);
  return bar;
}

/** @param {any} f */
const pickedOf = (f) => h("div", { class: "wb-picked" }, h("strong", {}, "values"), f.pickedText = h("output", { class: "wb-figures", "aria-live": "polite" }));

/** Draw the frame anew. @param {any} f */
function paintStage(f) {
  if (f.scene) paintScene(f);
  for (const panel of f.panels) paintField(f, panel);
  showTime(f);
  if (f.tip) callout(f);
  if (!f.timer) {
    say(f);
    if (f.table.closest("details").open) fillNumbers(f);
  }
}

/** Go to a frame. @param {any} f @param {number} k @param {boolean} save */
function go(f, k, save) {
  f.k = clamp(Math.round(k), 0, f.frames.count - 1);
  f.model.set("cursor", f.meta.moments[f.k]);
  if (save) f.model.save_changes();
  f.paint();
}

/** The frame in words. @param {any} f */
function say(f) {
  const { meta, frames, k } = f, parts = [`${meta.says[k]}; ${count(meta.count, meta.unit)} in all`];
  if (frames.known && frames.known(k).some((/** @type {number} */ sure) => !sure)) parts.push(`${meta.points.name} was not kept here`);
  if (frames.arrow) {
    const [at, most] = largestOf(frames.arrow(k), frames.width), name = meta.arrows.adjoint ? `adjoint of ${meta.arrows.name}` : meta.arrows.name;
    parts.push(at < 0 ? `${name}: 0` : `largest |${name}| ${short(most)} at [${indexOf(at, shapeOf(f)).join(", ")}]; the arrow of the scale is ${short(scaleOf(f))}`);
  }
  const ill = f.panels.length ? frames.cell(k).reduce((/** @type {number} */ sum, /** @type {number} */ v) => sum + Number(!Number.isFinite(v)), 0) : 0;
  if (ill) parts.push(`${count(ill, "cell")} of ${meta.field.name} NaN or infinite`);
  if (f.seed.note) parts.push(`seed: ${f.seed.note}`);
  if (meta.parted?.[0] === k) parts.push(`here the two runs part: ${meta.parted[1]}`);
  const text = parts.join(". ");
  if (f.status.textContent !== text) f.status.textContent = text;
  f.pickedText.textContent = f.chosen >= 0 ? wordsOf(f, f.chosen).join("\n") : f.cell >= 0 ? cellWords(f, f.cell).join("\n") : f.line >= 0 ? lineWords(f, f.line).join("\n") : "click a point, a line or a cell";
}

/** @param {any} f @returns {number[]} */
const shapeOf = (f) => (f.meta.points.shape.length ? f.meta.points.shape : [f.frames.many]);

/** @param {Float32Array} of @param {number} i @param {number} width */
const vector = (of, i, width, digits = 4) => `(${Array.from(of.subarray(i * width, (i + 1) * width), (v) => short(v, digits)).join(", ")})`;

/** A point in words: value, adjoint, colour. @param {any} f @param {number} i */
function wordsOf(f, i) {
  const { frames, meta, k } = f, index = `[${indexOf(i, shapeOf(f)).join(", ")}]`, shown = f.run ?? frames.point, sure = f.run || !frames.known || frames.known(k)[i];
  const found = [`${meta.points.name}${index}  ${sure ? vector(shown(k), i, frames.width) : "not kept"}`];
  if (f.run) found.push("of the new run");
  else if (frames.beside) found.push(`other run ${vector(frames.beside(k), i, frames.width)}`);
  if (f.run) return [...found, ...(f.ghost ? [`predicted ${vector(f.ghost(k), i, frames.width)}`] : [])];
  if (frames.adjoint && f.phase !== "forward") found.push(`adjoint ${vector(frames.adjoint(k), i, frames.width)}`);
  if (meta.arrows?.adjoint === false) found.push(`${meta.arrows.name} ${vector(frames.arrow(k), i, frames.width)}`);
  return [...found, ...colourWords(f, i, frames.many)];
}

/** What colours one of so many. @param {any} f @param {number} i @param {number} many */
const colourWords = ({ meta: { colour }, frames, k }, i, many) => colour?.count === many ? [`${colour.adjoint ? "adjoint of " : ""}${colour.name} ${short(frames.colour(k)[i])}`] : [];

/** A line: its length, its colour, its ends. @param {any} f @param {number} n */
function lineWords(f, n) {
  const { lines, width, point } = f.frames, [a, b] = lines.subarray(2 * n, 2 * n + 2), at = (f.run ?? point)(f.k);
  const length = Math.hypot(...at.subarray(a * width, (a + 1) * width).map((/** @type {number} */ v, /** @type {number} */ c) => v - at[b * width + c]));
  return [`line ${n}  length ${short(length, 4)}`, ...(f.run ? [] : colourWords(f, n, lines.length / 2)), ...wordsOf(f, a), ...wordsOf(f, b)];
}

/** @param {any} f @param {number} n */
function cellWords(f, n) {
  const { field } = f.meta, { frames, k } = f, known = !frames.cellKnown || frames.cellKnown(k)[n], index = cellIndex(f, n).join(", ");
  const found = [`${field.name}[${index}]  ${known ? short(frames.cell(k)[n], 6) : "not kept"}`];
  if (frames.cellBeside) found.push(`other run ${short(frames.cellBeside(k)[n], 6)}`);
  if (frames.cellAdjoint) found.push(`adjoint ${short(frames.cellAdjoint(k)[n], 6)}`);
  if (field.block[0] * field.block[1] > 1) found.push(`the largest of ${field.block.join(" × ")} cells`);
  return found;
}

/** @param {any} f @param {number} n */
const cellIndex = (f, n) => [...f.meta.field.part, Math.floor(n / f.meta.field.columns) * f.meta.field.block[0], (n % f.meta.field.columns) * f.meta.field.block[1]];

/** The box beside the point under the pointer, or the one that is picked. @param {any} f */
function callout(f) {
  const i = f.hover >= 0 ? f.hover : f.chosen;
  f.tip.style.display = i >= 0 && Number.isFinite(f.places[3 * i]) ? "block" : "none";
  if (i < 0) return;
  f.tip.textContent = [...wordsOf(f, i), ...(f.hover >= 0 && i !== f.chosen ? [f.ledgers ? "click: ledger of this cell" : "click: keep in sight"] : [])].join("\n");
  const x = f.places[3 * i], y = f.places[3 * i + 1];
  f.tip.style.left = `${clamp(x + 14, 4, f.scene.clientWidth - f.tip.offsetWidth - 4)}px`;
  f.tip.style.top = `${y + 16 + f.tip.offsetHeight < f.scene.clientHeight ? y + 16 : y - 16 - f.tip.offsetHeight}px`;
}

/** The nearest point, or tip of an arrow, to a place of the canvas. @param {any} f @param {number} x @param {number} y */
function pointAt(f, x, y, at = f.places) {
  let best = -1, least = NEAR ** 2;
  for (let i = 0; at && i < f.frames.many; i++) {
    const away = (at[3 * i] - x) ** 2 + (at[3 * i + 1] - y) ** 2;
    if (away < least) [best, least] = [i, away];
  }
  return best;
}

/** The nearest line to a place of the canvas. @param {any} f @param {number} x @param {number} y */
function lineAt({ places: at, frames: { lines } }, x, y) {
  let best = -1, least = NEAR ** 2 / 4;
  for (let n = 0; lines && n < lines.length / 2; n++) {
    const a = 3 * lines[2 * n], b = 3 * lines[2 * n + 1], dx = at[b] - at[a], dy = at[b + 1] - at[a + 1];
    const along = clamp(((x - at[a]) * dx + (y - at[a + 1]) * dy) / (dx * dx + dy * dy || 1), 0, 1);
    const away = (at[a] + along * dx - x) ** 2 + (at[a + 1] + along * dy - y) ** 2;
    if (away < least) [best, least] = [n, away];
  }
  return best;
}

/** Look, pick, drag, pan, turn, zoom. @param {any} f */
function listenToScene(f) {
  const { scene, camera } = f, draggable = f.meta.what_if?.points >= 0 && !f.meta.what_if.refused;
  let held = /** @type {any} */ (null);
  scene.addEventListener("pointerdown", (/** @type {any} */ ev) => {
    if (ev.button) return;
    const point = pointAt(f, ev.offsetX, ev.offsetY), arrow = ev.shiftKey ? point : pointAt(f, ev.offsetX, ev.offsetY, f.tips);
    held = { x: ev.offsetX, y: ev.offsetY, fromX: ev.offsetX, fromY: ev.offsetY, point, arrow, moved: false };
    scene.setPointerCapture?.(ev.pointerId);
  });
  scene.addEventListener("pointermove", (/** @type {any} */ ev) => {
    if (!held) {
      const i = pointAt(f, ev.offsetX, ev.offsetY);
      scene.style.cursor = pointAt(f, ev.offsetX, ev.offsetY, f.tips) < 0 ? "" : "grab";
      if (i !== f.hover) { f.hover = i; f.paint(); }
      return;
    }
    held.moved ||= Math.hypot(ev.offsetX - held.fromX, ev.offsetY - held.fromY) > 4;
    if (!held.moved) return;
    if (held.arrow >= 0) pullArrow(f, held.arrow, ev.offsetX - held.fromX, ev.offsetY - held.fromY, false);
    else if (held.point >= 0 && draggable) dragPoint(f, held.point, ev.offsetX - held.fromX, ev.offsetY - held.fromY);
    else {
      (camera.dims === 3 && !ev.shiftKey ? orbit : pan)(camera, ev.offsetX - held.x, ev.offsetY - held.y);
      f.paint();
    }
    [held.x, held.y] = [ev.offsetX, ev.offsetY];
  });
  const release = (/** @type {any} */ ev) => {
    if (held && !held.moved) choosePoint(f, held.point < 0 ? held.arrow : held.point, true, lineAt(f, held.x, held.y));
    else if (held?.arrow >= 0) pullArrow(f, held.arrow, ev.offsetX - held.fromX, ev.offsetY - held.fromY);
    else if (held?.moved && held.point >= 0 && draggable) dragPoint(f, held.point, ev.offsetX - held.fromX, ev.offsetY - held.fromY, true);
    held = null;
  };
  scene.addEventListener("pointerup", release);
  scene.addEventListener("pointercancel", () => { held = f.pulled = null; f.paint(); });
  scene.addEventListener("dblclick", () => unpull(f));
  scene.addEventListener("pointerleave", () => { f.hover = -1; f.paint(); });
  scene.addEventListener("wheel", (/** @type {WheelEvent} */ ev) => {
    if (!(ev.ctrlKey || ev.metaKey)) return; // the page scrolls
    ev.preventDefault();
    nearer(camera, ev.deltaY > 0 ? 0.87 : 1.15, ev.offsetX, ev.offsetY);
    f.paint();
  }, { passive: false });
}

/** @param {any} f @param {any} panel */
function listenToPlane(f, panel) {
  const at = (/** @type {any} */ ev) => {
    const c = Math.floor((ev.offsetX - panel.left) / panel.size), r = Math.floor((ev.offsetY - panel.top) / panel.size), { rows, columns } = f.meta.field;
    return r >= 0 && r < rows && c >= 0 && c < columns ? r * columns + c : -1;
  };
  panel.canvas.addEventListener("pointermove", (/** @type {any} */ ev) => { const n = at(ev); panel.canvas.title = n < 0 ? "" : cellWords(f, n).join("\n"); });
  panel.canvas.addEventListener("click", (/** @type {any} */ ev) => {
    f.cell = at(ev);
    f.chosen = f.line = -1;
    if (f.cell >= 0) f.pick(cellIndex(f, f.cell), "field");
    f.paint();
  });
}

/** Choose a point; without one a line. @param {any} f @param {number} i */
export function choosePoint(f, i, tell = true, line = -1) {
  f.chosen = i;
  f.line = i < 0 ? line : -1;
  f.cell = -1;
  if (i >= 0 && tell) f.pick([...indexOf(i, shapeOf(f)), 0], "points");
  else if (f.line >= 0 && f.meta.colour?.count === f.frames.lines.length / 2) f.pick([line], "colour");
  f.paint();
}

/** The box of the points of this frame. @param {any} f */
function boxOf(f) {
  const points = f.run ? f.run(f.k) : f.frames.point(f.k), { width } = f.frames;
  return Array.from({ length: width }, (_, c) => {
    let low = Infinity, high = -Infinity;
    for (let i = c; i < points.length; i += width) if (Number.isFinite(points[i])) [low, high] = [Math.min(low, points[i]), Math.max(high, points[i])];
    return low <= high ? [low, high] : [-1, 1];
  });
}

/** @param {any} f */
function headOf(f) {
  const names = f.frames.point ? [f.meta.points.name, "value", ...(f.frames.adjoint ? ["adjoint"] : [])] : ["cell", "value", "adjoint"];
  return h("thead", {}, h("tr", {}, ...names.map((name) => h("th", { scope: "col" }, name))));
}

/** The first points, or the cells of the largest size. @param {any} f */
function fillNumbers(f) {
  const { frames, meta, k } = f, rows = [];
  const row = (/** @type {string[]} */ cells) => h("tr", {}, h("th", { scope: "row" }, cells[0]), ...cells.slice(1).map((text) => h("td", {}, text)));
  if (frames.point) {
    for (let i = 0; i < Math.min(frames.many, TABLE_ROWS); i++) rows.push(row([`[${indexOf(i, shapeOf(f)).join(", ")}]`, vector((f.run ?? frames.point)(k), i, frames.width, 6), ...(frames.adjoint ? [vector(frames.adjoint(k), i, frames.width, 6)] : [])]));
    if (frames.many > TABLE_ROWS) rows.push(row([`and ${frames.many - TABLE_ROWS} more`, "film.values(\"points\") has all", ...(frames.adjoint ? [""] : [])]));
  } else {
    const cells = frames.cell(k), order = Array.from(cells.keys()).sort((a, b) => Math.abs(cells[b]) - Math.abs(cells[a])).slice(0, TABLE_ROWS);
    for (const n of order) rows.push(row([`${meta.field.name}[${cellIndex(f, n).join(", ")}]`, short(cells[n], 6), frames.cellAdjoint ? short(frames.cellAdjoint(k)[n], 6) : ""]));
  }
  f.table.replaceChildren(...rows);
}

/** What a key does on the stage. @param {any} f @param {any} event */
function typedOnStage(f, event) {
  const { key, target } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || (target !== f.scene && !["p", "Escape"].includes(key))) return;
  if (target.matches("input[type=text], select")) return;
  const pull = event.shiftKey && { ArrowLeft: [-PULL, 0], ArrowRight: [PULL, 0], ArrowUp: [0, -PULL], ArrowDown: [0, PULL] }[/** @type {string} */ (key)];
  if (pull) pullArrow(f, f.chosen, pull[0], pull[1]);
  else if (key === "Escape") { if (!unpull(f)) return; } // of the notebook
  else if (key === "ArrowLeft" || key === "ArrowRight") { stop(f); f.go(f.k + (key === "ArrowLeft" ? -1 : 1)); }
  else if (key === "Home" || key === "End") { stop(f); f.go(key === "Home" ? 0 : f.frames.count - 1); }
  else if (key === "[" || key === "]") choosePoint(f, (f.chosen + (key === "[" ? -1 : 1) + f.frames.many) % f.frames.many, false);
  else if (key === "Enter" && f.chosen >= 0) choosePoint(f, f.chosen);
  else if (key === "+" || key === "=" || key === "-") { nearer(f.camera, key === "-" ? 0.8 : 1.25); f.paint(); }
  else if (key === "f") { f.camera.refit(); f.paint(); }
  else if (key === "p" || key === " ") playFilm(f);
  else return;
  event.preventDefault();
  event.stopPropagation();
}

/** The cursor, the size and the theme of the page. @param {any} f */
function listen(f) {
  const moved = () => {
    const k = frameAt(f.meta.moments, f.model.get("cursor"));
    if (k === f.k) return;
    f.k = k;
    f.paint();
  };
  f.model.on("change:cursor", moved);
  const measure = () => { drawRuler(f); f.camera.fitted = false; f.paint(); };
  const watcher = typeof ResizeObserver === "undefined" ? null : new ResizeObserver(measure);
  for (const canvas of [f.scene, ...f.panels.map((/** @type {any} */ panel) => panel.canvas)]) if (canvas) watcher?.observe(canvas);
  const themed = new MutationObserver(() => f.paint()), dark = globalThis.matchMedia?.("(prefers-color-scheme: dark)");
  themed.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-name", "data-jp-theme-light", "class"] });
  dark?.addEventListener("change", f.paint);
  f.signal?.addEventListener("abort", () => {
    stop(f);
    f.model.off("change:cursor", moved);
    f.close();
    watcher?.disconnect();
    themed.disconnect();
    dark?.removeEventListener("change", f.paint);
  });
}
