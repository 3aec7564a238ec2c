"""Pairs of dumps for measuring comparisons: a recorded pair with its calls repeated under higher numbers."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

_API = re.compile(r"(?P<name>.*)\.(?P<count>[0-9]+)\.(?P<way>forward|backward)")
_MODULE = re.compile(r"(?P<name>.*)\.(?P<way>forward|backward|parameters_grad)\.(?P<count>[0-9]+)")


def renumbered(name: str, counts: dict[str, int], copy: int) -> str:
    """The name in the copy-th repetition: its number goes on where the repetition before ended."""
    for pattern, form in ((_API, "{name}.{count}.{way}"), (_MODULE, "{name}.{way}.{count}")):
        if match := pattern.fullmatch(name):
            key = f"{match['name']}/{match['way']}"
            return form.format(name=match["name"], way=match["way"], count=int(match["count"]) + copy * counts[key])
    return name


def repeat_dump(
    source: Path, target: Path, copies: int, *, tensors: bool = False, shifted: bool = False, modules: bool = False
) -> int:
    """Writes source's dump.json and stack.json repeated into target; gives the number of entries.

    shifted: every number is as if the calls had been made once before. modules: construct.json, too, not an empty one.
    """
    target.mkdir(parents=True, exist_ok=True)
    dump = json.loads((source / "dump.json").read_text())
    counts: dict[str, int] = {}
    construct = json.loads((source / "construct.json").read_text()) if modules else {}
    for name in [*dump["data"], *construct]:
        for pattern in (_API, _MODULE):
            if match := pattern.fullmatch(name):
                key = f"{match['name']}/{match['way']}"
                counts[key] = max(counts.get(key, 0), int(match["count"]) + 1)
                break
    data: dict[str, Any] = {}
    numbers = range(1, copies + 1) if shifted else range(copies)
    for copy in numbers:
        for name, value in dump["data"].items():
            data[renumbered(name, counts, copy)] = value
    (target / "dump.json").write_text(json.dumps({**dump, "data": data}, indent=1))
    stacks = json.loads((source / "stack.json").read_text())
    repeated = {
        number: [[renumbered(name, counts, copy) for copy in numbers for name in names], lines]
        for number, (names, lines) in stacks.items()
    }
    (target / "stack.json").write_text(json.dumps(repeated, indent=1))
    parents = {
        renumbered(name, counts, copy): parent and renumbered(parent, counts, copy)
        for copy in numbers
        for name, parent in construct.items()
    }
    (target / "construct.json").write_text(json.dumps(parents, indent=1))
    if tensors:
        shutil.copytree(source / "dump_tensor_data", target / "dump_tensor_data", dirs_exist_ok=True)
    return len(data)


def repeat_pair(reference: Path, target: Path, copies: int, *, shifted: bool = False, modules: bool = False) -> int:
    """The recorded statistics pair as target/{target,golden}/step0/rank0; gives the entries of a side.

    shifted: the target's calls have other numbers than the golden side's.
    """
    entries = 0
    for recorded, name in (("statistics_perturb", "target"), ("statistics_golden", "golden")):
        entries = repeat_dump(
            reference / recorded / "step0" / "proc1",
            target / name / "step0" / "rank0",
            copies,
            shifted=shifted and name == "target",
            modules=modules,
        )
    return entries
