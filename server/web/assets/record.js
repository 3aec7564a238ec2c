// One record: its tensors, its stack, and the trend of one of them.

import { openHistogram } from "/histogram.js";
import { drawTrend } from "/pictures.js";
import { ask } from "/server.js";
import { $, count, element, numberOf, show } from "/text.js";

const NAMES = { input_args: "input", input_kwargs: "input", input: "input", output: "output", parameters: "parameters" };
let shown = null;

// All tensors in a value of record.proto, however nested.
function* tensorsIn(value, name) {
  if (value.tensor) yield [name, value.tensor];
  for (const [index, item] of (value.list?.items ?? []).entries()) yield* tensorsIn(item, `${name}.${index}`);
  for (const entry of value.dict?.entries ?? []) {
    const key = name ? entry.key : (NAMES[entry.key] ?? entry.key);
    yield* tensorsIn(entry.value ?? {}, name ? `${name}.${key}` : key);
  }
}

// A number of record.proto.
function figure(value) {
  if (value === undefined) return "–";
  if (typeof value !== "object") return show(numberOf(value));
  if (value.boolean !== undefined) return String(value.boolean);
  return show(numberOf(value.real ?? Number(value.integer ?? value.unsigned_integer)));
}

export async function openRecord({ run, golden, rank, step, record: name, tensor, statistic }) {
  $("record-box").hidden = false;
  $("no-record").hidden = true;
  const columns = Math.max(60, Math.floor($("trend").clientWidth / 2));
  const [{ answer: records }, { answer: trend }] = await Promise.all([
    ask("record", { run, rank, step, name }),
    ask("trend", { run, golden, rank, statistic, tensor, columns }),
  ]);
  $("record-name").textContent = `${name} · ${rank} · step ${step}`;
  fillTensors(records, name, tensor, (chosen) => openTrend({ ...shown.asked, tensor: chosen }));
  fillStack(records[0]?.stack ?? []);
  shown = { asked: { run, golden, rank, step, tensor, statistic }, trend };
  draw();
}

async function openTrend(asked) {
  const columns = Math.max(60, Math.floor($("trend").clientWidth / 2));
  const { run, golden, rank, statistic, tensor } = asked;
  const { answer: trend } = await ask("trend", { run, golden, rank, statistic, tensor, columns });
  shown = { asked, trend };
  draw();
}

function draw() {
  drawShown();
  openHistogram(shown.asked);
}

export function drawShown() {
  if (!shown) return;
  $("trend-name").textContent = `${shown.asked.tensor} ${shown.trend.dtype} ${shown.trend.shape}`;
  $("trend-title").textContent = `Trend of ${shown.asked.statistic}`;
  drawTrend($("trend"), shown.trend, shown.asked);
}

function fillTensors(records, name, current, open) {
  const head = element("tr");
  for (const title of ["Tensor", "Max", "Min", "Mean", "Norm", "NaN", "Inf", "Type", "Shape"]) head.append(element("th", title, { scope: "col" }));
  const rows = [head];
  for (const record of records) {
    for (const [label, found] of tensorsIn(record.fields ?? {}, "")) {
      const full = `${name}.${label}`, nan = Number(found.nan_count ?? 0);
      const inf = Number(found.positive_inf_count ?? 0) + Number(found.negative_inf_count ?? 0);
      const row = element("tr"), link = element("button", label, { type: "button", title: `trend of ${full}` });
      link.addEventListener("click", () => open(full).catch(() => {}));
      const first = element("th", undefined, { scope: "row" });
      first.append(link);
      if (full === current) row.className = "current";
      row.append(first);
      for (const key of ["max", "min", "mean", "norm"]) row.append(element("td", figure(found[key])));
      for (const many of [nan, inf]) row.append(element("td", many ? count(many) : "0", many ? { class: "bad" } : {}));
      row.append(element("td", (found.dtype ?? "").replace("torch.", "")), element("td", `[${(found.shape ?? []).join(", ")}]`));
      rows.push(row);
    }
  }
  $("tensors-of-record").replaceChildren(...rows);
}

function fillStack(frames) {
  const lines = frames.map((frame) => {
    const item = element("li"), place = `${frame.path}${frame.line ? `:${frame.line}` : ""}`;
    item.append(element("span", place, { class: "hint" }), ` ${frame.function ?? ""}`);
    if (frame.source) item.append(element("code", frame.source));
    return item;
  });
  $("stack").replaceChildren(...(lines.length ? lines : [element("li", "No stack was captured.", { class: "hint" })]));
}
