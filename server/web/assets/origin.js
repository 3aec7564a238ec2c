// Where NaN and infinity began, as a list.

import { ask } from "/server.js";
import { $, element, notFinite, operationText, rankText, span } from "/text.js";

// what: {run, first, last}; opened(found): one was chosen.
export async function presentOrigins(what, opened) {
  const { answer } = await ask("origins", what);
  const where = what.first === undefined ? "first" : `at ${span([what.first, what.last])}`;
  $("origins-title").textContent = `Where it began, ${where}`;
  $("origins").replaceChildren(...(answer.length ? answer.map((found) => originItem(found, opened)) : [element("li", "Nothing began.", { class: "hint none" })]));
}

export function originItem(found, opened) {
  const text = `step ${found.step}, ${rankText(found.rank)}: ${notFinite(found)} in ${found.tensor}`;
  const item = element("li"), link = element(opened ? "button" : "span", text, { title: operationText(found.op), ...(opened ? { type: "button" } : {}) });
  if (opened) link.addEventListener("click", () => opened(found));
  item.append(link, element("span", [found.module && ` in ${found.module}`, found.origin && `, by ${found.origin}`].filter(Boolean).join(""), { class: "hint" }));
  return item;
}
