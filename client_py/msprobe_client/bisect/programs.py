"""A program that computes a final output with some modules repaired, and says how far it is from the right one.

It runs once for each set, with the directory MSPROBE_GRAFT in its environment. In there, graft.json asks: {"names",
"source", "inherit", "step"}. Each process of the program answers with modules*.json, the names of its modules,
children first, and with failed*.json, {name: why} of those that it could not repair. PrecisionDebugger.graft() does
both. The last line of the program that is a number is the distance; the last MiB of what it says is looked at.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

from msprobe_client.errors import DataError, FailedPrecondition, InvalidArgument
from msprobe_client.given_file import json_of

T = TypeVar("T", list[str], dict[str, str])

ENVIRONMENT = "MSPROBE_GRAFT"
ASKED, MODULES, FAILED = "graft.json", "modules*.json", "failed*.json"
PRECISIONS = ("float64", "float32")
_NUMBER = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|nan|inf(?:inity)?)", re.IGNORECASE)
_TAIL = 1 << 20  # bytes that are kept
_POLL_SECONDS = 0.05


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
            code, out, err = _run(self._command, {**os.environ, ENVIRONMENT: str(self._directory)})
        except OSError as error:
            raise InvalidArgument(f"{shown} cannot be run: {error.strerror}") from None
        if code:
            said = (err.strip() or out.strip() or "it said nothing").splitlines()[-1]
            raise FailedPrecondition(f"{shown} ended with {code}: {said}")
        if not any(self._directory.glob(MODULES)):
            raise FailedPrecondition(
                f"{shown} does not say which modules it has; it should call debugger.graft() before "
                "debugger.start(model)"
            )
        if failed := {name: why for answer in self._answers(FAILED, dict) for name, why in answer.items()}:
            name, why = next(iter(failed.items()))
            more = f" ({len(failed)} in all)" if len(failed) > 1 else ""
            raise FailedPrecondition(f"{name} could not be repaired: {why}{more}; leave it out by --name")
        for line in reversed(out.splitlines()):
            if _NUMBER.fullmatch(line.strip()):
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


def _run(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str, str]:
    """Its exit code, and the last lines of what it said, and of its errors. What the program leaves behind may hold
    both open: nobody waits for that.
    """
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        out, err = bytearray(), bytearray()
        try:
            with selectors.DefaultSelector() as pipes:
                pipes.register(process.stdout, selectors.EVENT_READ, out)
                pipes.register(process.stderr, selectors.EVENT_READ, err)
                left = _TAIL  # to read once it has ended: as much as pipes hold
                while pipes.get_map() and left > 0:
                    ended = process.poll() is not None
                    ready = pipes.select(0 if ended else _POLL_SECONDS)
                    if ended and not ready:
                        break
                    for key, _ in ready:
                        content = os.read(key.fd, 1 << 16)
                        key.data.extend(content)
                        del key.data[:-_TAIL]
                        left -= len(content) if ended else 0
                        if not content:
                            pipes.unregister(key.fileobj)
            return process.wait(), _lines(out), _lines(err)
        except BaseException:
            process.kill()
            raise


def _lines(tail: bytearray) -> str:
    """Whole ones."""
    text = tail.decode(errors="replace")
    return text if len(tail) < _TAIL else text.partition("\n")[2]


def path_of(name: str) -> str:
    """Module.layers.0.mlp.MLP -> layers.0.mlp"""
    return name.partition(".")[2].rpartition(".")[0]


__all__ = ["Program", "path_of"]
