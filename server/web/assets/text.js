// How things are written, and how they are put on the page.

export const $ = (id) => document.getElementById(id);

export function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

export function drawing(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// A number of an answer: JSON has no NaN and no infinity, so that these come as strings.
export const numberOf = (value) => (typeof value === "string" ? Number(value) : value);

export function show(value) {
  if (value === null || value === undefined) return "–";
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "Infinity" : "−Infinity";
  const size = Math.abs(value);
  const long = value !== 0 && (size < 1e-3 || size >= 1e6);
  const text = long ? value.toExponential(3).replace(/\.?0+e/, "e") : String(Number(value.toPrecision(5)));
  return text.replace("e+", "e").replace(/-/g, "−");
}

export const count = (value) => Number(value).toLocaleString("en").replace(/,/g, " ");

// "1 step", "12 steps".
export const many = (value, word) => `${count(value)} ${word}${Number(value) === 1 ? "" : word.endsWith("s") ? "es" : "s"}`;

export const moment = (microseconds) => `${new Date(microseconds / 1000).toISOString().slice(0, 19).replace("T", " ")} UTC`;

// "rank2" as people say it.
export const rankText = (rank) => rank.replace(/^rank(\d+)$/, "rank $1").replace(/^proc(\d+)$/, "process $1");

// An operation as one writes it: torch.sqrt for Torch.sqrt.0.forward, layers.2.proj (Linear) for a module.
export function operationText(name) {
  const module = /^(?:Module|Cell)\.(.*)\.(\w+)\.(forward|backward|parameters_grad)(?:\.\d+)?$/.exec(name);
  if (module) return `${module[1]} (${module[2]})${module[3] === "forward" ? "" : ` ${module[3]}`}`;
  const call = /^(\w+)\.(.*)\.\d+\.(forward|backward)$/.exec(name);
  if (!call) return name;
  const home = { Torch: "torch.", Functional: "F.", Distributed: "dist.", NPU: "torch_npu.", Aten: "torch.ops.aten." }[call[1]] ?? `${call[1]}.`;
  return `${home}${call[2]}${call[3] === "forward" ? "" : " backward"}`;
}

export const notFinite = ({ nan, infinity }) => [nan && "NaN", infinity && "infinity"].filter(Boolean).join(" and ");

export const span = ([first, last]) => (first === last ? `step ${first}` : `steps ${first}–${last}`);

// Round numbers between low and high, about `most` of them.
export function ticks(low, high, most, whole = false) {
  const rough = (high - low) / Math.max(most, 1);
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  let each = [1, 2, 5, 10].map((part) => part * power).find((part) => part >= rough);
  if (whole) each = Math.max(1, Math.round(each));
  const found = [];
  for (let i = Math.ceil(low / each - 1e-9); i * each <= high + each * 1e-9; ++i) found.push(i * each);
  return found;
}
