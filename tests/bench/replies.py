#!/usr/bin/env python3
"""What judging a reply of a language model costs: analyze_output_anomaly here and in mindstudio-probe, in turn.

replies.py           the replies of 1,000 tokens and more, the best of seven each
replies.py --write   also writes the table of docs/responses.md and docs/figures/replies.json

It ends with 1 where the real tool is as fast.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import figures

ROUNDS = 7
REPLIES = Path(__file__).resolve().parents[1] / "interop"
ORACLE = Path(os.environ.get("MSPROBE_ORACLE", figures.ROOT / ".oracle")) / "bin" / "python"
# Runs in either tool's Python: milliseconds of one call for each kind of reply, as JSON.
PROGRAM = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
import replies
from msprobe.response_anomaly import analyze_output_anomaly
given = {
    "1,000 tokens of text": replies.text(1, 1000),
    "1,000 tokens in a loop of 45": replies.loop(1, 1000, 45),
    "1,700 tokens that end in a loop": replies.loop(1, 700, 8, before=1000),
}
took = {}
for name, (topk, tokens) in given.items():
    analyze_output_anomaly([topk], [tokens], None)
    begun = time.perf_counter()
    analyze_output_anomaly([topk], [tokens], None)
    took[name] = 1e3 * (time.perf_counter() - begun)
json.dump(took, sys.stdout)
"""


def once(python: Path) -> dict[str, float]:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([python, "-c", PROGRAM, REPLIES], env=clean, stdout=subprocess.PIPE, text=True, check=True)
    took: dict[str, float] = json.loads(done.stdout)
    return took


def table(rows: dict[str, dict[str, float]]) -> str:
    lines = ["| a reply of | ms | mindstudio-probe | times |", "|---|---:|---:|---:|"]
    for name, row in rows.items():
        lines.append(f"| {name} | {row['ours']:.2f} | {row['real']:.2f} | {row['real'] / row['ours']:.1f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if not ORACLE.exists():
        raise SystemExit(f"replies: there is no mindstudio-probe at {ORACLE}; run make oracle, or set MSPROBE_ORACLE")
    rows: dict[str, dict[str, float]] = {}
    for _ in range(ROUNDS):
        for tool, python in (("ours", Path(sys.executable)), ("real", ORACLE)):
            for name, took in once(python).items():
                row = rows.setdefault(name, {})
                row[tool] = min(took, row.get(tool, took))
    print(table(rows))
    if options.write:
        kept = figures.keep("replies", rows)
        figures.put_table("responses.md", "replies.py", f"{table(rows)}\n\n{figures.measured_on(kept, 'replies.py')}")
    slow = [name for name, row in rows.items() if row["ours"] >= row["real"]]
    if slow:
        raise SystemExit(f"replies: mindstudio-probe is as fast for {', '.join(slow)}")


if __name__ == "__main__":
    main()
