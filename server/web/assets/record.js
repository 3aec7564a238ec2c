// One record: its tensors, its stack, and the trends of what is chosen among them.

import { keepable } from "/keep.js";
import { ask } from "/server.js";
import { fillStack } from "/stack.js";
import { MOST_SERIES, TrendPicture } from "/trend.js";
import { $, count, element, numberOf, operationText, rankText, show } from "/text.js";

const NAMES = { input_args: "input", input_kwargs: "input", input: "input", output: "output", parameters: "parameters" };

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

// The table of a record's tensors. open(full name): shows a trend; add(full name): beside those that are shown. Either
// may be missing.
export function fillTensors(table, records, name, current, { open, add } = {}) {
  const head = element("tr");
  for (const title of ["Tensor", ...(add ? ["Trend"] : []), "Max", "Min", "Mean", "Norm", "NaN", "Inf", "Type", "Shape"]) head.append(element("th", title, { scope: "col" }));
  const rows = [head];
  for (const record of records) {
    for (const [label, found] of tensorsIn(record.fields ?? {}, "")) {
      const full = `${name}.${label}`, nan = Number(found.nan_count ?? 0);
      const inf = Number(found.positive_inf_count ?? 0) + Number(found.negative_inf_count ?? 0);
      const row = element("tr"), first = element("th", open ? undefined : label, { scope: "row" });
      const button = (text, title, work) => {
        const made = element("button", text, { type: "button", title });
        made.addEventListener("click", () => work(full));
        return made;
      };
      if (open) first.append(button(label, `trend of ${full}`, open));
      if (full === current) row.className = "current";
      row.append(first);
      if (add) {
        const cell = element("td");
        cell.append(button("add", `add the trend of ${full} to the picture`, add));
        row.append(cell);
      }
      for (const key of ["max", "min", "mean", "norm"]) row.append(element("td", figure(found[key])));
      for (const number of [nan, inf]) row.append(element("td", number ? count(number) : "0", number ? { class: "bad" } : {}));
      row.append(element("td", (found.dtype ?? "").replace("torch.", "")), element("td", `[${(found.shape ?? []).join(", ")}]`));
      rows.push(row);
    }
  }
  table.replaceChildren(...rows);
}

export class RecordView {
  // heard: {failed(work), opened(what): another step of the record, changed()}; ranks(): those of the run.
  constructor(heard, ranks) {
    this.heard = heard;
    this.ranks = ranks;
    this.shown = null;
    this.series = [];  // [{rank, tensor, trend}, ...]
    this.picture = new TrendPicture($("trend"), $("trend-cell"), { opened: (series, step) => this.openStep(series, step) });
    $("logarithmic").addEventListener("change", () => {
      this.picture.logarithmic = $("logarithmic").checked;
      this.draw();
    });
    $("smoothing").addEventListener("input", () => {
      this.picture.smoothing = Number($("smoothing").value);
      this.draw();
    });
    $("beside").addEventListener("change", () => {
      const rank = $("beside").value;
      $("beside").value = "";
      if (rank) this.heard.failed(() => this.add(this.series[0].tensor, rank === "all" ? this.ranks() : [rank]));
    });
    $("scalars").addEventListener("change", () => {
      const name = $("scalars").value;
      $("scalars").value = "";
      if (name) this.heard.failed(() => this.add(name, [this.shown.rank]));
    });
    keepable($("keep-trend"), { name: () => `${this.shown.record} ${this.shown.statistic}`, table: () => this.picture.table(), picture: () => $("trend").querySelector("svg") });
  }

  // what: {run, golden, rank, step, record, tensor, statistic}; its tensor may be missing.
  async open(what) {
    const { run, rank, step, record: name } = what;
    const { answer: records } = await ask("record", { run, rank, step, name });
    $("record-box").hidden = false;
    $("no-record").hidden = true;
    const first = records.flatMap((record) => [...tensorsIn(record.fields ?? {}, "")])[0];
    const tensor = what.tensor || (first ? `${name}.${first[0]}` : "");
    this.shown = { ...what, tensor };
    $("record-name").textContent = `${name} · ${rankText(rank)} · step ${step}`;
    $("record-name").title = operationText(name);
    $("beside").replaceChildren(element("option", "another rank", { value: "" }), ...this.ranks().map((other) => element("option", rankText(other), { value: other })), element("option", `all, at most ${MOST_SERIES}`, { value: "all" }));
    $("beside").hidden = this.ranks().length < 2;
    const scalars = await ask("scalars", { run }).then(({ answer }) => answer, () => []);  // a saved report has none
    $("scalars").replaceChildren(element("option", "a scalar", { value: "" }), ...scalars.map((logged) => element("option", logged, { value: logged })));
    $("scalars").hidden = scalars.length === 0;
    fillTensors($("tensors-of-record"), records, name, tensor, {
      open: (full) => this.heard.failed(() => this.trendOf(full)),
      add: (full) => this.heard.failed(() => this.add(full, [this.shown.rank])),
    });
    fillStack($("stack"), records[0]?.stack ?? []);
    await this.trendOf(tensor);
  }

  async trendOf(tensor) {
    this.shown.tensor = tensor;
    this.series = tensor ? [{ rank: this.shown.rank, tensor, trend: await this.read(this.shown.rank, tensor) }] : [];
    this.draw();
    this.heard.changed();
  }

  async read(rank, tensor) {
    const { run, golden, statistic } = this.shown, columns = Math.max(60, Math.floor($("trend").clientWidth / 2));
    return (await ask("trend", { run, golden, rank, statistic, tensor, columns })).answer;
  }

  async add(tensor, ranks) {
    for (const rank of ranks) {
      if (this.series.length >= MOST_SERIES) break;
      if (this.series.some((one) => one.rank === rank && one.tensor === tensor)) continue;
      this.series.push({ rank, tensor, trend: await this.read(rank, tensor) });
      this.draw();
    }
  }

  remove(one) {
    this.series = this.series.filter((other) => other !== one);
    this.draw();
  }

  // The steps that came since.
  async refresh() {
    if (!this.shown) return;
    const read = [];
    for (const { rank, tensor } of this.series) read.push({ rank, tensor, trend: await this.read(rank, tensor) });
    this.series = read;
    this.draw();
  }

  openStep(series, step) {
    const { record, tensor } = this.shown, other = series.tensor !== tensor && !series.tensor.startsWith(`${record}.`);
    if (!other) this.heard.opened({ rank: series.rank, step, record, tensor: series.tensor });
  }

  draw() {
    if (!this.shown) return;
    const [first] = this.series, { statistic, golden, step } = this.shown;
    const alone = this.series.every(({ tensor }) => tensor === first?.tensor), oneRank = this.series.every(({ rank }) => rank === first?.rank);
    const named = ({ tensor, rank }) => [!alone && tensor, !oneRank && rankText(rank)].filter(Boolean).join(", ") || this.shown.run;
    $("trend-title").textContent = `Trend of ${statistic}`;
    $("trend-name").replaceChildren(...this.series.map((one) => this.chip(one)));
    this.picture.show(this.series.map((one) => ({ ...one, name: named(one) })), { statistic, step, goldenName: golden, alone: alone && oneRank });
  }

  chip(one) {
    const chip = element("span", `${one.tensor} ${one.trend.dtype} ${one.trend.shape} ${rankText(one.rank)} `, { class: "chip" });
    if (this.series.length > 1) {
      const button = element("button", "×", { type: "button", "aria-label": `take ${one.tensor} of ${rankText(one.rank)} out of the picture` });
      button.addEventListener("click", () => this.remove(one));
      chip.append(button);
    }
    return chip;
  }
}
