"""Which values of variables and options a pack shows. Of a secret only the name leaves the machine."""

from __future__ import annotations

import re
from collections.abc import Mapping

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
_SECRET = ("AUTH", "CREDENTIAL", "KEY", "PASSW", "PWD", "SECRET", "TOKEN")
# Options say "token" and "key" of tokens and attention, too: only these are secrets.
_SECRET_OPTION = re.compile(
    r"passw(or)?d|secret|credential|(^|_)(auth|access|api|hf|hub|wandb)_?(key|token)$|(^|_)private_key$"
)
_URL_WITH_PASSWORD = re.compile(r"://[^/\s@]*:[^/\s@]*@|://[^/\s@]+@")


def shown_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Every name, with its value where that may be seen, else "hidden"."""
    return {name: value if _may_be_seen(name, value) else HIDDEN for name, value in variables.items()}


def shown_option(name: str, value: object) -> object:
    """The value of an option of a program, or "hidden"."""
    secret = _SECRET_OPTION.search(name.rpartition(".")[2].lower().replace("-", "_"))
    return HIDDEN if secret or (isinstance(value, str) and _URL_WITH_PASSWORD.search(value)) else value


def _may_be_seen(name: str, value: str) -> bool:
    if any(word in name.upper() for word in _SECRET) or _URL_WITH_PASSWORD.search(value):
        return False
    return name in _NAMES or name.startswith(_FAMILIES)
