// Asks the server. The token is this tab's: sessionStorage forgets it with the tab, and no address holds it.

let token = sessionStorage.getItem("msprobe-token") || "";
const asking = new Map();

// The server works on four questions of one caller at the same time (kOfACaller in web_service.h). The page asks three, so
// a second tab and a question whose end the server has not heard of yet find their place.
const MOST_AT_ONCE = 3;
const HEARD_AFTER_MS = 50;
let sent = 0;
const waiting = [];

export class Refused extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export const hasToken = () => token !== "";

export function useToken(given) {
  token = given;
  if (given) sessionStorage.setItem("msprobe-token", given);
  else sessionStorage.removeItem("msprobe-token");
}

function leave() {
  --sent;
  while (sent < MOST_AT_ONCE && waiting.length > 0) waiting.shift()();
}

// Resolves when the question may be sent. One that was replaced while it waited is never sent.
function turn(signal) {
  return new Promise((resolve, reject) => {
    const go = () => {
      if (signal.aborted) return reject(signal.reason);
      ++sent;
      resolve();
    };
    if (sent < MOST_AT_ONCE) go();
    else waiting.push(go);
  });
}

async function refusal(response) {
  try {
    const { error, status } = JSON.parse(await response.text());
    return new Refused(error, status);
  } catch {
    return new Refused(`the server answered ${response.status}`, response.status);
  }
}

// Whether a question is under way.
export const busy = () => asking.size > 0;

// {answer, missing}. A question ends the one in its place that is under way, which the server then stops working on.
// AbortError: that happened to this one.
export async function ask(kind, parameters = {}, progress = () => {}, place = kind) {
  asking.get(place)?.abort();
  const control = new AbortController();
  asking.set(place, control);
  try {
    await turn(control.signal);
    try {
      return await answerOf(kind, parameters, progress, control);
    } finally {
      if (control.signal.aborted) setTimeout(leave, HEARD_AFTER_MS);
      else leave();
    }
  } finally {
    if (asking.get(place) === control) asking.delete(place);
  }
}

async function answerOf(kind, parameters, progress, control) {
  const given = Object.entries(parameters).filter(([, value]) => value !== "" && value !== undefined && value !== null);
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const address = `/api/${kind}?${new URLSearchParams(given)}`;
  let response = await fetch(address, { headers, signal: control.signal });
  // Others ask, too: it is soon our turn.
  for (let i = 0; i < 5 && response.status === 503; ++i) {
    await new Promise((resolve) => setTimeout(resolve, 300 * 2 ** i));
    response = await fetch(address, { headers, signal: control.signal });
  }
  if (!response.ok) throw await refusal(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let parts = [], last;
  for (;;) {
    const { value, done } = await reader.read();
    if (done && last) return last;
    if (done) throw new Refused("the server ended before it had answered", 0);
    let rest = value;
    for (let end = rest.indexOf("\n"); end >= 0; end = rest.indexOf("\n")) {
      const line = JSON.parse(parts.join("") + rest.slice(0, end));
      parts = [];
      rest = rest.slice(end + 1);
      if (line.progress) progress(...line.progress);
      else if (line.error) throw new Refused(line.error, line.status);
      else last = line;
    }
    if (rest) parts.push(rest);
  }
}
