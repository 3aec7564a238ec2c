"""How far capturing may go on: a number of steps, and the room that the dump has on its disk."""

from typing import Any


class StepBounds:
    """Of one process."""

    def __init__(self) -> None:
        self._captured = 0

    def note_step(self) -> None:
        """One was captured."""
        self._captured += 1

    def is_last(self, config: Any) -> bool:
        """Whether max_steps have been captured."""
        return 0 < config.max_steps <= self._captured

    @staticmethod
    def is_full(agent: Any) -> bool:
        """Whether the server has asked that no further step be captured, for now."""
        return agent is not None and bool(agent.counters()["dump_full"])
