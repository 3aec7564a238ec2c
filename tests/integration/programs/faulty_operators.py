"""Operators as somebody may register them: a right one, and one that ends its process."""

import ctypes

import torch


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def reads_nothing(x: torch.Tensor) -> torch.Tensor:
    ctypes.memmove(x.data_ptr(), 0, x.numel() * x.element_size())  # from a null pointer
    return x
