"""The values that a training run of verl or slime used, from its log, beside another's: hyper_params_*.csv."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msprobe_client.compat.config_check.printed_mapping import PrintedMapping
from msprobe_client.errors import DataError, InvalidArgument
from msprobe_client.given_file import text_of, yaml_of
from msprobe_client.output.whole_file import whole_file
from msprobe_client.shown_values import shown_option


@dataclass(frozen=True, slots=True)
class Source:
    """A program that trains."""

    read: Callable[[Path], dict[str, Any]]  # what it was configured with, from its log
    excluded: tuple[str, ...]  # parts of names: what differs between machines, and not in what is trained


_COMPARED = ("超参名称", "NPU生效值", "bench生效值", "是否一致")
_VERIFIED = ("关键参数名称", "bench生效值", "target生效值", "是否一致")
_ALIKE, _UNLIKE, _MISSING = "是", "否", "NA"

_VERL_BEGINS = ("{'actor_rollout_ref':", '{"actor_rollout_ref":')
_SLIME_BEGINS = "------------------------ arguments ------------------------"
_SLIME_ENDS = "-------------------- end of arguments ---------------------"
_SLIME_LINE = re.compile(r"\s+(.*?)\s+\.+\s+(.*)")

# What a run of verl on NPUs is held to where no other file is named.
_VERIFIED_BY_DEFAULT = {
    "trainer/balance_batch": False,
    "critic/shuffle": False,
    "critic/use_dynamic_bsz": False,
    "critic/model/use_remove_padding": True,
    "data/shuffle": False,
    "actor_rollout_ref/actor/shuffle": False,
    "actor_rollout_ref/actor/load_weight": True,
    "actor_rollout_ref/actor/use_dynamic_bsz": False,
    "actor_rollout_ref/actor/use_remove_padding": True,
    "actor_rollout_ref/actor/megatron/override_transformer_config/use_ascend_mc2": False,
    "actor_rollout_ref/actor/override_transformer_config/calculate_per_token_loss": False,
    "actor_rollout_ref/ref/load_weight": True,
    "actor_rollout_ref/ref/log_prob_use_dynamic_bsz": False,
    "actor_rollout_ref/rollout/log_prob_use_dynamic_bsz": False,
    "actor_rollout_ref/model/use_remove_padding": True,
    "algorithm/filter_groups/enable": False,
    "VLLM_ASCEND_ENABLE_NZ": 0,
}


def compare(npu_log: Path, bench_log: Path, output: Path, source: Source) -> Path:
    """hyper_params_compare.csv, and what either log says as NPU_config.json and bench_config.json."""
    npu = _configuration(npu_log, output / "NPU_config.json", source)
    bench = _configuration(bench_log, output / "bench_config.json", source)
    names = sorted(name for name in {*npu, *bench} if not any(word in name for word in source.excluded))
    return _write(output / "hyper_params_compare.csv", _COMPARED, _rows(names, npu, bench))


def verify(bench_config: Path | None, log: Path, output: Path) -> Path:
    """hyper_params_verify.csv, and what the log says as tgt_config.json. bench_config: what should be, in YAML."""
    wanted = _VERIFIED_BY_DEFAULT if bench_config is None else flat(shown_option("", _yaml(bench_config)))
    found = _configuration(log, output / "tgt_config.json", VERL)
    return _write(output / "hyper_params_verify.csv", _VERIFIED, _rows(sorted(wanted), wanted, found))


def verl_configuration(log: Path) -> dict[str, Any]:
    """The last one that the log has."""
    lines = _text(log).splitlines()
    starts = [(at, begin) for at, line in enumerate(lines) for begin in _VERL_BEGINS if begin in line]
    if not starts:
        raise DataError(f"{log} has no configuration of verl: no line has {_VERL_BEGINS[0]}")
    at, begin = starts[-1]
    prefix = lines[at].partition(begin)[0]  # of the process: what other lines begin with is another's
    found = PrintedMapping()
    for line in lines[at:]:
        if not line.startswith(prefix):
            continue
        for part in line.split(prefix)[1:] if prefix else [line]:
            if found.take(part):
                return dict(found.value())
    raise DataError(f"{log} ends within the configuration of verl that begins in line {at + 1}")


def slime_configuration(log: Path) -> dict[str, Any]:
    """What the log has between its lines "arguments" and "end of arguments"."""
    _, begins, rest = (text := _text(log)).partition(_SLIME_BEGINS)
    block, ends, _ = rest.partition(_SLIME_ENDS)
    if not begins or not ends:
        raise DataError(f"{log} has no arguments of slime: no line {_SLIME_ENDS if begins else _SLIME_BEGINS}")
    prefix = text[: -len(rest) - len(begins)].rpartition("\n")[2].rstrip(" ")
    lines = (line.removeprefix(prefix).rstrip() for line in block.splitlines())
    found = {match[1]: _scalar(match[2].strip()) for line in lines if (match := _SLIME_LINE.fullmatch(line))}
    if not found:
        raise DataError(f"{log} has no line `  name ... value` between {_SLIME_BEGINS} and {_SLIME_ENDS}")
    return found


def flat(document: Any, prefix: str = "") -> dict[str, Any]:
    """Path with slashes -> value. Lists and empty mappings are values."""
    if not isinstance(document, dict) or not document:
        return {prefix: document}
    return {
        path: value
        for key, inner in document.items()
        for path, value in flat(inner, f"{prefix}/{key}" if prefix else str(key)).items()
    }


VERL = Source(verl_configuration, ("profiler/", "ray_"))
SLIME = Source(slime_configuration, ("profile",))


def _configuration(log: Path, copy: Path, source: Source) -> dict[str, Any]:
    if log.suffix.lower() not in (".log", ".txt"):
        raise InvalidArgument(f"{log} is no log of a training run; it has to end with .log or .txt")
    try:
        text = json.dumps(shown_option("", source.read(log)), indent=2)
    except RecursionError:
        raise DataError(f"{log} has a configuration of mappings within mappings, deeper than any program's") from None
    with whole_file(copy) as scratch:
        scratch.write_text(text, encoding="utf-8")
    return flat(json.loads(text))


def _rows(names: Iterable[str], one: dict[str, Any], other: dict[str, Any]) -> list[list[str]]:
    return [
        [
            name,
            *(repr(side[name]) if name in side else _MISSING for side in (one, other)),
            _ALIKE if name in one and name in other and one[name] == other[name] else _UNLIKE,
        ]
        for name in names
    ]


def _write(target: Path, header: Sequence[str], rows: list[list[str]]) -> Path:
    with whole_file(target) as scratch, scratch.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
    return target


def _text(path: Path) -> str:
    try:
        return text_of(path, "replace")
    except FileNotFoundError:
        raise InvalidArgument(f"{path} does not exist; name the log of a training run") from None


def _yaml(path: Path) -> dict[str, Any]:
    found = yaml_of(path)
    if not isinstance(found, dict) or not found:
        raise DataError(f"{path} is no mapping of names to values")
    return found


def _scalar(text: str) -> Any:
    if text in ("True", "False"):
        return text == "True"
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text):
        return float(text)
    return text
