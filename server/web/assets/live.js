// Follows what grows, by asking again.

import { ask, busy } from "/server.js";

const SOON = 2000, LATER = 15000, PAUSES = 5;

// Looks again every so many milliseconds, until look() gives false. A look that takes long is followed by a longer pause, a
// hidden tab asks nothing, and a question of the user's goes first.
export function repeat(every, look) {
  const again = async () => {
    const began = performance.now();
    let goesOn = true;
    if (!document.hidden && !busy()) {
      try {
        goesOn = (await look()) !== false;
      } catch {
        // The next look may find the server again; questions of the user say what is wrong.
      }
    }
    if (goesOn) setTimeout(again, Math.max(every(), PAUSES * (performance.now() - began)));
  };
  setTimeout(again, SOON);
}

// Follows runs while they stream, by asking for the list of runs: every two seconds while the shown run streams, else every
// fifteen. known(): the list that is shown; streams(): whether the shown run does; changed(runs): what to do with a new list.
export function follow(known, streams, changed) {
  repeat(() => (streams() ? SOON : LATER), async () => {
    const { answer } = await ask("runs", {}, undefined, "live");
    if (JSON.stringify(answer) !== JSON.stringify(known())) await changed(answer);
  });
}

// Follows a part of the page while a run streams or a job goes on: look() is asked every two seconds until it gives false.
export const followPart = (look) => repeat(() => SOON, look);
