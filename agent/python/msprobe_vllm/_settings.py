"""Where the dump configuration of a vLLM process stands."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

VARIABLE = "MSPROBE_CONFIG"


def dump_config_path(additional_config: Any) -> str | None:
    """The path of the configuration file that --additional-config or MSPROBE_CONFIG names; None: nothing is asked for.

    ``dump_config`` (an object) is written to a file of this process. Errors, as vllm-ascend has them: ValueError for
    both keys at once, an object that is none, a path that is no string.
    """
    settings = additional_config if isinstance(additional_config, Mapping) else {}
    content, path = settings.get("dump_config"), settings.get("dump_config_path")
    if content is not None and path is not None:
        raise ValueError("additional_config has both dump_config and dump_config_path; give one of them")
    if content is not None:
        if not isinstance(content, Mapping):
            raise ValueError(f"additional_config.dump_config is {content!r}; it must be an object")
        return _written(content)
    if path is not None:
        if not isinstance(path, str):
            raise ValueError(f"additional_config.dump_config_path is {path!r}; it must be a string")
        return path
    return os.environ.get(VARIABLE) or None


def judges_replies(additional_config: Any) -> bool:
    """Whether the server is told of every token, so that it judges replies.

    ValueError: the key is no bool, or is true where no configuration names a server.
    """
    settings = additional_config if isinstance(additional_config, Mapping) else {}
    value = settings.get("judge_replies", False)
    if not isinstance(value, bool):
        raise ValueError(f"additional_config.judge_replies is {value!r}; it must be true or false")
    if value and not (settings.keys() & {"dump_config", "dump_config_path"} or os.environ.get(VARIABLE)):
        raise ValueError(
            f"additional_config.judge_replies is true; it needs dump_config, dump_config_path or {VARIABLE}"
        )
    return value


def _written(content: Mapping[str, Any]) -> str:
    """A file that no other process writes: workers are many, and each reads its own whole."""
    descriptor, path = tempfile.mkstemp(prefix=f"msprobe-{os.getpid()}-", suffix=".json")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=2)
    atexit.register(_remove, path, os.getpid())
    return path


def _remove(path: str, owner: int) -> None:
    if os.getpid() == owner:
        with contextlib.suppress(OSError):
            Path(path).unlink()
