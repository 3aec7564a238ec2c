"""Fused operators as compositions of plain ones, for golden values. A new one is a function and a line of TABLE."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msprobe_client.check.attention import flash_attention_score


def rms_norm(x: Any, gamma: Any, epsilon: float = 1e-6) -> tuple[Any, Any]:
    scale = (x.square().mean(-1, keepdim=True) + epsilon).rsqrt()
    return x * scale * gamma, scale


def add_rms_norm(x: Any, residual: Any, gamma: Any, epsilon: float = 1e-6) -> tuple[Any, Any, Any]:
    total = x + residual
    normal, scale = rms_norm(total, gamma, epsilon)
    return normal, scale, total


def swiglu(x: Any, dim: int = -1) -> Any:
    import torch

    gate, value = x.chunk(2, dim)
    return torch.nn.functional.silu(gate) * value


def geglu(x: Any, dim: int = -1, approximate: int = 1, activate_left: bool = False) -> tuple[Any, Any]:
    import torch

    left, right = x.chunk(2, dim)
    gate, value = (left, right) if activate_left else (right, left)
    active = torch.nn.functional.gelu(gate, approximate="tanh" if approximate else "none")
    return value * active, active


def rotary_mul(x: Any, cosine: Any, sine: Any, rotary_mode: str = "half") -> Any:
    import torch

    if rotary_mode == "half":
        left, right = x.chunk(2, -1)
        turned = torch.cat((-right, left), -1)
    else:
        turned = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    return x * cosine + turned * sine


def fast_gelu(x: Any, **_: Any) -> Any:
    import torch

    return x * torch.exp(0.851 * (x - x.abs())) / (1 + torch.exp(-1.702 * x.abs()))


def scaled_masked_softmax(x: Any, mask: Any, scale: float = 1.0, fixed_triu_mask: bool = False) -> Any:
    import torch

    if fixed_triu_mask:
        mask = torch.ones_like(x, dtype=torch.bool).triu(1)
    return torch.softmax((x * scale).masked_fill(mask.to(torch.bool), -10000.0), -1)


TABLE: dict[str, Callable[..., Any]] = {
    "npu_rms_norm": rms_norm,
    "npu_add_rms_norm": add_rms_norm,
    "npu_swiglu": swiglu,
    "npu_geglu": geglu,
    "npu_rotary_mul": rotary_mul,
    "npu_fast_gelu": fast_gelu,
    "fast_gelu": fast_gelu,
    "npu_scaled_masked_softmax": scaled_masked_softmax,
}
# Of MindSpore's own: functions of mindspore.ops by name.
OF_MINDSPORE: dict[str, Callable[..., Any]] = {"flash_attention_score": flash_attention_score}
