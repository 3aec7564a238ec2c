// What one takes along: a link to what is shown, a picture, its numbers.

import { element } from "/text.js";

const quoted = (value) => (/[",\n\r]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value));

// A spreadsheet computes what begins like a formula: such a text is given an apostrophe, as spreadsheets write texts.
// What is missing is an empty cell.
const cell = (value) => value === null ? "" : quoted(typeof value === "string" && /^[=+\-@\t]/.test(value) && Number.isNaN(Number(value)) ? `'${value}` : value);

export const csv = (table) => `${table.map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`;

function save(name, blob) {
  const address = URL.createObjectURL(blob), link = element("a", undefined, { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

async function copyText(text) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  // A page that came over plain HTTP from another machine has no clipboard of its own.
  const box = element("textarea");
  box.value = text;
  document.body.append(box);
  box.select();
  document.execCommand("copy");
  box.remove();
}

function blank(wide, high) {
  const ratio = Math.min(window.devicePixelRatio || 1, 2), canvas = element("canvas", undefined, { width: wide * ratio, height: high * ratio });
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.fillStyle = getComputedStyle(document.body).backgroundColor;
  context.fillRect(0, 0, wide, high);
  return [canvas, context];
}

function ofCanvas(shown) {
  const [canvas, context] = blank(shown.clientWidth, shown.clientHeight);
  context.drawImage(shown, 0, 0, shown.clientWidth, shown.clientHeight);
  return canvas;
}

const number = (shape, name) => Number(shape.getAttribute(name) ?? 0);

function outline(shape) {
  if (shape.localName === "path") return new Path2D(shape.getAttribute("d"));
  const path = new Path2D();
  if (shape.localName === "line") {
    path.moveTo(number(shape, "x1"), number(shape, "y1"));
    path.lineTo(number(shape, "x2"), number(shape, "y2"));
  } else if (shape.localName === "circle") {
    path.arc(number(shape, "cx"), number(shape, "cy"), number(shape, "r"), 0, 2 * Math.PI);
  } else {
    path.rect(number(shape, "x"), number(shape, "y"), number(shape, "width"), number(shape, "height"));
  }
  return path;
}

// Draws the shapes of an SVG anew: the page's policy lets no image be made of a text.
function ofDrawing(shown) {
  const [canvas, context] = blank(shown.clientWidth, shown.clientHeight);
  for (const shape of shown.querySelectorAll("path, line, circle, rect, text")) {
    const style = getComputedStyle(shape);
    if (style.visibility === "hidden") continue;
    context.globalAlpha = Number(style.opacity);
    context.fillStyle = style.fill;
    context.strokeStyle = style.stroke;
    context.lineWidth = parseFloat(style.strokeWidth);
    context.setLineDash(style.strokeDasharray === "none" ? [] : style.strokeDasharray.split(/[\s,]+/).map(parseFloat));
    if (shape.localName === "text") {
      context.font = `${style.fontSize} ${style.fontFamily}`;
      context.textAlign = { middle: "center", end: "right" }[style.textAnchor] ?? "left";
      context.fillText(shape.textContent, number(shape, "x"), number(shape, "y"));
      continue;
    }
    if (style.fill !== "none" && shape.localName !== "line") context.fill(outline(shape));
    if (style.stroke !== "none") context.stroke(outline(shape));
  }
  return canvas;
}

// Buttons for a picture. name() without suffix; table() as rows of cells; picture() a canvas or an SVG, if there is one. A
// link is offered where a server gives the page.
export function keepable(box, { name, table, picture }) {
  const button = (text, title, work) => {
    const made = element("button", text, { type: "button", title });
    made.addEventListener("click", () => work(made));
    return made;
  };
  const copy = button("Link", "Copy the address of what is shown", async (made) => {
    await copyText(location.href);
    made.textContent = "Copied";
    setTimeout(() => (made.textContent = "Link"), 1500);
  });
  const numbers = button("CSV", "Save the numbers of this picture", () => save(`${name()}.csv`, new Blob([csv(table())], { type: "text/csv" })));
  const image = button("PNG", "Save this picture", () => {
    const shown = picture();
    if (shown) (shown.localName === "svg" ? ofDrawing(shown) : ofCanvas(shown)).toBlob((blob) => save(`${name()}.png`, blob));
  });
  box.append(...(location.protocol.startsWith("http") ? [copy] : []), numbers, ...(picture ? [image] : []));
}
