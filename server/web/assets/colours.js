// Colours of numbers.

import { element, show } from "/text.js";

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

  colourAt(i, value) {
    return this.colour(value);
  }

  // The elements of a legend. ends: what to write at them.
  legend(title, zero, ends = [show(this.low), show(this.high)]) {
    const ramp = element("canvas", undefined, { width: 120, height: 1, class: "ramp", role: "img" });
    ramp.setAttribute("aria-label", `colours from ${ends[0]} to ${ends[1]}`);
    const context = ramp.getContext("2d");
    for (let x = 0; x < 120; ++x) {
      context.fillStyle = `rgb(${this.at(x / 119)})`;
      context.fillRect(x, 0, 1, 1);
    }
    const swatch = (name, kind) => element("span", name, { class: `swatch ${kind}` });
    const scale = element("span", undefined, { class: "scale" });
    scale.append(ends[0], ramp, ends[1]);
    const parts = [element("strong", title)];
    if (!this.empty) parts.push(scale);
    if (!this.empty && ends[0] === show(this.low)) parts.push(element("span", this.logarithmic ? "logarithmic" : "linear", { class: "hint" }));
    return [...parts, swatch(zero, "zero"), swatch("NaN", "nan"), swatch("infinity", "inf"), swatch("not captured", "none")];
  }
}

// A scale of its own for each row, so that a row of small numbers shows its changes beside rows of large ones.
export class RowScales {
  constructor(values, known, wide) {
    this.rows = [];
    for (let begin = 0; begin < values.length; begin += wide) {
      this.rows.push(new Scale(values.subarray(begin, begin + wide), (i) => known(begin + i)));
    }
    this.wide = wide;
  }

  colourAt(i, value) {
    return this.rows[Math.floor(i / this.wide)].colour(value);
  }

  legend(title, zero) {
    const [some] = this.rows;
    return some ? some.legend(`${title}, each row by itself`, zero, ["least", "largest"]) : [];
  }
}
