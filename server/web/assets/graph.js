// The model as a graph: what the server lays out of it, one run or two beside each other, and what is searched and
// chosen in it.

import { GraphView } from "/graph_view.js";
import { Scale } from "/colours.js";
import { ask } from "/server.js";
import { $, count, element, show } from "/text.js";

const SIDES = ["target", "golden"], LEVELS = ["", "medium", "high", "critical"];
const COLOURS = { verdict: "verdict", overflow: "NaN and infinity", statistic: "statistic" };
const PAUSE = 60, TYPING = 30, MOST_OPEN = 200;
const SIGNS = { equal: "=", within: "≈", unknown: "", "target only": "+", "golden only": "+" };

const BLAMES = {
  weight: "a weight differs", input: "an input differs that no call before made", argument: "an argument differs",
  computation: "what goes in agrees, what comes out does not", communication: "what other ranks sent differs",
  missing: "one side lacks it", unreadable: "its content cannot be read",
};

const kindOf = (verdict) => ({ equal: "fine", within: "some", unknown: "plain", "target only": "only", "golden only": "only" })[verdict] ?? "bad";

function isDark(colour) {
  const [red, green, blue] = colour.startsWith("#") ? [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)) : colour.match(/\d+/g).map(Number);
  return red * 0.3 + green * 0.59 + blue * 0.11 < 140;
}

class Side {
  constructor(graph, index) {
    const name = SIDES[index];
    this.index = index;
    this.name = name;
    this.open = new Set();  // keys of modules; "0" says that they were chosen
    this.turn = 0;          // how many questions were asked
    this.answer = null;
    this.view = new GraphView($(`graph-${name}`), $(`graph-${name}-whole`), {
      moved: () => graph.moved(this),
      selected: (box) => graph.select(this, box),
      opened: (box) => graph.openRecord(this, box),
      toggled: (box) => graph.toggle(this, box),
    });
    $(`graph-${name}`).addEventListener("focus", () => this.view.box && graph.describe(this, this.view.box));
  }
}

export class Graph {
  // open(what): shows a record, {run, rank, step, record, tensor}; attempt(work): says what fails; addressed: whether the
  // address of the page holds what is chosen.
  constructor({ open, attempt, addressed = true }) {
    this.heard = { open, attempt };
    this.addressed = addressed;
    this.sides = SIDES.map((_, i) => new Side(this, i));
    this.chosen = null;
    this.step = "";
    this.touched = false;  // the user moved in it
    this.searched = Promise.resolve();  // what is listed was found for what is typed
    this.wanted = new URLSearchParams(location.search);  // of the address that the page was opened with
    $("graph-step").addEventListener("change", () => this.goTo($("graph-step").value));
    for (const [id, way] of [["graph-before", "step_before"], ["graph-after", "step_after"]]) {
      $(id).addEventListener("click", () => this.goTo(this.answer?.[way] ?? this.step));
    }
    $("graph-colour").addEventListener("change", () => this.recolour());
    $("graph-nearer").addEventListener("click", () => this.each((side) => side.view.zoom(1.25)));
    $("graph-farther").addEventListener("click", () => this.each((side) => side.view.zoom(0.8)));
    $("graph-fit").addEventListener("click", () => this.each((side) => side.view.fit()));
    $("graph-first").addEventListener("click", () => this.reveal(this.answer.first_name));
    $("graph-find").addEventListener("input", () => this.search());
    $("graph-find").addEventListener("keydown", (event) => {
      const take = { Enter: (first) => first?.click(), ArrowDown: (first) => first?.focus() }[event.key];
      if (take) this.searched.then(() => take($("graph-found").querySelector("button")));
      else if (event.key === "Escape") this.endSearch();
      else return;
      event.preventDefault();
    });
    $("graph-found").addEventListener("keydown", (event) => {
      const item = event.target.closest("li");
      const next = { ArrowDown: item?.nextElementSibling, ArrowUp: item?.previousElementSibling }[event.key];
      if (event.key === "Escape") this.endSearch();
      else if (next) next.querySelector("button")?.focus();
      else if (event.key === "ArrowUp") $("graph-find").focus();
      else return;
      event.preventDefault();
    });
    new ResizeObserver(() => this.each((side) => side.view.draw())).observe($("graph-sides"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => requestAnimationFrame(() => this.recolour()));
  }

  get answer() {
    return this.sides[0].answer;
  }
  get shownSides() {
    return this.sides.slice(0, this.chosen?.golden ? 2 : 1);
  }

  each(work) {
    for (const side of this.shownSides) if (side.answer) work(side);
  }

  attempt(work) {
    return this.heard.attempt(async () => {
      try {
        await work();
      } catch (error) {
        if (error.name === "AbortError" || error.status === 401 || error.status === 403 || error.name === "TypeError") throw error;
        this.say(error.message, true);
      }
    });
  }

  say(text, error = false) {
    $("graph-say").textContent = text;
    $("graph-say").className = error ? "bad-text" : "hint";
  }

  // chosen: {run, golden, rank, statistic, step or undefined}.
  async present(chosen) {
    const before = this.chosen, same = (key) => before?.[key] === chosen[key];
    const first = !before, other = !same("run") || !same("golden") || !same("rank");
    this.chosen = chosen;
    if (!chosen.run || !chosen.rank) return;
    if (first || !same("golden") || !same("statistic")) this.offerColours(first ? this.wanted.get("graph_colour") : same("golden") && $("graph-colour").value);
    if (first) this.step = this.wanted.get("graph_step") ?? "";
    else if (!same("run") || !same("rank")) this.step = "";
    const open = first && this.wanted.get("graph_open"), node = first ? this.wanted.get("graph_node") : null;
    if (other) this.touched = false;
    if (other) for (const side of this.sides) side.open = new Set(open ? open.split(".") : []);
    $("graph-golden-side").hidden = !chosen.golden;
    $("graph-sides").classList.toggle("two", Boolean(chosen.golden));
    await this.attempt(async () => {
      this.say("Reading the graph …");
      await this.load(this.sides[0], { show: node });
      if (chosen.golden) await this.follow(node);
      this.tell();
      this.remember();
    });
  }

  // The golden side shows what the target does, or, where it has no such call, the module around it.
  async follow(node) {
    const { view } = this.sides[0], box = this.partnered(view, view.box);
    await this.load(this.sides[1], { show: box?.name ?? node });
    this.sides[1].view.select(view.box?.partner ?? -1);
  }

  // A box, or the nearest around it, that the other side has too.
  partnered(view, box) {
    let at = box;
    while (at && at.partner < 0) at = view.byNode.get(at.parent);
    return at ?? null;
  }

  offerColours(wanted) {
    const names = Object.entries(COLOURS).filter(([name]) => name !== "verdict" || this.chosen.golden);
    $("graph-colour").replaceChildren(...names.map(([value, text]) => element("option", value === "statistic" ? `statistic: ${this.chosen.statistic}` : text, { value })));
    if (names.some(([name]) => name === wanted)) $("graph-colour").value = wanted;
  }

  goTo(step) {
    if (String(step) === String(this.step) || step === "") return;
    this.step = String(step);
    this.touched = true;
    this.attempt(() => this.presentStep());
  }

  // What is open and chosen stays so in another step. show: a call to go to.
  async presentStep(show) {
    const { box } = this.sides[0].view;
    await this.load(this.sides[0], { anchor: show ? undefined : box && { name: box.name, place: this.sides[0].view.placeOf(box) }, show });
    if (this.chosen.golden) await this.follow(show);
    this.tell();
    this.remember();
  }

  // The run has grown: further steps, or more of the one that is shown. What is seen and chosen stays.
  async refresh() {
    for (const side of this.shownSides) if (side.answer) await this.load(side, { anew: true });
    this.tell();
  }

  // To a call of a step, unless the user is elsewhere.
  async goToCall(step, name) {
    if (!this.answer) return;
    if (this.touched) return this.refresh();
    this.step = String(step);
    return this.attempt(() => this.presentStep(name));
  }

  // show: the name of a call to bring into view; anchor: {name, place}, a call that stays where it is on the screen; anew: as
  // the server has it now, dropped if something else was asked for since.
  async load(side, { show: name, anchor, anew } = {}) {
    const { run, golden, rank, statistic } = this.chosen, { view } = side, began = performance.now();
    const turn = anew ? side.turn : ++side.turn, chosen = view.box?.name ?? side.chosen;
    const window = name || !side.answer ? { x: 0, y: 0, wide: 3 * view.wide, high: 3 * view.high } : view.window();
    const open = [...side.open].join(".");
    const question = { run, golden, rank, statistic, step: this.step, side: golden ? side.name : "", open, show: name, anew: anew && 1, ...window };
    const { answer } = await ask("graph", question, undefined, `graph ${side.name}${anew ? " anew" : ""}`);
    if (turn !== side.turn) return;
    const fresh = !side.answer || name || (!open && !anchor && !anew);
    side.answer = answer;
    side.open = new Set(["0", ...answer.open]);
    this.step = String(answer.step);
    view.show(answer, this.paintOf(side));
    // Numbers of calls are of one step, as it was read.
    side.chosen = chosen;
    view.selected = view.find(chosen)?.node ?? -1;
    const held = anchor && view.find(anchor.name);
    if (fresh) this.place(side);
    else if (held) view.centre(held, anchor.place);
    else view.look(view.at.x, view.at.y, view.at.scale, false);
    side.took = performance.now() - began;
    if (view.lacks) this.moved(side);
  }

  // Where a graph begins: at the box that is shown, else at its top.
  place(side) {
    const { view, answer } = side, box = view.byNode.get(answer.shown);
    view.at.scale = Math.max(view.at.scale, 0.9);
    if (box) {
      view.selected = box.node;
      view.centre(box);
      if (!side.index) this.describe(side, box);
    } else {
      view.look((answer.size[0] - view.wide / view.at.scale) / 2, 0, view.at.scale, false);
    }
  }

  tell() {
    const { answer } = this, { golden } = this.chosen, parts = [];
    if (!answer) return;
    const what = golden ? "The two sides part" : "NaN or infinity begins";
    if (answer.first >= 0) parts.push(`${what} in ${answer.first_name}${answer.blame ? `: ${BLAMES[answer.blame]}` : ""}${answer.culprit && answer.culprit !== answer.first_name ? ` (${answer.culprit})` : ""}.`);
    else if (golden && this.sides[1].answer?.first >= 0) parts.push(`The two sides part in ${this.sides[1].answer.first_name}, which the target lacks.`);
    else parts.push(golden ? "The two sides agree in this step." : "No NaN and no infinity begins in this step.");
    parts.push(`${count(answer.nodes)} ${answer.nodes === 1 ? "call" : "calls"}${answer.micro_steps > 1 ? ` in ${answer.micro_steps} micro steps` : ""}.`);
    if (answer.left_out) parts.push(`${count(answer.left_out)} boxes are left out here; come nearer.`);
    this.say(parts.join(" "));
    $("graph-step").value = answer.step;
    $("graph-step").min = answer.first_step;
    $("graph-step").max = answer.last_step;
    $("graph-before").disabled = answer.step_before === null;
    $("graph-after").disabled = answer.step_after === null;
    $("graph-first").disabled = answer.first < 0;
    $("graph-target-name").textContent = this.chosen.run;
    $("graph-golden-name").textContent = this.chosen.golden;
    this.legend();
  }

  moved(side) {
    clearTimeout(side.moving);
    if (!side.view.lacks) return;
    side.moving = setTimeout(() => this.attempt(async () => {
      await this.load(side, {});
      this.tell();
    }), PAUSE);
  }

  async toggleOne(side, box, open) {
    const before = new Set(side.open);
    if (open) side.open.add(box.key);
    else side.open.delete(box.key);
    try {
      await this.load(side, { anchor: { name: box.name, place: side.view.placeOf(box) } });
    } catch (error) {
      side.open = before;
      throw error;
    }
  }

  toggle(side, box) {
    this.touched = true;
    this.attempt(async () => {
      side.view.selected = box.node;
      await this.toggleOne(side, box, !box.open);
      const other = this.shownSides.find((one) => one !== side), partner = other?.view.byNode.get(box.partner);
      if (partner) await this.toggleOne(other, partner, !box.open);
      this.tell();
      this.describe(side, side.view.box ?? box);
      this.remember();
    });
  }

  select(side, box) {
    this.touched = true;
    side.view.selected = box.node;
    side.view.reveal();
    this.describe(side, box);
    this.link(side, box);
    this.remember();
  }

  // The other side shows the partner.
  link(side, box) {
    const other = this.shownSides.find((one) => one !== side), known = this.partnered(side.view, box);
    if (!other) return;
    other.view.select(box.partner);
    const partner = other.view.byNode.get(known?.partner);
    if (partner) {
      other.view.centre(partner, side.view.placeOf(known));
      this.moved(other);
    } else if (known) {
      this.attempt(() => this.load(other, { show: known.name }));
    }
  }

  openRecord(side, box) {
    this.select(side, box);
    if (!box.record) return;
    const run = side.index ? this.chosen.golden : this.chosen.run, [step, rank] = side.answer.place;
    this.heard.open({ run, golden: side.index ? "" : this.chosen.golden, rank, statistic: this.chosen.statistic, step, record: box.name, tensor: box.tensor ? box.name + box.tensor : "" });
  }

  reveal(name) {
    if (!name) return;
    this.touched = true;
    this.attempt(async () => {
      for (const side of this.shownSides) {
        await this.load(side, { show: name }).catch((error) => {
          if (error.status !== 404) throw error;  // the other side may lack it
        });
      }
      this.tell();
      this.remember();
    });
  }

  // Asks when the user pauses. Keys that take what was found wait for the answer to all that was typed.
  search() {
    clearTimeout(this.typing);
    this.searched = new Promise((resolve) => {
      this.typing = setTimeout(() => this.attempt(() => this.find()).then(resolve), TYPING);
    });
  }

  async find() {
    const typed = () => $("graph-find").value.trim(), text = typed();
    if (!text) return this.endSearch();
    const { run, golden, rank } = this.chosen;
    const { answer } = await ask("graph_search", { run, golden, rank, step: this.step, text });
    if (text !== typed()) return undefined;
    const items = answer.nodes.map(([, name, mark]) => {
      const item = element("li"), link = element("button", name, { type: "button" });
      if (mark >= 2) item.append(element("span", mark === 3 ? "began here " : golden ? "differs " : "not finite ", { class: "bad-text" }));
      link.addEventListener("click", () => {
        this.endSearch();
        this.reveal(name);
        $("graph-target").focus({ preventScroll: true });
      });
      item.append(link);
      return item;
    });
    if (answer.found > items.length) items.push(element("li", `and ${count(answer.found - items.length)} more`, { class: "hint" }));
    $("graph-found").replaceChildren(...(items.length ? items : [element("li", "No call is called so.", { class: "hint" })]));
    $("graph-found").hidden = false;
    return undefined;
  }

  endSearch() {
    $("graph-find").value = "";
    $("graph-found").hidden = true;
    $("graph-found").replaceChildren();
  }

  // --- What boxes look like.

  recolour() {
    this.each((side) => side.view.show(side.answer, this.paintOf(side)));
    this.legend();
    this.remember();
  }

  verdictOf(side, box) {
    const number = box.open ? box.verdict : box.verdictInside;
    return number < 0 ? "" : side.answer.verdicts[number];
  }

  paintOf(side) {
    const style = getComputedStyle(document.documentElement), colour = (name) => style.getPropertyValue(name).trim();
    const page = colour("--page"), mode = $("graph-colour").value, light = "#ffffff", dark = "#1b2128";
    const scale = new Scale(side.answer.range ?? [], () => true);
    const fills = {
      verdict: (box) => colour(`--graph-${kindOf(this.verdictOf(side, box) || "unknown")}`),
      overflow: (box) => colour(["--graph-plain", "--graph-some", "--graph-high", "--graph-bad"][box.open ? box.level : box.levelInside]),
      statistic: (box) => (box.value === null ? page : `rgb(${scale.colour(box.value)})`),
    };
    const words = {
      verdict: (box) => { const verdict = this.verdictOf(side, box); return verdict && verdict !== "unknown" ? `${SIGNS[verdict] ?? "≠"} ${verdict}` : ""; },
      overflow: (box) => LEVELS[box.levelInside],
      statistic: (box) => (box.value === null ? "" : show(box.value)),
    };
    return {
      fill: fills[mode],
      text: (box) => (isDark(fills[mode](box)) ? light : dark),
      more: (box) => [box.inside && count(box.inside), words[mode](box)].filter(Boolean).join(" · "),
      isFirst: (box) => box.node === side.answer.first,
    };
  }

  legend() {
    const { answer } = this, mode = $("graph-colour").value;
    if (!answer) return;
    const swatch = (text, kind) => element("span", text, { class: `swatch graph-${kind}` });
    const line = (text, kind) => element("span", text, { class: `swatch line graph-${kind}` });
    const boxes = {
      verdict: () => [swatch("equal", "fine"), swatch("within the tolerance", "some"), swatch("differs", "bad"), swatch("one side only", "only"), swatch("nothing to compare", "plain")],
      overflow: () => [swatch("finite", "plain"), swatch("medium: took them in", "some"), swatch("high: passed them on", "high"), swatch("critical: made them", "bad")],
      statistic: () => new Scale(answer.range ?? [], () => true).legend(`|${this.chosen.statistic}| of the output`, "0"),
    };
    const lines = [line(answer.data_edges ? "order of calls, where no tensor is known to flow" : "order of calls", "order")];
    if (answer.data_edges) lines.unshift(line("a tensor flows", "data"));
    if (answer.first >= 0) lines.push(line(this.chosen.golden ? "the difference spreads" : "NaN or infinity spreads", "path"));
    $("graph-legend").replaceChildren(...boxes[mode](), ...lines);
  }

  describe(side, box) {
    const parts = [box.name];
    if (box.inside) parts.push(`${count(box.inside)} ${box.inside === 1 ? "call" : "calls"} inside, ${box.open ? "open" : "closed"}`);
    const own = box.verdict < 0 ? "" : side.answer.verdicts[box.verdict], inside = box.verdictInside < 0 ? "" : side.answer.verdicts[box.verdictInside];
    if (own) parts.push(own);
    if (inside && inside !== own) parts.push(`inside: ${inside}`);
    if (box.level) parts.push(LEVELS[box.level]);
    if (box.levelInside > box.level) parts.push(`inside: ${LEVELS[box.levelInside]}`);
    if (box.value !== null) parts.push(`${this.chosen.statistic} ${show(box.value)}`);
    if (side.answer.compared && box.partner < 0) parts.push("the other side has no such call");
    if (box.node === side.answer.first) parts.push("it began here");
    $("graph-cell").textContent = parts.join("; ");
  }

  // The address holds what is chosen, beside what the rest of the page keeps there.
  remember() {
    if (!this.addressed) return;
    const address = new URLSearchParams(location.search), { view, open } = this.sides[0];
    const list = [...open];
    const parts = { graph_step: this.step, graph_colour: $("graph-colour").value, graph_node: view.box?.name, graph_open: list.length <= MOST_OPEN ? list.join(".") : "" };
    for (const [key, value] of Object.entries(parts)) {
      if (value) address.set(key, value);
      else address.delete(key);
    }
    history.replaceState(null, "", `?${address}`);
  }
}
