"""pip: versions of the packages that compute."""

from __future__ import annotations

from msprobe_client.compat.config_check import pack
from msprobe_client.compat.config_check.sheet import ERROR, Sheet, worst

_COLUMNS = ("package", "bench version", "cmp version", "level")
_PACKAGES = ("transformers", "deepspeed", "megatron", "numpy", "datasets", "peft", "mindspore", "torch")


def sheet(bench: pack.Pack, cmp: pack.Pack) -> Sheet | None:
    if not (pack.PACKAGES in bench and pack.PACKAGES in cmp):
        return None
    ours, theirs = (_versions(side.text(pack.PACKAGES)) for side in (cmp, bench))
    rows = [
        [package, theirs.get(package) or "None", ours.get(package) or "None", ERROR]
        for package in _PACKAGES
        if theirs.get(package) != ours.get(package)
    ]
    return Sheet("pip", _COLUMNS, rows, worst(row[-1] for row in rows))


def _versions(text: str) -> dict[str, str]:
    found = {}
    for line in text.splitlines():
        name, _, version = line.strip().partition("=")
        found[name] = version if "=" not in version else ""
    return found
