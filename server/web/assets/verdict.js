// The answer on top: what went wrong first, in one line.

import { ask } from "/server.js";
import { ownFrame, shortPlace } from "/stack.js";
import { count, element, many, notFinite, operationText, rankText } from "/text.js";

// "torch.sqrt" where the whole name stands in the title.
const operation = (name) => element("code", operationText(name), { title: name });

function line(kind, parts, opened) {
  const made = element("p", undefined, { class: `verdict ${kind}` });
  const body = opened ? element("button", undefined, { type: "button" }) : made;
  body.append(...parts);
  if (opened) {
    body.addEventListener("click", opened);
    made.append(body);
  }
  return made;
}

const noteLines = (notes) => notes.map((note) => element("p", `Note: ${note}.`));

// verdict: the server's answer; frames: of the origin's record.
export const overflowLines = (run, verdict, frames, opened) => [overflowLine(run, verdict, frames, opened), ...noteLines(verdict.notes ?? [])];

function overflowLine(run, { origin, suspects, read, notes }, frames, opened) {
  const extent = `${many(run.steps, "step")} of ${many(run.ranks.length, "rank")}, ${many(run.tensors, "tensor")}${run.open_sessions ? " so far" : ""}`;
  if (!run.steps) return line("clean", ["No step yet."]);
  if (!suspects) return line("clean", [`Clean${notes ? ", as far as was captured" : ""}: no NaN, no infinity in ${extent}.`]);
  if (!origin) {
    const seen = read < suspects ? `the first ${count(read)} of ${many(suspects, "step")} with NaN or infinity` : `the ${many(suspects, "step")} with NaN or infinity`;
    return line("clean", [`Nothing began to be NaN or infinite: in ${seen} they are masks, memory that nothing wrote to, or what another rank sent. ${extent}.`]);
  }
  const frame = ownFrame(frames), parts = [`${notFinite(origin)} began at step ${origin.step}, ${rankText(origin.rank)}, `, operation(origin.op)];
  if (frame) parts.push(", ", element("code", shortPlace(frame), { title: `${frame.path}:${frame.line ?? ""}` }));
  else if (origin.module) parts.push(`, in ${origin.module}`);
  return line("bad", [...parts, "."], opened);
}

// divergence, notes: the server's answer for two runs; said: notes that stand above already.
export function divergenceLines(golden, { divergence, notes = [] }, said, opened) {
  return [divergenceLine(golden, divergence, notes, opened), ...noteLines(notes.filter((note) => !said.includes(note)))];
}

function divergenceLine(golden, divergence, notes, opened) {
  if (!divergence) return line("clean", [`Agrees with ${golden} within tolerance${notes.length ? ", as far as both have records" : ""}.`]);
  const { step, rank, op, blame, culprit } = divergence;
  const parts = [`Differs from ${golden} first at step ${step}, ${rankText(rank)}, `, operation(op), `: ${blame}`];
  if (culprit && culprit !== op) parts.push(` (${culprit})`);
  return line("bad", [...parts, "."], opened);
}

// The stack of an operation, innermost frame first.
export async function framesOf(run, { rank, step, op }) {
  const { answer } = await ask("record", { run, rank, step, name: op }, undefined, "verdict's record");
  return answer[0]?.stack ?? [];
}
