// @ts-check
// The panel of the microscope: one thread of one launch, down through its statements and back up.
import { h } from "./elements.js";
import { entered, plainValue, section, wholeNumbers } from "./section.js";

const INSIDE = "inside one thread", INSIDE_HINT = "Choose a launch (its box above the lanes) to step through one of its threads.";

/** @param {any} v */
export function scopePanel(v) {
  /** @type {any} */ const p = { v, ...section("wb-scope", INSIDE), found: null, at: 0 };
  p.thread = h("input", { type: "text", size: "7", "aria-label": "thread, such as 7 or 3, 1", onchange: () => typedThread(p), onkeydown: entered });
  p.slider = h("input", { type: "range", min: "0", max: "0", value: "0", "aria-label": "step of the thread: down through its statements, then back up", oninput: () => show(p, Number(p.slider.value)) });
  const back = h("button", { type: "button", "aria-label": "one step of the thread back", onclick: () => show(p, p.at - 1) }, "◀");
  const on = h("button", { type: "button", "aria-label": "one step of the thread on", onclick: () => show(p, p.at + 1) }, "▶");
  p.turn = h("span", { class: "wb-turns" });
  p.body = h("div", { class: "wb-lines", tabindex: "0", role: "region", "aria-label": "statements of the thread" }, h("p", { class: "wb-muted" }, INSIDE_HINT));
  const bar = h("div", { class: "wb-choice" }, h("label", {}, "thread ", p.thread), back, p.slider, on, p.turn);
  bar.style.display = "none";
  p.box.append(bar, p.body);
  const ask = v.keen("microscope", () => (v.get("launch") >= 0 && v.get("thread").length ? { launch: v.get("launch"), thread: v.get("thread") } : null),
    (/** @type {any} */ answer) => {
      p.found = answer;
      bar.style.display = "";
      p.slider.max = String(Math.max(answer.steps.length - 1, 0));
      show(p, answer.steps.some((/** @type {any} */ one) => one.phase === "reverse") ? answer.steps.length - 1 : 0);
    }, (/** @type {string} */ error) => { bar.style.display = ""; p.head.textContent = INSIDE; p.body.replaceChildren(h("p", { class: "wb-error" }, error)); });
  return { element: p.box, ask: () => { p.thread.value = v.get("thread").join(", "); ask(); } };
}

/** @param {any} p */
function typedThread({ v, thread }) {
  const grid = v.meta.grids[v.tape.events.grid[v.get("launch")]] ?? [], now = wholeNumbers(thread.value);
  const fits = now.length === grid.length && now.every((i, k) => i >= 0 && i < grid[k]);
  thread.setAttribute("aria-invalid", String(!fits));
  if (fits) v.set({ thread: now });
  else v.say(`a thread of this launch is ${grid.length} numbers below (${grid.join(", ")})`);
}

/** @param {any} p @param {number} to */
function show(p, to) {
  if (!p.found) return;
  const { steps } = p.found, down = steps.filter((/** @type {any} */ one) => one.phase === "forward").length;
  p.at = Math.min(Math.max(to, 0), Math.max(steps.length - 1, 0));
  p.slider.value = String(p.at);
  const here = steps[p.at], reverse = here?.phase === "reverse";
  titled(p, here, reverse ? p.at - down + 1 : p.at + 1, reverse ? steps.length - down : down);
  const current = reverse ? here.produced_by : p.at, turn = steps[current]?.iteration ?? here?.iteration ?? [];
  spinners(p, turn);
  const rows = [];
  for (let k = 0; k < down; k++) if (inTurn(steps[k].iteration, turn)) rows.push(row(p, down, k, k === current));
  if (reverse && here.produced_by === null) rows.push(lastRow(here));
  const cells = ["line", "name", "value", "adjoint", "note"].map((text, k) => h("th", { scope: "col", class: k === 3 ? "wb-hot" : "" }, text));
  const says = p.found.note ? [h("p", { class: "wb-muted" }, p.found.note)] : [];
  p.body.replaceChildren(h("table", {}, h("thead", {}, h("tr", {}, ...cells)), h("tbody", {}, ...rows)), ...says);
  const now = /** @type {HTMLElement | null} */ (p.body.querySelector("tr.now"));
  if (now) p.body.scrollTop = Math.max(now.offsetTop - p.body.clientHeight / 2, 0);
}

/** Which step this is. @param {any} p @param {any} here @param {number} number @param {number} of */
function titled(p, here, number, of) {
  const what = here ? `${here.phase} step ${number} of ${of}` : "no step";
  p.head.textContent = `inside ${p.found.heading}, thread ${p.found.thread.join(", ")} · ${what}`;
  const adjoint = here && here.adjoint !== null ? `, adjoint ${plainValue(here.adjoint)}` : "";
  p.slider.setAttribute("aria-valuetext", here ? `${what}, line ${here.where?.line ?? ""}: ${here.name} = ${plainValue(here.value)}${adjoint}` : what);
}

/** Is a statement shown in this turn of the loops around it; of inner loops the first turn. @param {number[]} iteration @param {number[]} turn */
const inTurn = (iteration, turn) => iteration.every((i, d) => i === (turn[d] ?? 0));

/** What the thread gives to a scalar parameter: made by no statement. @param {any} here */
function lastRow(here) {
  const place = here.where ? `${String(here.where.file).split("/").pop()}:${here.where.line}` : "";
  return h("tr", { class: "now" }, h("td", {}, place), h("td", {}, here.name), h("td", {}, plainValue(here.value)), h("td", { class: "wb-hot" }, plainValue(here.adjoint)), h("td", {}, here.note));
}

/** One statement, with its value once it ran and its adjoint once it was reversed.
 * @param {any} p @param {number} down @param {number} k @param {boolean} now */
function row(p, down, k, now) {
  const { at } = p, { steps } = p.found, one = steps[k], came = k <= at;
  let adjoint = null, { note } = one;
  for (let r = down; r <= at; r++) {
    if (steps[r].produced_by === k) {
      adjoint = steps[r].adjoint;
      if (r === at || steps[r].note.startsWith("was ")) note = steps[r].note;
    }
  }
  const line = `${one.where?.line ?? ""} ${"  ".repeat(one.depth)}${one.where?.text?.trim() ?? ""}`;
  const jump = one.produced_by === null ? "" : h("button", { type: "button", title: "go to the step that made this value", "aria-label": `go to the step that made ${one.name}`, onclick: () => show(p, one.produced_by) }, "↰");
  const names = [one.name, ...one.aliases];
  return h("tr", { class: now ? "now" : came ? "" : "later", "aria-current": now ? "step" : false },
    h("td", {}, h("button", { type: "button", class: "wb-line", "aria-label": `step ${k + 1}: ${line}`, onclick: () => show(p, k) }, `${now ? "▸" : " "} ${line}`)),
    h("td", { class: one.aliases.length ? "wb-shared" : "" }, names.join(" = ")),
    h("td", { class: "wb-value" }, came ? plainValue(one.value) : "", jump),
    h("td", { class: "wb-hot" }, adjoint === null ? "" : plainValue(adjoint)), h("td", { class: "wb-muted" }, note));
}

/** A box for the turn of every loop around the step. @param {any} p @param {number[]} now */
function spinners(p, now) {
  const { steps } = p.found, deepest = Math.max(0, ...steps.map((/** @type {any} */ one) => one.iteration.length));
  const within = (/** @type {any} */ one, /** @type {number} */ d) => one.iteration.slice(0, d).every((/** @type {number} */ i, /** @type {number} */ e) => i === (now[e] ?? 0));
  p.turn.replaceChildren();
  for (let d = 0; d < deepest; d++) {
    const inside = steps.filter((/** @type {any} */ one) => one.iteration.length > d && within(one, d));
    const most = Math.max(0, ...inside.map((/** @type {any} */ one) => one.iteration[d]));
    p.turn.append(h("label", {}, ` turn `, h("input", {
      type: "number", min: "0", max: String(most), value: String(now[d] ?? 0), "aria-label": `turn of loop ${d + 1}`,
      onchange: (/** @type {any} */ ev) => {
        const want = Number(ev.target.value), { phase } = steps[p.at];
        const k = steps.findIndex((/** @type {any} */ one) => one.phase === phase && one.iteration[d] === want && within(one, d));
        if (k >= 0) show(p, k);
      },
    }), ` of ${most + 1}`));
  }
}
