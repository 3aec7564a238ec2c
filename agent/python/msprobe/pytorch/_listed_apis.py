"""custom_wrap_ops.yaml: functions of other packages that users list to have them recorded as APIs."""

import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msprobe._common import log
from msprobe._common.custom_apis import CustomApis
from msprobe._common.errors import MsprobeError

# Where mindstudio-probe's users keep it.
_USUAL = Path(__file__).parent / "dump" / "api_dump" / "custom_wrap_ops.yaml"


class ListedApis:
    """Registers what the file lists, as {module}.{api}. What cannot be found is told once and tried again."""

    def __init__(self, apis: CustomApis) -> None:
        self._apis = apis
        self._path = Path(os.environ.get("MSPROBE_CUSTOM_WRAP_OPS") or _USUAL)
        self._registered: set[tuple[str, str]] = set()
        self._told: set[str] = set()

    def register(self) -> None:
        """Before capturing starts. Never raises."""
        if not self._path.is_file():
            return
        for module, api in self._listed():
            if (module, api) in self._registered:
                continue
            try:
                self._apis.register(importlib.import_module(module), api, module)
                self._registered.add((module, api))
            except MsprobeError:
                self._tell(f"{module}.{api} is not recorded: {module} has none of that name")
            except Exception as error:
                self._tell(f"{module}.{api} is not recorded: {error}")

    def _listed(self) -> Iterator[tuple[str, str]]:
        for module, names in self._read().items():
            if not isinstance(module, str):
                self._tell(f"{module!r} should be the name of a module")
                continue
            for api in [names] if isinstance(names, str) else names if isinstance(names, list) else [names]:
                if isinstance(api, str):
                    yield module, api
                else:
                    self._tell(f"{api!r} below {module} should be the name of a function, or a list of names")

    def _read(self) -> dict[Any, Any]:
        try:
            import yaml

            content = yaml.safe_load(self._path.read_text(encoding="utf-8"))
        except Exception as error:
            self._tell(f"it cannot be read: {error}")
            return {}
        if content is None or isinstance(content, dict):
            return content or {}
        self._tell("it should have lines as `package.module: [api, ...]`")
        return {}

    def _tell(self, what: str) -> None:
        if what not in self._told:
            self._told.add(what)
            log.warning(f"{self._path}: {what}")
