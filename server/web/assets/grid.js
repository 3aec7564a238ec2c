// A picture of rows and columns of cells on a canvas, with labelled axes, a cursor that follows keys and pointer, and a
// selection by dragging. Cells are drawn once; the cursor is an element above them, so that moving it draws nothing.

import { element, ticks } from "/text.js";

const FONT = "11px system-ui, sans-serif";
const LABEL_HEIGHT = 13, TOP = 7, AXIS = 32, RIGHT = 8;
const DRAGGED = 6, STRONG = 4;

export class Grid {
  // heard: {moved(cell), opened(cell), selected(from, to)}; a cell is {row, column}. tallest: of the picture; highest: of
  // a cell. Cells are as wide as the room allows.
  constructor(canvas, heard, { tallest, highest }) {
    this.canvas = canvas;
    this.heard = heard;
    this.tallest = tallest;
    this.highest = highest;
    this.data = null;
    this.at = { row: 0, column: 0 };
    this.cursor = element("div", undefined, { class: "cursor", hidden: "" });
    this.selection = element("div", undefined, { class: "selection", hidden: "" });
    canvas.parentElement.append(this.cursor, this.selection);
    this.marked = null;
    this.mark = element("div", undefined, { class: "chosen", hidden: "" });
    canvas.parentElement.append(this.mark);
    this.listen();
  }

  // data: {rows: [label, ...], columns: [[first, last], ...], rowTitle, columnTitle, colour(row, column) -> [r, g, b] or
  // null for an empty cell, strong(row, column) whether it must not be overlooked}.
  show(data, at = { row: 0, column: 0 }) {
    this.data = data;
    const wide = data.columns.length, high = data.rows.length;
    this.cells = null;
    if (wide && high) {
      const pixels = new ImageData(wide, high);
      for (let row = 0, i = 0; row < high; ++row) {
        for (let column = 0; column < wide; ++column, i += 4) {
          const colour = data.colour(row, column);
          if (!colour) continue;
          pixels.data[i] = colour[0];
          pixels.data[i + 1] = colour[1];
          pixels.data[i + 2] = colour[2];
          pixels.data[i + 3] = 255;
        }
      }
      this.cells = document.createElement("canvas");
      this.cells.width = wide;
      this.cells.height = high;
      this.cells.getContext("2d").putImageData(pixels, 0, 0);
    }
    this.at = { row: Math.min(at.row, Math.max(high - 1, 0)), column: Math.min(at.column, Math.max(wide - 1, 0)) };
    this.draw();
  }

  // How many cells there is room for.
  room() {
    const wide = this.canvas.parentElement.clientWidth;
    return { columns: Math.max(20, Math.floor((wide - Math.min(180, wide * 0.32)) / 3)), rows: Math.floor(this.tallest / 2) };
  }

  draw() {
    const { canvas, data } = this;
    if (!data) return;
    const wide = canvas.parentElement.clientWidth, context = canvas.getContext("2d"), style = getComputedStyle(canvas);
    context.font = FONT;
    const longest = Math.max(0, ...data.rows.map((name) => context.measureText(name).width));
    this.left = Math.ceil(Math.min(longest + 26, Math.max(70, wide * 0.32)));
    this.cellWidth = (wide - this.left - RIGHT) / Math.max(data.columns.length, 1);
    this.cellHeight = Math.min(this.highest, Math.max(1, this.tallest / Math.max(data.rows.length, 1)));
    this.plotWidth = this.cellWidth * data.columns.length;
    this.plotHeight = this.cellHeight * data.rows.length;
    const high = Math.ceil(TOP + this.plotHeight + AXIS), ratio = Math.min(window.devicePixelRatio || 1, 2);
    canvas.width = wide * ratio;
    canvas.height = high * ratio;
    canvas.style.width = `${wide}px`;
    canvas.style.height = `${high}px`;
    context.scale(ratio, ratio);
    context.translate(0, TOP);
    context.imageSmoothingEnabled = false;
    if (this.cells) context.drawImage(this.cells, this.left, 0, this.plotWidth, this.plotHeight);
    this.drawStrong(context);
    context.strokeStyle = style.getPropertyValue("--line");
    context.strokeRect(this.left - 0.5, 0.5, this.plotWidth + 1, this.plotHeight);
    context.font = FONT;
    context.fillStyle = style.color;
    this.drawRows(context);
    this.drawColumns(context, style.getPropertyValue("--faint"));
    this.place();
  }

  // One of a hundred thousand small cells is found by the eye only when it is larger than it ought to be.
  drawStrong(context) {
    const { data } = this, wide = Math.max(this.cellWidth, STRONG), high = Math.max(this.cellHeight, STRONG);
    if (!data.strong || (wide === this.cellWidth && high === this.cellHeight)) return;
    for (let row = 0; row < data.rows.length; ++row) {
      for (let column = 0; column < data.columns.length; ++column) {
        if (!data.strong(row, column)) continue;
        context.fillStyle = `rgb(${data.colour(row, column)})`;
        const x = this.left + (column + 0.5) * this.cellWidth, y = (row + 0.5) * this.cellHeight;
        context.fillRect(x - wide / 2, y - high / 2, wide, high);
      }
    }
  }

  drawRows(context) {
    const { rows } = this.data, every = Math.max(1, Math.ceil(LABEL_HEIGHT / this.cellHeight));
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (let row = 0; row < rows.length; row += every) {
      let name = rows[row];
      for (let keep = name.length; context.measureText(name).width > this.left - 26 && keep > 3; ) {
        keep -= 1;
        name = `…${rows[row].slice(-keep)}`;
      }
      context.fillText(name, this.left - 5, (row + 0.5) * this.cellHeight);
    }
    context.save();
    context.translate(8, Math.max(this.plotHeight / 2, 14));
    context.rotate(-Math.PI / 2);
    context.textAlign = "center";
    if (this.plotHeight > 50) context.fillText(this.data.rowTitle, 0, 0);
    context.restore();
  }

  drawColumns(context, faint) {
    const { columns } = this.data;
    context.textBaseline = "top";
    context.textAlign = "center";
    if (columns.length) {
      for (const step of ticks(columns[0][0], columns.at(-1)[1], Math.max(1, this.plotWidth / 70), true)) {
        const x = this.left + (columns.findIndex(([, last]) => last >= step) + 0.5) * this.cellWidth;
        context.fillRect(Math.round(x), this.plotHeight + 1, 1, 3);
        const half = context.measureText(String(step)).width / 2;
        context.fillText(String(step), Math.min(Math.max(x, half), this.canvas.clientWidth - half), this.plotHeight + 6);
      }
    }
    context.fillStyle = faint;
    context.textAlign = "left";
    context.fillText(this.data.columnTitle, this.left, this.plotHeight + 19);
  }

  // Shows which cell was chosen; null: none.
  choose(cell) {
    this.marked = cell;
    this.place();
  }

  // Puts the cursor, and the mark of what is chosen, where they are.
  place() {
    this.mark.hidden = !this.marked || !this.cells;
    if (!this.mark.hidden) this.put(this.mark, this.marked);
    this.cursor.hidden = document.activeElement !== this.canvas || !this.cells;
    if (!this.cursor.hidden) this.put(this.cursor, this.at);
  }

  put(cursor, at) {
    const wide = Math.max(this.cellWidth, 5), high = Math.max(this.cellHeight, 5);
    const x = this.left + (at.column + 0.5) * this.cellWidth - wide / 2, y = TOP + (at.row + 0.5) * this.cellHeight - high / 2;
    cursor.style.transform = `translate(${x - 2}px, ${y - 2}px)`;
    cursor.style.width = `${wide + 4}px`;
    cursor.style.height = `${high + 4}px`;
  }

  move(rows, columns) {
    if (!this.cells) return;
    const { data, at } = this, bound = (value, size) => Math.min(Math.max(value, 0), size - 1);
    this.at = { row: bound(at.row + rows, data.rows.length), column: bound(at.column + columns, data.columns.length) };
    this.place();
    this.heard.moved(this.at);
  }

  // The cell under a pointer. Null: none.
  under(event) {
    if (!this.cells) return null;
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - this.left) / this.cellWidth);
    const row = Math.floor((event.clientY - box.top - TOP) / this.cellHeight);
    const inside = row >= 0 && column >= 0 && row < this.data.rows.length && column < this.data.columns.length;
    return inside ? { row, column } : null;
  }

  listen() {
    const { canvas } = this;
    const moves = {
      ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
      PageUp: [-10, 0], PageDown: [10, 0], Home: [0, -1e9], End: [0, 1e9],
    };
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (moves[event.key]) this.move(...moves[event.key]);
      else if ((event.key === "Enter" || event.key === " ") && this.cells) this.heard.opened(this.at);
      else return;
      event.preventDefault();
    });
    for (const kind of ["focus", "blur"]) canvas.addEventListener(kind, () => this.place());
    let from = null, cell = null;
    canvas.addEventListener("pointerdown", (event) => {
      cell = event.button === 0 ? this.under(event) : null;
      from = cell && { x: event.clientX, y: event.clientY };
    });
    canvas.addEventListener("pointermove", (event) => {
      const to = this.under(event);
      if (from && event.pointerType === "mouse" && Math.hypot(event.clientX - from.x, event.clientY - from.y) > DRAGGED) {
        this.stretch(from, event);
      }
      if (to) this.heard.moved(to);
    });
    const end = (event) => {
      const to = this.under(event), dragged = !this.selection.hidden;
      this.selection.hidden = true;
      if (from && to && dragged) {
        this.heard.selected(cell, to);
      } else if (from && to && event.type === "pointerup") {
        this.at = to;
        this.place();
        this.heard.opened(to);
      }
      from = null;
    };
    canvas.addEventListener("pointerup", end);
    canvas.addEventListener("pointerleave", () => {
      from = null;
      this.selection.hidden = true;
    });
  }

  stretch(from, to) {
    const box = this.canvas.getBoundingClientRect(), { style } = this.selection;
    this.selection.hidden = false;
    style.transform = `translate(${Math.min(from.x, to.clientX) - box.left}px, ${Math.min(from.y, to.clientY) - box.top}px)`;
    style.width = `${Math.abs(from.x - to.clientX)}px`;
    style.height = `${Math.abs(from.y - to.clientY)}px`;
  }
}
