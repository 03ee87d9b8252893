// @ts-check
// The panel of the ledger: where the adjoint of one element came from, as signed bars.
import { count, h, short } from "./elements.js";
import { lower } from "./lanes.js";
import { section, signed } from "./section.js";
import { goTo } from "./window.js";

/** @type {Record<string, (v: any, row: any) => string>} */ const GROUPS = {
  "in order": () => "", "by size": () => "", "per step": (v, row) => (row.position < 0 ? row.heading : stepOf(v, row.position)),
  "per launch": (_, row) => row.heading, "per line": (_, row) => (row.where ? `line ${row.where.line}: ${row.where.text?.trim()}` : row.heading),
};
const ORIGIN = "where did an adjoint come from?", LISTED = 200, LAST = 20;
const ORIGIN_HINT = "Choose a cell of the heat-maps, or type an index, to see every contribution to its adjoint.";

/** @param {any} v */
export function ledgerPanel(v) {
  /** held: the moment that a row has led to, at which the list stays what it is; lit: that row. */
  /** @type {any} */ const p = { v, ...section("wb-ledger", ORIGIN), body: h("div", "wb-origins", hint()), shown: "", held: null, lit: -1 };
  p.box.append(p.body);
  const wanted = () => (v.get("array") >= 0 && v.get("element").length ? { array: v.get("array"), element: v.get("element"), cursor: v.get("cursor") } : null);
  const go = v.keen("ledger", wanted, (/** @type {any} */ found, /** @type {any} */ asked) => showLedger(p, found, asked), (/** @type {string} */ error) => {
    p.shown = "";
    p.body.replaceChildren(h("p", "wb-error", error));
  });
  return { element: p.box, ask: () => asked(p, go, wanted()) };
}

/** Ask for what is not shown already; a moment later, because steps come in runs. @param {any} p @param {() => void} go @param {any} wanted */
function asked(p, go, wanted) {
  clearTimeout(p.later);
  if (!wanted) {
    p.shown = "";
    p.head.textContent = ORIGIN;
    p.body.replaceChildren(hint());
  } else if (listKey(p.v, { ...wanted, cursor: p.held === wanted.cursor ? p.cursor : wanted.cursor }) !== p.shown) {
    p.held = null;
    p.later = setTimeout(go, 60);
  }
}

/** What a list is of. @param {any} v @param {any} of */
const listKey = (v, { array, element, cursor }) => JSON.stringify([array, element, cursor, v.get("walks")]);

const hint = () => h("p", "wb-muted", ORIGIN_HINT);

/** @param {any} p @param {any} found @param {any} asked */
function showLedger(p, found, asked) {
  const { v } = p, name = `${v.meta.arrays[asked.array]?.[0] ?? "?"}[${asked.element.join(", ")}]`, { rows } = found, key = listKey(v, asked);
  Object.assign(p, { name, cursor: asked.cursor, lit: p.shown === key ? p.lit : -1, shown: key });
  p.head.textContent = `where did adjoint of ${name} come from?`;
  const list = h("ol", "wb-rows"), finite = rows.map((/** @type {any} */ r) => r.running).filter(Number.isFinite);
  const low = Math.min(0, ...finite), high = Math.max(0, ...finite), size = high - low || 1;
  const left = Math.max(found.count - LISTED, 0), order = p.order ?? (left ? "per line" : "in order"), groups = groupsOf(v, found.sums, order);
  const shown = order === "by size" ? [...rows].sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, LISTED)
    : rows.filter((/** @type {any} */ row) => !left || row.place < LISTED - LAST || row.place >= found.count - LAST);
  if (groups) list.append(...groups.slice(0, LISTED).map((one, _, all) => sumLine(p, one, all)));
  else list.append(...shown.map((/** @type {any} */ row) => line(p, row, low, size)));
  if (left && !groups) list.insertBefore(h("li", "wb-muted", `… ${left} more rows`), list.children[order === "by size" ? LISTED : LISTED - LAST] ?? null);
  const choice = h("select", { "aria-label": "order of the contributions", onchange: () => { p.order = choice.value; showLedger(p, found, asked); } },
    ...Object.keys(GROUPS).map((name) => h("option", { value: name, selected: name === order }, name)));
  const cancels = h("p", "wb-muted wb-cancels", `${count(found.count, "contribution")}: ${signed(sumOf(found.sums, "plus"))} and ${signed(sumOf(found.sums, "minus"))} `, choice);
  const rounding = Number(found.rounding) !== 0 ? h("div", "wb-row", h("span", "wb-what", "rounding"), h("span", "wb-number", signed(found.rounding))) : "";
  const label = asked.cursor === 0 ? `${name.replace("[", ".grad[")}` : `adjoint of ${name} ${asked.cursor >= v.n ? "at the end" : `before ${v.tape.heading(asked.cursor)}`}`;
  const sum = h("p", "wb-sum", `sum = ${short(found.published ?? found.total, 6)} = ${label}`);
  p.list = list;
  p.body.replaceChildren(...(found.count > 1 ? [cancels] : []), ...(rows.length ? [list] : [h("p", "wb-muted", "No contribution has arrived at this moment.")]), rounding, sum);
  light(p, p.lit);
}

/** @param {any[]} sums @param {string} what */
const sumOf = (sums, what) => sums.reduce((sum, one) => sum + Number(one[what]), 0);

/** The step of the user's loop that a launch is in. @param {any} v @param {number} e */
function stepOf(v, e) {
  const turns = v.meta.folds.find((/** @type {any} */ one) => one[3] === "repeat" && one[1] <= e && e < one[2])?.[6];
  return turns ? `step ${lower(0, turns.length, (k) => turns[k], e + 1) - 1}` : v.tape.heading(e);
}

/** Sums that belong together, the largest first; null where each row is shown. @param {any} v @param {any[]} sums @param {string} order */
function groupsOf(v, sums, order) {
  if (!order.startsWith("per ")) return null;
  /** @type {Map<string, any[]>} */ const found = new Map();
  for (const one of sums) {
    const name = GROUPS[order](v, one);
    found.set(name, [...(found.get(name) ?? []), one]);
  }
  const of = (/** @type {any[]} */ some) => Object.fromEntries(["count", "plus", "minus", "value"].map((what) => [what, sumOf(some, what)]));
  return [...found].map(([name, some]) => /** @type {any} */ ({ name, first: some[0], ...of(some) })).sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
}

const percent = (/** @type {number} */ x) => `${(100 * x).toFixed(2)}%`;

/** @param {string} look @param {number} left @param {number} wide */
const bar = (look, left, wide) => h("span", { class: `wb-${look}`, style: `left:${percent(left)};width:${percent(wide)}` });

/** A row that leads to where a contribution comes from. @param {any} p @param {any} to @param {any[]} what @param {any} value @param {any[]} bars */
function entry(p, to, what, value, bars) {
  const node = h("button", { class: "wb-row", onclick: () => follow(p, to, node) },
    h("span", "wb-what", ...what), h("span", "wb-number", signed(value)), h("span", "wb-track", ...bars));
  return h("li", {}, node);
}

/** The sum of a group: what adds to it and what takes from it, on both sides of zero. @param {any} p @param {any} one @param {any[]} all */
function sumLine(p, one, all) {
  const low = Math.min(...all.map(({ minus }) => minus)), size = Math.max(...all.map(({ plus }) => plus)) - low || 1, both = one.plus && one.minus ? ` ${signed(one.plus)} ${signed(one.minus)}` : "";
  const what = [h("b", {}, one.name), h("span", "wb-muted", ` ${count(one.count, "contribution")}${both}`)], zero = -low / size;
  return entry(p, one.first, what, one.value, [bar("fill minus", (one.minus - low) / size, -one.minus / size), bar("fill plus", zero, one.plus / size), bar("zero", zero, 0)]);
}

/** Mark one row. @param {any} p @param {number} k */
function light(p, k) {
  p.lit = k;
  [...p.list.children].forEach((node, n) => node.classList.toggle("now", n === k));
}

/** To what a row is of: its launch, and in the microscope its line of its thread. The list stays. @param {any} p @param {any} row @param {HTMLElement} node */
function follow(p, row, node) {
  const { v } = p, cursor = v.get("cursor"), top = p.list.scrollTop;
  light(p, [...p.list.children].indexOf(/** @type {any} */ (node.parentElement)));
  p.held = row.position < 0 ? v.n : row.position;
  goTo(v, row.position);
  if (!row.thread || row.position < 0) {
    v.say(row.position < 0 ? "the seed" : `${row.count} contributions of many threads: the microscope shows one`);
    return;
  }
  const from = { name: `ledger of ${p.name}`, fresh: true, return: () => {
    p.held = cursor;
    v.set({ cursor });
    v.showPanel("ledger");
    p.list.scrollTop = top;
    node.focus({ preventScroll: true });
  } };
  v.openThread(row.position, row.thread, row.where, { phase: "reverse", adjoint: row.value, from });
}

/** One signed bar, which starts where the one before it ended. @param {any} p @param {any} row @param {number} low @param {number} size */
function line(p, row, low, size) {
  const value = Number(row.value), end = Number(row.running), known = Number.isFinite(value), { where } = row;
  const thread = row.thread ? ` thread ${row.thread.join(", ")}` : row.count > 1 ? ` ${row.count} contributions` : "";
  const what = [h("b", {}, row.heading), thread, h("span", "wb-muted", where ? ` line ${where.line}` : ""), h("code", {}, where?.text?.trim() ?? ""), row.name ? h("span", "wb-through", `via ${row.name}`) : ""];
  const left = known ? (Math.min(end - value, end) - low) / size : 0, wide = known ? Math.max(Math.abs(value) / size, 0.006) : 1;
  return entry(p, row, what, row.value, [bar("zero", -low / size, 0), bar(`fill ${value < 0 ? "minus" : "plus"}`, left, wide)]);
}
