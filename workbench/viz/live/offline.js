// The start of a page without a kernel: its state and its answers are unpacked from `whole`. See offline.py.
const length = new DataView(whole).getUint32(0, true);
const page = JSON.parse(new TextDecoder().decode(new Uint8Array(whole, 4, length)));
const blob = ([at, size]) => new DataView(whole.slice(4 + length + at, 4 + length + at + size));
const state = page.state;
for (const name of page.blobs) state[name] = blob(state[name]);
const at = (column, k) => (page.events && column >= 0 ? page.events[column][k] : column);
const answer = async (asked) => {
  const content = { ...asked, cursor: at(asked.cursor, 0), launch: at(asked.launch, 1) };
  const found = page.answers[keyOf(content, page.moments)], ok = found?.ok;
  if (!found) return { error: page.missing[asked.ask] ?? "" };
  return { ok: ok.cursor === undefined ? ok : { ...ok, cursor: asked.cursor }, buffers: found.buffers.map(blob) };
};
const keyOf = (content, moments) => {
  const { ask, array, element, launch, thread } = content;
  const moment = moments[array]?.find((m) => m >= content.cursor) ?? page.end;
  if (ask === "heat") return `heat ${array} ${moment}`;
  if (ask === "ledger") return `ledger ${array} ${element.join(" ")} ${moment}`;
  return ask === "microscope" ? `microscope ${launch} ${thread.join(" ")}` : ask;
};
explorer(offlineModel(state, answer), document.getElementById("view"), new AbortController().signal);
