"""module_dump: one module is recorded by a name of its own, and no API, until module_dump_end."""

from typing import TYPE_CHECKING, Any

import torch

from msprobe._common import log
from msprobe._common.errors import MsprobeError

if TYPE_CHECKING:
    from msprobe.pytorch.debugger import PrecisionDebugger


class ModuleDumper:
    """The modules of module_dump, for one debugger. ``debugger.module_dumper`` is what other libraries reach it by."""

    def __init__(self, debugger: "PrecisionDebugger") -> None:
        self._debugger = debugger
        self.named: dict[torch.nn.Module, str] = {}  # to the full name without count; empty: off

    def start_module_dump(self, module: torch.nn.Module, dump_name: str) -> None:
        if not isinstance(module, torch.nn.Module):
            raise MsprobeError(f"module is a {type(module).__name__}; it should be a torch.nn.Module")
        if not isinstance(dump_name, str) or not dump_name:
            raise MsprobeError(f"dump_name is {dump_name!r}; it should be a string that is not empty")
        level = self._debugger.config.level
        if level != "L1":
            recorded = "nothing but what is saved" if level == "debug" else "every module"
            log.info(f"module_dump has no effect at level {level}, which records {recorded}")
            return
        self.named[module] = f"Module.{dump_name}.{type(module).__name__}"
        self._debugger.recapture()

    def stop_module_dump(self) -> None:
        for module in self.named:
            self._debugger.forget_module(module)
        self.named.clear()
        self._debugger.recapture()

    def add_to(self, agent: Any) -> None:
        for module, name in self.named.items():
            agent.add_module(module, name=name, is_root=False)
