"""hyperparameters: by name, else by alias, else by likeness of names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import SequenceMatcher
from typing import Any

from msprobe_client.compat.config_check import pack
from msprobe_client.compat.config_check.sheet import ERROR, WARNING, Sheet, worst
from msprobe_client.shown_values import shown_option

_COLUMNS = ("file_name", "bench_para", "cmp_para", "bench_value", "cmp_value", "matched_with", "level")
# Names of one parameter.
_ALIASES = (
    ("learning_rate", "lr", "learningrate"),
    ("batch_size", "batch", "bs", "batch_size_per_gpu"),
    ("epochs", "num_epochs", "max_epochs", "epoch"),
    ("weight_decay", "wd", "weightdecay"),
    ("dropout_rate", "dropout", "drop_rate"),
    ("compute_dtype", "bf16", "fp32"),
    ("residual_dtype", "fp32_residual_connection"),
    ("softmax_compute_dtype", "attention_softmax_in_fp32"),
)
# Names are alike above this ratio.
_ALIKE = 0.8


def sheet(bench: pack.Pack, cmp: pack.Pack) -> Sheet | None:
    if not (bench.under("hyperparameters") and cmp.under("hyperparameters")):
        return None
    rows = [
        row
        for member in (pack.STATIC, pack.DYNAMIC)
        if member in bench and member in cmp
        for row in _rows(member.rpartition("/")[2], *(_shown(side.document(member)) for side in (bench, cmp)))
    ]
    return Sheet("hyperparameters", _COLUMNS, rows, worst(row[-1] for row in rows))


def _shown(parameters: dict[str, Any]) -> dict[str, Any]:
    """mindstudio-probe leaves secrets in its packs."""
    return {name: shown_option(name, value) for name, value in parameters.items()}


def _rows(file: str, bench: dict[str, Any], cmp: dict[str, Any]) -> list[list[Any]]:
    pairs = _pairs(bench, cmp)
    rows = []
    for name, value in bench.items():
        partner = pairs.get(name)
        if partner is None:
            rows.append([file, name, "Only in benchmark", _text(value), "", "", WARNING])
        elif _text(value) != _text(cmp[partner[0]]):
            rows.append([file, name, partner[0], _text(value), _text(cmp[partner[0]]), partner[1], ERROR])
    taken = {other for other, _ in pairs.values()}
    rows += [
        [file, "Only in comparison", name, "", value, "", WARNING] for name, value in cmp.items() if name not in taken
    ]
    return sorted(rows, key=lambda row: row[:3])


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, (int, float)) else value


def _pairs(bench: Iterable[str], cmp: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Bench's name -> comparison's, each at most once, and by what: the surer way goes first for all names."""
    left, free = list(bench), list(cmp)
    pairs: dict[str, tuple[str, str]] = {}
    for find in (_same, _same_end, _alias, _alike):
        for name in list(left):
            found = find(name, free)
            if found is not None:
                pairs[name] = found
                left.remove(name)
                free.remove(found[0])
    return pairs


def _end(name: str) -> str:
    return name.rpartition(".")[2].replace("-", "_")


def _same(name: str, free: list[str]) -> tuple[str, str] | None:
    return (name, "pure name") if name in free else None


def _same_end(name: str, free: list[str]) -> tuple[str, str] | None:
    return _last(free, lambda other: _end(other) == _end(name), "pure name")


def _alias(name: str, free: list[str]) -> tuple[str, str] | None:
    for names in _ALIASES:
        if _end(name) in names:
            for alias in names:
                found = _last(free, lambda other, alias=alias: _end(other) == alias, "mapping")  # type: ignore[misc]
                if found is not None:
                    return found
    return None


def _last(free: list[str], wanted: Callable[[str], bool], by: str) -> tuple[str, str] | None:
    """Of several the last, as YAML lets the last of a repeated key count."""
    found = [other for other in free if wanted(other)]
    return (found[-1], by) if found else None


def _alike(name: str, free: list[str]) -> tuple[str, str] | None:
    best, ratio = None, _ALIKE
    for other in free:
        likeness = SequenceMatcher(None, _end(name).lower(), _end(other).lower()).ratio()
        if likeness > ratio:
            best, ratio = other, likeness
    return None if best is None else (best, f"similarity:{ratio}")
