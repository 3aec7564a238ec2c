// A report: the page's pictures of one run, or of two, from recorded answers.

import { differenceTable, fillDifferences } from "/differences.js";
import { Graph } from "/graph.js";
import { keepable } from "/keep.js";
import { HeatMap } from "/map.js";
import { fillModules } from "/modules.js";
import { presentOrigins } from "/origin.js";
import { RankTimes } from "/ranks.js";
import { RecordView } from "/record.js";
import { maker } from "/runs.js";
import { ask, recordedAnswers } from "/server.js";
import { $, element, many, moment, rankText } from "/text.js";
import { divergenceLines, framesOf, overflowLines } from "/verdict.js";

const about = JSON.parse($("about").textContent);
const sides = [about.run, about.golden].filter(Boolean), lacks = JSON.parse($("lacking").textContent);

async function attempt(work) {
  try {
    await work();
    $("status").textContent = "";
  } catch (error) {
    $("status").textContent = error.message;
  }
}

const graph = new Graph({ open: (what) => open(what), attempt, addressed: false });
const record = new RecordView({ failed: attempt, opened: (what) => open(what), changed: () => {} }, () => []);
const map = new HeatMap({ opened: (cell) => open(cell), failed: attempt, steps: () => [0, 0] });
const times = new RankTimes({ opened: ({ first, last }) => ($("status").textContent = `Steps ${first} to ${last}: the page of the server shows more.`) });

const open = (what) => attempt(async () => {
  const { rank, step, record: name } = what, { run, golden, statistic } = about;
  await record.open({ run, golden, statistic, ...what });
  map.mark({ rank, step, record: name });
});

const openFound = (found) => open({ rank: found.rank, step: found.step, record: found.op, tensor: found.tensor });

async function presentRuns() {
  for (const name of sides) {
    const [run] = (await ask("runs", { run: name })).answer;
    const text = `${many(run.steps, "step")} of ${many(run.ranks.length, "rank")}, ${many(run.tensors, "tensor")}, ${many(run.nan_tensors, "tensor")} with NaN, ${run.inf_tensors} with infinity; began ${moment(run.created_unix_us)}`;
    $("sides").append(...maker(name, (await ask("run", { run: name })).answer), element("p", text));
  }
}

// Also says which module it is about.
async function presentVerdict() {
  const [run] = (await ask("runs", { run: about.run })).answer, verdict = (await ask("verdict", { run: about.run })).answer;
  const frames = verdict.origin ? await framesOf(about.run, verdict.origin).catch(() => []) : [];
  $("verdict").replaceChildren(...overflowLines(run, verdict, frames, () => openFound(verdict.origin)));
  $("modules").dataset.toward = verdict.origin?.module ?? "";
  if (!about.golden) return;
  const { answer } = await ask("divergence", { run: about.run, golden: about.golden });
  const { divergence } = answer;
  if (divergence) $("modules").dataset.toward = divergence.module;
  const tensor = divergence?.culprit.startsWith(`${divergence.op}.`) ? divergence.culprit : undefined;
  $("divergence").replaceChildren(...divergenceLines(about.golden, answer, verdict.notes ?? [], () => open({ ...divergence, record: divergence.op, tensor })));
}

async function presentTimes() {
  const held = recordedAnswers("overflow").length > 0;
  $("line").closest(".picture").hidden = $("keep-line").hidden = !held;
  if (held) await times.present(about.run);
}

// As much of the graph as the file holds, opened where the trouble began.
async function presentGraph() {
  const [held] = recordedAnswers("graph");
  $("graph").hidden = !held;
  if (!held) return;
  for (const id of ["graph-step", "graph-before", "graph-after"]) $(id).disabled = true;
  const { run, golden = "", rank, statistic } = held.asked;
  await graph.present({ run, golden, rank, statistic });
}

async function presentMaps() {
  for (const id of ["nearer", "farther", "whole"]) $(id).hidden = true;
  const maps = recordedAnswers("heat_map");
  $("map").closest("section").hidden = !maps.length;
  if (!maps.length) return;
  const titles = maps.map(({ asked }) => [asked.rank ? rankText(asked.rank) : "all ranks", asked.golden && `minus ${asked.golden}`].filter(Boolean).join(", "));
  $("which-map").replaceChildren(...titles.map((title, i) => element("option", title, { value: i })));
  $("which-map").hidden = maps.length < 2;
  const present = () => attempt(async () => {
    const { run, golden = "", rank = "", statistic, tensors } = maps[Number($("which-map").value)].asked;
    await map.present({ run, golden, rank, statistic, tensors });
  });
  $("which-map").addEventListener("change", present);
  await present();
}

async function presentTables() {
  const [{ modules } = { modules: [] }] = recordedAnswers("modules").map(({ answer }) => answer), [differences] = recordedAnswers("differences");
  const compared = new Map(differences?.answer.modules.map((module) => [module.name, module])), names = new Set(modules.map(({ name }) => name));
  const others = [...compared.values()].filter(({ name }) => !names.has(name));
  fillModules($("modules"), [...modules.map((module) => ({ ...module, ...compared.get(module.name) })), ...others], $("modules").dataset.toward);
  $("differences-section").hidden = !differences;
  if (!differences) return;
  fillDifferences($("differences-text"), $("differences"), differences.answer);
  keepable($("keep-differences"), { name: () => `${about.run} differences`, table: () => differenceTable(differences.answer) });
}

function presentLacks() {
  $("lacks-section").hidden = !lacks.length;
  $("lacks").replaceChildren(...lacks.map(({ what, command }) => {
    const item = element("li", `${what}: `);
    item.append(element("code", command));
    return item;
  }));
}

async function begin() {
  document.title = `${sides.join(" and ")} · msprobe`;
  $("title").textContent = sides.join(" beside ");
  $("made").textContent = `made ${about.made}`;
  presentLacks();
  $("histogram").hidden = $("histogram-title").hidden = true;
  // What one part lacks, the others need not.
  for (const part of [presentVerdict, presentTimes, () => presentOrigins({ run: about.run }, openFound), presentMaps, presentGraph, presentTables, presentRuns]) {
    try {
      await part();
    } catch (error) {
      if (error.status !== 404) throw error;
    }
  }
  const [first] = about.shown;
  $("record").hidden = !first;
  if (first) await open({ ...first, record: first.op });
}

attempt(begin).then(() => document.documentElement.setAttribute("data-ready", ""));
