"""Generates the protocol's modules before a wheel (or an editable install) is made."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class GenerateProto(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        del version, build_data
        if self.target_name != "wheel":
            return
        sys.path.insert(0, str(Path(self.root)))
        import generate_proto

        generate_proto.generate()
