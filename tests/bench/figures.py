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
    """What is kept: machine, date and results."""
    FIGURES.mkdir(exist_ok=True)
    kept = {"machine": machine(), "date": today(), "results": results}
    (FIGURES / f"{name}.json").write_text(json.dumps(kept, indent=1) + "\n")
    return kept
