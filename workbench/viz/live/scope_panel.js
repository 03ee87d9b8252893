// @ts-check
// The panel of the microscope: one thread of one launch, down through its statements and back up.
import { button, clamp, h, pageAround } from "./elements.js";
import { entered, plainValue, section, wholeNumbers } from "./section.js";
import { listOf, sameLine, stepAt, stepsIn, turnTo } from "./turns.js";

const INSIDE = "inside one thread", INSIDE_HINT = "Choose a launch (its box above the lanes) to step through one of its threads.";
const PRINTED = 600; // steps up to which a print shows every turn

/** @param {any} v */
export function scopePanel(v) {
  /** @type {any} */ const p = { v, ...section("wb-scope", INSIDE), found: null, at: 0, list: [], key: "", wanted: null, from: null };
  p.thread = h("input", { type: "text", size: "7", "aria-label": "thread, such as 7 or 3, 1", onchange: () => typedThread(p), onkeydown: entered });
  p.slider = h("input", { type: "range", min: "0", max: "0", value: "0", "aria-label": "step of the thread: down through its statements, then back up", oninput: () => show(p, Number(p.slider.value)) });
  p.back = h("button", { class: "wb-back", onclick: () => p.from?.return() });
  const back = button("◀", "one step of the thread back", () => show(p, p.at - 1));
  const on = button("▶", "one step of the thread on", () => show(p, p.at + 1));
  p.body = h("div", { class: "wb-lines", tabindex: "0", role: "region", "aria-label": "statements of the thread", onkeydown: (/** @type {any} */ event) => stepped(p, event) }, h("p", "wb-muted", INSIDE_HINT));
  p.bar = h("div", { class: "wb-choice", hidden: true }, p.back, h("label", {}, "thread ", p.thread), back, p.slider, on);
  p.box.append(p.bar, p.body);
  const ask = v.keen("microscope", () => (v.get("launch") >= 0 && v.get("thread").length ? { launch: v.get("launch"), thread: v.get("thread") } : null),
    (/** @type {any} */ answer) => take(p, answer),
    (/** @type {string} */ error) => {
      p.found = null;
      p.head.textContent = INSIDE;
      p.body.replaceChildren(h("p", "wb-error", error));
    });
  /** @type {any} */ let later = null;
  return {
    element: p.box,
    /** Of the thread that `key` names: a line to stop at, for `stepAt`, and where the way back leads.
     * @param {string} key @param {any} wanted @param {any} from */
    aim: (key, wanted, from) => Object.assign(p, { key, wanted, from }),
    ask: () => { clearTimeout(later); later = setTimeout(() => { prepared(p); ask(); }); }, // launch and thread change one by one
    again: () => { if (p.found) show(p, p.at); },
  };
}

/** The key of a thread. @param {number} launch @param {number[]} thread */
export const threadKey = (launch, thread) => `${launch} ${thread}`;

/** What is above the statements. @param {any} p */
function prepared(p) {
  const { v } = p, launch = v.get("launch"), thread = v.get("thread");
  if (p.key !== threadKey(launch, thread)) p.from = p.wanted = null;
  p.bar.hidden = launch < 0;
  p.back.hidden = !p.from;
  p.back.textContent = p.from ? `‹ ${p.from.name}` : "";
  if (p.from?.fresh) p.back.focus(); // the row that led here is out of sight now
  if (p.from) p.from.fresh = false;
  p.thread.value = thread.join(", ");
}

/** A thread came: stop where it is wanted; else where the reader is in it; else at the end of it. @param {any} p @param {any} answer */
function take(p, answer) {
  const { steps } = answer, same = p.found?.event === answer.event && String(p.found.thread) === String(answer.thread);
  p.found = answer;
  p.list = listOf(steps);
  p.slider.max = String(Math.max(steps.length - 1, 0));
  const wanted = p.wanted ? stepAt(steps, p.wanted.where, p.wanted.phase, p.wanted.adjoint) : -1;
  p.wanted = null;
  show(p, wanted >= 0 ? wanted : same ? p.at : steps.some((/** @type {any} */ one) => one.phase === "reverse") ? steps.length - 1 : 0);
}

/** @param {any} p */
function typedThread({ v, thread }) {
  const grid = v.meta.grids[v.tape.events.grid[v.get("launch")]] ?? [], now = wholeNumbers(thread.value);
  const fits = now.length === grid.length && now.every((i, k) => i >= 0 && i < grid[k]);
  thread.setAttribute("aria-invalid", String(!fits));
  if (fits) v.set({ thread: now });
  else v.say(`a thread of this launch is ${grid.length} numbers below (${grid.join(", ")})`);
}

/** Left and right step. @param {any} p @param {KeyboardEvent} event */
function stepped(p, event) {
  if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
  show(p, p.at + (event.key === "ArrowLeft" ? -1 : 1));
  event.preventDefault();
  event.stopPropagation();
}

/** @param {any} p @param {number} to */
function show(p, to) {
  if (!p.found) return;
  const { steps } = p.found, down = steps.filter((/** @type {any} */ one) => one.phase === "forward").length;
  p.at = clamp(to, 0, Math.max(steps.length - 1, 0));
  p.slider.value = String(p.at);
  const here = steps[p.at], reverse = here?.phase === "reverse";
  titled(p, here, reverse ? p.at - down + 1 : p.at + 1, reverse ? steps.length - down : down);
  p.current = reverse ? here.produced_by : p.at;
  if (steps[p.current]) turnTo(p.list, steps[p.current]);
  p.back_at = new Map(steps.slice(down, p.at + 1).map((/** @type {any} */ one, /** @type {number} */ k) => [one.produced_by, down + k]));
  const rows = rowsOf(p, p.list);
  if (reverse && here.produced_by === null) rows.push(lastRow(here));
  const cells = ["line", "name", "value", "adjoint", "note"].map((text, k) => h("th", { scope: "col", class: ["wb-source", "", "", "wb-hot", ""][k] }, text));
  const says = p.found.note ? [h("p", "wb-muted", p.found.note)] : [];
  const active = pageAround(p.body).activeElement, had = p.body.contains(active) ? active?.getAttribute("aria-label") : null;
  p.body.replaceChildren(h("table", {}, h("thead", {}, h("tr", {}, ...cells)), h("tbody", {}, ...rows)), ...says);
  if (had) (p.body.querySelector(`[aria-label="${CSS.escape(had)}"]`) ?? p.body).focus({ preventScroll: true });
  const now = /** @type {HTMLElement | null} */ (p.body.querySelector("tr.now"));
  if (now) p.body.scrollTop = Math.max(now.offsetTop - (p.body.clientHeight - now.offsetHeight) / 2, 0);
}

/** Which step this is. @param {any} p @param {any} here @param {number} number @param {number} of */
function titled(p, here, number, of) {
  const what = here ? `${here.phase} step ${number} of ${of}` : "no step";
  p.head.textContent = `inside ${p.found.heading}, thread ${p.found.thread.join(", ")} · ${what}`;
  const adjoint = here && here.adjoint !== null ? `, adjoint ${plainValue(here.adjoint)}` : "";
  p.slider.setAttribute("aria-valuetext", here ? `${what}, line ${here.where?.line ?? ""}: ${here.name} = ${plainValue(here.value)}${adjoint}` : what);
}

/** Rows of a list of statements: each source line once, of each loop its present turn. @param {any} p @param {any[]} list @returns {HTMLElement[]} */
function rowsOf(p, list) {
  const { steps } = p.found, rows = [];
  /** @type {any} */ let above;
  for (const one of list) {
    if (typeof one === "number") {
      const { where } = steps[one];
      rows.push(row(p, one, above === undefined || !sameLine(above, where)));
      above = where;
      continue;
    }
    const turns = p.v.printing && steps.length <= PRINTED ? one.turns.keys() : [one.turn];
    for (const turn of turns) rows.push(loopRow(p, one, turn), ...rowsOf(p, one.turns[turn] ?? []));
    above = undefined;
  }
  return rows;
}

/** A line of source with its number. @param {any} where @param {number} [depth] */
const source = (where, depth = 0) => `${where?.line ?? ""} ${"  ".repeat(depth)}${where?.text?.trim() ?? ""}`;

/** What the thread gives to a scalar parameter: made by no statement. @param {any} here */
function lastRow(here) {
  const place = here.where ? `${String(here.where.file).split("/").pop()}:${here.where.line}` : "";
  return h("tr", "now", h("td", "wb-source", place), h("td", {}, here.name), h("td", "wb-value", plainValue(here.value)), h("td", "wb-hot", plainValue(here.adjoint)), h("td", "wb-muted", here.note));
}

/** One statement, with its value once it ran and its adjoint once it was reversed.
 * @param {any} p @param {number} k @param {boolean} first of its line */
function row(p, k, first) {
  const { steps } = p.found, one = steps[k], came = k <= p.at, now = k === p.current, r = p.back_at.get(k), back = steps[r];
  const note = back && (r === p.at || back.note.startsWith("was ")) ? back.note : one.note, line = source(one.where, one.depth);
  const jump = one.produced_by === null ? "" : h("button", { title: "go to the step that made this value", "aria-label": `go to the step that made ${one.name}`, onclick: () => show(p, one.produced_by) }, "↰");
  const names = [one.name, ...one.aliases], lit = !now && steps[p.current] && sameLine(one.where, steps[p.current].where);
  return h("tr", { class: now ? "now" : `${came ? "" : "later"}${lit ? " lit" : ""}`, "aria-current": now ? "step" : false },
    h("td", "wb-source", first ? line : ""),
    h("td", { class: one.aliases.length ? "wb-shared" : "" }, h("button", { class: "wb-line", "aria-label": `step ${k + 1}: ${line}`, onclick: () => show(p, k) }, `${now ? "▸" : " "}${names.join(" = ")}`)),
    h("td", "wb-value", came ? plainValue(one.value) : "", jump),
    h("td", "wb-hot", back && back.adjoint !== null ? plainValue(back.adjoint) : ""), h("td", "wb-muted", note));
}

/** The line of a loop, folded to one turn, with a stepper. @param {any} p @param {any} node @param {number} turn */
function loopRow(p, node, turn) {
  const last = node.turns.length - 1, name = `the loop in line ${p.found.loops[node.loop]?.line ?? ""}`;
  const to = (/** @type {number} */ want) => toTurn(p, node, clamp(want, 0, last));
  const ill = node.ill < 0 ? "" : button(`NaN or Inf from ${node.ill}`, `go to turn ${node.ill}, where a NaN or an infinity began`, () => to(node.ill));
  return h("tr", "wb-loop", h("td", "wb-source", source(p.found.loops[node.loop])),
    h("td", "wb-turns", "↻ turn ", button("◀", `back one turn of ${name}`, () => to(turn - 1)),
      h("input", { type: "number", min: "0", max: String(last), value: String(turn), "aria-label": `turn of loop ${node.loop + 1}`, onchange: (/** @type {any} */ event) => to(Number(event.target.value)) }),
      button("▶", `on one turn of ${name}`, () => to(turn + 1)), ` of 0 … ${last} `, ill));
}

/** Another turn of a loop: the same statement of it, of the phase that the reader is in. @param {any} p @param {any} node @param {number} turn */
function toTurn(p, node, turn) {
  const { steps } = p.found, { phase } = steps[p.at], now = steps[p.current];
  const there = stepsIn(node.turns[turn] ?? []), wanted = there.find((k) => now && steps[k].where?.col === now.where?.col && sameLine(steps[k].where, now.where)) ?? there[0];
  if (wanted === undefined) return;
  const back = steps.findIndex((/** @type {any} */ one) => one.phase === "reverse" && one.produced_by === wanted);
  show(p, phase === "reverse" && back >= 0 ? back : wanted);
}
