// The modules of a model inside each other, with what is wrong in each.

import { count, element, many, show } from "/text.js";

// modules: [{name, tensors, nan, inf, largest, differences, excess}, ...] in order, the last two where two runs are compared.
function treeOf(modules) {
  const root = { name: "model", children: new Map(), bad: 0, differences: 0, tensors: 0, excess: 0, largest: 0 };
  for (const module of modules) {
    const path = [root];
    for (const part of module.name ? module.name.split(".") : []) {
      const { children } = path.at(-1);
      if (!children.has(part)) children.set(part, { name: part, children: new Map(), bad: 0, differences: 0, tensors: 0, excess: 0, largest: 0 });
      path.push(children.get(part));
    }
    for (const node of path) {
      node.tensors += module.tensors ?? module.rows ?? 0;
      node.bad += (module.nan ?? 0) + (module.inf ?? 0);
      node.differences += module.differences ?? 0;
      node.largest = Math.max(node.largest, module.largest ?? 0);
      node.excess = Math.max(node.excess, Number(module.excess ?? 0));
    }
  }
  return root;
}

const wrong = (node) => node.bad + node.differences > 0;

function words(node) {
  const parts = [many(node.tensors, "tensor")];
  if (node.largest) parts.push(`up to ${show(node.largest)}`);
  if (node.bad) parts.push(`${count(node.bad)} with NaN or infinity`);
  if (node.differences) parts.push(`${count(node.differences)} differ, by up to ${show(node.excess)} tolerances`);
  return ` ${parts.join(", ")}`;
}

// open: whether its first wrong descendants are shown, too.
function item(node, open) {
  const made = element("li", undefined, wrong(node) ? { class: "wrong" } : {});
  const title = [element("code", node.name), element("span", words(node), { class: "hint" })];
  if (!node.children.size) {
    made.append(...title);
    return made;
  }
  const fold = element("details"), summary = element("summary"), list = element("ul");
  summary.append(...title);
  fold.append(summary, list);
  // What is folded is made when it is opened: a model has thousands of modules.
  const fill = () => {
    if (list.childNodes.length) return;
    const children = [...node.children.values()], first = children.find(wrong);
    list.append(...children.map((child) => item(child, open && child === first)));
  };
  fold.addEventListener("toggle", fill);
  if (open) {
    fill();
    fold.open = true;
  }
  made.append(fold);
  return made;
}

export function fillModules(box, modules) {
  const list = element("ul", undefined, { class: "modules" });
  list.append(item(treeOf(modules), true));
  box.replaceChildren(list);
}
