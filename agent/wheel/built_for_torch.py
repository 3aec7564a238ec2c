"""What the agent's wheel says of the torch that it was built for: in its version, and in the extra ``torch``.

With MSPROBE_WHEEL in the environment, which names a build folder, it is the wheel of every torch that there is an agent
for in that folder: then its version names none.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_BUILD = Path(__file__).resolve().parents[2] / "build"


def _required(minors: set[str]) -> str:
    """One requirement that all these minor versions meet, and none between them."""
    parts = sorted(tuple(map(int, each.split("."))) for each in minors)
    (major, oldest), (_, newest) = parts[0], parts[-1]
    between = [f"{major}.{minor}" for minor in range(oldest, newest) if f"{major}.{minor}" not in minors]
    return f"torch>={major}.{oldest},<{major}.{newest + 1}" + "".join(f",!={each}.*" for each in between)


def dynamic_metadata(field: str, settings: Mapping[str, Any]) -> Any:
    is_all = "MSPROBE_WHEEL" in os.environ
    # A line an agent, "2.13 cp311": the first is the one that is built by default.
    agents = Path(os.environ.get("MSPROBE_WHEEL", _BUILD), "agents.txt").read_text(encoding="utf-8")
    minors = [line.split()[0] for line in agents.splitlines()]
    if field == "version":
        return settings["release"] if is_all else f"{settings['release']}+torch{minors[0]}"
    return {"torch": [_required(set(minors)) if is_all else f"torch=={minors[0]}.*"]}
