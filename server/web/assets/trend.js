// One statistic of tensors over steps: several tensors and ranks in one picture, with the values under a pointer.

import { drawing, element, many, show, span, ticks } from "/text.js";

const HIGH = 240, LEFT = 62, RIGHT = 12, BOTTOM = 34, LANE = 6, TOP = 14;
export const MOST_SERIES = 8;  // as many lines as one tells apart by colour and dashes

// The finite points of a series, in runs without a gap: [[column, least, most], ...] each.
function unbroken(ranges) {
  const parts = [];
  let part = null;
  ranges.forEach(([least, most], i) => {
    if (least === null) {
      part = null;
      return;
    }
    if (!part) parts.push((part = []));
    part.push([i, least, most]);
  });
  return parts;
}

// The moving average that TensorBoard draws: exponential, without the pull to 0 at its beginning.
function smoothed(values, weight) {
  let sum = 0, bias = 1;
  return values.map((value) => {
    sum = sum * weight + (1 - weight) * value;
    bias *= weight;
    return sum / (1 - bias);
  });
}

const middle = ([, least, most]) => least / 2 + most / 2;

export class TrendPicture {
  // heard: {opened(series, step)}; readout: the element that takes the values under the pointer.
  constructor(box, readout, heard) {
    this.box = box;
    this.readout = readout;
    this.heard = heard;
    this.logarithmic = false;
    this.smoothing = 0;
    this.series = [];
  }

  // series: [{name, rank, tensor, trend, golden: whether the trend has a golden side}, ...], trend as the server answers;
  // what: {statistic, step: where the record is, goldenName, alone: whether its one series is the run's}.
  show(series, what) {
    this.series = series;
    this.what = what;
    this.at = null;
    this.draw();
  }

  draw() {
    const { box, what } = this;
    this.lines = this.series.flatMap((one, i) => {
      const line = { ...one, kind: i % MOST_SERIES, ranges: one.trend.value, columns: one.trend.columns };
      const beside = { ...line, name: what.alone ? what.goldenName : `${what.goldenName}: ${one.name}`, ranges: one.trend.golden, golden: true };
      return one.trend.golden ? [beside, line] : [line];
    });
    const all = this.lines.flatMap((line) => line.columns);
    if (!all.length) {
      box.replaceChildren(element("p", "This statistic was not captured.", { class: "hint" }));
      this.readout.textContent = "";
      return;
    }
    this.first = all.reduce((least, [first]) => Math.min(least, first), Infinity);
    this.last = all.reduce((most, [, last]) => Math.max(most, last), 0);
    this.wide = Math.max(240, box.clientWidth);
    this.top = TOP + LANE * Math.max(0, this.series.length - 1);
    const ends = this.bounds();
    this.picture = drawing("svg", { width: this.wide, height: HIGH, tabindex: 0, role: "img", "aria-label": this.words(ends) });
    this.drawAxes(ends);
    this.picture.append(drawing("line", { ...this.upright(what.step), class: "now" }));
    for (const line of this.lines) this.drawLine(line);
    this.series.forEach((one, lane) => this.drawMarks(one, lane));
    this.pointer = drawing("line", { ...this.upright(this.first), class: "pointer", visibility: "hidden" });
    this.picture.append(this.pointer);
    box.replaceChildren(this.picture, this.legend());
    this.listen();
    this.point(this.at);
  }

  // What the axis shows of a value; null: a logarithm has no place for it.
  place(value) {
    if (!this.logarithmic) return value;
    return value === 0 ? null : Math.log10(Math.abs(value));
  }

  bounds() {
    let low = Infinity, high = -Infinity;
    for (const { ranges } of this.lines) {
      for (const range of ranges) {
        for (const value of range.slice(0, 2)) {
          const at = value === null ? null : this.place(value);
          if (at === null) continue;
          low = Math.min(low, at);
          high = Math.max(high, at);
        }
      }
    }
    const ends = low <= high ? [low, high] : null;
    if (!ends) [low, high] = [0, 1];
    if (low === high) [low, high] = this.logarithmic ? [low - 0.5, high + 0.5] : [low - Math.abs(low || 1) * 0.1, high + Math.abs(high || 1) * 0.1];
    this.low = low;
    this.high = high;
    return ends;
  }

  // Round numbers to write beside the axis: of a logarithmic one the powers of ten, if it has several.
  values() {
    if (!this.logarithmic) return ticks(this.low, this.high, 4);
    if (this.high - this.low > 2) return ticks(this.low, this.high, 4, true).map((at) => 10 ** at);
    return ticks(10 ** this.low, 10 ** this.high, 4).filter((value) => value > 0);
  }

  x(step) {
    return LEFT + ((this.wide - LEFT - RIGHT) * (step - this.first)) / Math.max(this.last - this.first, 1);
  }

  y(value) {
    const at = this.place(value) ?? this.low;
    return this.top + ((HIGH - this.top - BOTTOM) * (this.high - at)) / (this.high - this.low);
  }

  upright(step) {
    return { x1: this.x(step), x2: this.x(step), y1: this.top, y2: HIGH - BOTTOM };
  }

  words(ends) {
    const back = (at) => show(this.logarithmic ? 10 ** at : at);
    const values = ends ? `from ${back(ends[0])} to ${back(ends[1])}` : "without a finite value";
    const sum = (which) => this.series.reduce((all, { trend }) => all + trend.value.reduce((some, range) => some + range[which], 0), 0);
    return `${this.what.statistic} over steps ${this.first} to ${this.last}, ${many(this.series.length, "tensor")}, ${values}; NaN at ${sum(2)}, infinity at ${sum(3)} of them`;
  }

  drawAxes(ends) {
    const { picture } = this;
    for (const value of ends ? this.values() : []) {
      picture.append(drawing("line", { x1: LEFT, x2: this.wide - RIGHT, y1: this.y(value), y2: this.y(value), class: "grid" }));
      picture.append(drawing("text", { x: LEFT - 6, y: this.y(value) + 4, class: "axis end" }, show(value)));
    }
    for (const at of ticks(this.first, this.last, Math.max(1, this.wide / 110), true)) {
      picture.append(drawing("line", { x1: this.x(at), x2: this.x(at), y1: HIGH - BOTTOM, y2: HIGH - BOTTOM + 4, class: "tick" }));
      picture.append(drawing("text", { x: this.x(at), y: HIGH - BOTTOM + 15, class: "axis middle" }, String(at)));
    }
    picture.append(drawing("text", { x: LEFT, y: HIGH - 3, class: "axis" }, "step"));
    picture.append(drawing("text", { x: 2, y: 10, class: "axis" }, this.logarithmic ? `|${this.what.statistic}|` : this.what.statistic));
    if (!ends) {
      const where = { x: (LEFT + this.wide - RIGHT) / 2, y: HIGH / 2 - 10, class: "axis middle" };
      picture.append(drawing("text", where, "no finite value at any of these steps"));
    }
  }

  drawLine({ columns, ranges, kind, golden }) {
    const looks = `series-${kind}${golden ? " golden" : ""}`;
    const step = (i) => (columns[i][0] + columns[i][1]) / 2;
    const path = (points) => points.map(([at, value]) => `${this.x(at).toFixed(1)},${this.y(value).toFixed(1)}`).join("L");
    for (const part of unbroken(ranges)) {
      const drawn = part.filter((point) => this.place(middle(point)) !== null);
      if (!drawn.length) continue;
      if (drawn.some(([, least, most]) => least !== most)) {
        const edge = [...drawn.map(([i, , most]) => [step(i), most]), ...drawn.toReversed().map(([i, least]) => [step(i), least])];
        this.picture.append(drawing("path", { d: `M${path(edge)}Z`, class: `band ${looks}` }));
      }
      if (drawn.length === 1) {
        this.picture.append(drawing("circle", { cx: this.x(step(drawn[0][0])), cy: this.y(middle(drawn[0])), r: 3, class: `dot ${looks}` }));
        continue;
      }
      const points = drawn.map((point) => [step(point[0]), middle(point)]);
      this.picture.append(drawing("path", { d: `M${path(points)}`, class: `line ${looks}${this.smoothing ? " raw" : ""}` }));
      if (!this.smoothing) continue;
      const values = smoothed(points.map(([, value]) => value), this.smoothing);
      this.picture.append(drawing("path", { d: `M${path(points.map(([at], i) => [at, values[i]]))}`, class: `line smooth ${looks}` }));
    }
  }

  // A lane of marks for each series above the plot, and a line where NaN or infinity began.
  drawMarks({ trend, name }, lane) {
    const y = this.top - 5 - LANE * lane;
    let began = false;
    trend.columns.forEach((columns, i) => {
      const [, , nan, inf] = trend.value[i];
      if (!nan && !inf) return;
      const mark = drawing("rect", { x: this.x(columns[0]) - 1.5, y, width: Math.max(3, this.x(columns[1]) - this.x(columns[0])), height: 5, class: nan ? "mark-nan" : "mark-inf" });
      mark.append(drawing("title", {}, `${name}, ${span(columns)}: ${nan ? "NaN" : "infinity"}`));
      this.picture.append(mark);
      if (began) return;
      began = true;
      this.picture.append(drawing("line", { ...this.upright(columns[0]), class: "began" }));
      if (lane > 0) return;
      const right = this.x(columns[0]) > this.wide * 0.7;
      const where = { x: this.x(columns[0]) + (right ? -5 : 5), y: this.top + 11, class: `axis began-text${right ? " end" : ""}` };
      this.picture.append(drawing("text", where, `${nan ? "NaN" : "infinity"} from ${span(columns)}`));
    });
  }

  legend() {
    const legend = element("p", undefined, { class: "legend" });
    for (const { name, kind, golden } of this.lines) legend.append(element("span", name, { class: `swatch line series-${kind}${golden ? " golden" : ""}` }));
    const any = (which) => this.series.some(({ trend }) => trend.value.some((range) => range[which]));
    if (any(2)) legend.append(element("span", "NaN", { class: "swatch nan" }));
    if (any(3)) legend.append(element("span", "infinity", { class: "swatch inf" }));
    return legend;
  }

  // Every step at which a series has a point, in order.
  steps() {
    return [...new Set(this.series.flatMap(({ trend }) => trend.columns.map(([first]) => first)))].sort((a, b) => a - b);
  }

  listen() {
    const steps = this.steps();
    const nearest = (event) => {
      const x = event.clientX - this.picture.getBoundingClientRect().left;
      return steps.reduce((best, step) => (Math.abs(this.x(step) - x) < Math.abs(this.x(best) - x) ? step : best), steps[0]);
    };
    this.picture.addEventListener("pointermove", (event) => this.point(nearest(event)));
    this.picture.addEventListener("pointerleave", () => this.point(null));
    this.picture.addEventListener("click", (event) => this.heard.opened(this.series[0], nearest(event)));
    this.picture.addEventListener("keydown", (event) => {
      const at = this.at === null ? steps.indexOf(this.what.step) : steps.indexOf(this.at);
      const to = { ArrowLeft: at - 1, ArrowRight: at + 1, PageUp: at - 10, PageDown: at + 10, Home: 0, End: steps.length - 1 }[event.key];
      if (to !== undefined) this.point(steps[Math.min(Math.max(to, 0), steps.length - 1)]);
      else if (event.key === "Enter" && this.at !== null) this.heard.opened(this.series[0], this.at);
      else return;
      event.preventDefault();
    });
  }

  // Tells the values at a step; null: at none.
  point(step) {
    this.at = step;
    this.pointer.setAttribute("visibility", step === null ? "hidden" : "visible");
    if (step === null) {
      this.readout.textContent = "Point at the picture, or use the arrow keys, to read values.";
      return;
    }
    for (const end of ["x1", "x2"]) this.pointer.setAttribute(end, this.x(step));
    const values = this.lines.map(({ name, columns, ranges }) => {
      const i = columns.findIndex(([first, last]) => first <= step && step <= last);
      return `${name}: ${i < 0 ? "not captured" : rangeText(ranges[i])}`;
    });
    this.readout.textContent = `step ${step} · ${values.join(" · ")}`;
  }

  // As a table: [[heading, ...], [step, value of each line, ...], ...].
  table() {
    const head = ["first step", "last step", ...this.lines.flatMap(({ name }) => [`${name} least`, `${name} largest`, `${name} NaN`, `${name} infinity`])];
    const spans = new Map(this.lines.flatMap(({ columns }) => columns.map((column) => [column.join(), column])));
    const rows = [...spans.values()].sort(([a], [b]) => a - b).map(([first, last]) => {
      const cells = this.lines.flatMap(({ columns, ranges }) => {
        const i = columns.findIndex((column) => column[0] === first && column[1] === last);
        return i < 0 ? ["", "", "", ""] : ranges[i].map((value) => value ?? "");
      });
      return [first, last, ...cells];
    });
    return [head, ...rows];
  }
}

function rangeText([least, most, nan, inf]) {
  const odd = [nan && "NaN", inf && "infinity"].filter(Boolean);
  if (least !== null) odd.unshift(least === most ? show(least) : `${show(least)} to ${show(most)}`);
  return odd.join(", ") || "not captured";
}
