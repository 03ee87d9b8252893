// @ts-check
// The what-if of a film: a number of the start is moved, the kernel runs the program again, and the stage shows both.
import { button, clamp, h, s, short } from "./elements.js";
import { wayOf } from "./camera.js";
import { readerOf } from "./film_frames.js";
import { seedOf } from "./film_seed.js";

const CHART_WIDE = 300, CHART_TALL = 130, PAD = 34;

/** @param {any} f */
export function whatIfOf(f) {
  const given = f.meta.what_if, w = f.whatIf = /** @type {any} */ ({ changes: [], samples: [] });
  w.box = h("div", { class: "wb-whatif" }, h("strong", {}, "what if"));
  if (!given || given.refused || !given.inputs.length) {
    const why = given?.refused || (given ? "the tape starts from nothing that could be moved" : "a page without a kernel cannot run the program again; tape.film() in a notebook can");
    w.box.append(h("p", { class: "wb-muted" }, `Not here: ${why}.`), seedOf(f));
    return w.box;
  }
  w.ask = f.keen("what_if", () => w.wanted.changes.length && w.wanted, (/** @type {any} */ found, /** @type {any} */ asked) => takeRun(f, found, asked), (/** @type {string} */ error) => { w.said.textContent = error; });
  w.input = h("select", { "aria-label": "input to change", onchange: () => chooseInput(f) }, ...given.inputs.map((/** @type {any} */ one, /** @type {number} */ k) => h("option", { value: k }, one.name)));
  w.index = h("input", { type: "text", size: 6, value: "0", "aria-label": "index of the number", onchange: () => chooseInput(f) });
  w.slider = h("input", { type: "range", min: -100, max: 100, value: 0, step: 1, "aria-label": "change of the number", oninput: () => slid(f), onchange: () => ask(f, -1) });
  w.number = h("output", "wb-figures");
  w.chart = s("svg", { viewBox: `0 0 ${CHART_WIDE} ${CHART_TALL}`, role: "img", class: "wb-losschart", "aria-label": "loss by the change: none tried yet" });
  w.said = h("output", { class: "wb-said", "aria-live": "polite" });
  const drag = given.points >= 0 && f.frames.point ? "drag a point, or move a number:" : "move a number:";
  w.box.append(h("p", { class: "wb-muted" }, drag), h("div", { class: "wb-choice" }, w.input, w.index, w.slider), w.number, w.chart, w.said,
    h("p", { class: "wb-muted" }, f.frames.point ? "solid: run again · dashed: what the gradient predicts" : "the field is that of the new run"),
    button("as it was", "show the recorded run again", () => asItWas(f)), w.curve = h("div", { class: "wb-curve" }), seedOf(f));
  chooseInput(f);
  askCurve(f);
  return w.box;
}

/** How far the gradient is good: the loss along it beside the exact slope. @param {any} f @param {boolean} [all] */
async function askCurve(f, all = false) {
  try {
    const { ask: long, said, picture } = await f.ask("what_if", { curve: true, all }, () => {});
    f.whatIf.curve.replaceChildren(
      ...(long ? [button("how far is the gradient good?", "run the program along it: tape.trust()", () => askCurve(f, true))] : []),
      ...(picture ? [h("img", { src: picture, alt: said, title: said })] : []));
  } catch { // a program that cannot run again: nothing is said
    f.whatIf.curve.replaceChildren();
  }
}

/** @param {any} f */
function chooseInput(f) {
  const { whatIf: w, meta } = f, one = meta.what_if.inputs[Number(w.input.value)], index = (w.index.value.match(/-?\d+/g) ?? []).map(Number);
  const full = one.shape.map((/** @type {number} */ n, /** @type {number} */ k) => clamp(index[k] ?? 0, 0, n - 1));
  w.flat = full.reduce((/** @type {number} */ sum, /** @type {number} */ i, /** @type {number} */ k) => sum * one.shape[k] + i, 0);
  w.index.value = full.join(", ");
  w.unit = one.size / 100;
  w.slider.value = "0";
  w.samples = [];
  asItWas(f);
}

/** @param {any} f */
function asItWas(f) {
  const w = f.whatIf;
  w.changes = [];
  w.slider.value = "0";
  f.run = f.ghost = null;
  w.number.textContent = w.said.textContent = "";
  drawLoss(w);
  if (f.element) f.paint();
}

/** @param {any} f */
function slid(f) {
  const w = f.whatIf;
  w.by = Number(w.slider.value) * w.unit;
  w.changes = [[Number(w.input.value), w.flat, w.by]];
  ask(f, f.k);
}

/** A point is dragged on the canvas: its start is moved by as much. @param {any} f @param {number} i @param {number} dx @param {number} dy */
export function dragPoint(f, i, dx, dy, done = false) {
  const w = f.whatIf, { width } = f.frames, way = wayOf(f.camera, dx, dy), input = f.meta.what_if.points;
  w.by = null;
  w.changes = way.slice(0, width).map((by, c) => [input, i * width + c, by]);
  ask(f, done ? -1 : f.k);
}

/** @param {any} f @param {number} frame -1: all */
function ask(f, frame) {
  const w = f.whatIf;
  w.wanted = { changes: w.changes, frame, by: w.by };
  w.ask();
}

/** @param {any} f @param {any} found @param {any} asked */
function takeRun(f, found, { frame, by }) {
  const w = f.whatIf;
  if (!w.changes.length) return; // as it was meanwhile
  [f.run, f.ghost = null] = found.buffers.map((/** @type {DataView} */ view) => readerOf(view, frame < 0 ? f.frames.count : 1));
  w.number.textContent = found.moved.map((/** @type {any} */ m) => `${m.name}  ${short(m.from)} → ${short(m.to)}`).join("\n");
  const says = found.predicted === null ? found.note || "no gradient of it is known" : `gradient says ${short(found.predicted, 5)}`;
  w.said.textContent = `loss ${short(found.before, 5)} → ${short(found.loss, 5)} (${says})`;
  Object.assign(w.said.dataset, { before: found.before, loss: found.loss, predicted: found.predicted });
  if (by !== null && by !== undefined) {
    if (!w.samples.length) w.samples.push({ by: 0, loss: found.before, predicted: found.before });
    w.samples = [...w.samples.filter((/** @type {any} */ one) => one.by !== by), { by, loss: found.loss, predicted: found.predicted }];
  }
  drawLoss(w, by);
  f.paint();
}

/** The loss of the runs that were tried, and the line of the gradient. @param {any} w @param {number | null} [now] */
function drawLoss(w, now = null) {
  const tried = w.samples.filter((/** @type {any} */ one) => Number.isFinite(one.loss)).sort((/** @type {any} */ a, /** @type {any} */ b) => a.by - b.by);
  w.chart.style.display = tried.length > 1 ? "" : "none";
  if (tried.length < 2) return;
  const heights = tried.flatMap((/** @type {any} */ one) => [one.loss, one.predicted ?? one.loss]), low = Math.min(...heights), high = Math.max(...heights);
  const left = tried[0].by, right = tried[tried.length - 1].by;
  const x = (/** @type {number} */ by) => PAD + ((by - left) / (right - left || 1)) * (CHART_WIDE - PAD - 12), y = (/** @type {number} */ v) => CHART_TALL - 22 - ((v - low) / (high - low || 1)) * (CHART_TALL - 34);
  const path = (/** @type {string} */ of) => tried.filter((/** @type {any} */ one) => one[of] !== null).map((/** @type {any} */ one, /** @type {number} */ k) => `${k ? "L" : "M"}${x(one.by).toFixed(1)} ${y(one[of]).toFixed(1)}`).join("");
  const text = (/** @type {number} */ at, /** @type {number} */ up, /** @type {string} */ said, anchor = "middle") => s("text", { x: at, y: up, "font-size": 10, "text-anchor": anchor }, said);
  const dots = tried.map((/** @type {any} */ one) => s("circle", { cx: x(one.by), cy: y(one.loss), r: one.by === now ? 5 : 2.5, class: "wb-run" }));
  w.chart.replaceChildren(s("path", { d: path("loss"), class: "wb-runline" }), s("path", { d: path("predicted"), class: "wb-sayline" }), ...dots,
    text(PAD, CHART_TALL - 6, short(left, 2), "start"), text(CHART_WIDE - 12, CHART_TALL - 6, short(right, 2), "end"), text((PAD + CHART_WIDE) / 2, CHART_TALL - 6, "change"), text(2, 12, short(high, 3), "start"), text(2, CHART_TALL - 22, short(low, 3), "start"));
  w.chart.setAttribute("aria-label", `loss by the change, ${tried.length} runs: ${tried.map((/** @type {any} */ one) => `${short(one.by, 2)}: ${short(one.loss, 4)}`).join(", ")}; dashed: what the gradient says`);
}
