"""A program that computes a final output with some modules repaired, and says how far it is from the right one.

It runs once for each set, with the directory MSPROBE_GRAFT in its environment. In there, graft.json asks: {"names",
"source", "inherit", "step"}. Each process of the program answers with modules*.json, the names of its modules,
children first, and with failed*.json, {name: why} of those that it could not repair. PrecisionDebugger.graft() does
both. The last line of the program that is a number is the distance.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

from msprobe_client.errors import DataError, FailedPrecondition, InvalidArgument
from msprobe_client.given_file import json_of

T = TypeVar("T", list[str], dict[str, str])

ENVIRONMENT = "MSPROBE_GRAFT"
ASKED, MODULES, FAILED = "graft.json", "modules*.json", "failed*.json"
PRECISIONS = ("float64", "float32")


class Program:
    """A context; the exchange's directory goes with it. step: of the golden; None: the program's own."""

    def __init__(self, command: Sequence[str], source: str, step: int | None) -> None:
        if not command:
            raise InvalidArgument("there is no program to run; give its command line behind --")
        if source in PRECISIONS and step is not None:
            raise InvalidArgument(f"{source} is no golden, which could have a step {step}; leave out --step")
        self._command = list(command)
        self._source = source
        self._step = step
        self._scratch = tempfile.TemporaryDirectory(prefix="msprobe-bisect-")
        self._directory = Path(self._scratch.name)

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self._scratch.cleanup()

    def distance(self, repaired: Sequence[str]) -> float:
        """Runs the program."""
        asked = {
            "names": list(repaired),
            "source": self._source,
            "inherit": self._source not in PRECISIONS,
            "step": self._step,
        }
        for path in (*self._directory.glob(MODULES), *self._directory.glob(FAILED)):
            path.unlink()
        (self._directory / ASKED).write_text(json.dumps(asked), encoding="utf-8")
        shown = shlex.join(self._command)
        try:
            done = subprocess.run(
                self._command,
                env={**os.environ, ENVIRONMENT: str(self._directory)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
        except OSError as error:
            raise InvalidArgument(f"{shown} cannot be run: {error.strerror}") from None
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
            raise FailedPrecondition(f"{shown} ended with {done.returncode}: {said}")
        if not any(self._directory.glob(MODULES)):
            raise FailedPrecondition(
                f"{shown} does not say which modules it has; it should call debugger.graft() before "
                "debugger.start(model)"
            )
        if failed := {name: why for answer in self._answers(FAILED, dict) for name, why in answer.items()}:
            name, why = next(iter(failed.items()))
            more = f" ({len(failed)} in all)" if len(failed) > 1 else ""
            raise FailedPrecondition(f"{name} could not be repaired: {why}{more}; leave it out by --name")
        for line in reversed(done.stdout.splitlines()):
            with contextlib.suppress(ValueError):
                return float(line)
        raise FailedPrecondition(
            f"{shown} prints no line with a number alone; the last one should be the distance of the final output from "
            "the right one"
        )

    def modules(self, names: Sequence[str]) -> list[str]:
        """Those of the last run whose name, or path in the model, fits one of the shell patterns; children first."""
        found = dict.fromkeys(str(each) for answer in self._answers(MODULES, list) for each in answer)
        return [each for each in found if any(fnmatchcase(each, n) or fnmatchcase(path_of(each), n) for n in names)]

    def _answers(self, names: str, kind: type[T]) -> Iterator[T]:
        for path in sorted(self._directory.glob(names)):
            try:
                answer = json_of(path)
            except (OSError, InvalidArgument) as error:
                raise DataError(f"{path.name} of the program cannot be read: {error}") from None
            if not isinstance(answer, kind):
                raise DataError(f"{path.name} of the program is a {type(answer).__name__}, not a {kind.__name__}")
            yield answer


def path_of(name: str) -> str:
    """Module.layers.0.mlp.MLP -> layers.0.mlp"""
    return name.partition(".")[2].rpartition(".")[0]


__all__ = ["Program", "path_of"]
