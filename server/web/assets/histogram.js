// How the elements of a tensor are spread, where its content was captured.

import { ask } from "/server.js";
import { $, count, drawing, element, numberOf, show } from "/text.js";

const HIGH = 120, BOTTOM = 18, MOST_BARS = 48;

// asked: {run, rank, step, tensor}.
export async function openHistogram({ run, rank, step, tensor }) {
  const box = $("histogram");
  try {
    const { answer } = await ask("histogram", { run, rank, step, tensor, bins: MOST_BARS });
    draw(box, answer);
  } catch (error) {
    if (error.name === "AbortError") return;
    const why = error.status === 404 ? "Only the numbers of this tensor were captured, not its elements (task tensor captures them)." : error.message;
    box.replaceChildren(element("p", why, { class: "hint" }));
  }
}

function draw(box, { elements, finite, nan, positive_inf: up, negative_inf: down, zero, edges, counts }) {
  const rest = [[nan, "NaN"], [up, "+infinity"], [down, "−infinity"]].filter(([many]) => many).map(([many, name]) => `${count(many)} ${name}`);
  const words = `${count(elements)} ${elements === 1 ? "element" : "elements"}, ${count(zero)} of them 0${rest.length ? `; ${rest.join(", ")}` : ""}`;
  const parts = [element("p", words, { class: rest.length ? "bad-text" : "hint" })];
  if (finite) parts.unshift(bars(Math.max(240, box.clientWidth), edges.map(numberOf), counts));
  box.replaceChildren(...parts);
}

function bars(wide, edges, counts) {
  const most = Math.max(...counts), each = wide / counts.length, label = `from ${show(edges[0])} to ${show(edges.at(-1))}, at most ${count(most)} in a bar`;
  const picture = drawing("svg", { width: wide, height: HIGH, role: "img", "aria-label": `Histogram ${label}` });
  counts.forEach((many, i) => {
    const high = many ? Math.max(1, ((HIGH - BOTTOM) * many) / most) : 0;
    const bar = drawing("rect", { x: (i * each).toFixed(2), y: (HIGH - BOTTOM - high).toFixed(2), width: Math.max(0.5, each - 1).toFixed(2), height: high.toFixed(2), class: "bar" });
    bar.append(drawing("title", {}, `${show(edges[i])} to ${show(edges[i + 1])}: ${count(many)}`));
    picture.append(bar);
  });
  picture.append(drawing("line", { x1: 0, x2: wide, y1: HIGH - BOTTOM, y2: HIGH - BOTTOM, class: "grid" }));
  picture.append(drawing("text", { x: 0, y: HIGH - 4, class: "axis" }, show(edges[0])));
  picture.append(drawing("text", { x: wide, y: HIGH - 4, class: "axis end" }, show(edges.at(-1))));
  return picture;
}
