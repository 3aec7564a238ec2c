// One record: its tensors, its stack, and the trends of what is chosen among them.

import { keepable } from "/keep.js";
import { ask } from "/server.js";
import { fillStack } from "/stack.js";
import { MOST_SERIES, TrendPicture } from "/trend.js";
import { $, count, element, numberOf, operationText, rankText, show } from "/text.js";

const FIGURES = ["Max", "Min", "Mean", "Norm"];
const NAMES = { input_args: "input", input_kwargs: "input", input: "input", output: "output", parameters: "parameters" };

// All tensors and arguments in a value of record.proto, however nested: [name, value].
function* leavesIn(value, name) {
  for (const [index, item] of (value.list?.items ?? []).entries()) yield* leavesIn(item, `${name}.${index}`);
  for (const entry of value.dict?.entries ?? []) {
    const key = name ? entry.key : (NAMES[entry.key] ?? entry.key);
    yield* leavesIn(entry.value ?? {}, name ? `${name}.${key}` : key);
  }
  if (!value.list && !value.dict) yield [name, value];
}

const leavesOf = (records) => records.flatMap((record) => [...leavesIn(record.fields ?? {}, "")]);

// An argument that is no tensor, and its type.
function argument(value) {
  if (value.boolean !== undefined) return [value.boolean ? "True" : "False", "bool"];
  if (value.integer !== undefined) return [String(value.integer), "int"];
  if (value.real !== undefined) return [show(numberOf(value.real)), "float"];
  if (value.text !== undefined) return [value.text, "str"];
  return value.json !== undefined ? [value.json, ""] : ["None", ""];
}

// A number of record.proto.
function figure(value) {
  if (value === undefined) return "–";
  if (typeof value !== "object") return show(numberOf(value));
  if (value.boolean !== undefined) return String(value.boolean);
  return show(numberOf(value.real ?? Number(value.integer ?? value.unsigned_integer)));
}

// The table of a record's tensors, and of its arguments that are none. beside: {run, records}, the record of another run, of
// which arguments are shown where they differ. open(full name): shows a trend; add(full name): beside those that are shown.
// Either may be missing.
export function fillTensors(table, records, name, current, { open, add, beside } = {}) {
  const head = element("tr");
  for (const title of ["Tensor", ...(add ? ["Trend"] : []), ...FIGURES, "NaN", "Inf", "Type", "Shape"]) head.append(element("th", title, { scope: "col" }));
  const others = new Map(leavesOf(beside?.records ?? []));
  const button = (text, title, work, full) => {
    const made = element("button", text, { type: "button", title });
    made.addEventListener("click", () => work(full));
    return made;
  };
  const rows = leavesOf(records).flatMap(([label, value]) => {
    const full = `${name}.${label}`, tensor = value.tensor, other = others.get(label), row = element("tr", undefined, full === current ? { class: "current" } : {});
    const first = element("th", open && tensor ? undefined : label, { scope: "row" });
    if (open && tensor) first.append(button(label, `trend of ${full}`, open, full));
    row.append(first);
    if (add) row.append(element("td"));
    if (!tensor) {
      const [text, type] = argument(value), theirs = other && !other.tensor ? argument(other)[0] : text;
      if (text === "None" && theirs === text && full !== current) return [];
      const said = theirs === text ? text : `${text}, in ${beside.run} ${theirs}`;
      row.append(element("td", said, { class: theirs === text ? "text argument" : "text argument bad", colspan: FIGURES.length + 2 }), element("td", type), element("td"));
      return [row];
    }
    if (add) row.lastChild.append(button("add", `add the trend of ${full} to the picture`, add, full));
    const nan = Number(tensor.nan_count ?? 0), inf = Number(tensor.positive_inf_count ?? 0) + Number(tensor.negative_inf_count ?? 0);
    for (const key of FIGURES) row.append(element("td", figure(tensor[key.toLowerCase()])));
    for (const number of [nan, inf]) row.append(element("td", number ? count(number) : "0", number ? { class: "bad" } : {}));
    row.append(element("td", (tensor.dtype ?? "").replace("torch.", "")), element("td", `[${(tensor.shape ?? []).join(", ")}]`));
    return [row];
  });
  table.replaceChildren(head, ...rows);
}

const rankOf = ({ rank }) => `${rank?.kind === "RANK" ? "rank" : "proc"}${rank?.number ?? 0}`;

// The records with a name in one step of a run; none: the run, or the step of this rank, has no such record.
async function recordsOf(question, place) {
  try {
    return (await ask("record", question, undefined, place)).answer;
  } catch (error) {
    if (error.status === 404 || error.status === 400) return [];
    throw error;
  }
}

export class RecordView {
  // heard: {failed(work), opened(what): another step of the record, changed()}; ranks(): those of the run.
  constructor(heard, ranks) {
    this.heard = heard;
    this.ranks = ranks;
    this.shown = null;
    this.opened = 0;   // how many records were asked for
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

  // what: {run, golden, rank, step, record, tensor, statistic}; its tensor may be missing, and may be an argument. Where only
  // the golden side has the record, that is shown. Nothing of it is before all of it is read; the last one that was asked
  // for stays.
  async open(what) {
    const { run, golden, rank, step, record: name } = what, turn = ++this.opened;
    const [mine, theirs] = await Promise.all([
      recordsOf({ run, rank, step, name }, "record"),
      golden ? recordsOf({ run, golden, side: "golden", rank, step, name }, "record beside") : [],
    ]);
    const records = mine.length ? mine : theirs;
    if (!records.length) throw new Error(`${run}${golden ? ` and ${golden}` : ""}: no ${name} at step ${step}, ${rankText(rank)}`);
    const tensors = leavesOf(records).filter(([, value]) => value.tensor).map(([label]) => `${name}.${label}`);
    // An argument has no trend; neither has what the answer was shortened by.
    const tensor = tensors.includes(what.tensor) || !tensors.length ? what.tensor : tensors[0];
    const whose = mine.length ? {} : { run: golden, golden: "", rank: rankOf(records[0]) };
    const shown = { ...what, ...whose, tensor: tensors.length ? tensor : "" };
    $("record-box").hidden = false;  // a trend is asked for in its width
    $("no-record").hidden = true;
    const [scalars, series] = await Promise.all([
      ask("scalars", { run }).then(({ answer }) => answer, () => []),  // a saved report has none
      this.seriesOf(shown),
    ]);
    if (turn !== this.opened) return;
    this.shown = shown;
    $("record-name").textContent = `${name} · ${rankText(rank)} · step ${step}${mine.length ? "" : ` · only in ${golden}`}`;
    $("record-name").title = operationText(name);
    $("beside").replaceChildren(element("option", "another rank", { value: "" }), ...this.ranks().map((other) => element("option", rankText(other), { value: other })), element("option", `all, at most ${MOST_SERIES}`, { value: "all" }));
    $("beside").hidden = this.ranks().length < 2;
    $("scalars").replaceChildren(element("option", "a scalar", { value: "" }), ...scalars.map((logged) => element("option", logged, { value: logged })));
    $("scalars").hidden = scalars.length === 0;
    fillTensors($("tensors-of-record"), records, name, what.tensor || tensor, {
      open: (full) => this.heard.failed(() => this.trendOf(full)),
      add: (full) => this.heard.failed(() => this.add(full, [this.shown.rank])),
      beside: mine.length ? { run: golden, records: theirs } : undefined,
    });
    fillStack($("stack"), records[0].stack ?? []);
    this.show(series);
  }

  async trendOf(tensor) {
    const { shown } = this, series = await this.seriesOf({ ...shown, tensor });
    if (shown !== this.shown) return;
    shown.tensor = tensor;
    this.show(series);
  }

  show(series) {
    this.series = series;
    this.draw();
    this.heard.changed();
  }

  // The trend that a record begins with.
  async seriesOf(what) {
    const { rank, tensor } = what;
    return tensor ? [{ rank, tensor, trend: await this.read(what, rank, tensor, "trend") }] : [];
  }

  // place: a question ends the one in its place (ask).
  async read({ run, golden, statistic }, rank, tensor, place) {
    const columns = Math.max(60, Math.floor($("trend").clientWidth / 2));
    return (await ask("trend", { run, golden, rank, statistic, tensor, columns }, undefined, place)).answer;
  }

  async add(tensor, ranks) {
    const { shown } = this;
    for (const rank of ranks) {
      if (this.series.some((one) => one.rank === rank && one.tensor === tensor)) continue;
      const trend = await this.read(shown, rank, tensor, `trend of ${rank} ${tensor}`);
      if (shown !== this.shown || this.series.length >= MOST_SERIES) break;
      this.series.push({ rank, tensor, trend });
      this.draw();
    }
  }

  remove(one) {
    this.series = this.series.filter((other) => other !== one);
    this.draw();
  }

  // The steps that came since.
  async refresh() {
    const { shown } = this;
    for (const one of [...this.series]) one.trend = await this.read(shown, one.rank, one.tensor, "trend anew");
    if (shown === this.shown) this.draw();
  }

  openStep(series, step) {
    const { run, golden, record, tensor } = this.shown, other = series.tensor !== tensor && !series.tensor.startsWith(`${record}.`);
    if (!other) this.heard.opened({ run, golden, rank: series.rank, step, record, tensor: series.tensor });
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
