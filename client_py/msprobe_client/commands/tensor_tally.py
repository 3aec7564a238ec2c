"""What checkpoint-diff and weights have in common: tensors of two sides by name, counted by verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Generic, Optional, TypeVar

import typer

from msprobe_client.exit_codes import EXIT_DIFFERS, EXIT_FAILED

if TYPE_CHECKING:
    from msprobe_client.output import Ending

Side = TypeVar("Side")
Item = TypeVar("Item")

TensorGlob = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--name", metavar="GLOB", help="Shell pattern over names: '*.layers.0.*'"),
]


class Tally(Generic[Side]):
    """agreeing: verdicts of tensors that are shown only with `every`."""

    def __init__(self, agreeing: frozenset[Any], *, every: bool) -> None:
        self.counts: dict[str, int] = {}
        self.notes: list[str] = []
        self.sides: list[Side] = []
        self._agreeing, self._every = agreeing, every

    def shown(self, found: Iterable[Item]) -> Iterator[Item]:
        for item in found:
            kind: str = item.kind  # type: ignore[attr-defined]
            self.counts[kind] = self.counts.get(kind, 0) + 1
            if self._every or kind not in self._agreeing:
                yield item

    def ending(self, facts: Callable[[Side], dict[str, Any]], line: Callable[[Side], str]) -> Ending:
        """facts, line: of a side."""
        from msprobe_client.output import Ending

        said = ", ".join(f"{count} {kind}" for kind, count in sorted(self.counts.items())) or "no tensors are compared"
        return Ending(
            notes=[*self.notes, said],
            facts={"counts": self.counts, "sides": [facts(side) for side in self.sides]},
            shown=[line(side) for side in self.sides],
        )

    def end(self) -> None:
        """The exit code: equal is what nothing says."""
        if not self.counts:
            raise typer.Exit(EXIT_FAILED)
        if set(self.counts) - self._agreeing:
            raise typer.Exit(EXIT_DIFFERS)


def parsed_rename(text: str) -> tuple[str, str]:
    """Of --rename."""
    before, equals, after = text.partition("=")
    if not equals or not before:
        raise typer.BadParameter(f"{text!r} is not understood; write FROM=TO, as in net.=model.", param_hint="--rename")
    return before, after


def both(target: str, golden: str) -> str:
    """One text where both sides, or one side alone, have it."""
    return target or golden if not (target and golden) or target == golden else f"{target} / {golden}"
