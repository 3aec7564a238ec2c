"""What the user asked to graft, and the exchange with `msprobe-client bisect`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from msprobe._common import log
from msprobe._common.arguments import boolean, is_integer
from msprobe._common.errors import MsprobeError
from msprobe.pytorch.graft.chosen import children_first, chosen
from msprobe.pytorch.graft.golden import Golden, golden_of
from msprobe.pytorch.graft.stage import Graft

ENVIRONMENT = "MSPROBE_GRAFT"
ASKED, MODULES, FAILED = "graft.json", "modules.{}.json", "failed.{}.json"  # in that directory; {}: of a process
_DTYPES = {"float64": torch.float64, "float32": torch.float32}
_STAGE = "graft"


@dataclass(frozen=True)
class Asked:
    """The arguments of PrecisionDebugger.graft, checked as far as they can be without a model."""

    names: tuple[str, ...]
    source: str
    inherit: bool
    step: int | None

    @classmethod
    def of(cls, names: Any, source: Any, inherit: Any, step: Any) -> Asked:
        names = [names] if isinstance(names, str) else names
        if not isinstance(names, (list, tuple, set, frozenset)) or not all(isinstance(each, str) for each in names):
            raise MsprobeError(f"graft: names is {names!r}; it should be a list of names of modules")
        if not isinstance(source, (str, os.PathLike)):
            raise MsprobeError(
                f"graft: source is {source!r}; it should be a dump directory, run:NAME, 'float64' or 'float32'"
            )
        if step is not None and (not is_integer(step) or step < 0):
            raise MsprobeError(f"graft: step is {step!r}; it should be a step of the golden, or None: the same")
        asked = cls(tuple(names), os.fspath(source), boolean(inherit, "graft: inherit"), step)
        if asked.dtype is not None and (asked.inherit or asked.step is not None):
            raise MsprobeError(f"graft: source is {source!r}, which has no inherit and no step: it reads no golden")
        return asked

    @property
    def dtype(self) -> torch.dtype | None:
        return _DTYPES.get(self.source)


class Grafting:
    """Grafts modules of one process, from put() to the next. One thread at a time.

    exchange: the directory in which `msprobe-client bisect` asks and is answered; None: nobody does. bisects: it is one
    of many, and not told.
    """

    def __init__(self, asked: Asked, server: str, exchange: Path | None = None, *, bisects: bool = False) -> None:
        self.asked = asked
        self._exchange = exchange
        self._bisects = bisects
        self._told = False  # of modules that nobody calls
        self._names: list[str] = []
        self.stage: Graft | None = None
        self._without: dict[str, str] = {}
        self._golden: Golden | None = None
        if asked.dtype is None:
            self._golden = golden_of(asked.source, asked.step, server)

    @classmethod
    def of_environment(cls, server: str) -> Grafting | None:
        """As `msprobe-client bisect` asks; None where it did not start this program."""
        directory = os.environ.get(ENVIRONMENT)
        if not directory:
            return None
        path = Path(directory) / ASKED
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            asked = Asked.of(fields["names"], fields["source"], fields["inherit"], fields["step"])
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise MsprobeError(f"graft: {ENVIRONMENT} is {directory!r}, and {path} cannot be read: {error}") from None
        return cls(asked, server, Path(directory), bisects=True)

    def put(self, agent: Any, modules: Mapping[str, torch.nn.Module], step: int, rank: int | None) -> None:
        """The calls of these modules pass through the stage from now on. MsprobeError: the model has no such module."""
        self._say(MODULES, children_first(list(modules)))
        asked = self.asked.names if self._exchange is None else [each for each in self.asked.names if each in modules]
        names = chosen(asked, modules)  # another rank may have the rest
        if not names or not self._begins(step, rank):
            agent.set_stage(_STAGE, None)
            return
        if self.stage is None or names != self._names:
            self._names = names
            self.stage = Graft(
                modules, golden=self._golden, dtype=self.asked.dtype, inherit=self.asked.inherit, rank=rank
            )
            tell = log.debug if self._bisects else log.info
            tell(
                f"graft: the outputs of {len(names)} modules are {self._from()}, and records of their calls say that "
                "they were touched"
            )
        agent.set_stage(_STAGE, self.stage, records=names, behind_observer=True)

    def _begins(self, step: int, rank: int | None) -> bool:
        try:
            if self._golden is not None:
                self._golden.begin(step, rank)
        except MsprobeError as error:
            self._without[f"step {step}"] = str(error)
            log.warning(f"graft: nothing is grafted at step {step}: {error}")
            return False
        return True

    def end(self) -> None:
        """The program stops capturing."""
        self._say(FAILED, self.failed)
        if self.stage is None or self._bisects or self._told:
            return
        self._told = True
        if missed := self.stage.missed(self._names):
            log.warning(f"graft: not called while capturing, so nothing is grafted: {', '.join(missed[:20])}")

    @property
    def failed(self) -> dict[str, str]:
        """Calls that kept their own output, or steps, and why."""
        return self._without | ({} if self.stage is None else self.stage.failed)

    def _from(self) -> str:
        if self.asked.dtype is not None:
            return f"computed in {self.asked.source}"
        if self.asked.inherit:
            return f"rid of what they add to the error against {self.asked.source}"
        return f"those of {self.asked.source}"

    def _say(self, name: str, value: Any) -> None:
        if self._exchange is not None:
            target = self._exchange / name.format(os.getpid())
            written = target.with_suffix(".written")
            written.write_text(json.dumps(value), encoding="utf-8")
            written.replace(target)


def take_out(agent: Any) -> None:
    agent.set_stage(_STAGE, None)


__all__ = ["ASKED", "ENVIRONMENT", "MODULES", "Asked", "Grafting", "take_out"]
