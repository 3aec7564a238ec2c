// The heat map: one statistic over steps and layers, or over steps and ranks.

import { RowScales, Scale } from "/colours.js";
import { Grid } from "/grid.js";
import { keepable } from "/keep.js";
import { ask } from "/server.js";
import { $, count, many, rankText, show, span } from "/text.js";

const NOTHING = 0xffffffff;
const EVERYTHING = { first: undefined, last: undefined, first_layer: undefined, last_layer: undefined };

// Columns of an answer: base64 of little-endian numbers of 4 bytes.
export function columnOf(Kind, text) {
  const bytes = atob(text), values = new Uint8Array(bytes.length);
  for (let i = 0; i < bytes.length; ++i) values[i] = bytes.charCodeAt(i);
  return new Kind(values.buffer);
}

export class HeatMap {
  // heard: {opened({rank, step, record, tensor}), failed(work): runs what may fail}.
  constructor(heard) {
    this.heard = heard;
    this.zoom = EVERYTHING;
    this.heat = null;
    const cells = { moved: (at) => this.describe(at), opened: (at) => this.open(at), selected: (from, to) => this.zoomTo(from, to) };
    this.grid = new Grid($("map"), cells, { tallest: Math.max(320, Math.round(innerHeight * 0.62)), highest: 44 });
    $("nearer").addEventListener("click", () => this.nearer());
    $("farther").addEventListener("click", () => this.farther());
    $("whole").addEventListener("click", () => this.whole());
    $("by-row").addEventListener("change", () => this.redraw());
    $("map").addEventListener("focus", () => this.heat?.rows.length && this.describe(this.grid.at));
    $("map").addEventListener("keydown", (event) => {
      const action = { "+": () => this.nearer(), "=": () => this.nearer(), "-": () => this.farther(), 0: () => this.whole() }[event.key];
      if (!action || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      action();
    });
    keepable($("keep-map"), { name: () => `${this.heat.chosen.run} ${this.heat.chosen.statistic}`, table: () => this.table(), picture: () => $("map") });
  }

  get zoomed() {
    return this.zoom !== EVERYTHING;
  }

  // chosen: what the form says; a choice without a rank means every rank. Returns what to say of it.
  async present(chosen, progress, { zoom = EVERYTHING, at = undefined } = {}) {
    if (!chosen.tensors) throw new Error("Name tensors: a shell pattern, for example *.forward*.output*");
    const began = performance.now();
    const { answer, missing } = await ask("heat_map", { ...chosen, ...zoom, ...this.grid.room() }, progress);
    this.zoom = zoom;
    const [tensorsOf, stepsOf, layersOf] = ["tensors_of", "steps_of", "layers_of"].map((name) => columnOf(Uint32Array, answer[name]));
    this.heat = { ...answer, chosen, values: columnOf(Float32Array, answer.values), tensorsOf, stepsOf, layersOf };
    this.draw(at);
    return this.summary(missing, Math.round(performance.now() - began));
  }

  summary(missing, milliseconds) {
    const { chosen, rows, layers, tensors, steps, steps_read: read } = this.heat;
    const part = read < steps ? `${count(read)} of ${many(steps, "step")} (every one would be too many; those with NaN or infinity are all there)` : many(steps, "step");
    const lacks = missing ? ` Servers that did not answer: ${missing}.` : "";
    if (!rows.length) throw new Error(`No tensor of ${chosen.rank ? rankText(chosen.rank) : "any rank"} is called ${chosen.tensors}.${lacks}`);
    const text = `${part}, ${many(layers.length, chosen.rank ? "layer" : "rank")}, ${many(tensors.length, "tensor")} in ${count(milliseconds)} ms.${lacks}`;
    return { text, lacks: lacks !== "" };
  }

  known(i) {
    return this.heat.tensorsOf[i] !== NOTHING;
  }

  draw(at) {
    const { chosen, values, columns, rows, layers } = this.heat, wide = columns.length, known = (i) => this.known(i);
    const scale = $("by-row").checked ? new RowScales(values, known, wide) : new Scale(values, known);
    const shown = { rows: rows.map(([first]) => (chosen.rank ? layers[first] : rankText(layers[first]))), columns, rowTitle: chosen.rank ? "layer" : "rank", columnTitle: "step" };
    shown.strong = (row, column) => known(row * wide + column) && !Number.isFinite(values[row * wide + column]);
    shown.colour = (row, column) => (known(row * wide + column) ? scale.colourAt(row * wide + column, values[row * wide + column]) : null);
    this.grid.show(shown, at);
    this.grid.choose(this.chosen ? this.cellOf(this.chosen) : null);
    const what = chosen.golden ? `|${chosen.statistic} − that of ${chosen.golden}|` : `|${chosen.statistic}|`;
    $("legend").replaceChildren(...scale.legend(what, chosen.golden ? "equal" : "0"));
    $("h-map").textContent = chosen.rank ? `Steps and layers of ${rankText(chosen.rank)}` : "Steps and ranks";
    $("map").setAttribute("aria-label", `${what} of ${rows.length} rows of ${chosen.rank ? "layers" : "ranks"} over ${wide} columns of steps`);
    $("cell").textContent = "";
    $("farther").disabled = $("whole").disabled = !this.zoomed;
  }

  redraw() {
    if (this.heat) this.draw(this.grid.at);
  }

  // Marks the cell of what is shown beside the map.
  mark(chosen) {
    this.chosen = chosen;
    if (this.heat) this.grid.choose(this.cellOf(chosen));
  }

  cellOf({ rank, step, record }) {
    const { columns, rows, chosen, layers, tensors, tensorsOf } = this.heat, wide = columns.length;
    const column = columns.findIndex(([first, last]) => first <= step && step <= last);
    if (column < 0 || (chosen.rank && chosen.rank !== rank)) return null;
    const row = rows.findIndex(([first, last], at) => {
      if (!chosen.rank) return layers.slice(first, last + 1).includes(rank);
      return this.known(at * wide + column) && tensors[tensorsOf[at * wide + column]][1] === record;
    });
    return row < 0 ? null : { row, column };
  }

  cell(i) {
    const { chosen, tensors, tensorsOf, values, stepsOf, layersOf, layers } = this.heat;
    if (!this.known(i)) return null;
    const [tensor, record] = tensors[tensorsOf[i]], layer = layers[layersOf[i]];
    return { value: values[i], step: stepsOf[i], tensor, record, layer, rank: chosen.rank || layer };
  }

  describe(at) {
    const { chosen, layers, rows, columns } = this.heat, cell = this.cell(at.row * columns.length + at.column), [first, last] = rows[at.row];
    const name = (layer) => (chosen.rank ? layers[layer] : rankText(layers[layer]));
    const where = `${first === last ? name(first) : `${name(first)} … ${name(last)}`}, ${span(columns[at.column])}`;
    const whose = cell && !chosen.rank && first < last ? ` of ${rankText(cell.rank)}` : "";
    $("cell").textContent = cell ? `${where}: ${show(cell.value)} at step ${cell.step}${whose} in ${cell.tensor}` : `${where}: not captured`;
  }

  open(at) {
    const cell = this.cell(at.row * this.heat.columns.length + at.column);
    this.describe(at);
    if (cell) this.heard.opened(cell);
  }

  zoomInto(zoom) {
    this.heard.failed(() => this.present(this.heat.chosen, this.heard.progress, { zoom }));
  }

  zoomTo(from, to) {
    const { columns, rows } = this.heat, order = (a, b) => (a < b ? [a, b] : [b, a]);
    const [left, right] = order(from.column, to.column), [top, bottom] = order(from.row, to.row);
    this.zoomInto({ first: columns[left][0], last: columns[right][1], first_layer: rows[top][0], last_layer: rows[bottom][1] });
  }

  // A quarter of the steps around the cursor; of layers only where rows hold several.
  nearer() {
    if (!this.heat?.rows.length) return;
    const { row, column } = this.grid.at, wide = this.heat.columns.length, high = this.heat.rows.length;
    const some = (at, size) => [Math.max(0, Math.round(at - size / 8)), Math.min(size - 1, Math.round(at + size / 8))];
    const [left, right] = some(column, wide), [top, bottom] = this.heat.rows.some(([a, b]) => a < b) ? some(row, high) : [0, high - 1];
    this.zoomTo({ row: top, column: left }, { row: bottom, column: right });
  }

  // Four times as many steps around those that are shown.
  farther() {
    if (!this.zoomed) return;
    const first = this.heat.columns[0][0], last = this.heat.columns.at(-1)[1], more = Math.max(1, Math.round((last - first + 1) * 1.5));
    const [least, most] = this.heard.steps();
    const wanted = { first: Math.max(least, first - more), last: Math.min(most, last + more) };
    this.zoomInto(wanted.first === least && wanted.last === most ? EVERYTHING : { ...EVERYTHING, ...wanted });
  }

  whole() {
    if (this.zoomed) this.zoomInto(EVERYTHING);
  }

  table() {
    const { chosen, columns, rows, values } = this.heat, found = [];
    for (let i = 0; i < values.length; ++i) {
      const cell = this.cell(i);
      if (!cell) continue;
      const [first, last] = columns[i % columns.length];
      found.push([cell.rank, cell.layer, first, last, cell.step, cell.tensor, cell.value]);
    }
    return [["rank", chosen.rank ? "layer" : "row", "first step", "last step", "step", "tensor", chosen.statistic], ...found];
  }
}
