"""register_custom_api and restore_custom_api: functions of the user's own that are recorded as APIs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from msprobe._common import log
from msprobe._common.errors import MsprobeError
from msprobe._common.swaps import Swap


class Interception(Protocol):
    """What is intercepted in this process, capturing or not."""

    def add(self, swaps: list[Swap]) -> None: ...
    def remove(self, swaps: list[Swap]) -> None: ...


class CustomApis:
    """What was registered. It is intercepted from then on, capturing or not, until it is restored.

    swaps(module, api, full_name): those by which calls of module.api are recorded under that name.
    """

    def __init__(self, interception: Interception, swaps: Callable[[Any, str, str], list[Swap]]) -> None:
        self._interception, self._make_swaps = interception, swaps
        self._swaps: dict[tuple[int, str], list[Swap]] = {}

    def register(self, module: Any, api: str, prefix: str | None) -> None:
        owner = _name_of(module)
        if not isinstance(api, str):
            raise MsprobeError(f"api is {api!r}; it should be a string, the name of a function of {owner}")
        if prefix is not None and not isinstance(prefix, str):
            raise MsprobeError(f"api_prefix is {prefix!r}; it should be a string")
        self._put_back(module, api)
        original = getattr(module, api, None)
        if not callable(original):
            found = "none of that name" if original is None else repr(original)
            raise MsprobeError(f"api is {api!r}; it should name a callable of {owner}, which has {found}")
        swaps = self._swaps[id(module), api] = self._make_swaps(module, api, f"{prefix or owner}.{api}")
        self._interception.add(swaps)
        log.info(f"Custom api registered: {owner}.{api}")

    def restore(self, module: Any, api: str) -> None:
        owner = _name_of(module)
        if not isinstance(api, str) or not hasattr(module, api):
            raise MsprobeError(f"api is {api!r}; it should be the name of a function of {owner}")
        if self._put_back(module, api):
            log.info(f"Custom api restored: {owner}.{api}")

    def _put_back(self, module: Any, api: str) -> bool:
        swaps = self._swaps.pop((id(module), api), None)
        if swaps is not None:
            self._interception.remove(swaps)
        return swaps is not None


def _name_of(module: Any) -> str:
    return getattr(module, "__name__", None) or type(module).__name__
