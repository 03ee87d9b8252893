// @ts-check
// The panel of the ledger: where the adjoint of one element came from, as signed bars.
import { h, short } from "./elements.js";
import { section, signed } from "./section.js";
import { goTo } from "./window.js";

const ORIGIN = "where did an adjoint come from?", LISTED = 200, LAST = 20;
const ORIGIN_HINT = "Choose a cell of the heat-maps, or type an index, to see every contribution to its adjoint.";

/** @param {any} v */
export function ledgerPanel(v) {
  /** held: the moment that a row has led to, at which the list stays what it is; lit: that row. */
  /** @type {any} */ const p = { v, ...section("wb-ledger", ORIGIN), body: h("div", { class: "wb-origins" }, hint()), shown: "", held: null, lit: -1 };
  p.box.append(p.body);
  const wanted = () => (v.get("array") >= 0 && v.get("element").length ? { array: v.get("array"), element: v.get("element"), cursor: v.get("cursor") } : null);
  const go = v.keen("ledger", wanted, (/** @type {any} */ found, /** @type {any} */ asked) => showLedger(p, found, asked), (/** @type {string} */ error) => {
    p.shown = "";
    p.body.replaceChildren(h("p", { class: "wb-error" }, error));
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

const hint = () => h("p", { class: "wb-muted" }, ORIGIN_HINT);

/** @param {any} p @param {any} found @param {any} asked */
function showLedger(p, found, asked) {
  const { v } = p, name = `${v.meta.arrays[asked.array]?.[0] ?? "?"}[${asked.element.join(", ")}]`, { rows } = found, key = listKey(v, asked);
  Object.assign(p, { name, cursor: asked.cursor, lit: p.shown === key ? p.lit : -1, shown: key });
  p.head.textContent = `where did adjoint of ${name} come from?`;
  const list = h("ol", { class: "wb-rows" }), finite = rows.map((/** @type {any} */ r) => r.running).filter(Number.isFinite);
  const low = Math.min(0, ...finite), high = Math.max(0, ...finite), size = high - low || 1;
  const shown = rows.length > LISTED ? [...rows.slice(0, LISTED - LAST), null, ...rows.slice(-LAST)] : rows;
  for (const row of shown) list.append(row ? line(p, row, low, size) : h("li", { class: "wb-muted" }, `… ${rows.length - LISTED} more rows`));
  const rounding = Number(found.rounding) !== 0 ? h("div", { class: "wb-row" }, h("span", { class: "wb-what" }, "rounding"), h("span", { class: "wb-number" }, signed(found.rounding))) : "";
  const label = asked.cursor === 0 ? `${name.replace("[", ".grad[")}` : `adjoint of ${name} ${asked.cursor >= v.n ? "at the end" : `before ${v.tape.heading(asked.cursor)}`}`;
  const sum = h("p", { class: "wb-sum" }, `sum = ${short(found.published ?? found.total, 6)} = ${label}`);
  p.list = list;
  p.body.replaceChildren(...(rows.length ? [list] : [h("p", { class: "wb-muted" }, "No contribution has arrived at this moment.")]), rounding, sum);
  light(p, p.lit);
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
  const value = Number(row.value), end = Number(row.running), start = end - value;
  const at = (/** @type {number} */ x) => `${(((x - low) / size) * 100).toFixed(2)}%`;
  const wide = Number.isFinite(value) ? `${Math.max((Math.abs(value) / size) * 100, 0.6).toFixed(2)}%` : "100%";
  const thread = row.thread ? ` thread ${row.thread.join(", ")}` : row.count > 1 ? ` ${row.count} contributions` : "";
  const text = row.where?.text?.trim() ?? "", place = row.where ? ` line ${row.where.line}` : "";
  const bar = h("span", { class: `wb-fill ${value < 0 ? "minus" : "plus"}`, style: `left:${Number.isFinite(value) ? at(Math.min(start, end)) : 0};width:${wide}` });
  const zero = h("span", { class: "wb-zero", style: `left:${at(0)}` });
  const node = h("button", { type: "button", class: "wb-row", onclick: () => follow(p, row, node) },
    h("span", { class: "wb-what" }, h("b", {}, row.heading), thread, h("span", { class: "wb-muted" }, place), h("code", {}, text), row.name ? h("span", { class: "wb-through" }, `via ${row.name}`) : ""),
    h("span", { class: "wb-number" }, signed(row.value)), h("span", { class: "wb-track" }, zero, bar));
  return h("li", {}, node);
}
