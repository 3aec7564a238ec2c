"""Which builds of the extension are here, and which of them serves.

There is one for each minor version of torch and of Python that the agent was built for, as
``torch2.13/_agent.cpython-311-x86_64-linux-gnu.so``. torch decides on the folder; the interpreter finds the file.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from pathlib import Path

import msprobe

_PACKAGE = Path(__file__).parent
_NAME = re.compile(r"_agent\.cpython-(\d)(\d+)-.+\.so")


def minor_of(version: str) -> str:
    """2.13 of 2.13.0+cpu."""
    return ".".join(version.split("+")[0].split(".")[:2])


def builds() -> dict[str, list[str]]:
    """Minor versions of torch, the oldest first, and those of Python in each."""
    found = {}
    for folder in _PACKAGE.glob("torch*.*"):
        pythons = [match.groups() for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]
        if pythons:
            found[folder.name[len("torch") :]] = [
                f"{major}.{minor}" for major, minor in sorted((int(major), int(minor)) for major, minor in pythons)
            ]
    return {torch: found[torch] for torch in sorted(found, key=lambda each: [int(part) for part in each.split(".")])}


def choose(torch_version: str | None = None) -> None:
    """Lets ``from msprobe import _agent`` find the build for this torch; None: the one that is installed."""
    if torch_version is None:
        torch_version = getattr(sys.modules.get("torch"), "__version__", None)
    if torch_version is None:
        try:
            torch_version = importlib.metadata.version("torch")
        except importlib.metadata.PackageNotFoundError:
            return
    folder = str(_PACKAGE / f"torch{minor_of(torch_version)}")
    msprobe.__path__[:] = [folder, *(path for path in msprobe.__path__ if Path(path).parent != _PACKAGE)]
