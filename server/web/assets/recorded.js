// Stands in a report where the page asks its server: the answers were recorded when the report was made.

import { folded, searched } from "/fold.js";
import { $ } from "/text.js";

const NAMED = ["run", "golden", "rank", "step", "name", "tensor", "tensors", "statistic", "first", "last", "first_layer", "last_layer"];
const OF_GRAPH = ["run", "golden", "rank"], MOST_FOUND = 50;
const recorded = JSON.parse($("answers").textContent);

export const recordedAnswers = (kind) => recorded.filter((one) => one.kind === kind);

const find = (kind, names, parameters) => recorded.find((one) => one.kind === kind && names.every((name) => String(parameters[name] ?? "") === (one.asked[name] ?? "")))?.answer;

function graphOf(parameters) {
  const { step, open, show } = parameters, answer = find("graph", [...OF_GRAPH, "side"], parameters);
  if (!answer || (step && Number(step) !== answer.step)) return null;
  return folded(answer, open ? open.split(".") : null, show);
}

function searchOf(parameters) {
  const side = parameters.golden ? "target" : "", answer = find("graph", [...OF_GRAPH, "side"], { ...parameters, side });
  return answer && searched(answer, parameters.text, MOST_FOUND);
}

export async function ask(kind, parameters = {}) {
  const answer = kind === "graph" ? graphOf(parameters) : kind === "graph_search" ? searchOf(parameters) : find(kind, NAMED, parameters);
  if (!answer) throw Object.assign(new Error("This file does not hold that; the page of the server does."), { status: 404 });
  return { answer, missing: "" };
}
