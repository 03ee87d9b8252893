// @ts-check
// The panel of the ledger: where the adjoint of one element came from, as signed bars.
import { h, short } from "./elements.js";
import { section, signed } from "./section.js";
import { goTo } from "./window.js";

const ORIGIN = "where did an adjoint come from?", LISTED = 200, LAST = 20;
const ORIGIN_HINT = "Choose a cell of the heat-maps, or type an index, to see every contribution to its adjoint.";

/** @param {any} v */
export function ledgerPanel(v) {
  const { head, box } = section("wb-ledger", ORIGIN), body = h("div", {}, hint());
  box.append(body);
  /** @type {any} */ let later = null;
  const ask = v.keen("ledger", () => (v.get("array") >= 0 && v.get("element").length ? { array: v.get("array"), element: v.get("element"), cursor: v.get("cursor") } : null),
    (/** @type {any} */ found, /** @type {any} */ asked) => showLedger(v, head, body, found, asked),
    (/** @type {string} */ error) => body.replaceChildren(h("p", { class: "wb-error" }, error)));
  return {
    element: box,
    ask: () => { clearTimeout(later); later = setTimeout(ask, 60); },
    clear: () => {
      head.textContent = ORIGIN;
      body.replaceChildren(hint());
    },
  };
}

const hint = () => h("p", { class: "wb-muted" }, ORIGIN_HINT);

/** @param {any} v @param {HTMLElement} head @param {HTMLElement} body @param {any} found @param {any} asked */
function showLedger(v, head, body, found, asked) {
  const name = `${v.meta.arrays[asked.array]?.[0] ?? "?"}[${asked.element.join(", ")}]`, { rows } = found;
  head.textContent = `where did adjoint of ${name} come from?`;
  const list = h("ol", { class: "wb-rows" }), finite = rows.map((/** @type {any} */ r) => r.running).filter(Number.isFinite);
  const low = Math.min(0, ...finite), high = Math.max(0, ...finite), size = high - low || 1;
  const shown = rows.length > LISTED ? [...rows.slice(0, LISTED - LAST), null, ...rows.slice(-LAST)] : rows;
  for (const row of shown) list.append(row ? line(v, row, low, size) : h("li", { class: "wb-muted" }, `… ${rows.length - LISTED} more rows`));
  const rounding = Number(found.rounding) !== 0 ? h("div", { class: "wb-row" }, h("span", { class: "wb-what" }, "rounding"), h("span", { class: "wb-number" }, signed(found.rounding))) : "";
  const label = asked.cursor === 0 ? `${name.replace("[", ".grad[")}` : `adjoint of ${name} ${asked.cursor >= v.n ? "at the end" : `before ${v.tape.heading(asked.cursor)}`}`;
  const sum = h("p", { class: "wb-sum" }, `sum = ${short(found.published ?? found.total, 6)} = ${label}`);
  body.replaceChildren(...(rows.length ? [list] : [h("p", { class: "wb-muted" }, "No contribution has arrived at this moment.")]), rounding, sum);
}

/** One signed bar, which starts where the one before it ended. @param {any} v @param {any} row @param {number} low @param {number} size */
function line(v, row, low, size) {
  const value = Number(row.value), end = Number(row.running), start = end - value;
  const at = (/** @type {number} */ x) => `${(((x - low) / size) * 100).toFixed(2)}%`;
  const wide = Number.isFinite(value) ? `${Math.max((Math.abs(value) / size) * 100, 0.6).toFixed(2)}%` : "100%";
  const thread = row.thread ? ` thread ${row.thread.join(", ")}` : row.count > 1 ? ` ${row.count} contributions` : "";
  const text = row.where?.text?.trim() ?? "", place = row.where ? ` line ${row.where.line}` : "";
  const bar = h("span", { class: `wb-fill ${value < 0 ? "minus" : "plus"}`, style: `left:${Number.isFinite(value) ? at(Math.min(start, end)) : 0};width:${wide}` });
  const zero = h("span", { class: "wb-zero", style: `left:${at(0)}` });
  return h("li", {}, h("button", {
    type: "button", class: "wb-row", title: `${row.heading}${thread}${place}: ${text}\nthrough ${row.name}; go there`,
    onclick: () => {
      goTo(v, row.position);
      if (row.thread && row.position >= 0) v.set({ launch: row.position, thread: row.thread });
    },
  }, h("span", { class: "wb-what" }, h("b", {}, row.heading), thread, h("span", { class: "wb-muted" }, place), h("code", {}, text), row.name ? h("span", { class: "wb-through" }, `via ${row.name}`) : ""),
  h("span", { class: "wb-number" }, signed(row.value)), h("span", { class: "wb-track" }, zero, bar)));
}
