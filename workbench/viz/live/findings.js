// @ts-check
// The findings of `tape.diagnose()` below the picture.
import { button, h } from "./elements.js";
import { goTo } from "./window.js";

const AT_ONCE = 300; // events up to which findings are looked for without being asked

/** The box of the findings. @param {any} v */
export function findingsOf(v) {
  v.findingsBox = h("details", { class: "wb-findings" });
  v.findingsHead = h("summary", {}, "Findings");
  v.findingsList = h("div", {});
  v.findingsBox.append(v.findingsHead, v.findingsList);
  v.diagnose = v.keen("findings", () => ({}), (answer) => {
    v.findings = answer.rows;
    v.findingsHead.textContent = answer.title || `Findings: ${v.findings.length}`;
    v.findingsList.replaceChildren(...(answer.note ? [h("p", {}, answer.note)] : []), ...v.findings.map((f, k) =>
      h("div", { class: `wb-finding ${f.severity}`, id: `${v.uid}-finding-${k}` },
        h("strong", {}, `${f.severity} [${f.slug}] `),
        ...(f.position >= 0 ? [button(v.tape.heading(f.position), `go to ${v.tape.heading(f.position)}`, () => goTo(v, f.position)), " "] : []),
        h("span", {}, f.sentence + (f.more ? ` (${f.more}) ` : "")), ...(f.line ? [h("code", {}, f.line)] : []), ...(f.fix ? [h("em", {}, ` Fix: ${f.fix}`)] : []))));
    v.drawMap();
    v.draw();
  }, (error) => { v.findingsHead.textContent = `Findings: ${error}`; });
  if (v.n > AT_ONCE) {
    v.findingsHead.textContent = "Findings: not looked for yet";
    v.findingsList.append(button("diagnose", "look for findings: tape.diagnose()", () => { v.findingsHead.textContent = "Findings …"; v.diagnose(); }));
  }
  return v.findingsBox;
}

/** @param {any} v */
export function diagnoseShort(v) {
  if (v.n && v.n <= AT_ONCE) v.diagnose();
}

/** @param {any} v @param {number} k */
export function showFinding(v, k) {
  v.findingsBox.setAttribute("open", "");
  const node = document.getElementById(`${v.uid}-finding-${k}`);
  node?.querySelector("button")?.focus();
  node?.scrollIntoView({ block: "nearest", behavior: v.still ? "auto" : "smooth" });
  v.say(v.findings[k].sentence);
}
