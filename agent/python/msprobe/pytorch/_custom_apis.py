"""register_custom_api and restore_custom_api: functions of the user's own that are recorded as APIs."""

from pathlib import Path
from typing import Any

from msprobe._common import log
from msprobe._common.errors import MsprobeError
from msprobe._common.swaps import Swap, read_names, stand_in
from msprobe.pytorch.interception import Interception, make_api, risk_levels

_NAMES = Path(__file__).parent / "api_names.txt"


class CustomApis:
    """What was registered. It is intercepted from then on, capturing or not, until it is restored."""

    def __init__(self, interception: Interception) -> None:
        self._interception = interception
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
        risk = risk_levels(read_names(_NAMES.read_text(encoding="utf-8"))).get(api, "FOCUS")
        swaps = self._swaps[id(module), api] = stand_in(module, api, make_api(f"{prefix or owner}.{api}", risk))
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
