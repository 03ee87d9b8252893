// @ts-check
// The legend: every sign, and the scale of thickness with its numbers, which changes with the walk that is shown.
import { h, s } from "./elements.js";

/** One line that names every sign, and a place for the scale. @param {any} v */
export function drawLegend(v) {
  const said = v.meta.legend, wide = 28;
  /** @type {[string, [string, any][], number?][]} */ const signs = [
    [said.read, [["circle", { cx: 7, cy: 7, r: 4, class: "read" }]]], [said.write, [["rect", { x: 3, y: 3, width: 8, height: 8, class: "write" }]]],
    [said.accumulate, [["path", { d: "M7 2l5 5l-5 5l-5 -5z", class: "accumulate" }]]], [said.kept, [["path", { d: "M7 2V12M4 8.5L7 12L10 8.5", class: "kept" }]]],
    [said.band, [["rect", { x: 0, y: 1, width: wide, height: 12, class: "band" }], ["rect", { x: 0, y: 5, width: wide, height: 4, class: "bar value" }]], wide],
    [said.zero, [["rect", { x: 1, y: 4.5, width: 26, height: 5, rx: 2.5, class: "bar zero" }]], wide],
    [`${said.nan}, ${said.inf}`, [["rect", { x: 1, y: 2, width: 26, height: 10, rx: 5, class: "bar nan" }], ["path", { d: "M11 4l6 6m-6 0l6 -6", class: "sign nan" }]], wide],
    [said.cut, [["path", { d: "M1 7H20M22 2V12M25 2V12", class: "cutsign" }]], wide],
    [said.absent, [["rect", { x: 1, y: 5.5, width: 26, height: 3, class: "absent", fill: `url(#${v.uid}-absent)` }]], wide],
  ];
  v.scaleBox = h("span", "wb-scale");
  v.legend.append(v.scaleBox);
  for (const [text, parts, width = 14] of signs) {
    const svg = s("svg", { width, height: 14, "aria-hidden": "true" });
    svg.append(...parts.map(([tag, given]) => s(tag, given)));
    v.legend.append(h("span", {}, svg, ` ${text}`));
  }
}

/** The scale of the walk that is shown; none without one. @param {any} v */
export function drawScale(v) {
  const scale = v.get("levels_meta")?.scale, { wedge, thick: [thin, full] } = v.meta.drawing;
  if (!scale) { v.scaleBox.replaceChildren(); return; }
  const pad = 22, svg = s("svg", { width: wedge + 2 * pad, height: 26, role: "img" });
  svg.setAttribute("aria-label", `thickness of an adjoint: ${scale.ticks.map((/** @type {any} */ tick) => tick[0]).join(", ")}`);
  svg.append(s("path", { class: "wedge", d: `M${pad} ${7 - thin / 2}L${pad + wedge} ${7 - full / 2}V${7 + full / 2}L${pad} ${7 + thin / 2}Z` }));
  for (const [text, part] of scale.ticks) svg.append(s("text", { x: pad + part * wedge, y: 24 }, text));
  v.scaleBox.replaceChildren(`${v.meta.legend.scale} `, svg);
}
