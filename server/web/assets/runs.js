// The runs of the server: searched, sorted, and who made them.

import { ask } from "/server.js";
import { $, count, element, many, moment, rankText } from "/text.js";

const COLUMNS = [
  { title: "Run", of: (run) => run.run },
  { title: "Began", of: (run) => run.created_unix_us, text: (run) => moment(run.created_unix_us) },
  { title: "Steps", of: (run) => run.steps },
  { title: "Ranks", of: (run) => run.ranks.length },
  { title: "Tensors", of: (run) => run.tensors },
  { title: "NaN", of: (run) => run.nan_tensors, bad: true },
  { title: "Inf", of: (run) => run.inf_tensors, bad: true },
  { title: "State", of: (run) => (run.open_sessions ? "streams" : "ended"), text: (run) => (run.open_sessions ? "streams" : "ended") },
];

export class RunTable {
  // heard: {chosen(name), failed(work)}.
  constructor(heard) {
    this.heard = heard;
    this.runs = [];
    this.sorted = { column: 1, down: true };
    $("search-runs").addEventListener("input", () => this.draw());
  }

  show(runs, current) {
    this.runs = runs;
    this.current = current;
    this.draw();
    const open = runs.filter((run) => run.open_sessions).length;
    $("runs-count").textContent = `${count(runs.length)} on this server${open ? `, ${count(open)} streaming` : ""}`;
  }

  draw() {
    const wanted = $("search-runs").value.trim().toLowerCase(), { column, down } = this.sorted, { of } = COLUMNS[column];
    const found = this.runs.filter((run) => run.run.toLowerCase().includes(wanted));
    const order = (a, b) => (typeof of(a) === "string" ? of(a).localeCompare(of(b), "en", { numeric: true }) : of(a) - of(b));
    found.sort((a, b) => (down ? order(b, a) : order(a, b)));
    const head = element("tr");
    COLUMNS.forEach(({ title }, i) => {
      const cell = element("th", undefined, { scope: "col", "aria-sort": i !== column ? "none" : down ? "descending" : "ascending" });
      const button = element("button", `${title}${i !== column ? "" : down ? " ↓" : " ↑"}`, { type: "button" });
      button.addEventListener("click", () => {
        this.sorted = { column: i, down: i === column ? !down : typeof COLUMNS[i].of(this.runs[0] ?? {}) !== "string" };
        this.draw();
      });
      cell.append(button);
      head.append(cell);
    });
    head.append(element("th", "Made by", { scope: "col" }));
    $("runs").replaceChildren(head, ...found.map((run) => this.row(run)));
    $("no-runs").hidden = found.length > 0;
  }

  row(run) {
    const row = element("tr", undefined, run.run === this.current ? { class: "current" } : {});
    COLUMNS.forEach(({ of, text, bad }, i) => {
      const value = of(run);
      if (i === 0) {
        const name = element("th", undefined, { scope: "row" }), link = element("button", run.run, { type: "button" });
        link.addEventListener("click", () => this.heard.chosen(run.run));
        name.append(link);
        row.append(name);
      } else {
        row.append(element("td", text ? text(run) : count(value), { class: bad && value ? "bad" : text ? "text" : "" }));
      }
    });
    const more = element("td", undefined, { class: "text" }), button = element("button", "Show", { type: "button", "aria-label": `who made ${run.run}` });
    button.addEventListener("click", () => this.heard.failed(() => this.showMaker(run.run)));
    more.append(button);
    row.append(more);
    return row;
  }

  async showMaker(run) {
    const { answer } = await ask("run", { run });
    $("maker").replaceChildren(...maker(run, answer));
    $("maker").querySelector("h3").focus();
  }
}

// Who made a run, as the server answers it.
export function maker(run, answer) {
  const title = element("h3", `Who made ${run}`, { tabindex: -1 });
  const named = [["task", answer.task], ["level", answer.level], ["summary", answer.summary_mode]];
  const settings = named.flatMap(([name, value]) => (value ? [`${name} ${value}`] : [])).join(", ");
  const parts = [title, element("p", [settings, answer.dump_path].filter(Boolean).join(" · ") || "It says nothing about its settings.")];
  parts.push(processTable(answer));
  parts.push(...environmentOf(answer));
  if (answer.other_processes) parts.push(element("p", `and ${many(answer.other_processes, "process")} more`, { class: "hint" }));
  if (answer.config) parts.push(element("h3", "Configuration"), element("pre", pretty(answer.config), { tabindex: 0 }));
  return parts;
}

function checkoutText({ commit, branch }) {
  return [commit?.slice(0, 12), branch].filter(Boolean).join(" ");
}

function processTable({ processes }) {
  const table = element("table"), head = element("tr");
  for (const title of ["Rank", "Host", "Process", "Program", "Commit", "Framework", "Agent", "Devices", "Began"]) head.append(element("th", title, { scope: "col" }));
  table.append(head);
  for (const made of processes) {
    const row = element("tr");
    const began = made.started_unix_us > 0 ? moment(made.started_unix_us) : "";
    for (const text of [rankText(made.rank), made.host, made.process || "", made.program, checkoutText(made), `${made.framework} ${made.framework_version}`, made.agent_version, (made.devices ?? []).join(", "), began]) {
      row.append(element("td", String(text), { class: "text" }));
    }
    table.append(row);
  }
  const box = element("div", undefined, { class: "scroll" });
  box.append(table);
  return box;
}

// Variables that all processes share, then what differs from rank to rank.
function environmentOf({ processes }) {
  const values = new Map();
  for (const { rank, environment } of processes) {
    for (const [name, value] of environment ?? []) values.set(name, [...(values.get(name) ?? []), [rank, value]]);
  }
  if (!values.size) return [];
  const table = element("table", undefined, { class: "environment" });
  for (const [name, told] of [...values].sort()) {
    const row = element("tr"), alike = told.length === processes.length && told.every(([, value]) => value === told[0][1]);
    const text = alike ? told[0][1] : told.map(([rank, value]) => `${rankText(rank)}: ${value}`).join(", ");
    row.append(element("th", name, { scope: "row" }), element("td", text, { class: "text" }));
    table.append(row);
  }
  const box = element("div", undefined, { class: "scroll tall", tabindex: 0, role: "region", "aria-label": "Environment" });
  box.append(table);
  return [element("h3", "Environment"), box];
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
