"""Whether replies of a language model are broken: analyze_output_anomaly, as mindstudio-probe has it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msprobe._common.errors import MsprobeError

_PACKAGE = Path(__file__).parent


def analyze_output_anomaly(topk_logprobs: Any, tokens: Any, model_configs: Any = None) -> list[list[Any]]:
    """[[is_ill, type]] of each reply; type: 0 none, 1 rare, 2 garbled, 3 repeats itself, 4 NaN or infinite.

    topk_logprobs: for each reply, for each token, a dict of candidates and their log-probabilities. tokens: for each
    reply, the ids of its tokens. model_configs: None, or for each reply the model's name, a dict with `model_name`, or
    None; a model that configs/mtype_config.json and token2category know is judged by its vocabulary. The thresholds are
    those of configs/config.yaml. Errors: MsprobeError names what is wrong.
    """
    from msprobe._common.native import extension
    from msprobe.response_anomaly._settings import read_rules
    from msprobe.response_anomaly._vocabulary import Vocabularies

    for name, value in (("topk_logprobs", topk_logprobs), ("tokens", tokens)):
        _check_list(name, value)
    if len(topk_logprobs) != len(tokens):
        raise MsprobeError(f"topk_logprobs has {len(topk_logprobs)} replies and tokens {len(tokens)}; give as many")
    if model_configs is None:
        model_configs = [None] * len(tokens)
    _check_list("model_configs", model_configs)
    if len(model_configs) != len(tokens):
        raise MsprobeError(f"model_configs has {len(model_configs)} entries for {len(tokens)} replies; give as many")
    rules = read_rules(_PACKAGE / "configs" / "config.yaml")
    vocabularies = Vocabularies(_PACKAGE / "configs" / "mtype_config.json", _PACKAGE / "token2category")
    results = []
    for number, topk in enumerate(topk_logprobs):
        ids, model = tokens[number], model_configs[number]
        _check_list(f"topk_logprobs[{number}]", topk)
        _check_list(f"tokens[{number}]", ids)
        kinds = vocabularies.kinds(model, ids[-1]) if len(ids) > 0 else None
        try:
            fault = extension.judge_reply(topk, ids, rules, kinds, f"reply {number}")
        except ValueError as error:
            raise MsprobeError(str(error)) from None
        results.append([fault != 0, fault])
    return results


def _check_list(name: str, value: Any) -> None:
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        raise MsprobeError(f"{name} is of type {type(value).__name__}; it should be a list")


__all__ = ["analyze_output_anomaly"]
