// What is chosen, and what is shown of it.

import { Graph } from "/graph.js";
import { Grid } from "/heat_map.js";
import { Scale } from "/pictures.js";
import { drawShown, openRecord } from "/record.js";
import { ask, columnOf, hasToken, useToken } from "/server.js";
import { $, count, element, show, span } from "/text.js";

const STATISTICS = ["norm", "max", "min", "mean", "std", "variance", "rms", "abs_max", "range", "nan", "inf", "zero", "zero_share", "elements"];
const NOTHING = 0xffffffff;
const EVERYTHING = { first: undefined, last: undefined, first_layer: undefined, last_layer: undefined };

let runs = [];
let heat = null;  // of the heat map: what was asked, and what came
let line = null;  // of the time line
let zoom = EVERYTHING;

const map = new Grid($("map"), { moved: describeCell, opened: openCell, selected: zoomTo }, 640);
const graph = new Graph({ open: (what) => open(what), attempt });
const timeLine = new Grid($("line"), { moved: describeLine, opened: openLine, selected: (from, to) => openLine(from, to) }, 220);

function say(text, error = false) {
  $("status").textContent = text;
  $("status").className = error ? "error" : "";
  $("progress").hidden = true;
}

function progress(done, total) {
  $("progress").hidden = false;
  $("progress").max = total;
  $("progress").value = done;
}

// What fails is said; nothing is thrown at the browser.
async function attempt(work) {
  try {
    await work();
  } catch (error) {
    if (error.name === "AbortError") return;
    if (error.status === 401 || error.status === 403) signIn(error.message);
    else say(error.name === "TypeError" ? "The server does not answer." : error.message, true);
  }
}

function signIn(why) {
  $("login").hidden = false;
  $("main").hidden = true;
  $("forget").hidden = true;
  say(hasToken() ? `Refused: ${why}.` : "This server asks for a token.", hasToken());
  useToken("");
  $("token").value = "";
  $("token").focus();
}

function choose(select, choices, chosen) {
  select.replaceChildren(...choices.map(([value, text]) => element("option", text, { value })));
  if (choices.some(([value]) => value === chosen)) select.value = chosen;
}

const chosenRun = () => runs.find((run) => run.run === $("run").value);

function fillRanks(wanted) {
  choose($("rank"), (chosenRun()?.ranks ?? []).map((rank) => [rank, rank]), wanted ?? $("rank").value);
}

function fillRuns() {
  const head = element("tr");
  for (const title of ["Run", "Began", "Steps", "Ranks", "Tensors", "NaN", "Inf", "State"]) head.append(element("th", title, { scope: "col" }));
  const rows = runs.map((run) => {
    const row = element("tr"), name = element("th", undefined, { scope: "row" }), link = element("button", run.run, { type: "button" });
    link.addEventListener("click", () => {
      $("run").value = run.run;
      $("run").dispatchEvent(new Event("change"));
      attempt(present);
    });
    name.append(link);
    const bad = (many) => element("td", count(many), many ? { class: "bad" } : {});
    const began = new Date(run.created_unix_us / 1000).toISOString().slice(0, 19).replace("T", " ");
    row.append(name, element("td", `${began} UTC`, { class: "text" }), element("td", count(run.steps)), element("td", count(run.ranks.length)));
    row.append(element("td", count(run.tensors)), bad(run.nan_tensors), bad(run.inf_tensors));
    row.append(element("td", run.open_sessions ? "streams" : "ended", { class: "text" }));
    return row;
  });
  $("runs").replaceChildren(head, ...rows);
  const open = runs.filter((run) => run.open_sessions).length;
  $("runs-count").textContent = `${runs.length} on this server${open ? `, ${open} streaming` : ""}`;
}

async function begin() {
  say("Reading the runs …");
  runs = (await ask("runs")).answer;
  $("login").hidden = true;
  $("main").hidden = false;
  $("forget").hidden = !hasToken();
  const wanted = new URLSearchParams(location.search), names = runs.map((run) => [run.run, run.run]);
  fillRuns();
  const gone = ["run", "golden"].map((which) => wanted.get(which)).find((name) => name && !runs.some((run) => run.run === name));
  choose($("run"), gone ? [["", "choose a run"], ...names] : names, wanted.get("run") ?? $("run").value);
  choose($("golden"), [["", "nothing"], ...names], wanted.get("golden") ?? "");
  choose($("statistic"), STATISTICS.map((name) => [name, name]), wanted.get("statistic") ?? "norm");
  $("tensors").value = wanted.get("tensors") ?? "*.forward*.output*";
  fillRanks(wanted.get("rank"));
  if (!runs.length) {
    say("No program has streamed to this server yet: set MSPROBE_SERVER where yours runs, and load this page again.");
    return;
  }
  if (gone) {
    say(`The run ${gone} is not on this server: it was deleted, or never streamed here. Choose another one.`, true);
    return;
  }
  await present();
}

const asked = () => ({ run: $("run").value, golden: $("golden").value, rank: $("rank").value, statistic: $("statistic").value, tensors: $("tensors").value.trim() });

// A picture of what is chosen anew.
async function present() {
  zoom = EVERYTHING;
  const chosen = asked();
  const address = new URLSearchParams(Object.entries(chosen).filter(([, value]) => value));
  history.replaceState(null, "", `?${address}`);
  await Promise.all([presentMap(), presentOverflow(chosen.run), graph.present(chosen)]);
}

async function presentMap(at) {
  const chosen = asked(), began = performance.now();
  if (!chosen.tensors) throw new Error("Name tensors: a shell pattern, for example *.forward*.output*");
  say("Reading …");
  const { answer, missing } = await ask("heat_map", { ...chosen, ...zoom, ...map.room() }, progress);
  const values = columnOf(Float32Array, answer.values), tensors = columnOf(Uint32Array, answer.tensors_of);
  heat = { ...answer, chosen, values, tensorsOf: tensors, stepsOf: columnOf(Uint32Array, answer.steps_of) };
  const known = (i) => tensors[i] !== NOTHING;
  drawMap(known, at);
  const milliseconds = Math.round(performance.now() - began);
  const part = answer.steps_read < answer.steps ? `${count(answer.steps_read)} of ${count(answer.steps)} steps (every one would be too many; those with NaN or infinity are all there)` : `${count(answer.steps)} steps`;
  const lacks = missing ? ` Servers that did not answer: ${missing}.` : "";
  if (!answer.rows.length) say(`No tensor of ${chosen.rank} is called ${chosen.tensors}.${lacks}`, true);
  else say(`${part}, ${count(answer.layers.length)} layers, ${count(answer.tensors.length)} tensors in ${count(milliseconds)} ms.${lacks}`, lacks !== "");
}

function drawMap(known, at) {
  const { chosen, values, columns, rows, layers } = heat, wide = columns.length;
  const scale = new Scale(values, known);
  map.show({
    rows: rows.map(([first]) => layers[first]), columns, rowTitle: "layer", columnTitle: "step",
    strong: (row, column) => known(row * wide + column) && !Number.isFinite(values[row * wide + column]),
    colour: (row, column) => (known(row * wide + column) ? scale.colour(values[row * wide + column]) : null),
  }, at);
  heat.known = known;
  const what = chosen.golden ? `|${chosen.statistic} − that of ${chosen.golden}|` : `|${chosen.statistic}|`;
  $("legend").replaceChildren(...scale.legend(what, chosen.golden ? "equal" : "0"));
  $("map").setAttribute("aria-label", `${what} of ${rows.length} rows of layers over ${wide} columns of steps`);
  $("cell").textContent = "";
  const all = zoom === EVERYTHING;
  $("farther").disabled = $("whole").disabled = all;
}

function cellAt({ row, column }) {
  const i = row * heat.columns.length + column;
  if (!heat.known(i)) return null;
  const [tensor, record] = heat.tensors[heat.tensorsOf[i]];
  return { value: heat.values[i], step: heat.stepsOf[i], tensor, record };
}

function describeCell(at) {
  const cell = cellAt(at), [first, last] = heat.rows[at.row];
  const layer = first === last ? heat.layers[first] : `${heat.layers[first]} … ${heat.layers[last]}`;
  const where = `${layer}, ${span(heat.columns[at.column])}`;
  $("cell").textContent = cell ? `${where}: ${show(cell.value)} at step ${cell.step} in ${cell.tensor}` : `${where}: not captured`;
}

function openCell(at) {
  const cell = cellAt(at);
  describeCell(at);
  if (cell) open({ ...heat.chosen, ...cell });
}

async function open(what) {
  await attempt(async () => {
    say("Reading the record …");
    await openRecord(what);
    say(`${what.record} at step ${what.step}.`);
    $("h-record").focus({ preventScroll: true });
    const box = $("record").getBoundingClientRect();
    if (box.top < 0 || box.top > innerHeight - 200) $("record").scrollIntoView({ block: "start" });
  });
}

function zoomTo(from, to) {
  const { columns, rows } = heat, order = (a, b) => (a < b ? [a, b] : [b, a]);
  const [left, right] = order(from.column, to.column), [top, bottom] = order(from.row, to.row);
  zoom = { first: columns[left][0], last: columns[right][1], first_layer: rows[top][0], last_layer: rows[bottom][1] };
  attempt(() => presentMap());
}

// A quarter of the steps around the cursor; of layers only where rows hold several.
function nearer() {
  if (!heat?.rows.length) return;
  const { row, column } = map.at, wide = heat.columns.length, high = heat.rows.length;
  const some = (at, size) => [Math.max(0, Math.round(at - size / 8)), Math.min(size - 1, Math.round(at + size / 8))];
  const [left, right] = some(column, wide), [top, bottom] = heat.rows.some(([a, b]) => a < b) ? some(row, high) : [0, high - 1];
  zoomTo({ row: top, column: left }, { row: bottom, column: right });
}

// Four times as many steps around those that are shown.
function farther() {
  if (zoom === EVERYTHING) return;
  const first = heat.columns[0][0], last = heat.columns.at(-1)[1], more = Math.max(1, Math.round((last - first + 1) * 1.5));
  const steps = line?.columns ?? [];
  const [least, most] = [steps[0]?.[0] ?? 0, steps.at(-1)?.[1] ?? NOTHING];
  const wanted = { first: Math.max(least, first - more), last: Math.min(most, last + more) };
  zoom = wanted.first === least && wanted.last === most ? EVERYTHING : { ...EVERYTHING, ...wanted };
  attempt(() => presentMap());
}

function whole() {
  if (zoom === EVERYTHING) return;
  zoom = EVERYTHING;
  attempt(() => presentMap());
}

async function presentOverflow(run) {
  line = null;
  const { answer } = await ask("overflow", { run, columns: timeLine.room().columns });
  line = { ...answer, run };
  const none = !answer.ranks.length;
  $("no-overflow").hidden = !none;
  $("overflow-box").hidden = none;
  if (none) return;
  drawLine();
  $("line-cell").textContent = answer.other_ranks ? `${answer.other_ranks} more ranks have some, fewer than these.` : "";
  await presentOrigins({ run });
}

function drawLine() {
  const scale = new Scale([], () => false), wide = line.columns.length;
  timeLine.show({
    rows: line.ranks.map((lane) => lane.rank), columns: line.columns, rowTitle: "", columnTitle: "step",
    strong: (row, column) => line.ranks[row].nan[column] + line.ranks[row].inf[column] > 0,
    colour: (row, column) => {
      const { nan, inf } = line.ranks[row];
      return nan[column] ? scale.nan : inf[column] ? scale.infinity : scale.zero;
    },
  });
  $("line").setAttribute("aria-label", `NaN and infinity of ${line.ranks.length} ranks over ${wide} columns of steps; the first is in step ${line.first.step} of ${line.first.rank}`);
}

function describeLine({ row, column }) {
  const { rank, nan, inf } = line.ranks[row];
  $("line-cell").textContent = `${rank}, ${span(line.columns[column])}: tensors with NaN ${count(nan[column])}, with infinity ${count(inf[column])}`;
}

function openLine(from, to = from) {
  const [left, right] = from.column < to.column ? [from.column, to.column] : [to.column, from.column];
  attempt(() => presentOrigins({ run: line.run, first: line.columns[left][0], last: line.columns[right][1] }));
}

async function presentOrigins(what) {
  const { answer } = await ask("origins", what);
  const where = what.first === undefined ? "first" : `from ${span([what.first, what.last])}`;
  $("origins-title").textContent = `Where it began, ${where}`;
  const items = answer.map((found) => {
    const kind = [found.nan && "NaN", found.infinity && "infinity"].filter(Boolean).join(" and ");
    const item = element("li"), link = element("button", `step ${found.step} ${found.rank}: ${kind} in ${found.tensor}`, { type: "button" });
    link.addEventListener("click", () => open({ ...asked(), run: what.run, rank: found.rank, step: found.step, record: found.op, tensor: found.tensor }));
    item.append(link, element("span", [found.module && ` in ${found.module}`, found.origin && `, by ${found.origin}`].filter(Boolean).join(""), { class: "hint" }));
    return item;
  });
  $("origins").replaceChildren(...(items.length ? items : [element("li", "Nothing began here: these steps pass on what came before.", { class: "hint" })]));
}

function redraw() {
  if (heat && !$("main").hidden) {
    drawMap(heat.known, map.at);
    if (line?.ranks.length) drawLine();
    drawShown();
  }
}

$("run").addEventListener("change", () => fillRanks());
$("choice").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(present);
});
for (const id of ["run", "golden", "rank", "statistic"]) $(id).addEventListener("change", () => attempt(present));
$("login").addEventListener("submit", (event) => {
  event.preventDefault();
  useToken($("token").value.trim());
  attempt(begin);
});
$("forget").addEventListener("click", () => {
  useToken("");
  location.reload();
});
$("nearer").addEventListener("click", nearer);
$("farther").addEventListener("click", farther);
$("whole").addEventListener("click", whole);
$("map").addEventListener("keydown", (event) => {
  const action = { "+": nearer, "=": nearer, "-": farther, 0: whole }[event.key];
  if (!action || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  action();
});
$("map").addEventListener("focus", () => heat?.rows.length && describeCell(map.at));
let resizing = 0, wide = innerWidth;
window.addEventListener("resize", () => {
  if (innerWidth === wide) return;
  wide = innerWidth;
  clearTimeout(resizing);
  resizing = setTimeout(redraw, 100);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
attempt(begin);
