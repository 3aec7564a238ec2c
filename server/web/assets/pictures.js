// Colours and plots.

import { count, drawing, element, show, span, ticks } from "/text.js";

// One hue from near the page to far from it; what is not finite is of the opposite hue. Told apart whatever colours one
// sees: light and dark differ throughout.
const LIGHT = [[222, 235, 247], [158, 202, 225], [66, 146, 198], [8, 81, 156], [8, 38, 84]];
const DARK = [[22, 42, 66], [24, 84, 134], [52, 138, 196], [128, 190, 226], [218, 238, 252]];

const isDark = () => matchMedia("(prefers-color-scheme: dark)").matches;

function parsed(name) {
  const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
}

// Colours of magnitudes, of the middle 98 % of them: one outlier does not take the colours from all others.
export class Scale {
  constructor(values, known) {
    const sizes = [];
    for (let i = 0; i < values.length; ++i) {
      const size = Math.abs(values[i]);
      if (known(i) && size > 0 && size < Infinity) sizes.push(size);
    }
    const sorted = Float64Array.from(sizes).sort();
    const at = (share) => sorted[Math.round(share * (sorted.length - 1))];
    this.empty = sorted.length === 0;
    this.low = this.empty ? 0 : at(0.01);
    this.high = this.empty ? 1 : at(0.99);
    this.logarithmic = !this.empty && this.high > 30 * this.low;
    if (!this.logarithmic && this.high < 1.0001 * this.low) this.low = 0;
    this.steps = isDark() ? DARK : LIGHT;
    this.nan = parsed("--nan");
    this.infinity = parsed("--inf");
    this.zero = parsed("--zero");
  }

  // 0 to 1.
  share(size) {
    const { low, high } = this;
    const place = this.logarithmic ? Math.log(size / low) / Math.log(high / low) : (size - low) / (high - low);
    return Math.min(Math.max(place, 0), 1);
  }

  at(share) {
    const place = share * (this.steps.length - 1), low = Math.floor(place), rest = place - low;
    const a = this.steps[low], b = this.steps[Math.min(low + 1, this.steps.length - 1)];
    return a.map((value, i) => Math.round(value + (b[i] - value) * rest));
  }

  colour(value) {
    if (Number.isNaN(value)) return this.nan;
    if (!Number.isFinite(value)) return this.infinity;
    return value === 0 ? this.zero : this.at(this.share(Math.abs(value)));
  }

  // The elements of a legend.
  legend(title, zero) {
    const ramp = element("canvas", undefined, { width: 120, height: 1, class: "ramp", role: "img" });
    ramp.setAttribute("aria-label", `colours from ${show(this.low)} to ${show(this.high)}`);
    const context = ramp.getContext("2d");
    for (let x = 0; x < 120; ++x) {
      context.fillStyle = `rgb(${this.at(x / 119)})`;
      context.fillRect(x, 0, 1, 1);
    }
    const swatch = (name, kind) => element("span", name, { class: `swatch ${kind}` });
    const scale = element("span", undefined, { class: "scale" });
    scale.append(show(this.low), ramp, show(this.high));
    const parts = [element("strong", title)];
    if (!this.empty) parts.push(scale, element("span", this.logarithmic ? "logarithmic" : "linear", { class: "hint" }));
    return [...parts, swatch(zero, "zero"), swatch("NaN", "nan"), swatch("infinity", "inf"), swatch("not captured", "none")];
  }
}

const HIGH = 210, LEFT = 62, RIGHT = 10, TOP = 14, BOTTOM = 34;

// The trend of an answer, as wide as its box. step: where the record is.
export function drawTrend(box, trend, { statistic, run, golden, step }) {
  const sides = [[trend.value, run, "line"]];
  if (trend.golden) sides.unshift([trend.golden, golden, "line golden"]);
  const ends = sides.flatMap(([ranges]) => ranges.flatMap(([least, most]) => (least === null ? [] : [least, most])));
  const nan = trend.value.reduce((sum, range) => sum + range[2], 0), inf = trend.value.reduce((sum, range) => sum + range[3], 0);
  if (!trend.columns.length) {
    box.replaceChildren(element("p", "This statistic was not captured.", { class: "hint" }));
    return;
  }
  let low = Math.min(...ends), high = Math.max(...ends);
  if (!ends.length) [low, high] = [0, 1];
  if (low === high) [low, high] = [low - Math.abs(low || 1) * 0.1, high + Math.abs(high || 1) * 0.1];
  const wide = Math.max(240, box.clientWidth), first = trend.columns[0][0], last = trend.columns.at(-1)[1];
  const x = (at) => LEFT + ((wide - LEFT - RIGHT) * (at - first)) / Math.max(last - first, 1);
  const y = (value) => TOP + ((HIGH - TOP - BOTTOM) * (high - value)) / (high - low);
  const words = ends.length ? `from ${show(Math.min(...ends))} to ${show(Math.max(...ends))}` : "without a finite value";
  const label = `${statistic} over steps ${first} to ${last}, ${words}; NaN at ${count(nan)}, infinity at ${count(inf)} of them`;
  const picture = drawing("svg", { width: wide, height: HIGH, role: "img", "aria-label": label });
  for (const value of ends.length ? ticks(low, high, 4) : []) {
    picture.append(drawing("line", { x1: LEFT, x2: wide - RIGHT, y1: y(value), y2: y(value), class: "grid" }));
    picture.append(drawing("text", { x: LEFT - 6, y: y(value) + 4, class: "axis end" }, show(value)));
  }
  for (const at of ticks(first, last, Math.max(1, wide / 110), true)) {
    picture.append(drawing("line", { x1: x(at), x2: x(at), y1: HIGH - BOTTOM, y2: HIGH - BOTTOM + 4, class: "tick" }));
    picture.append(drawing("text", { x: x(at), y: HIGH - BOTTOM + 15, class: "axis middle" }, String(at)));
  }
  picture.append(drawing("text", { x: LEFT, y: HIGH - 3, class: "axis" }, "step"));
  picture.append(drawing("text", { x: 2, y: 10, class: "axis" }, statistic));
  if (!ends.length) {
    const middle = { x: (LEFT + wide - RIGHT) / 2, y: HIGH / 2 - 10, class: "axis middle" };
    picture.append(drawing("text", middle, "no finite value at any of these steps"));
  }
  picture.append(drawing("line", { x1: x(step), x2: x(step), y1: TOP, y2: HIGH - BOTTOM, class: "now" }));
  for (const [ranges, , kind] of sides) {
    for (const part of unbroken(trend.columns, ranges)) {
      if (part.length === 1 || part.some(([, least, most]) => least !== most)) {
        const edge = [...part.map(([at, , most]) => [at, most]), ...part.toReversed().map(([at, least]) => [at, least])];
        picture.append(drawing("path", { d: `M${edge.map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join("L")}Z`, class: `band ${kind}` }));
      }
      if (part.length === 1) {
        picture.append(drawing("circle", { cx: x(part[0][0]), cy: y(part[0][2]), r: 2.5, class: `dot ${kind}` }));
      } else {
        const middle = part.map(([at, least, most]) => `${x(at).toFixed(1)},${y(least / 2 + most / 2).toFixed(1)}`);
        picture.append(drawing("path", { d: `M${middle.join("L")}`, class: kind }));
      }
    }
  }
  trend.columns.forEach((columns, i) => {
    const [, , nans, infinities] = trend.value[i];
    if (!nans && !infinities) return;
    const title = drawing("title", {}, `${span(columns)}: ${nans ? "NaN" : "infinity"}`);
    const mark = drawing("rect", { x: x(columns[0]) - 1.5, y: TOP - 4, width: Math.max(3, x(columns[1]) - x(columns[0])), height: 5, class: nans ? "mark-nan" : "mark-inf" });
    mark.append(title);
    picture.append(mark);
  });
  const legend = element("p", undefined, { class: "legend" });
  for (const [, name, kind] of sides.toReversed()) legend.append(element("span", name, { class: `swatch ${kind.replace(" ", "-")}` }));
  if (nan) legend.append(element("span", "NaN", { class: "swatch nan" }));
  if (inf) legend.append(element("span", "infinity", { class: "swatch inf" }));
  box.replaceChildren(picture, legend);
}

// Runs of columns with finite values: [[step, least, most], ...] each.
function unbroken(columns, ranges) {
  const parts = [];
  let part = null;
  ranges.forEach(([least, most], i) => {
    if (least === null) {
      part = null;
      return;
    }
    if (!part) parts.push((part = []));
    part.push([(columns[i][0] + columns[i][1]) / 2, least, most]);
  });
  return parts;
}
