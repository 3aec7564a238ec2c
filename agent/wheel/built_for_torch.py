"""What the agent's wheel says of the torch that it was built with: in its version, and in the extra ``torch``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

_BUILT_FOR = Path(__file__).resolve().parents[2] / "build" / "python" / "msprobe" / "built_for_torch.txt"


def dynamic_metadata(field: str, settings: Mapping[str, Any]) -> Any:
    torch = ".".join(_BUILT_FOR.read_text(encoding="utf-8").split(".")[:2])
    if field == "version":
        return f"{settings['release']}+torch{torch}"
    return {"torch": [f"torch=={torch}.*"]}
