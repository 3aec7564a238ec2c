"""What may be seen of variables, options and texts. Of a secret only the name leaves the machine.

The agent keeps secrets out of the store by the same rule: agent/core/environment.cc.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

HIDDEN = "hidden"

# Variables that tell how processes find each other, their code, their devices, kernels and random numbers.
_NAMES = frozenset(
    (
        "CPU_AFFINITY_CONF", "COMBINED_ENABLE", "DEVICE_ID", "GROUP_RANK", "INF_NAN_MODE_ENABLE", "LD_LIBRARY_PATH",
        "LD_PRELOAD", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "MULTI_STREAM_MEMORY_REUSE",
        "PATH", "PYTHONHASHSEED", "PYTHONPATH", "RANK", "RANK_ID", "RANK_SIZE", "RANK_TABLE_FILE", "ROLE_RANK",
        "SLURM_JOB_ID", "SLURM_NODEID", "SLURM_PROCID", "TASK_QUEUE_ENABLE", "WORLD_SIZE",
    )
)  # fmt: skip
_FAMILIES = (
    "ACL_", "ACLNN_", "ASCEND_", "ATB_", "CUBLAS_", "CUDA_", "CUDNN_", "GLOO_", "HCCL_", "KMP_", "LCAL_", "LCCL_",
    "MKL_", "MS_", "MSPROBE_", "NCCL_", "NPU_", "NVIDIA_", "NVTE_", "OMP_", "OPENBLAS_", "PYTORCH_", "TORCH_",
    "TORCHELASTIC_", "TORCHINDUCTOR_", "TRITON_", "VLLM_", "XLA_",
)  # fmt: skip
_SECRET = ("AUTH", "BEARER", "CREDENTIAL", "KEY", "PASSPHRASE", "PASSW", "PWD", "SECRET", "TOKEN")
# Options say "token" and "key" of tokens and attention, too: a key is a secret by the word before it, a token but for
# the words of tokenizers.
_SECRET_NAME = re.compile(
    r"passw|passphrase|secret|credential|bearer|(^|_)(pass|pwd|auth|authorization|sig|signature|token)$"
    r"|(^|_)(access|account|api|auth|aws|azure|encryption|hf|hub|master|openai|private|shared|signing|ssh|storage|wandb)"
    r"_?key$"
)
_OF_TOKENIZERS = re.compile(
    r"(^|_)(audio|bos|cls|each|end|eod|eos|eot|first|image|last|mask|max|new|next|pad|per|sep|sos|special|start|stop"
    r"|text|think|unk|video|vision|visual)_token$"
)
_SECRET_URL = re.compile(r"://[^\s@]{0,500}@|[?&]key=[^&\s]")
# --token X, --password=X, HF_TOKEN=X, ?sig=X, {'token': 'X'}, "Authorization: Bearer X".
_GIVEN = re.compile(
    r"(?<![\w.-])(?P<dashes>-{0,2})(?P<name>[a-z][\w-]*)['\"]?"
    r"(?:(?P<assigned>\s*[=:]\s*)['\"]?(?=[^\s&'\"])|[\s,]+['\"]?(?=[^\s'\"-]))",
    re.IGNORECASE,
)


def shown_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Every name, with its value where that may be seen, else "hidden"."""
    return {name: value if _may_be_seen(name, value) else HIDDEN for name, value in variables.items()}


def shown_option(name: str, value: Any) -> Any:
    """The value of an option of a program, or of a path of names with points or slashes; "hidden" stands for a secret,
    and for a text or a list with one in it. Of a mapping, each value by its own name.
    """
    if value is None or isinstance(value, bool):
        return value
    if any(map(_is_secret, re.split(r"[./]", name))):
        return HIDDEN
    if isinstance(value, dict):
        return {key: shown_option(str(key), inner) for key, inner in value.items()}
    if _holds_secret(" ".join(_texts(value))):
        return HIDDEN
    return [shown_option("", item) for item in value] if isinstance(value, (list, tuple)) else value


def _may_be_seen(name: str, value: str) -> bool:
    if any(word in name.upper() for word in _SECRET) or _holds_secret(value):
        return False
    return name in _NAMES or name.startswith(_FAMILIES)


def _is_secret(name: str) -> bool:
    plain = name.lower().replace("-", "_")
    return _SECRET_NAME.search(plain) is not None and _OF_TOKENIZERS.search(plain) is None


def _holds_secret(text: str) -> bool:
    return _SECRET_URL.search(text) is not None or any(
        _is_secret(given["name"]) and (given["dashes"] or given["assigned"]) for given in _GIVEN.finditer(text)
    )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)
