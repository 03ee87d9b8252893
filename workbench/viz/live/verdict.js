// @ts-check
// The strip above the picture: what `tape.diagnose()` found, the most important first, one click from its cause. It is
// asked for as soon as the page is drawn; while the kernel is busy it says so, and asks again.
import { saidOnce } from "./against.js";
import { button, count, h, short } from "./elements.js";
import { pin } from "./families.js";
import { goTo, reveal } from "./window.js";

const SEVERITY = { error: "✕", warning: "▲", info: "•" }, CHIPS = 3, PINNED = 3;
const KEEP_ALL = "run again with everything kept";

/** The strip. @param {any} v */
export function verdictOf(v) {
  v.verdictLine = h("div", "wb-verdictline");
  v.causeBox = h("div", "wb-cause");
  v.trustBox = h("div", { class: "wb-trust", "aria-live": "polite" });
  v.findingsBox = h("ol", { class: "wb-findings", id: `${v.uid}-findings`, hidden: true });
  v.strip = h("section", { class: "wb-verdict", "aria-label": "verdict", "aria-busy": "true" }, v.verdictLine, v.causeBox, v.trustBox, v.findingsBox);
  v.verdict = null;
  v.showFinding = (/** @type {number} */ k) => showFinding(v, k);
  v.diagnose = v.keen("findings", () => ({ all: v.lookedAll === true }), (/** @type {any} */ answer) => {
    v.verdict = answer;
    v.findings = [...answer.rows];
    v.strip.setAttribute("aria-busy", "false");
    listFindings(v);
    saidOnce(v);
    fillVerdict(v);
    v.causeBox.replaceChildren(...(answer.calm || !answer.rows.length ? [] : causeOf(v, answer.rows[0])));
    if (!answer.calm && answer.rows.length && untouched(v)) openAt(v, answer.rows[0]);
    v.drawMap();
    v.draw();
    askTrust(v);
  }, (/** @type {string} */ error) => verdictWaits(v, `What is wrong could not be looked for: ${error}`, button("again", "look for findings again", () => lookForFindings(v))),
  (/** @type {string} */ busy) => verdictWaits(v, `${busy}; what is wrong is looked for as soon as it is free`));
  if (v.get("warning")) v.strip.hidden = true; // a pass that is wrong on purpose: the warning says so
  return v.strip;
}

/** Look for findings, from now on without a limit if asked for again. @param {any} v @param {boolean} [all] */
export function lookForFindings(v, all = false) {
  if (!v.n || v.strip.hidden) {
    v.strip.hidden = true;
    v.strip.setAttribute("aria-busy", "false");
    return;
  }
  v.lookedAll = all;
  verdictWaits(v, "looking for what is wrong …");
  v.diagnose();
}

/** @param {any} v @param {string} text @param {...HTMLElement} more */
function verdictWaits(v, text, ...more) {
  v.strip.className = "wb-verdict";
  v.causeBox.replaceChildren();
  v.verdictLine.replaceChildren(...(more.length ? [] : [h("progress", { "aria-label": "looking for findings" })]), h("span", { class: "wb-muted", role: "status" }, text), ...more);
}

/** The line of the strip: the first finding, those behind it, and what can be done. @param {any} v */
export function fillVerdict(v) {
  if (!v.verdict) return;
  const { rows, note, partial, calm, again, kept } = v.verdict, loud = calm ? [] : [0];
  const chips = rows.map((/** @type {any} */ _, /** @type {number} */ k) => k).filter((/** @type {number} */ k) => (k || calm) && !rows[k].ordinary).slice(0, calm ? 1 : CHIPS);
  v.strip.className = `wb-verdict ${calm ? "quiet" : rows[0].severity}`;
  const open = !v.findingsBox.hidden, word = calm ? "note" : "finding";
  const all = h("button", { class: "wb-all", "aria-expanded": String(open), "aria-controls": v.findingsBox.id, onclick: () => { unfoldFindings(v, v.findingsBox.hidden); } }, `${open ? "▾" : "▸"} ${calm || rows.length < 2 ? "" : "all "}${count(rows.length, word)}`);
  v.verdictLine.replaceChildren(
    ...(calm ? [h("span", { class: "wb-calm", role: "status" }, partial || note ? note || "" : `no problem found${adjointRange(v)}`)] : []),
    ...loud.map((k) => firstFinding(v, k)), ...chips.map((/** @type {number} */ k) => findingChip(v, k)),
    ...(rows.length > (calm ? 0 : 1) || rows.some((/** @type {any} */ f) => f.fix) ? [all] : []),
    ...(!calm && note ? [h("span", "wb-muted", note)] : []),
    ...(partial ? [button("look for the rest", "look for findings: tape.diagnose()", () => lookForFindings(v, true))] : []),
    ...(again ? [h("button", { class: "wb-again", title: "the program runs once more, on copies of its memory", onclick: () => runAgain(v) }, KEEP_ALL)] : []),
    ...(kept ? [h("span", { class: "wb-muted", role: "status" }, "run again: every value at every moment is known")] : []));
}

/** How far the gradient can be followed: a sentence that leads to what ends it. @param {any} v @param {boolean} [all] */
async function askTrust(v, all = false) {
  if (all) v.trustBox.replaceChildren(h("progress", { "aria-label": "running along the gradient" }));
  try {
    const { rows, ask } = await v.ask("trust", { all }, () => {});
    const k = v.findings.length, lead = { "data-finding": k, onclick: () => showFinding(v, k) };
    v.findings.push(...rows);
    v.trustBox.replaceChildren(
      ...rows.map((/** @type {any} */ f) => (f.position < 0 ? h("span", {}, f.headline) : h("button", lead, f.headline))),
      ...(ask ? [button("how far is it good?", "run the program along its gradient: tape.trust()", () => askTrust(v, true))] : []));
  } catch { // a page without a kernel, or a tape that has changed: nothing is said
    v.trustBox.replaceChildren();
  }
}

/** @param {any} f */
const headlined = (f) => [h("span", { class: "wb-sign", "aria-hidden": "true" }, SEVERITY[/** @type {"info"} */ (f.severity)]), ` ${f.headline}${f.more ? ` ${f.more}` : ""}`];

/** The first finding in full. @param {any} v @param {number} k */
const firstFinding = (v, k) => h("button", { class: "wb-found", "data-finding": k, "aria-label": `${v.findings[k].severity}: ${v.findings[k].headline}; show it`, onclick: () => showFinding(v, k) }, ...headlined(v.findings[k]));

/** A further one in short. @param {any} v @param {number} k */
function findingChip(v, k) {
  const f = v.findings[k], where = f.position >= 0 ? ` #${f.position}` : "";
  return h("button", { class: `wb-chip ${f.severity}`, "data-finding": k, title: f.headline, "aria-label": `${f.severity}: ${f.headline}; show it`, onclick: () => showFinding(v, k) }, `${SEVERITY[/** @type {"info"} */ (f.severity)]} ${v.verdict.calm ? f.headline : f.slug + where}`);
}

/** The smallest and the largest adjoint, where they are known. @param {any} v */
function adjointRange(v) {
  const { max, state } = v.levels?.bars ?? { max: new Float32Array(0), state: [] };
  const sizes = max.filter((/** @type {number} */ size, /** @type {number} */ k) => !state[k] && size > 0).sort();
  return sizes.length ? `; adjoints from ${short(sizes[0], 3)} to ${short(sizes[sizes.length - 1], 3)}` : "";
}

/** Every finding with its line and what to do. @param {any} v */
function listFindings(v) {
  v.findingsBox.replaceChildren(...v.findings.map((/** @type {any} */ f, /** @type {number} */ k) =>
    h("li", { class: `wb-finding ${f.severity}`, id: `${v.uid}-finding-${k}` },
      h("button", { "aria-label": `${f.headline}; show it`, onclick: () => showFinding(v, k) }, ...headlined(f)),
      h("span", "wb-muted", f.sentence), ...causeOf(v, f))));
}

/** The line that a finding is about, what to do, and the line to write instead. @param {any} v @param {any} f */
function causeOf(v, f) {
  const mended = h("code", "wb-mended", f.mended), copy = button("copy", "copy the mended line", async () => {
    try {
      await navigator.clipboard.writeText(f.mended);
      v.say("copied");
    } catch { // a page that may not write it
      getSelection()?.selectAllChildren(mended);
      v.say("it is selected: copy it with the keyboard");
    }
  });
  return [...(f.line ? [h("code", {}, f.line)] : []), ...(f.fix ? [h("em", {}, `Fix: ${f.fix}`)] : []), ...(f.mended ? [h("div", {}, mended, copy)] : [])];
}

/** Has the reader done nothing yet. @param {any} v */
const untouched = (v) => !v.marked && v.get("launch") < 0 && v.get("cursor") === 0 && v.u0 === 0 && v.u1 >= v.all.size - 0.01;

/** The memory of a finding on top and marked, and its launch in the window; of what spreads over many launches all of them.
 * @param {any} v @param {any} f */
function openAt(v, f) {
  v.marked = { lanes: new Set(f.lanes), from: f.position, reverse: f.phase === "reverse", all: f.spreads };
  pin(v, f.lanes.slice(0, PINNED));
  if (f.position < 0 || f.spreads) return;
  v.whole ??= { open: new Set(v.open), u0: v.u0, u1: v.u1 };
  reveal(v, f.position);
}

/** @param {any} v @param {boolean} open */
function unfoldFindings(v, open) {
  v.findingsBox.hidden = !open;
  fillVerdict(v);
  v.verdictLine.querySelector(".wb-all")?.focus();
}

/** Go where a finding is: unfold its launch, mark its memory from there on, open its thread at its line.
 * @param {any} v @param {number} k */
function showFinding(v, k) {
  const f = v.findings[k];
  for (const node of v.strip.querySelectorAll("[data-finding]")) node.setAttribute("aria-pressed", String(Number(node.dataset.finding) === k));
  v.causeBox.replaceChildren(...causeOf(v, f));
  openAt(v, f);
  const array = arrayOfFinding(v, f);
  if (array >= 0 && array !== v.get("array")) v.set({ array, element: [] });
  if (f.position >= 0) goTo(v, f.position, f.phase !== "reverse");
  v.draw();
  if (f.position >= 0 && v.tape.events.grid[f.position] >= 0) v.openThread(f.position, f.thread, f.place, { phase: f.phase });
  v.say(f.sentence);
}

/** The array that a finding is about, as a number. @param {any} v @param {any} f */
function arrayOfFinding(v, f) {
  const named = v.meta.arrays.findIndex((/** @type {any} */ a) => a[0] === f.arrays[0] && (!f.lanes.length || f.lanes.includes(a[1])));
  return named >= 0 ? named : v.meta.arrays.findIndex((/** @type {any} */ a) => f.lanes.includes(a[1]));
}

/** Ask for the second run. @param {any} v */
async function runAgain(v) {
  const node = v.verdictLine.querySelector(".wb-again");
  node.disabled = true;
  node.textContent = "running again …";
  try {
    await v.ask("again");
    Object.assign(v.verdict, { again: false, kept: true });
    fillVerdict(v);
    v.panels.renew();
  } catch (error) {
    node.textContent = KEEP_ALL;
    v.say(/** @type {Error} */ (error).message);
  }
}
