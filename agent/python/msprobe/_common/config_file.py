"""Where the configuration comes from: a file with the arguments above it, and the file's changes (dump_enable)."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msprobe._common import arguments, log
from msprobe._common.errors import MsprobeError
from msprobe._common.native import extension

DEFAULT = '{"task": "statistics", "dump_path": "./dump_path", "level": "L1"}'
POLL_SECONDS = 0.5  # the file is looked at no more often
WRITTEN_SECONDS = 1.0  # for which a file that is no JSON is taken for one that somebody is writing
RETRY_SECONDS = 0.05

Signature = tuple[int, int, int]


class ConfigFile:
    """config_path with the constructor's arguments. Not thread-safe.

    A file that is being written (vllm-ascend's workers all write the same one, each over the others') is told by not
    being JSON. At first it is read again for a while; later at the next poll, and what was read before stays.
    """

    native = extension  # the framework's, whose agent takes what is parsed

    def __init__(
        self,
        config_path: Any,
        task: Any,
        dump_path: Any,
        level: Any,
        step: Any,
        schedule: Any = None,
        select: Any = None,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        if config_path is not None and not isinstance(config_path, (str, os.PathLike)):
            raise MsprobeError(f"config_path is {config_path!r}; it should be the path of a JSON file")
        if isinstance(dump_path, os.PathLike):
            dump_path = os.fspath(dump_path)
        self.path = None if config_path is None else Path(config_path)
        self.overrides: dict[str, Any] = {
            "task": arguments.text(task, "task"),
            "dump_path": arguments.text(dump_path, "dump_path"),
            "level": arguments.text(level, "level"),
            "step": arguments.step_texts(step),
            "schedule": arguments.json_text(schedule, "schedule"),
            "select": arguments.selector(select),
        }
        self._clock = clock
        self.text = self._read_whole(pause)
        self._next_poll = 0.0
        self._signature = self._sign()
        self._incomplete: Signature | None = None

    def parse(self, text: str | None = None, dump_path: str | None = None) -> Any:
        """The checked configuration of `text`, or of what was read first. dump_path stands above all."""
        overrides = self.overrides if dump_path is None else {**self.overrides, "dump_path": dump_path}
        try:
            return self.native.parse_config(self.text if text is None else text, **overrides)
        except ValueError as error:
            if text is None:
                self._refuse_no_json()
            raise MsprobeError(str(error)) from None

    def _refuse_no_json(self) -> None:
        try:
            json.loads(self.text)
        except ValueError as error:
            raise MsprobeError(f"{self.path} is not JSON: {error}") from None

    def for_replay(self, config: Any, *, with_modules: bool, tensors: bool = False) -> Any:
        """A configuration like this one that takes checksums of every call and, with modules, of every module.

        tensors: also the content of each.
        """
        level = "mix" if with_modules else "L1"
        task = "tensor" if tensors else "statistics"
        # Sections, those of tasks and load, select; so do these.
        kept = {
            name: value
            for name, value in json.loads(config.json).items()
            if not isinstance(value, dict) and name not in ("step", "select", "max_steps", "dump_enable", "async_dump")
        }
        # Restoring the state writes it, so that nothing lasts from one pass to the next: watching it only costs.
        kept |= {"extra_info": True, "reuse": "off", task: {} if tensors else {"summary_mode": "md5"}}
        try:
            return self.native.parse_config(
                json.dumps(kept), task=task, dump_path=config.dump_path, level=level, step=None
            )
        except ValueError as error:
            raise MsprobeError(f"replay: {error}") from None

    def asked(self, text: str | None = None) -> dict[str, Any]:
        """Field -> value, as the text (or what was read first) and the arguments have them; empty for no object."""
        try:
            fields = json.loads(self.text if text is None else text)
        except ValueError:
            return {}
        if not isinstance(fields, dict):
            return {}
        given = {name: value for name, value in self.overrides.items() if value is not None}
        if "schedule" in given:
            given["schedule"] = json.loads(given["schedule"])
        return fields | given

    def with_fields(self, text: str, fields: Mapping[str, Any]) -> str:
        """The text with other values; fields of a task's own section go there."""
        changed = self.asked(text) | {name: value for name, value in fields.items() if not self._of_task(name)}
        section = changed.get(str(changed.get("task", "statistics")), {})
        section = section if isinstance(section, dict) else {}
        changed[str(changed.get("task", "statistics"))] = section | {
            name: value for name, value in fields.items() if self._of_task(name)
        }
        return json.dumps(changed)

    def forget_overrides(self, fields: Mapping[str, Any]) -> None:
        """The constructor's arguments stand above the file, not above what is asked later."""
        for name in fields:
            if name in self.overrides:
                self.overrides[name] = None

    @staticmethod
    def _of_task(name: str) -> bool:
        return f"*.{name}" in extension.config_fields()

    def poll(self) -> str | None:
        """The whole text of the file, once each time that it has changed."""
        if self.path is None or self._clock() < self._next_poll:
            return None
        self._next_poll = self._clock() + POLL_SECONDS
        before = self._sign()
        if before is None or before == self._signature:
            return None
        try:
            text = self._read()
            json.loads(text)
        except (MsprobeError, ValueError) as error:
            if before == self._incomplete:
                log.warning(f"{self.path} has changed but is no JSON ({error}); what was read before stays until it is")
                self._signature = before
            self._incomplete = before
            return None
        if self._sign() != before:
            return None  # it was written meanwhile
        self._signature = before
        return text

    def _sign(self) -> Signature | None:
        try:
            found = self.path.stat() if self.path is not None else None
        except OSError:
            return None
        return None if found is None else (found.st_mtime_ns, found.st_size, found.st_ino)

    def _read_whole(self, pause: Callable[[float], None]) -> str:
        """The file's text, once it is JSON; what it is after all that time, if it never is."""
        end = self._clock() + WRITTEN_SECONDS
        while True:
            text = self._read()
            try:
                json.loads(text)
                return text
            except ValueError:
                if self._clock() >= end or not self._written_just_now():
                    return text
            pause(RETRY_SECONDS)

    def _written_just_now(self) -> bool:
        sign = self._sign()
        return sign is not None and abs(time.time() - sign[0] / 1e9) < WRITTEN_SECONDS

    def _read(self) -> str:
        if self.path is None:
            return DEFAULT
        try:
            return self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise MsprobeError(
                f"config_path {os.fspath(self.path)!r} cannot be read: {error}; give the path of a JSON file"
            ) from None


def differences(first: dict[str, Any], second: dict[str, Any]) -> list[str]:
    """What a second configuration asks for that the first did not, a line each."""
    missing = "nothing"
    lines = []
    for name in [*second, *(name for name in first if name not in second)]:
        kept, asked = first.get(name, missing), second.get(name, missing)
        if kept != asked:
            lines.append(f"{name} stays {json.dumps(kept)}, asked was {json.dumps(asked)}")
    return lines
