"""The configuration while the program runs: with dump_enable its file is read again when it has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msprobe._common import log
from msprobe._common.config_file import ConfigFile
from msprobe._common.errors import MsprobeError


class FollowedConfig:
    """The checked configuration of a file, and what the file has become since. Not thread-safe.

    `enabled` follows the file as soon as it is looked at, or whoever switches last; everything else waits for take,
    between two steps. Where records go (dump_path, server, run) is settled with the first of them.
    """

    def __init__(self, file: ConfigFile, refuse: Callable[[dict[str, Any], Any], None] | None = None) -> None:
        """refuse: gets what the file has become, as it stands there and checked. MsprobeError: the framework cannot do
        it."""
        self._file, self._refuse = file, refuse
        self.config: Any = file.parse()
        self.enabled = self.config.dump_enable is not False
        self._text = file.text
        self._changed: str | None = None
        self._settled = False
        self._lent: tuple[str, dict[str, Any], bool] | None = None  # what give_back makes of it again

    @property
    def waits(self) -> bool:
        """Whether something has changed that take has not taken."""
        return self._changed is not None

    def settle(self) -> None:
        """Records are sent from now on."""
        self._settled = True

    def switch(self, on: bool) -> None:
        """Somebody asks for it while the program runs."""
        self.enabled = on

    def give(self, fields: Mapping[str, Any]) -> None:
        """Values of fields that the program gives, before anything is sent. MsprobeError: nothing changes."""
        text = self._file.with_fields(self._text, fields)
        self.config, self._text = self._file.parse(text), text

    def change(self, fields: Mapping[str, Any]) -> list[str]:
        """Somebody asks for other values of fields. Returns what else is to be said. MsprobeError: nothing changes."""
        text = self._file.with_fields(self._changed or self._text, fields)
        overrides = dict(self._file.overrides)
        self._file.forget_overrides(fields)
        try:
            warnings = self._parse(text).warnings
        except MsprobeError:
            self._file.overrides = overrides
            raise
        self._changed = text
        return [each for each in warnings if each not in self.config.warnings]

    def lend(self, fields: Mapping[str, Any]) -> list[str]:
        """As change, until give_back."""
        kept = (self._changed or self._text, dict(self._file.overrides), self.enabled)
        besides = self.change(fields)
        self._lent = kept
        return besides

    def give_back(self) -> None:
        """Makes the configuration again what it was before lend, unless its file has changed since."""
        if self._lent is not None:
            self._changed, self._file.overrides, self.enabled = self._lent
            self._lent = None

    def look(self) -> None:
        """Reads the file if it has changed. One that is refused turns capturing off until it is right."""
        if self.config.dump_enable is None:
            return
        text = self._file.poll()
        if text is None:
            return
        self._lent = None
        try:
            dump_enable = self._parse(text).dump_enable
        except MsprobeError as error:
            log.warning(
                f"{self._file.path} has changed and is refused, so nothing is captured until it is right: {error}"
            )
            self._changed, self.enabled = None, False
            return
        self._changed = text
        if dump_enable is not None:
            self.enabled = dump_enable

    def take(self) -> bool:
        """Makes what the file has become the configuration. False: it has not changed."""
        text, self._changed = self._changed, None
        if text is None:
            return False
        config = self._parse(text)
        if self._settled:
            self._warn_of_settled(text, config)
        for each in config.warnings:
            log.warning(each)
        self.config, self._text = config, text
        log.info(f"The configuration has changed and was read again: dump_enable is {str(self.enabled).lower()}")
        return True

    def _parse(self, text: str) -> Any:
        config = self._file.parse(text, dump_path=self.config.dump_path if self._settled else None)
        if self._refuse is not None:
            self._refuse(self._file.asked(text), config)
        return config

    def _warn_of_settled(self, text: str, config: Any) -> None:
        path = self._file.asked(text).get("dump_path")
        if isinstance(path, str) and Path(path).absolute() != Path(self.config.dump_path):
            log.warning(
                f"dump_path stays {self.config.dump_path}, as records were already sent there; start again to change it"
            )
        for name in ("server", "run"):
            if getattr(config, name) != getattr(self.config, name):
                log.warning(
                    f"{name} stays {getattr(self.config, name)!r}, as records were already sent; "
                    "start again to change it"
                )
