"""The machines for which the agent's wheel of every torch and Python is made."""

from __future__ import annotations

import dataclasses
import platform
from pathlib import Path

from stage_server import BUILD
from third_party import ROOT, THIS, Debian


@dataclasses.dataclass(frozen=True)
class Machine:
    name: str  # as in the tag of a wheel
    build: Path  # where its agents are built
    wheels: Path
    debian: Debian  # whose libraries they are built with

    @property
    def python(self) -> Path:
        """Runs here, under an emulator. This machine has Pythons of its own."""
        assert self.debian.root
        return self.debian.root / "python"

    def agents(self) -> list[tuple[str, str]]:
        """The agents that `build` was configured for, as ("2.13", "cp311"): the first is the one built by default."""
        path = self.build / "agents.txt"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [(torch, python) for torch, python in map(str.split, lines)]


HERE = Machine(platform.machine(), BUILD, ROOT / "dist" / "all", THIS)
AARCH64 = Machine("aarch64", ROOT / "build-aarch64", ROOT / "dist" / "aarch64", Debian(ROOT / "build-aarch64" / "root"))
