// @ts-check
// The frames of a film: numbers by frame, as the kernel packed them. Nothing is drawn here.

/** @param {any} meta @param {DataView} view */
export function framesOf(meta, view) {
  const raw = view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength), count = meta.moments.length;
  const { points, field, lines, mesh, colour, arrows } = meta;
  const floats = (/** @type {number} */ at, /** @type {number} */ size) => (/** @type {number} */ k) => new Float32Array(raw, at + 4 * size * k, size);
  const bytes = (/** @type {number} */ at, /** @type {number} */ size) => (/** @type {number} */ k) => new Uint8Array(raw, at + size * k, size);
  const maybe = (/** @type {any} */ make, /** @type {number | undefined} */ at, /** @type {number} */ size) => (at === undefined || at < 0 ? null : make(at, size));
  const width = points?.width ?? 2, many = points?.count ?? 0, cells = field ? field.rows * field.columns : 0;
  const adjoint = maybe(floats, points?.adjoint, many * width), own = maybe(floats, arrows?.at, many * width);
  return {
    meta, count, width, many,
    point: maybe(floats, points?.at, many * width), beside: maybe(floats, points?.ghost, many * width), cellBeside: maybe(floats, field?.ghost, cells), known: maybe(bytes, points?.known, many), adjoint,
    arrow: own ?? (arrows && adjoint), turned: arrows && !own ? -1 : 1, // an adjoint is drawn as minus itself
    lines: lines ? new Int32Array(raw, lines.at, 2 * lines.count) : null, mesh: mesh ? new Int32Array(raw, mesh.at, 3 * mesh.count) : null,
    colour: maybe(floats, colour?.at, colour?.count ?? 0),
    cell: maybe(floats, field?.at, cells), cellKnown: maybe(bytes, field?.known, cells), cellAdjoint: maybe(floats, field?.adjoint, cells),
  };
}

/** A reader of numbers that the kernel answered with: `count` frames of them, or one. @param {DataView} view @param {number} count */
export function readerOf(view, count) {
  const of = new Float32Array(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength)), size = of.length / count;
  return (/** @type {number} */ k) => (count > 1 ? of.subarray(k * size, (k + 1) * size) : of);
}

/** The frame at a moment of the tape: the last one that is not behind it. @param {number[]} moments @param {number} cursor */
export const frameAt = (moments, cursor) => Math.max(moments.findLastIndex((moment) => moment <= cursor), 0);

/** The size of a vector. @param {Float32Array} of @param {number} i @param {number} width */
export function sizeOf(of, i, width) {
  let sum = 0;
  for (let c = 0; c < width; c++) sum += of[i * width + c] ** 2;
  return Math.sqrt(sum);
}

/** The largest finite vector: its number and size. @param {Float32Array | null | undefined} of @param {number} width @returns {[number, number]} */
export function largestOf(of, width) {
  let at = -1, most = 0;
  for (let i = 0; of && i < of.length / width; i++) {
    const size = sizeOf(of, i, width);
    if (size > most && Number.isFinite(size)) [at, most] = [i, size];
  }
  return [at, most];
}

/** The largest of 1, 2, 5 times a power of ten that is not above a number, as `nice` of data/film.py. @param {number} number */
export function nice(number) {
  if (!(number > 0) || !Number.isFinite(number)) return 1;
  const ten = 10 ** Math.floor(Math.log10(number));
  return ([5, 2, 1].find((k) => k * ten <= number * (1 + 1e-9)) ?? 1) * ten;
}

/** The share of full colour of a number, signed: a root, so that small ones are seen. @param {number} v @param {number} most */
export const shadeOf = (v, most) => (most > 0 ? Math.sign(v) * Math.sqrt(Math.min(Math.abs(v) / most, 1)) : 0);

/** The index of a particle in its array. @param {number} i @param {number[]} shape @returns {number[]} */
export function indexOf(i, shape) {
  const index = [];
  for (const n of [...shape].reverse()) { index.unshift(i % n); i = Math.floor(i / n); }
  return index;
}
