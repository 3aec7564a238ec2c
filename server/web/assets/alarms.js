// The alarms of a run along its steps, by rule and rank, and what each of them says: docs/monitoring.md.

import { Scale } from "/colours.js";
import { Grid } from "/grid.js";
import { keepable } from "/keep.js";
import { followPart } from "/live.js";
import { ask } from "/server.js";
import { $, element, many, numberOf, rankText, show, span } from "/text.js";
import { TrendPicture } from "/trend.js";

const MOST_ROWS = 40;
// "Module.fc.Linear.forward.0" of "Module.fc.Linear.forward.0.output.0:norm".
const RECORD = /^((?:.+\.(?:forward|backward)(?:\.\d+)?)|(?:.+\.parameters_grad))\.(.+?)(?::\w+)?$/;

export class Alarms {
  // heard: {opened({rank, step, record, tensor}), failed(work)}; streams(): whether the run goes on; lastStep(): of its
  // records, 0 without any.
  constructor(heard, streams, lastStep) {
    this.heard = heard;
    this.streams = streams;
    this.lastStep = lastStep;
    this.alarms = [];
    this.turn = 0;
    const cells = { moved: (at) => this.describe(at), opened: (at) => this.open(this.at(at)), selected: (from, to) => this.open(this.between(from, to)) };
    this.grid = new Grid($("alarm-line"), cells, { tallest: 220, highest: 22 });
    this.trend = new TrendPicture($("alarm-trend"), $("alarm-trend-cell"), { opened: () => {} });
    $("alarm-rows").addEventListener("keydown", (event) => this.key(event));
    keepable($("keep-alarms"), { name: () => `${this.run} alarms`, table: () => this.table(), picture: () => $("alarm-line") });
  }

  async present(run) {
    const turn = ++this.turn;
    if (this.run !== run) $("alarm-trend-box").hidden = true;
    this.run = run;
    await this.read(turn);
    followPart(() => turn === this.turn && this.read(turn).then(() => this.streams()));
  }

  async read(turn) {
    const { answer } = await ask("alarms", { run: this.run });
    answer.sort((a, b) => a.step - b.step || a.number - b.number);
    if (turn !== this.turn || JSON.stringify(answer) === JSON.stringify(this.alarms)) return;
    this.alarms = answer;
    this.draw();
  }

  draw(at = this.grid.at) {
    const { alarms } = this;
    $("alarms").hidden = !alarms.length;
    if (!alarms.length) return;
    const goOn = alarms.filter(({ ended }) => !ended).length;
    $("alarms-count").textContent = `${many(alarms.length, "alarm")}${goOn ? `, ${goOn} of them going on` : ""}`;
    this.rows = this.rowsOf();
    this.columns = this.columnsOf();
    this.cells = this.rows.map(({ rule, rank }) => this.columns.map(([first, last]) => this.alarms.filter((one) =>
      one.rule === rule && one.ranks.includes(rank) && one.step <= last && one.last_step >= first)));
    const scale = new Scale([], () => false);
    const begins = (row, column) => this.cells[row][column].some((one) => this.beginsIn(one, row, column));
    this.grid.show({
      rows: this.rows.map(({ rule, rank }) => `${rule}, ${rankText(rank)}`), columns: this.columns, rowTitle: "", columnTitle: "step",
      strong: begins,
      colour: (row, column) => (begins(row, column) ? scale.nan : this.cells[row][column].length ? scale.infinity : null),
    }, at);
    $("alarm-line").setAttribute("aria-label", `${many(alarms.length, "alarm")} of ${many(this.rows.length, "row")} of rule and rank over ${many(this.columns.length, "column")} of steps`);
    const focused = [...$("alarm-rows").children].findIndex((item) => item.contains(document.activeElement));
    $("alarm-rows").replaceChildren(...alarms.map((one) => this.item(one)));
    $("alarm-rows").children[focused]?.querySelector("button").focus();
  }

  // Of each rule the ranks that offended, in order of what came first.
  rowsOf() {
    const rows = new Map();
    for (const { rule, rank, ranks } of this.alarms) {
      for (const each of new Set([rank, ...ranks])) rows.set(`${rule} ${each}`, { rule, rank: each });
    }
    return [...rows.values()].slice(0, MOST_ROWS);
  }

  columnsOf() {
    const last = Math.max(this.lastStep(), ...this.alarms.map((one) => one.last_step)) + 1;
    const each = Math.ceil(last / Math.min(last, this.grid.room().columns)), columns = [];
    for (let first = 0; first < last; first += each) columns.push([first, Math.min(first + each, last) - 1]);
    return columns;
  }

  beginsIn(alarm, row, column) {
    const [first, last] = this.columns[column];
    return alarm.rank === this.rows[row].rank && first <= alarm.step && alarm.step <= last;
  }

  // The alarm of a cell; of several that which begins there.
  at({ row, column }) {
    const found = this.cells[row][column];
    return found.find((one) => this.beginsIn(one, row, column)) ?? found[0];
  }

  between(from, to) {
    const [left, right] = from.column < to.column ? [from.column, to.column] : [to.column, from.column];
    for (let column = left; column <= right; ++column) {
      const found = this.at({ row: from.row, column });
      if (found) return found;
    }
    return undefined;
  }

  describe({ row, column }) {
    const { rule, rank } = this.rows[row], found = this.at({ row, column }), where = `${rule}, ${rankText(rank)}, ${span(this.columns[column])}`;
    $("alarm-cell").textContent = found ? `${where}: ${words(found)}` : `${where}: no alarm`;
  }

  item(alarm) {
    const item = element("li", undefined, { class: alarm.ended ? "" : "goes-on" }), button = element("button", `${alarm.rule} at step ${alarm.step}`, { type: "button" });
    button.addEventListener("click", () => this.open(alarm));
    item.append(button, ` ${rankText(alarm.rank)}, `, element("code", alarm.series), `: ${alarm.why}`);
    const more = [alarm.offences > 1 && `${many(alarm.offences, "offence")} until step ${alarm.last_step}`, alarm.ranks.length > 1 && many(alarm.ranks.length, "rank"), alarm.others.length && `also ${alarm.others.join(", ")}`].filter(Boolean);
    if (more.length) item.append(" ", element("span", `(${more.join("; ")})`, { class: "hint" }));
    return item;
  }

  // The record of a tensor, the trend of a scalar.
  open(alarm) {
    if (!alarm) return;
    const [, record, label] = RECORD.exec(alarm.series) ?? [];
    if (record) {
      $("alarm-trend-box").hidden = true;
      this.heard.opened({ rank: alarm.rank, step: alarm.step, record, tensor: `${record}.${label}` });
      return;
    }
    this.heard.failed(async () => {
      $("alarm-trend-box").hidden = false;
      const columns = Math.max(60, Math.floor($("alarm-trend").clientWidth / 2));
      const { answer } = await ask("trend", { run: this.run, rank: alarm.rank, tensor: alarm.series, columns }, undefined, "alarm's trend");
      $("alarm-trend-name").textContent = `${alarm.series}, ${rankText(alarm.rank)}, alarm at step ${alarm.step}`;
      this.trend.show([{ name: alarm.series, rank: alarm.rank, tensor: alarm.series, trend: answer }], { statistic: alarm.series, step: alarm.step, goldenName: "", alone: true });
      this.trend.point(alarm.step);
    });
  }

  // Arrow keys, Home and End go from one alarm to another.
  key(event) {
    const buttons = [...$("alarm-rows").querySelectorAll("button")], at = buttons.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    buttons[Math.min(Math.max(to, 0), buttons.length - 1)].focus();
  }

  table() {
    const head = ["number", "rule", "kind", "rank", "step", "series", "value", "limit", "why", "offences", "last step"];
    return [head, ...this.alarms.map((one) => [one.number, one.rule, one.kind, one.rank, one.step, one.series, numberOf(one.value), numberOf(one.limit), one.why, one.offences, one.last_step])];
  }
}

const words = ({ step, series, why, value }) => `at step ${step} ${series} is ${show(numberOf(value))}: ${why}`;
