// One side of the graph on a canvas: boxes and lines where the server has laid them out, moved and enlarged, with a
// cursor that follows keys and pointer, and the whole of it in a small picture. It holds what a window shows, no more.

import { numberOf } from "/text.js";

const LEAST = 0.12, MOST = 2, READABLE = 0.8, WORDS = 0.4, DRAGGED = 5, SWITCH = 24, LINE = 13, NARROW = 480, MARGIN = 14;
const FIELDS = ["node", "x", "y", "wide", "high", "open", "name", "tensor", "record", "kind", "parent", "inside", "level", "levelInside", "verdict", "verdictInside", "partner", "value", "mark", "key"];
const MODULE = 0, COLLECTION = 9;

const bound = (value, least, most) => Math.min(Math.max(value, least), Math.max(least, most));

function boxOf(row) {
  const box = Object.fromEntries(FIELDS.map((field, i) => [field, row[i]]));
  box.value = numberOf(box.value);
  return box;
}

// "layers.0" and "Layer", call 1 of "Module.model.layers.0.Layer.forward.1" in "Module.model.Model.forward.0".
export function wordsOf(box, parent) {
  if (box.kind === COLLECTION) return { title: "calls outside of modules", more: box.name };
  const parts = box.name.split(".");
  if (box.kind !== MODULE || parts.length < 5) {
    const [family, call, number, direction] = parts;
    return parts.length === 4 ? { title: call, more: `${family} ${number}${direction === "backward" ? " backward" : ""}` } : { title: box.name, more: "" };
  }
  const path = (name) => name.split(".").slice(1, -3).join(".");
  const own = path(box.name), around = parent?.kind === MODULE ? `${path(parent.name)}.` : "";
  const [kind, direction, number] = parts.slice(-3);
  const call = Number(number) ? ` call ${number}` : "";
  return { title: around.length > 1 && own.startsWith(around) ? own.slice(around.length) : own, more: `${kind}${direction === "backward" ? " backward" : ""}${call}` };
}

export class GraphView {
  // heard: {moved(), selected(box), opened(box), toggled(box)}
  constructor(canvas, overview, heard) {
    this.canvas = canvas;
    this.overview = overview;
    this.heard = heard;
    this.answer = null;
    this.at = { x: 0, y: 0, scale: 1 };
    this.selected = -1;
    this.frame = 0;
    this.listen();
  }

  // paint: {fill(box), text(box), more(box), isFirst(box)}
  show(answer, paint) {
    this.answer = answer;
    this.paint = paint;
    this.boxes = answer.boxes.map(boxOf);
    this.byNode = new Map(this.boxes.map((box) => [box.node, box]));
    const cells = atob(answer.overview.cells);
    this.cells = Uint8Array.from(cells, (cell) => cell.charCodeAt(0));
    this.draw();
  }

  // The small picture stands beside the drawing, where it hides nothing of it; it is there where all boxes find no room.
  get overviewSize() {
    const { clientWidth, clientHeight } = this.canvas.parentElement, [wide, high] = this.answer?.size ?? [0, 0];
    if (wide <= clientWidth && high <= clientHeight) return null;
    const across = this.answer.overview.wide, down = this.cells.length / across, most = clientWidth < NARROW ? 40 : 96;
    const each = Math.max(1, Math.min(Math.floor(most / across), Math.floor(clientHeight * 0.6 / down), 4));
    return { each, across: across * each, down: down * each };
  }
  get wide() {
    return this.canvas.parentElement.clientWidth - (this.overviewSize ? this.overviewSize.across + MARGIN : 0);
  }
  get high() {
    return this.canvas.parentElement.clientHeight;
  }

  // What to ask for: what is seen, and as much on every side.
  window() {
    const wide = this.wide / this.at.scale, high = this.high / this.at.scale;
    const x = Math.max(0, Math.floor(this.at.x - wide)), y = Math.max(0, Math.floor(this.at.y - high));
    return { x, y, wide: Math.ceil(this.at.x + 2 * wide - x), high: Math.ceil(this.at.y + 2 * high - y) };
  }

  // Whether something is seen that was not asked for.
  get lacks() {
    if (!this.answer) return false;
    const [x, y, wide, high] = this.answer.window, [allWide, allHigh] = this.answer.size;
    const right = Math.min(this.at.x + this.wide / this.at.scale, allWide), below = Math.min(this.at.y + this.high / this.at.scale, allHigh);
    return Math.max(this.at.x, 0) < x || Math.max(this.at.y, 0) < y || right > x + wide || below > y + high;
  }

  // So that a box is in the middle, or, with a place on the screen, there.
  centre(box, place = { x: this.wide / 2, y: this.high / 3 }) {
    const middle = { x: box.x + box.wide / 2, y: box.y + Math.min(box.high, 40) / 2 };
    this.look(middle.x - place.x / this.at.scale, middle.y - place.y / this.at.scale, this.at.scale, false);
  }

  placeOf(box) {
    return { x: (box.x + box.wide / 2 - this.at.x) * this.at.scale, y: (box.y + Math.min(box.high, 40) / 2 - this.at.y) * this.at.scale };
  }

  look(x, y, scale, tell = true) {
    const [wide, high] = this.answer?.size ?? [0, 0];
    scale = bound(scale, LEAST, MOST);
    const room = { x: this.wide / scale, y: this.high / scale };
    this.at = {
      scale,
      x: wide < room.x ? (wide - room.x) / 2 : bound(x, -room.x / 3, wide - room.x * 0.66),
      y: high < room.y ? Math.min(0, (high - room.y) / 8) : bound(y, -room.y / 3, high - room.y * 0.66),
    };
    this.draw();
    if (tell) this.heard.moved();
  }

  zoom(factor, place = { x: this.wide / 2, y: this.high / 2 }) {
    const scale = bound(this.at.scale * factor, LEAST, MOST);
    this.look(this.at.x + place.x / this.at.scale - place.x / scale, this.at.y + place.y / this.at.scale - place.y / scale, scale);
  }

  fit() {
    const [wide, high] = this.answer.size;
    this.look(0, 0, Math.min(this.wide / wide, this.high / high, 1));
  }

  select(node) {
    this.selected = node;
    this.draw();
  }

  // Null: it is not among the boxes.
  find(name) {
    return this.boxes.find((box) => box.name === name) ?? null;
  }

  get box() {
    return this.byNode?.get(this.selected) ?? null;
  }

  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.drawNow());
  }

  drawNow() {
    const { canvas, answer } = this, context = canvas.getContext("2d"), ratio = Math.min(window.devicePixelRatio || 1, 2);
    const wide = this.wide, high = this.high;
    canvas.style.width = `${wide}px`;
    if (canvas.width !== Math.round(wide * ratio) || canvas.height !== Math.round(high * ratio)) {
      canvas.width = Math.round(wide * ratio);
      canvas.height = Math.round(high * ratio);
    }
    const style = getComputedStyle(canvas);
    this.ink = style.color;
    this.faint = style.getPropertyValue("--faint");
    this.line = style.getPropertyValue("--line");
    this.accent = style.getPropertyValue("--accent");
    this.bad = style.getPropertyValue("--bad");
    this.page = style.getPropertyValue("--page");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, wide, high);
    if (!answer) return;
    context.scale(this.at.scale, this.at.scale);
    context.translate(-this.at.x, -this.at.y);
    for (const box of this.boxes) if (box.open) this.drawOpen(context, box);
    for (const line of answer.lines) this.drawLine(context, line);
    for (const box of this.boxes) if (!box.open) this.drawClosed(context, box);
    if (this.box) this.ring(context, this.box, this.ink, 3);
    this.drawOverview();
  }

  drawOpen(context, box) {
    context.fillStyle = this.ink;
    context.globalAlpha = 0.035;
    context.fillRect(box.x, box.y, box.wide, box.high);
    context.globalAlpha = 1;
    context.strokeStyle = this.line;
    context.lineWidth = 1;
    context.strokeRect(box.x, box.y, box.wide, box.high);
    context.fillStyle = this.paint.fill(box);
    context.fillRect(box.x, box.y, 5, box.high);
    if (this.at.scale < WORDS) return;
    const words = wordsOf(box, this.byNode.get(box.parent));
    context.font = "600 12px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.fillStyle = this.ink;
    context.fillText(this.fitting(context, `▾ ${words.title}`, box.wide - 24), box.x + 10, box.y + LINE);
    if (this.paint.isFirst(box)) this.drawFirst(context, box);
  }

  drawClosed(context, box) {
    const fill = this.paint.fill(box), text = this.paint.text(box) ?? this.ink;
    context.fillStyle = fill;
    context.strokeStyle = this.faint;
    context.lineWidth = 1;
    context.beginPath();
    context.roundRect(box.x, box.y, box.wide, box.high, box.inside ? 3 : 12);
    context.fill();
    context.stroke();
    if (this.paint.isFirst(box)) this.drawFirst(context, box);
    if (this.at.scale < WORDS) return;
    const words = wordsOf(box, this.byNode.get(box.parent));
    context.textBaseline = "middle";
    context.fillStyle = text;
    context.font = "600 12px system-ui, sans-serif";
    const title = box.inside ? `▸ ${words.title}` : words.title;
    context.fillText(this.fitting(context, title, box.wide - 20), box.x + 10, box.y + LINE);
    context.font = "11px system-ui, sans-serif";
    const more = this.paint.more(box), room = box.wide - 20 - context.measureText(more).width - 8;
    context.globalAlpha = 0.85;
    context.fillText(this.fitting(context, words.more, room), box.x + 10, box.y + 29);
    context.globalAlpha = 1;
    context.textAlign = "right";
    context.fillText(more, box.x + box.wide - 10, box.y + 29);
    context.textAlign = "left";
  }

  drawFirst(context, box) {
    this.ring(context, box, this.bad, 3.5);
    context.font = "600 11px system-ui, sans-serif";
    const words = "began here", wide = context.measureText(words).width + 10;
    context.fillStyle = this.bad;
    context.fillRect(box.x + box.wide - wide, box.y - 19, wide, 16);
    context.fillStyle = this.page;
    context.textBaseline = "middle";
    context.fillText(words, box.x + box.wide - wide + 5, box.y - 11);
  }

  ring(context, box, colour, thick) {
    context.strokeStyle = colour;
    context.lineWidth = thick / Math.min(1, this.at.scale);
    context.strokeRect(box.x - 3, box.y - 3, box.wide + 6, box.high + 6);
  }

  drawLine(context, [, , byData, onPath, ...places]) {
    context.strokeStyle = onPath ? this.bad : this.faint;
    context.lineWidth = onPath ? 3 : 1;
    context.setLineDash(byData ? [] : [4, 3]);
    context.beginPath();
    context.moveTo(places[0], places[1]);
    for (let i = 2; i < places.length; i += 2) context.lineTo(places[i], places[i + 1]);
    context.stroke();
    context.setLineDash([]);
    if (this.at.scale < WORDS) return;
    const [x, y] = places.slice(-2);
    context.fillStyle = context.strokeStyle;
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x - 4, y - 7);
    context.lineTo(x + 4, y - 7);
    context.fill();
  }

  fitting(context, text, room) {
    if (context.measureText(text).width <= room) return text;
    let low = 0, high = text.length;
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (context.measureText(`${text.slice(0, middle)}…`).width <= room) low = middle;
      else high = middle - 1;
    }
    return low ? `${text.slice(0, low)}…` : "";
  }

  drawOverview() {
    const { overview, cells } = this, { cell, wide: across } = this.answer.overview;
    const room = this.overviewSize, size = room?.each, context = overview.getContext("2d");
    overview.hidden = !room;
    if (!room) return;
    this.each = size / cell;
    overview.width = room.across;
    overview.height = room.down;
    context.fillStyle = this.page;
    context.fillRect(0, 0, overview.width, overview.height);
    const colours = [null, this.line, this.faint, this.bad, this.bad];
    for (let i = 0; i < cells.length; ++i) {
      if (!cells[i]) continue;
      context.fillStyle = colours[cells[i]];
      const x = (i % across) * size, y = Math.floor(i / across) * size;
      if (cells[i] === 4) context.fillRect(x - 2, y - 2, size + 4, size + 4);
      else context.fillRect(x, y, size, size);
    }
    context.strokeStyle = this.accent;
    context.lineWidth = 2;
    context.strokeRect(this.at.x * this.each, this.at.y * this.each, (this.wide / this.at.scale) * this.each, (this.high / this.at.scale) * this.each);
  }

  // The innermost box under a place on the screen.
  under({ x, y }) {
    const at = { x: this.at.x + x / this.at.scale, y: this.at.y + y / this.at.scale };
    return this.boxes?.findLast((box) => at.x >= box.x && at.x <= box.x + box.wide && at.y >= box.y && at.y <= box.y + box.high) ?? null;
  }

  move(key) {
    const { boxes, box } = this, at = box ? boxes.indexOf(box) : -1;
    if (!boxes?.length) return;
    const to = (next) => next && this.heard.selected(next);
    if (at < 0) to(boxes[0]);
    else if (key === "ArrowDown") to(boxes[at + 1]);
    else if (key === "ArrowUp") to(boxes[at - 1]);
    else if (key === "Home") to(boxes[0]);
    else if (key === "End") to(boxes.at(-1));
    else if (key === "ArrowRight") box.open ? to(boxes[at + 1]) : box.inside && this.heard.toggled(box);
    else if (key === "ArrowLeft") box.open ? this.heard.toggled(box) : to(this.byNode.get(box.parent));
  }

  // Selected boxes are seen, and can be read.
  reveal() {
    const { box } = this;
    if (!box) return;
    if (this.at.scale < READABLE) this.at.scale = READABLE;
    const place = this.placeOf(box);
    if (place.x < 60 || place.y < 30 || place.x > this.wide - 60 || place.y > this.high - 30) this.centre(box);
    this.draw();
    this.heard.moved();
  }

  listen() {
    const { canvas, overview } = this;
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !this.answer) return;
      if (event.key.startsWith("Arrow") || event.key === "Home" || event.key === "End") this.move(event.key);
      else if (event.key === "Enter") this.box && this.heard.opened(this.box);
      else if (event.key === " ") this.box?.inside && this.heard.toggled(this.box);
      else if (event.key === "+" || event.key === "=") this.zoom(1.25);
      else if (event.key === "-") this.zoom(0.8);
      else if (event.key === "0") this.fit();
      else return;
      event.preventDefault();
    });
    const pointers = new Map();
    let dragged = false;
    const placeOf = (event) => {
      const rect = canvas.getBoundingClientRect();
      return { x: event.clientX - rect.left, y: event.clientY - rect.top };
    };
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      canvas.setPointerCapture(event.pointerId);
      if (!pointers.size) dragged = false;
      pointers.set(event.pointerId, { begin: placeOf(event), last: placeOf(event) });
    });
    canvas.addEventListener("pointermove", (event) => {
      const pointer = pointers.get(event.pointerId), to = placeOf(event);
      if (!pointer) return;
      if (!dragged && Math.hypot(to.x - pointer.begin.x, to.y - pointer.begin.y) < DRAGGED) return;
      dragged = true;
      const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1].last;
      const { last } = pointer;
      pointer.last = to;
      if (other) this.zoom(Math.hypot(to.x - other.x, to.y - other.y) / Math.max(1, Math.hypot(last.x - other.x, last.y - other.y)), other);
      else this.look(this.at.x - (to.x - last.x) / this.at.scale, this.at.y - (to.y - last.y) / this.at.scale, this.at.scale);
    });
    const end = (event) => {
      if (!pointers.delete(event.pointerId) || dragged || event.type !== "pointerup") return;
      const place = placeOf(event), box = this.under(place);
      if (!box) return;
      const left = place.x - (box.x - this.at.x) * this.at.scale;
      if (box.inside && left < SWITCH * Math.max(1, this.at.scale)) this.heard.toggled(box);
      else this.heard.opened(box);
    };
    canvas.addEventListener("pointerup", end);
    canvas.addEventListener("pointercancel", end);
    canvas.addEventListener("dblclick", (event) => {
      const box = this.under(placeOf(event));
      if (box?.inside) this.heard.toggled(box);
    });
    canvas.addEventListener("wheel", (event) => {
      if (event.ctrlKey) this.zoom(Math.exp(-event.deltaY / 300), placeOf(event));
      else if (document.activeElement === canvas) this.look(this.at.x + event.deltaX / this.at.scale, this.at.y + event.deltaY / this.at.scale, this.at.scale);
      else return;
      event.preventDefault();
    }, { passive: false });
    let held = false;
    const jump = (event) => {
      const rect = overview.getBoundingClientRect();
      this.look((event.clientX - rect.left) / this.each - this.wide / this.at.scale / 2, (event.clientY - rect.top) / this.each - this.high / this.at.scale / 2, this.at.scale);
    };
    overview.addEventListener("pointerdown", (event) => {
      held = true;
      overview.setPointerCapture(event.pointerId);
      jump(event);
    });
    overview.addEventListener("pointermove", (event) => held && jump(event));
    overview.addEventListener("pointerup", () => (held = false));
  }
}
