// A graph with some of its modules closed, from one that the server laid out with all of them open: what is inside a
// closed module goes, and so does the room that it took. Lengths are those of graph_picture.h.

const WIDE = 212, HIGH = 40, HEAD = 26, EDGE = 12, GAP = 24;
const NODE = 0, X = 1, Y = 2, ACROSS = 3, DOWN = 4, OPEN = 5, NAME = 6, PARENT = 10, MARK = 18, KEY = 19;
const CELLS = { wide: 48, high: 160 };  // of the small picture at most

// A function of places that takes out what no span needs, except for gaps of GAP. spans: [[begin, end], ...].
function squeezed(spans) {
  const taken = [];  // [[place, how much is taken out before it], ...]
  let end = 0, all = 0;
  for (const [from, to] of spans.toSorted((a, b) => a[0] - b[0])) {
    if (from - end > GAP) {
      taken.push({ begin: end, end: from, before: all });
      all += from - end - GAP;
    }
    end = Math.max(end, to);
  }
  return (place) => {
    let low = 0, high = taken.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (taken[middle].begin < place) low = middle + 1;
      else high = middle;
    }
    if (!low) return place;
    const gap = taken[low - 1], wide = gap.end - gap.begin;
    if (place >= gap.end) return place - gap.before - wide + GAP;
    return gap.begin - gap.before + ((place - gap.begin) / wide) * GAP;
  };
}

function overviewOf(rows, [wide, high]) {
  const cell = Math.max(wide / CELLS.wide, high / CELLS.high, 1), across = Math.floor(wide / cell) + 1, down = Math.floor(high / cell) + 1;
  const cells = new Uint8Array(across * down);
  for (const row of rows) {
    if (row[OPEN]) continue;
    const right = Math.min(Math.floor((row[X] + row[ACROSS]) / cell), across - 1), below = Math.min(Math.floor((row[Y] + row[DOWN]) / cell), down - 1);
    for (let y = Math.floor(row[Y] / cell); y <= below; ++y) {
      for (let x = Math.floor(row[X] / cell); x <= right; ++x) cells[y * across + x] = Math.max(cells[y * across + x], row[MARK] + 1);
    }
  }
  return { cell, wide: across, cells: btoa(String.fromCharCode(...cells)) };
}

// answer: as of the question "graph", with more modules laid open than its "open" names; open: keys, null: those; show: the
// name of a call. Gives an answer of the same form; null: it does not hold all of this.
export function folded(answer, open, show) {
  const rows = new Map(answer.boxes.map((row) => [row[NODE], row]));
  const shown = show ? answer.boxes.find((row) => row[NAME] === show) : open ? undefined : rows.get(answer.shown);
  const opened = new Set(open ?? answer.open);
  opened.delete("0");
  for (let row = rows.get(shown?.[PARENT]); row; row = rows.get(row[PARENT])) opened.add(row[KEY]);
  if ((show && !shown) || answer.boxes.some((row) => opened.has(row[KEY]) && !row[OPEN])) return null;
  const seen = new Map(), across = [], down = [];
  for (const row of answer.boxes) {
    if (rows.has(row[PARENT]) && !seen.get(row[PARENT])?.[OPEN]) continue;
    const box = [...row], isOpen = row[OPEN] && opened.has(row[KEY]);
    if (row[OPEN] && !isOpen) {
      [box[X], box[ACROSS], box[DOWN], box[OPEN]] = [row[X] + (row[ACROSS] - WIDE) / 2, WIDE, HIGH, false];
    }
    const [x, y, right, below] = [box[X], box[Y], box[X] + box[ACROSS], box[Y] + box[DOWN]];
    across.push(...(isOpen ? [[x, x + EDGE], [right - EDGE, right]] : [[x, right]]));
    down.push(...(isOpen ? [[y, y + HEAD], [below - EDGE, below]] : [[y, below]]));
    seen.set(row[NODE], box);
  }
  const atX = squeezed(across), atY = squeezed(down);
  for (const box of seen.values()) {
    const right = atX(box[X] + box[ACROSS]), below = atY(box[Y] + box[DOWN]);
    [box[X], box[Y]] = [atX(box[X]), atY(box[Y])];
    [box[ACROSS], box[DOWN]] = [right - box[X], below - box[Y]];
  }
  const lines = [];
  for (const [from, to, byData, onPath, ...places] of answer.lines) {
    const first = seen.get(from), last = seen.get(to);
    if (!first || !last) continue;
    const moved = places.map((place, i) => (i % 2 ? atY(place) : atX(place)));
    [moved[0], moved[1]] = [first[X] + first[ACROSS] / 2, first[Y] + first[DOWN]];
    [moved[moved.length - 2], moved[moved.length - 1]] = [last[X] + last[ACROSS] / 2, last[Y]];
    lines.push([from, to, byData, onPath, ...moved]);
  }
  const boxes = [...seen.values()], size = [Math.max(WIDE, ...boxes.map((box) => box[X] + box[ACROSS])) + EDGE, Math.max(HIGH, ...boxes.map((box) => box[Y] + box[DOWN])) + EDGE];
  return { ...answer, boxes, lines, size, open: [...opened], window: [0, 0, ...size], shown: shown?.[NODE] ?? -1, overview: overviewOf(boxes, size), step_before: null, step_after: null };
}

// As the question "graph_search" answers it, of what the answer holds.
export function searched(answer, text, limit) {
  const wanted = text.toLowerCase(), found = answer.boxes.filter((row) => row[NAME].toLowerCase().includes(wanted));
  found.sort((a, b) => b[MARK] - a[MARK]);
  return { found: found.length, nodes: found.slice(0, limit).map((row) => [row[NODE], row[NAME], row[MARK]]) };
}
