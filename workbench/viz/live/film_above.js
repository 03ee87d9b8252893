// @ts-check
// The stage above the lanes: one cursor for both; what is picked on the one is chosen on the other.
import { choosePoint, stageOf } from "./film_stage.js";
import { added } from "./state.js";

added.push((/** @type {any} */ v) => {
  const meta = v.get("film_meta");
  if (!meta?.moments) return;
  const f = stageOf(v.model, v.signal, v.rootEl, (index, role) => { if (meta.arrays[role].length) v.set({ array: meta.arrays[role][f.k], element: index }); });
  f.ledgers = true;
  v.rootEl.insertBefore(f.element, v.rootEl.querySelector(":scope > .wb-tools"));
  const chosen = () => {
    const element = v.get("element"), shape = meta.points?.shape ?? [];
    if (!f.frames.point || v.get("array") !== meta.arrays.points[f.k] || element.length < shape.length) return;
    const i = shape.reduce((/** @type {number} */ sum, /** @type {number} */ n, /** @type {number} */ c) => sum * n + element[c], 0);
    if (i !== f.chosen && element.length) choosePoint(f, i, false);
  };
  for (const name of ["change:element", "change:array"]) {
    v.model.on(name, chosen);
    v.signal?.addEventListener("abort", () => v.model.off(name, chosen));
  }
  f.paint();
});
