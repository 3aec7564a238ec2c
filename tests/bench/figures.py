"""Results of benches, kept beside the documents that show them: docs/figures/NAME.json, each with machine and date."""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ROOT / "docs" / "figures"


def machine() -> str:
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return f"{model[1] if model else platform.processor()}, {os.cpu_count()} cores, Linux {platform.release()}"


def today() -> str:
    return datetime.date.today().isoformat()


def keep(name: str, results: Any) -> dict[str, Any]:
    """What is kept: machine, its load in the last five minutes, date and results."""
    FIGURES.mkdir(exist_ok=True)
    kept = {"machine": machine(), "load": round(os.getloadavg()[1], 1), "date": today(), "results": results}
    (FIGURES / f"{name}.json").write_text(json.dumps(kept, indent=1) + "\n")
    return kept


def measured_on(kept: dict[str, Any], bench: str) -> str:
    """What a table says of where its figures are from. The bench itself is a load of about its threads."""
    load = f", load {kept['load']}" if "load" in kept else ""
    return f"{kept['machine']}{load}; {kept['date']}; tests/bench/{bench}"


def put_table(document: str, name: str, table: str) -> None:
    """Writes what stands between the marks of the bench `name` in a file of docs/."""
    file = ROOT / "docs" / document
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, _, rest = file.read_text().partition(begin)
    after = rest.partition(end)[2]
    file.write_text(f"{before}{begin}\n{table.strip()}\n{end}{after}")
