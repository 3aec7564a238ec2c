// The page: what it opens with, and what follows from each choice.

import {Alarms} from '/alarms.js';
import {Checks} from '/checks.js';
import {addressed, Choice} from '/choice.js';
import {Graph} from '/graph.js';
import {openHistogram} from '/histogram.js';
import {follow} from '/live.js';
import {HeatMap} from '/map.js';
import {presentOrigins} from '/origin.js';
import {movable} from '/panes.js';
import {RankTimes} from '/ranks.js';
import {RecordView} from '/record.js';
import {RunTable} from '/runs.js';
import {ask, hasToken, useToken} from '/server.js';
import {$} from '/text.js';
import {divergenceLines, framesOf, overflowLines} from '/verdict.js';

let runs = [];
let selected = null;  // {rank, step, record, tensor} of the record that is shown
let chosenByHand = false;
let working = 0;
let origin = null;  // where NaN or infinity began in the run
let notes = [];  // of the run's verdict

const choice = new Choice((id) => attempt(() => changed(id)));
const map = new HeatMap({ opened: (cell) => open(cell), failed: (work) => attempt(async () => sayOf(await work())), progress, steps: () => times.steps() });
const times = new RankTimes({ opened: (where) => attempt(() => openTimes(where)) });
const graph = new Graph({ open: (what) => open(what), attempt });
const record = new RecordView({ failed: attempt, opened: (what) => open(what), changed: recordChanged }, () => choice.run?.ranks ?? []);
const checks = new Checks({failed: attempt, opened: (what) => open(what)});
const alarms = new Alarms({failed: attempt, opened: (what) => open(what)}, () => Boolean(choice.run?.open_sessions), lastStep);
const table = new RunTable({ failed: attempt, chosen: (name) => choose(name) });

// Of the records of the run.
function lastStep() {
  const [, last] = times.steps();
  return last === 0xffffffff ? 0 : last;
}

function say(text, error = false) {
  $("status").textContent = text;
  $("status").className = error ? "error" : "";
  $("progress").hidden = true;
}

const sayOf = ({ text, lacks }) => say(text, lacks);

function progress(done, total) {
  $("progress").hidden = false;
  $("progress").max = total;
  $("progress").value = done;
}

// What fails is said; nothing is thrown at the browser. Until all is done, the page is busy for those who do not see it.
async function attempt(work) {
  $("main").setAttribute("aria-busy", ++working > 0);
  try {
    await work();
  } catch (error) {
    if (error.name === "AbortError") return;
    if (error.status === 401 || error.status === 403) signIn(error.message);
    else say(error.name === "TypeError" ? "The server does not answer." : error.message, true);
  } finally {
    $("main").setAttribute("aria-busy", --working > 0);
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

function remember() {
  const { rank, step, record: name, tensor } = selected ?? {};
  choice.remember(selected ? { at: rank, step, record: name, tensor: record.shown?.tensor ?? tensor } : null);
}

function recordChanged() {
  remember();
  openHistogram(record.shown);
}

async function begin() {
  say("Reading the runs …");
  runs = (await ask("runs")).answer;
  $("login").hidden = true;
  $("main").hidden = false;
  $("forget").hidden = !hasToken();
  const wanted = addressed();
  const gone = [wanted.run, wanted.golden].find((name) => name && !runs.some((run) => run.run === name));
  choice.fill(runs, wanted, gone !== undefined);
  table.show(runs, choice.chosen.run);
  if (!runs.length) {
    say("No program has streamed to this server yet: set MSPROBE_SERVER where yours runs; this page shows what comes.");
    return;
  }
  if (gone) {
    say(`The run ${gone} is not on this server: it was deleted, or never streamed here. Choose another one.`, true);
    return;
  }
  const { at, step, record: name, tensor } = wanted;
  selected = step && name ? { rank: at ?? choice.chosen.rank, step: Number(step), record: name, tensor } : null;
  chosenByHand = Boolean(selected || wanted.rank);
  await present();
}

function choose(name) {
  $("run").value = name;
  $("run").dispatchEvent(new Event("change"));
}

async function changed(id) {
  if (id === "run") {
    choice.fillRanks();
    selected = null;
    chosenByHand = false;
    table.show(runs, choice.chosen.run);
  } else {
    chosenByHand = true;
  }
  await present();
}

// Everything of what is chosen, anew.
async function present() {
  const { run, golden } = choice.chosen;
  if (!run) return;
  say("Reading …");
  $("divergence").replaceChildren();
  await presentVerdict();
  remember();
  // The server takes four questions of a caller at a time.
  await Promise.all([
    presentMap(), times.present(run).then(() => presentOrigins({run}, openFound)), reopen(),
    presentGraph().then(() => checks.present(run)).then(() => alarms.present(run))
  ]);
  if (golden) await presentDivergence(run, golden);
}

async function presentMap() {
  sayOf(await map.present(choice.chosen, progress));
}

// A graph is of one rank.
const presentGraph = () => graph.present({ ...choice.chosen, rank: choice.chosen.rank || selected?.rank || origin?.rank || choice.run.ranks[0] });

async function presentVerdict() {
  const { run } = choice;
  const verdict = (await ask("verdict", { run: run.run })).answer;
  origin = verdict.origin ?? null;
  notes = verdict.notes ?? [];
  const frames = origin ? await framesOf(run.run, origin) : [];
  $("verdict").replaceChildren(...overflowLines(run, verdict, frames, () => openFound(origin)));
  $("live").hidden = !run.open_sessions;
  if (chosenByHand) return;
  selected = origin ? { rank: origin.rank, step: origin.step, record: origin.op, tensor: origin.tensor } : null;
  if (origin) choice.rank = origin.rank;
}

async function presentDivergence(run, golden) {
  const { answer } = await ask("divergence", { run, golden }, progress);
  $("progress").hidden = true;
  const found = answer.divergence;
  const what = found && { rank: found.rank, step: found.step, record: found.op, tensor: found.culprit.startsWith(`${found.op}.`) ? found.culprit : undefined };
  $("divergence").replaceChildren(...divergenceLines(golden, answer, notes, what && (() => open(what))));
  if (!what || selected) return;
  // Nothing went wrong in the run itself: what differs from the other one is looked at first.
  selected = what;
  remember();
  await reopen();
}

// The record that is selected, without moving the reader.
async function reopen() {
  $("record-box").hidden = !selected;
  $("no-record").hidden = Boolean(selected);
  map.mark(selected ?? { step: -1 });
  if (selected) await record.open({ ...choice.chosen, ...selected });
}

const openFound = (found) => open({ rank: found.rank, step: found.step, record: found.op, tensor: found.tensor });

async function open(what) {
  await attempt(async () => {
    say("Reading the record …");
    const { rank, step, record: name, tensor } = what, { chosen } = choice;
    // The graph opens records of the other run, too; the address has no place for these.
    if ((what.run ?? chosen.run) === chosen.run) selected = { rank, step, record: name, tensor };
    chosenByHand = true;
    await record.open({ ...chosen, ...what });
    map.mark(selected ?? { step: -1 });
    say(`${name} at step ${step}.`);
    $("h-record").focus({ preventScroll: true });
    const box = $("record").getBoundingClientRect();
    if (box.top < 0 || box.top > innerHeight - 200) $("record").scrollIntoView({ block: "start" });
  });
}

// A place of the picture of all ranks: what began there, and the layers of its rank.
async function openTimes({ first, last, rank }) {
  const { chosen } = choice;
  await presentOrigins({ run: chosen.run, first, last }, openFound);
  if (!rank || rank === chosen.rank || !chosen.rank) return;
  choice.rank = rank;
  chosenByHand = true;
  remember();
  await presentMap();
}

// New runs, or new steps of the run that is shown. What the reader chose stays where it is.
async function grown(found) {
  const before = choice.run, fresh = !runs.length;
  runs = found;
  if (fresh) return attempt(begin);
  if (!before) return table.show(runs, "");
  choice.refill(runs);
  table.show(runs, choice.chosen.run);
  const { run } = choice;
  if (!run || JSON.stringify(run) === JSON.stringify(before)) return undefined;
  return attempt(async () => {
    const had = selected, worse = run.nan_tensors + run.inf_tensors !== before.nan_tensors + before.inf_tensors;
    await presentVerdict();
    await times.present(run.run);
    await checks.grown();
    await alarms.present(run.run);
    if (worse) await presentOrigins({ run: run.run }, openFound);
    if (!map.zoomed) sayOf(await map.present(choice.chosen, undefined, { at: map.grid.at }));
    if (JSON.stringify(had) === JSON.stringify(selected)) {
      await record.refresh();
      await graph.refresh();
    } else {
      await reopen();
      if (selected) await graph.goToCall(selected.step, selected.record);
    }
    map.mark(selected ?? { step: -1 });
  });
}

function redraw() {
  if ($("main").hidden) return;
  map.redraw();
  times.draw();
  alarms.draw();
  record.draw();
}

$("login").addEventListener("submit", (event) => {
  event.preventDefault();
  useToken($("token").value.trim());
  attempt(begin);
});
$("forget").addEventListener("click", () => {
  useToken("");
  location.reload();
});
$("by-row").addEventListener("change", remember);
let resizing = 0, wide = innerWidth;
window.addEventListener("resize", () => {
  if (innerWidth === wide) return;
  wide = innerWidth;
  clearTimeout(resizing);
  resizing = setTimeout(redraw, 100);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
movable($("border"), $("columns"), redraw);
attempt(begin).then(() => follow(() => runs, () => Boolean(choice.run?.open_sessions), grown));
