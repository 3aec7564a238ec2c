// All ranks over the steps: which were finite, and which were not.

import { Scale } from "/colours.js";
import { Grid } from "/grid.js";
import { keepable } from "/keep.js";
import { ask } from "/server.js";
import { $, count, many, rankText, span } from "/text.js";

const WORDS = { "-": "not captured", f: "all finite", i: "infinity", n: "NaN" };

export class RankTimes {
  // heard: {opened({first, last, rank})}: steps, and the rank where the row is one.
  constructor(heard) {
    const cells = { moved: (at) => this.describe(at), opened: (at) => this.open(at, at), selected: (from, to) => this.open(from, to) };
    this.heard = heard;
    this.grid = new Grid($("line"), cells, { tallest: 260, highest: 26 });
    this.times = null;
    keepable($("keep-line"), { name: () => `${this.run} ranks`, table: () => this.table(), picture: () => $("line") });
  }

  async present(run) {
    const { columns, rows } = this.grid.room();
    const { answer } = await ask("overflow", { run, columns, rows });
    const at = this.run === run ? this.grid.at : undefined;
    this.times = answer;
    this.run = run;
    this.draw(at);
    const { ranks, ranks_with: some } = answer;
    $("ranks-count").textContent = some ? `${count(some)} of ${many(ranks, "rank")} with NaN or infinity` : `${many(ranks, "rank")}, all finite`;
  }

  // First and last of the run.
  steps() {
    const columns = this.times?.columns ?? [];
    return [columns[0]?.[0] ?? 0, columns.at(-1)?.[1] ?? 0xffffffff];
  }

  name({ ranks: [first, last] }) {
    return first === last ? rankText(first) : `${rankText(first)} … ${rankText(last)}`;
  }

  draw(at = this.grid.at) {
    if (!this.times) return;
    const { rows, columns } = this.times, scale = new Scale([], () => false);
    const colours = { "-": null, f: scale.at(0.18), i: scale.infinity, n: scale.nan };
    this.grid.show({
      rows: rows.map((row) => this.name(row)), columns, rowTitle: "", columnTitle: "step",
      strong: (row, column) => "in".includes(rows[row].states[column]),
      colour: (row, column) => colours[rows[row].states[column]],
    }, at);
    const bad = rows.filter((row) => row.nan.length).length;
    $("line").setAttribute("aria-label", `NaN and infinity of ${rows.length} rows of ranks over ${columns.length} columns of steps; ${bad} rows have some`);
  }

  describe({ row, column }) {
    const { rows, columns } = this.times, { states, nan, inf } = rows[row];
    const state = states[column], numbers = "in".includes(state) ? `${many(nan[column], "tensor")} with NaN, ${count(inf[column])} with infinity` : WORDS[state];
    $("line-cell").textContent = `${this.name(rows[row])}, ${span(columns[column])}: ${numbers}`;
  }

  open(from, to) {
    const { rows, columns } = this.times, [left, right] = from.column < to.column ? [from.column, to.column] : [to.column, from.column];
    const [first, last] = rows[from.row].ranks;
    this.heard.opened({ first: columns[left][0], last: columns[right][1], rank: first === last && from.row === to.row ? first : undefined });
  }

  table() {
    const { rows, columns } = this.times;
    const cells = rows.flatMap((row) => columns.map(([first, last], i) => [...row.ranks, first, last, WORDS[row.states[i]], row.nan[i] ?? 0, row.inf[i] ?? 0]));
    return [["first rank", "last rank", "first step", "last step", "state", "tensors with NaN", "tensors with infinity"], ...cells];
  }
}
