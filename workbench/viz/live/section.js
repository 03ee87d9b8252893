// @ts-check
// What the panels below the picture have in common: a frame with a title, and how they write a value.
import { h, short } from "./elements.js";

let made = 0; // numbers for ids; it only ever grows

/** A titled part of the page. @param {string} cls @param {string} title */
export function section(cls, title) {
  const id = `wbp${++made}-${cls}`, head = h("div", { id, class: "wb-head" }, title);
  return { head, box: h("section", { class: `wb-panel ${cls}`, "aria-labelledby": id }, head) };
}

/** A number with its sign, or the word for what is none. @param {number | string} v */
export const signed = (v) => (typeof v === "number" && v > 0 ? "+" : "") + short(v, 6);

/** @param {any} v @returns {string} */
export function plainValue(v, digits = 5) {
  if (Array.isArray(v)) return `(${v.map((one) => plainValue(one, 3)).join(", ")})`;
  return typeof v === "boolean" ? (v ? "True" : "False") : short(v, digits);
}

/** Enter in a text box is its change, whatever the page around it does with the key. @param {any} event */
export function entered(event) {
  if (event.key !== "Enter") return;
  event.preventDefault();
  event.target.dispatchEvent(new Event("change"));
}

/** Whole numbers out of a text such as `3, 1`. @param {string} text */
export const wholeNumbers = (text) => (text.match(/-?\d+/g) ?? []).map(Number);
