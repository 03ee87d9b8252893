// @ts-check
// The steps of a thread as the reader meets them: statements in order, and of each loop one turn. Pure: no document.

/** A list holds numbers of steps, and loops: `{loop, turns, turn, ill}`, where `turns` are lists, `turn` is the one that
 * is shown, and `ill` where a NaN or an infinity began: the first turn that has one as a value, else the last that has
 * one as an adjoint (-1: none).
 * @param {any[]} steps */
export function listOf(steps) {
  /** @type {any[]} */ const all = [];
  const adjoint = new Map(steps.filter((one) => one.phase === "reverse").map((one) => [one.produced_by, one.adjoint]));
  steps.forEach((one, k) => {
    if (one.phase !== "forward") return;
    const born = isIll(one.value), came = isIll(adjoint.get(k));
    let list = all;
    one.loops.forEach((/** @type {number} */ loop, /** @type {number} */ d) => {
      let node = list.findLast((other) => other.loop === loop);
      if (!node) list.push(node = { loop, turns: [], turn: 0, ill: -1, born: false });
      const turn = one.iteration[d];
      if (born && !node.born) Object.assign(node, { born, ill: turn });
      else if (came && !node.born) node.ill = Math.max(node.ill, turn);
      list = node.turns[turn] ??= [];
    });
    list.push(k);
  });
  return all;
}

/** Has a value, or a part of it, no finite number. @param {any} v @returns {boolean} */
export const isIll = (v) => (Array.isArray(v) ? v.some(isIll) : ["nan", "inf", "-inf"].includes(v));

/** Turn the loops around a step so that it is shown. @param {any[]} list @param {any} step */
export function turnTo(list, step) {
  step.loops.forEach((/** @type {number} */ loop, /** @type {number} */ d) => {
    const node = list.findLast((one) => one.loop === loop);
    if (!node) return;
    node.turn = step.iteration[d];
    list = node.turns[node.turn] ?? [];
  });
}

/** Steps of a list, those of loops in it included. @param {any[]} list @returns {number[]} */
export const stepsIn = (list) => list.flatMap((one) => (typeof one === "number" ? one : one.turns.flatMap(stepsIn)));

/** Are two statements of one line. @param {any} a @param {any} b @returns {boolean} */
export const sameLine = (a, b) => (a && b ? a.line === b.line && a.file === b.file && sameLine(a.caller, b.caller) : a === b);

/** The step at a line: of the wanted phase if there is one, there at the wanted column; of several turns the one with
 * that adjoint, else the first one that is not finite, else the first. -1 if the thread has not been there.
 * @param {any[]} steps @param {{line: number, file?: string, col?: number}} where @param {string} phase @param {number} [adjoint] */
export function stepAt(steps, where, phase, adjoint) {
  let found = steps.map((_, k) => k);
  const narrow = (/** @type {(one: any) => boolean} */ test) => {
    const some = found.filter((k) => test(steps[k]));
    if (some.length) found = some;
    return some.length > 0;
  };
  const onLine = (/** @type {any} */ place) => place?.line === where.line && (!where.file || place.file === where.file);
  if (!narrow((one) => onLine(one.where)) && !narrow((one) => onLine(one.where?.caller))) return -1;
  narrow((one) => one.phase === phase);
  if (where.col !== undefined) narrow((one) => one.where.col === where.col);
  const near = (/** @type {any} */ v) => (Array.isArray(v) ? v.some(near) : typeof v === "number" && Math.abs(v - Number(adjoint)) <= 1e-5 * Math.abs(v));
  if (!(adjoint !== undefined && narrow((one) => near(one.adjoint)))) narrow((one) => isIll(phase === "reverse" ? one.adjoint : one.value));
  return found[0];
}
