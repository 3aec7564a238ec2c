"""configs/config.yaml: the thresholds of analyze_output_anomaly, under the names of mindstudio-probe."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msprobe._common.errors import MsprobeError

_POSITIVE, _COUNT, _SHARE, _LOGPROB = "an int of 1 or more", "an int of 0 or more", "from 0 to 1", "0 or less"

# The rule of the detector (agent/core/responses/response_detector.h), and what its field may be.
_FIELDS = {
    "window_size": ("window", _POSITIVE),
    "stride": ("stride", _POSITIVE),
    "rare_character.explogp_sum_thresh": ("rare_mass", _SHARE),
    "rare_character.category_thresh": ("rare_categories", _COUNT),
    "rare_character.top1_logp_thresh": ("rare_top1", _LOGPROB),
    "garbled.top1_logp_thresh": ("garbled_top1", _LOGPROB),
    "garbled.window_ratio": ("garbled_share", _SHARE),
    "garbled.window_thresh": ("garbled_windows", _COUNT),
    "repetition.trajectory.n": ("repeat_gram", _POSITIVE),
    "repetition.trajectory.distinct_n_thresh": ("repeat_distinct", _SHARE),
    "repetition.trajectory.logp_thresh": ("repeat_distinct_top1", _LOGPROB),
    "repetition.acf.acf_threshold": ("repeat_correlation", _SHARE),
    "repetition.acf.logp_thresh": ("repeat_correlation_top1", _LOGPROB),
    "repetition.single_window_thresh": ("repeat_single_windows", _COUNT),
    "repetition.multi_window_thresh": ("repeat_both_windows", _COUNT),
}
_MOST = 2**31


def read_rules(path: Path) -> dict[str, int | float]:
    """The detector's rules. MsprobeError names the file, the field, its value and what is right."""
    try:
        return _read(path, path.stat().st_mtime_ns)
    except OSError as error:
        raise MsprobeError(f"{path} cannot be read: {error.strerror}") from None


@functools.lru_cache(maxsize=8)
def _read(path: Path, _changed: int) -> dict[str, int | float]:
    try:
        import yaml
    except ImportError:
        raise MsprobeError(f"{path} needs PyYAML: pip install pyyaml") from None
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise MsprobeError(f"{path} is no YAML: {str(error).splitlines()[0]}") from None
    rules = {}
    for field, (rule, allowed) in _FIELDS.items():
        value = _found(content, field)
        if not _fits(value, allowed):
            raise MsprobeError(f"{path}: {field} is {value!r}; it should be {allowed}")
        rules[rule] = value
    if rules["stride"] > rules["window"]:
        raise MsprobeError(
            f"{path}: stride is {rules['stride']}; it should be at most window_size, which is {rules['window']}"
        )
    return rules


def _found(content: Any, field: str) -> Any:
    for part in field.split("."):
        content = content.get(part) if isinstance(content, Mapping) else None
    return content


def _fits(value: Any, allowed: str) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    if allowed in (_POSITIVE, _COUNT):
        return isinstance(value, int) and (1 if allowed == _POSITIVE else 0) <= value < _MOST
    return 0 <= value <= 1 if allowed == _SHARE else value <= 0


__all__ = ["read_rules"]
