// Follows runs while they stream, by asking for the list of runs again: every two seconds while the shown run streams,
// else every fifteen. A look that takes long is followed by a longer pause, a hidden tab asks nothing, and a question of
// the user's goes first.

import { ask, busy } from "/server.js";

const SOON = 2000, LATER = 15000, PAUSES = 5;

// known(): the list that is shown; streams(): whether the shown run does; changed(runs): what to do with a new list.
export function follow(known, streams, changed) {
  const look = async () => {
    const began = performance.now();
    if (!document.hidden && !busy()) {
      try {
        const { answer } = await ask("runs", {}, undefined, "live");
        if (JSON.stringify(answer) !== JSON.stringify(known())) await changed(answer);
      } catch {
        // The next look may find the server again; questions of the user say what is wrong.
      }
    }
    setTimeout(look, Math.max(streams() ? SOON : LATER, PAUSES * (performance.now() - began)));
  };
  setTimeout(look, SOON);
}
