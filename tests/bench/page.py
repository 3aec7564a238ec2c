#!/usr/bin/env python3
"""The graph of 100,000 calls on the server's page, in Chromium: opening it, opening a module, searching; memory.

page.py            measures; ends with 1 over a limit
page.py --write    also writes the table of docs/views.md and docs/figures/page.json, with machine and date

Needs Chromium and playwright (`make operate-tools`), and build/server/web/nested_store (`make build`).
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import sys
import tempfile
import time
from typing import Any

from figures import keep, put_table

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from harness.browser import chromium  # type: ignore[import-not-found]  # noqa: E402
from harness.processes import external_server, free_port, run  # type: ignore[import-not-found]  # noqa: E402

LAYERS, CALLS, TIMES = 100, 500, 9
PARTED = "Torch.add.50000.forward"

# Milliseconds from an event to the picture that it leads to: the readout has its words, and a frame was drawn.
UNTIL = """([act, id, words]) => new Promise((resolve, reject) => {
  const began = performance.now(), of = document.getElementById(id);
  const late = setTimeout(() => reject(new Error(`${id} says ${of.textContent}, not ${words}`)), 20000);
  const look = new MutationObserver(() => {
    if (!of.textContent.includes(words)) return;
    look.disconnect();
    clearTimeout(late);
    requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now() - began)));
  });
  look.observe(of, { childList: true, characterData: true, subtree: true });
  const [kind, target, value] = act;
  const on = document.getElementById(target);
  on.focus();
  if (kind === "key") on.dispatchEvent(new KeyboardEvent("keydown", { key: value, bubbles: true, cancelable: true }));
  else { on.value = value; on.dispatchEvent(new Event("input", { bubbles: true })); }
})"""


def megabytes(path: str, field: str) -> float:
    line = next(line for line in pathlib.Path(path).read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1000


def opening(browser: Any, address: str, query: str) -> tuple[Any, float]:
    """A page with its graph drawn, and the seconds from asking for the address."""
    page = browser.new_page(viewport={"width": 1600, "height": 1000})
    began = time.perf_counter()
    page.goto(f"{address}/{query}")
    page.locator("#graph-say", has_text="calls.").wait_for(timeout=60_000)
    return page, time.perf_counter() - began


def heap(page: Any) -> float:
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    return float(session.send("Runtime.getHeapUsage")["usedSize"]) / 1e6


def measure(address: str, server: int, browser: Any) -> dict[str, float]:
    found: dict[str, float] = {}
    page, found["open_s"] = opening(browser, address, "?run=golden&rank=rank0")
    page.close()
    page, found["open_two_s"] = opening(browser, address, "?run=nested&golden=golden&rank=rank0")
    page.close()
    far = "Module.model.layers.7.mlp.MLP.forward.0"
    page, found["open_again_s"] = opening(browser, address, f"?run=golden&rank=rank0&graph_node={far}")
    page.locator("#graph-cell", has_text="layers.7.mlp").wait_for()
    canvas, expand, search = "graph-target", [], []
    found["page_mb"] = heap(page)

    def until(kind: str, target: str, value: str, shown: str, words: str) -> float:
        return float(page.evaluate(UNTIL, [[kind, target, value], shown, words]))

    for _ in range(TIMES):
        expand.append(until("key", canvas, "ArrowRight", "graph-cell", "open"))
        until("key", canvas, "ArrowLeft", "graph-cell", "closed")
    for i in range(TIMES):
        name = f"Torch.add.{50_000 + 1111 * i}.forward"
        search.append(until("type", "graph-find", name, "graph-found", name))
    for i in range(40):  # far and wide over the graph
        name = f"Torch.add.{2000 * i}.forward"
        until("type", "graph-find", name, "graph-found", name)
        until("key", "graph-find", "Enter", "graph-cell", name)
    found["expand_ms"], found["search_ms"] = statistics.median(expand), statistics.median(search)
    found["page_after_mb"], found["server_mb"] = heap(page), megabytes(f"/proc/{server}/status", "VmRSS:")
    page.close()
    return found


LIMITS = {"open_s": 2.0, "open_again_s": 2.0, "expand_ms": 100.0, "search_ms": 100.0, "page_after_mb": 60.0}


def table(kept: dict[str, Any]) -> str:
    found = kept["results"]
    rows = [
        ("open the page, the server having read nothing", f"{found['open_s']:.2f} s"),
        ("the same for two runs, compared", f"{found['open_two_s']:.2f} s"),
        ("open it again", f"{found['open_again_s']:.2f} s"),
        ("open a module of 500 calls", f"{found['expand_ms']:.0f} ms"),
        ("find a call, from the last letter typed", f"{found['search_ms']:.0f} ms"),
        ("heap of the page; after 40 far jumps", f"{found['page_mb']:.1f} MB; {found['page_after_mb']:.1f} MB"),
        ("memory of the server, three such graphs read", f"{found['server_mb']:.0f} MB"),
    ]
    lines = [f"| {what} | {cost} |" for what, cost in rows]
    head = f"100,301 calls in Chromium, `tests/bench/page.py`, {kept['date']}, on {kept['machine']}:"
    return "\n".join([head, "", "| what | cost |", "|---|---:|", *lines])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mspg") as scratch, chromium() as browser:
        folder, port = pathlib.Path(scratch), free_port()
        run([ROOT / "build" / "server" / "web" / "nested_store", folder / "data", LAYERS, CALLS])
        flags = [f"--web_listen=127.0.0.1:{port}"]
        with external_server(folder / "s", folder / "data", folder / "log", *flags) as server:
            found = measure(f"http://127.0.0.1:{port}", server.process.pid, browser)
    for name, value in found.items():
        print(f"{name:14} {value:8.2f}{' over ' + str(LIMITS[name]) if value > LIMITS.get(name, value) else ''}")
    if options.write:
        put_table("views.md", "page.py", table(keep("page", found)))
    if any(found[name] > limit for name, limit in LIMITS.items()):
        raise SystemExit("page: over a limit")


if __name__ == "__main__":
    main()
