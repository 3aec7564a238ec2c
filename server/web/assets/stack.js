// Stacks: the user's frames stand out, those of libraries are folded.

import { element, many } from "/text.js";

// Libraries that people also run from a checkout: name/name/... or name-1.0/name/...
const CHECKED_OUT = ["torch", "torch_npu", "transformers", "vllm", "vllm_ascend", "msprobe", "deepspeed", "megatron", "mindspore", "mindspeed", "accelerate", "lightning", "peft", "trl", "ray", "sglang", "verl"];

// The library that a file belongs to; null: the user's own.
export function libraryOf(path) {
  const installed = /(?:site|dist)-packages\/([^/]+)/.exec(path);
  if (installed) return installed[1].replace(/\.py$/, "");
  if (/^<|\/lib\/python[\d.]+\/|\/lib\/python[\d.]+\.zip\//.test(path)) return "python";
  const parts = path.split("/");
  const at = parts.findIndex((part, i) => CHECKED_OUT.includes(part) && i > 0 && i < parts.length - 1 && parts[i - 1].toLowerCase().replaceAll("-", "_").startsWith(part));
  return at < 0 ? null : parts[at];
}

const place = ({ path, line }) => `${path}${line ? `:${line}` : ""}`;

// The innermost frame of the user's own code, else null.
export const ownFrame = (frames) => frames.find(({ path }) => libraryOf(path) === null) ?? null;

// "train.py:20"
export const shortPlace = (frame) => place({ ...frame, path: frame.path.split("/").at(-1) });

function frameItem(frame, own) {
  const item = element("li", undefined, own ? { class: "own" } : {});
  item.append(element("span", place(frame), { class: "hint" }), ` ${frame.function ?? ""}`);
  if (frame.source) item.append(element("code", frame.source));
  return item;
}

// Puts frames, innermost first, into an element.
export function fillStack(box, frames) {
  if (!frames.length) {
    box.replaceChildren(element("p", "No stack was captured.", { class: "hint" }));
    return;
  }
  const parts = [];
  for (let i = 0; i < frames.length; ) {
    const own = libraryOf(frames[i].path) === null;
    let end = i + 1;
    while (end < frames.length && (libraryOf(frames[end].path) === null) === own) ++end;
    const list = element("ol", undefined, { start: i + 1, class: "mono" });
    list.append(...frames.slice(i, end).map((frame) => frameItem(frame, own)));
    if (own) {
      parts.push(list);
    } else {
      const libraries = [...new Set(frames.slice(i, end).map(({ path }) => libraryOf(path)))];
      const fold = element("details");
      fold.append(element("summary", `${many(end - i, "frame")} of ${libraries.join(", ")}`), list);
      parts.push(fold);
    }
    i = end;
  }
  box.replaceChildren(...parts);
}
