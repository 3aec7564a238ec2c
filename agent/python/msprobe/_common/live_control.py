"""What somebody asks of this process while it runs (msprobe-client control), obeyed where a step begins or ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from msprobe._common import log
from msprobe._common.errors import MsprobeError
from msprobe._common.followed_config import FollowedConfig
from msprobe._common.native import extension


class LiveControl:
    """One debugger's commands. Not thread-safe; asking whether there are any is cheap.

    why_fixed(field, value): why this debugger cannot change a field, which could be changed; empty: it can.
    """

    def __init__(
        self, followed: FollowedConfig, why_fixed: Callable[[str, Any], str] = lambda field, value: ""
    ) -> None:
        self._followed, self._why_fixed = followed, why_fixed
        self._reached = False
        self.steps_left = -1  # of `next` and `deeper`; -1: no end
        self.forced = False  # asked to capture: whatever `step` of the configuration says
        self._before: tuple[int, bool] | None = None  # steps_left and forced, while `deeper` lasts

    def announce(self, agent: Any) -> None:
        """Where a server is named, it reaches this process from now on, captured or not."""
        if not self._reached and self._followed.config.server:
            self._reached = True
            agent.recorder.stay_connected()

    def obey(self, agent: Any) -> bool:
        """Does what was asked since the last call. False: nothing was."""
        if agent is None:
            return False
        commands = agent.recorder.take_commands()
        for number, action, settings, steps, request, asked_by in commands:
            try:
                said, refused = self._do(action, settings, steps, request), False
            except (MsprobeError, ValueError) as error:
                said, refused = str(error), True
            log.info(f"{asked_by} asked: {action}{' ' + request if request else ''}: {said}")
            agent.recorder.answer_command(command=number, said=said, refused=refused)
        return bool(commands)

    def end_step(self) -> None:
        """A step with records has ended."""
        if self.steps_left < 0 or (self._before is not None and self._followed.waits):
            return
        self.steps_left -= 1
        if self.steps_left > 0:
            return
        if self._before is None:
            self._stop()
        else:
            self._go_back()

    def say(self, agent: Any, capturing: bool, step: int) -> None:
        """How the program stands now, for whoever asks."""
        if agent is not None:
            agent.recorder.say_state(
                enabled=self._followed.enabled,
                capturing=capturing,
                step=step,
                steps_left=self.steps_left,
                request=self._followed.config.request_id,
            )

    def _do(self, action: str, settings: str, steps: int, request: str) -> str:
        if action == "deeper":
            return self._go_deeper(_fields(settings, "{}"), steps)
        self._go_back()  # what is asked now counts from now on
        if action == "start":
            self._start(-1)
            return "captures from the next step on"
        if action == "stop":
            self._stop()
            return "captures no more"
        if action == "next":
            self._start(steps)
            return f"captures the next {steps} steps"
        if action == "request":
            self._change({"request_id": request})
            self._start(steps or -1)
            return f"captures steps that hold {request}" + (f", {steps} of them" if steps else "")
        if action == "set":
            fields = _fields(settings)
            besides = self._change(fields)
            return "; ".join([f"changed: {_shown(fields)}", *besides])
        raise MsprobeError(f"{action} is not known to this agent")

    def _go_deeper(self, fields: dict[str, Any], steps: int) -> str:
        if self._before is not None:
            raise MsprobeError(f"it captures deeper already, {self.steps_left} steps more")
        if steps < 1:
            raise MsprobeError(f"steps are {steps}; deeper needs at least 1")
        besides = self._change(fields, self._followed.lend)
        self._before = (self.steps_left, self.forced)
        self._start(steps)
        said = f"captures the next {steps} steps" + (f" with {_shown(fields)}" if fields else "")
        return "; ".join([f"{said}, then goes on as before", *besides])

    def _go_back(self) -> None:
        """Ends what `deeper` asked for, if it lasts."""
        if self._before is not None:
            (self.steps_left, self.forced), self._before = self._before, None
            self._followed.give_back()

    def _change(self, fields: dict[str, Any], change: Callable[[dict[str, Any]], list[str]] | None = None) -> list[str]:
        reasons = [extension.why_fixed(field) or self._why_fixed(field, value) for field, value in fields.items()]
        if refused := [why for why in reasons if why]:
            raise MsprobeError("nothing is changed: " + "; ".join(refused))
        try:
            return (change or self._followed.change)(fields)
        except MsprobeError as error:
            raise MsprobeError(f"nothing is changed: {error}") from None

    def _start(self, steps: int) -> None:
        self.steps_left, self.forced = steps, True
        self._followed.switch(True)

    def _stop(self) -> None:
        self.steps_left, self.forced = -1, False
        self._followed.switch(False)


def _fields(settings: str, nothing: str = "") -> dict[str, Any]:
    fields = json.loads(settings or nothing)
    if not isinstance(fields, dict) or (not fields and not nothing):
        raise MsprobeError(f"settings are {settings}; they should be an object with fields of the configuration")
    return fields


def _shown(fields: dict[str, Any]) -> str:
    return ", ".join(f"{name}={json.dumps(value)}" for name, value in fields.items())
