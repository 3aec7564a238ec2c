// The tensors that differ most between two runs.

import { count, element, many, numberOf, rankText, show } from "/text.js";

const COLUMNS = ["Verdict", "Step", "Rank", "Tensor", "Statistic", "This run", "The other", "× tolerance", "Type", "Shape"];

// An argument that is no number is a text, as Python prints it.
const shown = (value) => (value === null ? "" : typeof value === "string" && value !== "NaN" && Number.isNaN(Number(value)) ? value : show(numberOf(value)));

export function fillDifferences(summary, table, { rows, compared, differences, verdicts, unpaired }) {
  const kinds = Object.entries(verdicts).map(([name, number]) => `${count(number)} ${name}`).join(", ");
  const lonely = unpaired ? ` ${many(unpaired, "step")} of a rank ${unpaired === 1 ? "is" : "are"} on one side only.` : "";
  const cut = rows.length < differences ? ` The worst ${count(rows.length)} are shown.` : "";
  summary.textContent = `${many(differences, "row")} of ${count(compared)} ${differences === 1 ? "differs" : "differ"} (${kinds}).${cut}${lonely}`;
  const head = element("tr");
  for (const title of COLUMNS) head.append(element("th", title, { scope: "col" }));
  const lines = rows.map((row) => {
    const line = element("tr");
    const name = element("th", row.name, { scope: "row", title: row.golden_name || row.name });
    const text = (value) => element("td", value, { class: "text" });
    line.append(text(row.verdict), element("td", String(row.step)), text(rankText(row.rank)), name, text(row.statistic));
    for (const value of [row.target, row.golden, row.excess]) line.append(element("td", shown(value)));
    line.append(text(row.dtype), text(row.shape));
    return line;
  });
  table.replaceChildren(head, ...lines);
}

export const differenceTable = ({ rows }) => [COLUMNS, ...rows.map((row) => [row.verdict, row.step, row.rank, row.name, row.statistic, row.target, row.golden, row.excess, row.dtype, row.shape])];
