// Stands in a report where the page asks its server: the answers were recorded when the report was made.

import { $ } from "/text.js";

const NAMED = ["run", "golden", "rank", "step", "name", "tensor", "tensors", "statistic", "first", "last", "first_layer", "last_layer"];
const recorded = JSON.parse($("answers").textContent);

export const recordedAnswers = (kind) => recorded.filter((one) => one.kind === kind);

export async function ask(kind, parameters = {}) {
  const found = recorded.find((one) => one.kind === kind && NAMED.every((name) => String(parameters[name] ?? "") === (one.asked[name] ?? "")));
  if (!found) throw new Error("The report does not hold this; the page of the server does.");
  return { answer: found.answer, missing: "" };
}
