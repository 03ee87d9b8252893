// @ts-check
// Long tips: beside what they describe, never over it, inside what the reader sees.

const FAR = 8, WIDEST = 480;

/** Say something of a thing; nothing if the text is empty. @param {any} v @param {string} text @param {DOMRect | null} thing */
export function tell(v, text, thing) {
  const key = text && thing ? [text, thing.left, thing.top, thing.width, thing.height].join() : "";
  if (key === v.told) return;
  v.told = key;
  v.tip.textContent = text;
  v.tip.style.display = key ? "block" : "none";
  if (key && thing) place(v, thing);
}

/** The sides of a thing with the room they have, in the order in which they are tried.
 * @param {any} thing @param {any} all what the reader sees @returns {{name: string, wide: number, tall: number}[]} */
export function sidesOf(thing, all) {
  const wide = all.right - all.left, tall = all.bottom - all.top;
  return [
    { name: "right", wide: all.right - thing.right - FAR, tall }, { name: "left", wide: thing.left - FAR - all.left, tall },
    { name: "below", wide, tall: all.bottom - thing.bottom - FAR }, { name: "above", wide, tall: thing.top - FAR - all.top },
  ];
}

/** @param {any} v @param {DOMRect} thing */
function place(v, thing) {
  const { tip } = v, root = v.rootEl.getBoundingClientRect(), port = v.port?.getBoundingClientRect() ?? { top: 0, bottom: window.innerHeight };
  const all = { left: Math.max(root.left, 0) + 4, right: Math.min(root.right, window.innerWidth) - 4, top: Math.max(root.top, port.top, 0) + 4, bottom: Math.min(root.bottom, port.bottom, window.innerHeight) - 4 };
  const sides = sidesOf(thing, all), fits = (/** @type {any} */ side) => {
    if (side.wide < 90 || side.tall < 20) return false;
    shaped(tip, side);
    return tip.offsetWidth <= side.wide && tip.scrollHeight <= side.tall;
  };
  let side = sides.find(fits);
  if (!side) {
    side = sides.reduce((best, one) => (one.wide * one.tall > best.wide * best.tall ? one : best));
    shaped(tip, side);
  }
  const w = tip.offsetWidth, tall = tip.offsetHeight, held = (/** @type {number} */ at, /** @type {number} */ least, /** @type {number} */ most) => Math.max(Math.min(at, most), least);
  const x = side.name === "right" ? thing.right + FAR : side.name === "left" ? thing.left - FAR - w : held(thing.left, all.left, all.right - w);
  const y = side.name === "below" ? thing.bottom + FAR : side.name === "above" ? thing.top - FAR - tall : held(thing.top, all.top, all.bottom - tall);
  tip.style.left = `${x - root.left}px`;
  tip.style.top = `${y - root.top}px`;
}

/** @param {HTMLElement} tip @param {{wide: number, tall: number}} side */
function shaped(tip, side) {
  Object.assign(tip.style, { left: "0px", top: "0px", width: "max-content", maxWidth: `${Math.min(side.wide, WIDEST)}px`, maxHeight: `${side.tall}px` });
}
