// A border between two panes that one moves, by pointer or by arrow keys. Its place is kept by this browser.

const KEPT = "msprobe-panes", LEAST = 25, MOST = 80, EACH = 2;

export function movable(border, box, moved) {
  let share = Number(localStorage.getItem(KEPT)) || 60;
  const put = (wanted) => {
    share = Math.min(Math.max(wanted, LEAST), MOST);
    box.style.setProperty("--left-pane", `${share}fr`);
    box.style.setProperty("--right-pane", `${100 - share}fr`);
    border.setAttribute("aria-valuenow", Math.round(share));
  };
  const end = () => {
    localStorage.setItem(KEPT, share.toFixed(1));
    moved();
  };
  border.setAttribute("aria-valuemin", LEAST);
  border.setAttribute("aria-valuemax", MOST);
  put(share);
  border.addEventListener("keydown", (event) => {
    const more = { ArrowLeft: -EACH, ArrowRight: EACH, Home: -100, End: 100 }[event.key];
    if (more === undefined) return;
    event.preventDefault();
    put(share + more);
    end();
  });
  border.addEventListener("pointerdown", (event) => border.setPointerCapture(event.pointerId));
  border.addEventListener("pointermove", (event) => {
    if (!border.hasPointerCapture(event.pointerId)) return;
    const { left, width } = box.getBoundingClientRect();
    put((100 * (event.clientX - left)) / width);
  });
  border.addEventListener("pointerup", (event) => {
    border.releasePointerCapture(event.pointerId);
    end();
  });
}
