// What is chosen: in the form, and in the address, which one sends to others. It never holds a token.

import { $, element, rankText } from "/text.js";

const STATISTICS = ["norm", "max", "min", "mean", "std", "variance", "rms", "abs_max", "range", "nan", "inf", "zero", "zero_share", "elements"];
const EVERY_RANK = "all";
const MOST_RANKS = 2000;

function fill(select, choices, chosen) {
  select.replaceChildren(...choices.map(([value, text]) => element("option", text, { value })));
  if (choices.some(([value]) => value === chosen)) select.value = chosen;
}

// The parameters of the address, as they were when the page was opened.
export const addressed = () => Object.fromEntries(new URLSearchParams(location.search));

export class Choice {
  // changed(id): a field has another value, or Show was pressed ("").
  constructor(changed) {
    for (const id of ["run", "golden", "rank", "statistic"]) $(id).addEventListener("change", () => changed(id));
    $("choice").addEventListener("submit", (event) => {
      event.preventDefault();
      changed("");
    });
    const narrow = matchMedia("(max-width: 700px)");
    $("choice-box").open = !narrow.matches;
    narrow.addEventListener("change", () => ($("choice-box").open = !narrow.matches));
    this.runs = [];
  }

  // none: leave the run open, for the user to choose.
  fill(runs, wanted, none = false) {
    const names = runs.map((run) => [run.run, run.run]);
    this.runs = runs;
    fill($("run"), none ? [["", "choose a run"], ...names] : names, wanted.run);
    fill($("golden"), [["", "nothing"], ...names], wanted.golden ?? "");
    fill($("statistic"), STATISTICS.map((name) => [name, name]), wanted.statistic ?? "norm");
    $("tensors").value = wanted.tensors ?? "*.forward*.output*";
    $("by-row").checked = wanted.rows === "own";
    this.fillRanks(wanted.rank);
  }

  // New runs and ranks; what was chosen stays.
  refill(runs) {
    const { run, golden, rank, statistic, tensors } = { ...this.chosen, golden: $("golden").value };
    this.fill(runs, { run, golden, rank: rank || EVERY_RANK, statistic, tensors, rows: $("by-row").checked ? "own" : "" });
  }

  fillRanks(wanted = $("rank").value) {
    const ranks = this.run?.ranks ?? [], every = ranks.length > 1 ? [[EVERY_RANK, `all ${ranks.length} ranks`]] : [];
    fill($("rank"), [...ranks.slice(0, MOST_RANKS).map((rank) => [rank, rankText(rank)]), ...every], wanted);
  }

  set rank(rank) {
    if ([...$("rank").options].some(({ value }) => value === rank)) $("rank").value = rank;
  }

  // As the server lists it; undefined: none is chosen.
  get run() {
    return this.runs.find((run) => run.run === $("run").value);
  }

  // As questions take it: without a rank, every rank is meant.
  get chosen() {
    const rank = $("rank").value === EVERY_RANK ? "" : $("rank").value;
    return { run: $("run").value, golden: $("golden").value, rank, statistic: $("statistic").value, tensors: $("tensors").value.trim() };
  }

  // selected: {step, record, tensor} of what is shown beside the map, or null.
  remember(selected) {
    const { run, golden, rank, statistic, tensors } = this.chosen;
    const parts = { run, golden, rank: rank || EVERY_RANK, statistic, tensors, rows: $("by-row").checked ? "own" : "", ...selected };
    const others = [...new URLSearchParams(location.search)].filter(([name]) => /^(graph|check)_/.test(name));
    history.replaceState(
        null, '', `?${new URLSearchParams([
          ...Object.entries(parts).filter(([, value]) => value !== '' && value !== undefined), ...others
        ])}`);
    $("choice-text").textContent = [run, golden && `− ${golden}`, rank ? rankText(rank) : "all ranks", statistic, tensors].filter(Boolean).join(" · ");
  }
}
