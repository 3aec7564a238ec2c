"""PtdbgDispatch checks every aten operator of a block of code: the context manager of earlier mindstudio-probes.

The operators are captured as they run, below autograd, those of a backward pass in the block included. They are held
against a higher precision on the CPU when the block has ended, by the machinery of msprobe-client check.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from msprobe import _agent
from msprobe._common import leaving, log
from msprobe._common.errors import MsprobeError
from msprobe.pytorch._open_agent import distributed_rank, open_agent
from msprobe.pytorch.debugger import PrecisionDebugger
from msprobe.pytorch.interception import make_api

_MODES = ("OFF", "all", "list", "auto")
_EXPORT_SECONDS = 600.0
_CHECKER = "msprobe_client.compat.dispatch_tables"
# They compute nothing, or give back memory that nobody has written.
_NOT_CHECKED = frozenset({"_to_copy", "copy_", "clone", "detach", "_local_scalar_dense", "set_", "resize_", "zero_"})


class PtdbgDispatch(TorchDispatchMode):
    """with PtdbgDispatch(dump_mode="auto", dump_path="checked"): loss = step(); loss.backward()

    dump_mode: whose tensors are kept as .npy files: OFF, nobody's; all; list, those of api_list; auto, those of
    operators that do not pass.
    api_list: names of aten operators, for dump_mode list.
    debug: each operator is named on the log as it runs.
    dump_path: the directory of the results, which must be given: msprobe_[tag_]rank{N}_{time}.
    tag: letters, digits, - and _, for the name of that directory.
    process_num: at most a quarter of the cores; without effect, as the check is one process, behind the block.
    """

    def __init__(
        self,
        dump_mode: str = "OFF",
        api_list: Sequence[str] | None = None,
        debug: bool = False,
        dump_path: str | os.PathLike[str] | None = None,
        tag: str | None = None,
        process_num: int = 0,
    ) -> None:
        super().__init__()
        _refuse(dump_mode, api_list, dump_path, tag, process_num)
        self._mode, self._names, self._debug = dump_mode, list(api_list or ()), debug
        stamp = time.strftime("%Y%m%d%H%M%S")
        rank = distributed_rank() or 0
        self.folder = Path(str(dump_path)).resolve() / f"msprobe_{f'{tag}_' if tag else ''}rank{rank}_{stamp}"
        self._time = stamp
        self._captured = self.folder / "captured"
        self._calls: dict[Any, Callable[..., Any]] = {}
        self._agent: Any = None

    def __enter__(self) -> PtdbgDispatch:
        debugger = PrecisionDebugger._instance
        if debugger is not None and getattr(debugger, "_running", False):
            raise MsprobeError("PtdbgDispatch cannot begin between start() and stop() of a PrecisionDebugger")
        if self.folder.exists():
            raise MsprobeError(f"{self.folder} exists, of an earlier block; make another PtdbgDispatch, a second later")
        if find_spec("msprobe_client") is None:
            raise MsprobeError("PtdbgDispatch checks by msprobe-client, which this environment lacks; install it here")
        self._captured.mkdir(parents=True)
        asked = {
            "task": "tensor", "level": "L1", "dump_path": str(self._captured), "extra_info": False, "edges": "off",
            "server": "", "run": f"dispatch {self.folder.name}",
        }  # fmt: skip
        self._config = _agent.parse_config(json.dumps(asked), None, None, None, None)
        self._agent = open_agent(self._config, distributed_rank() or 0, lambda: None)
        self._agent.start(0)
        super().__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        super().__exit__(kind, error, trace)
        self._agent.stop()
        self._agent.end_step(0, True)
        missing = self._agent.wait(_EXPORT_SECONDS)
        leaving.leave(self._agent, self._config)
        self._agent = None  # it must not outlive the interpreter
        if missing:
            raise MsprobeError(f"the operators are not all in {self._captured}: {missing}")
        dump = next(iter(self._captured.glob("step0/*/dump.json")), None)
        if dump is None:
            log.warning("no operator ran in the block of PtdbgDispatch; nothing was checked")
        else:
            self._check(dump)
        shutil.rmtree(self._captured, ignore_errors=True)

    def _check(self, dump: Path) -> None:
        words = [str(dump), str(self.folder), self._time, self._mode, *self._names]
        done = subprocess.run(
            [sys.executable, "-m", _CHECKER, *words], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        if done.returncode != 0:
            last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
            raise MsprobeError(f"the operators in {self._captured} are not checked: {last[0]}")

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        call = self._calls.get(func)
        if call is None:
            call = self._calls[func] = self._recorded(func)
        if self._debug:
            log.info(str(func))
        return call(*args, **(kwargs or {}))

    @staticmethod
    def _recorded(func: Any) -> Callable[..., Any]:
        """The operator as it is called; itself where it computes nothing that could be wrong."""
        namespace, _, name = func._schema.name.partition("::")
        takes_tensors = any("Tensor" in str(argument.type) for argument in func._schema.arguments)
        is_view = any(argument.alias_info is not None and not argument.alias_info.is_write
                      for argument in func._schema.arguments)  # fmt: skip
        random = torch.Tag.nondeterministic_seeded in func.tags
        if namespace != "aten" or not takes_tensors or is_view or random or name in _NOT_CHECKED:
            return func
        return _agent.intercept(func, "api", api=make_api(f"Aten.{name}", "FOCUS"))


def _refuse(dump_mode: Any, api_list: Any, dump_path: Any, tag: Any, process_num: Any) -> None:
    if dump_mode not in _MODES:
        raise MsprobeError(f"dump_mode is {dump_mode!r}; it should be one of {', '.join(_MODES)}")
    if not dump_path or not isinstance(dump_path, (str, os.PathLike)):
        raise MsprobeError(f"dump_path is {dump_path!r}; it should be the path of a directory")
    named = isinstance(api_list, (list, tuple)) and api_list and all(isinstance(name, str) for name in api_list)
    if dump_mode == "list" and not named:
        raise MsprobeError(f"api_list is {api_list!r}; with dump_mode list it should name operators, as in ['mm']")
    if tag is not None and not (isinstance(tag, str) and re.fullmatch(r"[A-Za-z0-9_-]{1,64}", tag)):
        raise MsprobeError(f"tag is {tag!r}; it should have letters, digits, - and _")
    most = ((os.cpu_count() or 1) + 1) // 4
    if not isinstance(process_num, int) or isinstance(process_num, bool) or not 0 <= process_num <= most:
        raise MsprobeError(f"process_num is {process_num!r}; it should be a number from 0 to {most}")
