"""register_custom_api and restore_custom_api: functions of the user's own that are recorded as APIs."""

from pathlib import Path
from typing import Any

from msprobe import _agent
from msprobe.pytorch import _log
from msprobe.pytorch._errors import MsprobeError
from msprobe.pytorch.interception import make_api, read_names

_NAMES = Path(__file__).parent / "api_names.txt"


class CustomApis:
    """What was registered, with what stood there before."""

    def __init__(self) -> None:
        self._originals: dict[tuple[int, str], Any] = {}

    def register(self, module: Any, api: str, prefix: str | None) -> None:
        owner = _name_of(module)
        if not isinstance(api, str):
            raise MsprobeError(f"api is {api!r}; it should be a string, the name of a function of {owner}")
        if prefix is not None and not isinstance(prefix, str):
            raise MsprobeError(f"api_prefix is {prefix!r}; it should be a string")
        original = getattr(module, api, None)
        if not callable(original):
            found = "none of that name" if original is None else repr(original)
            raise MsprobeError(f"api is {api!r}; it should name a callable of {owner}, which has {found}")
        sections = read_names(_NAMES.read_text(encoding="utf-8"))
        risk = next((level for level in ("CORE", "LOW") if api in sections[f"risk {level}"]), "FOCUS")
        original = self._originals.setdefault((id(module), api), original)
        setattr(module, api, _agent.intercept(original, "api", api=make_api(f"{prefix or owner}.{api}", risk)))
        _log.info(f"Custom api registered: {owner}.{api}")

    def restore(self, module: Any, api: str) -> None:
        owner = _name_of(module)
        if not isinstance(api, str) or not hasattr(module, api):
            raise MsprobeError(f"api is {api!r}; it should be the name of a function of {owner}")
        original = self._originals.pop((id(module), api), None)
        if original is not None:
            setattr(module, api, original)
            _log.info(f"Custom api restored: {owner}.{api}")


def _name_of(module: Any) -> str:
    return getattr(module, "__name__", None) or type(module).__name__
