"""Stable rank and spectral norm of weights."""

from __future__ import annotations

import torch

from msprobe.pytorch.model_series.part import Modules, Parameters, Sink

_FIRST = 20  # power iterations when a weight is seen for the first time; its vector is kept
_LATER = 2


class Weights:
    """Of each weight of two dimensions the largest singular value, and ||W||_F^2 divided by its square."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._vectors: dict[torch.nn.Parameter, torch.Tensor] = {}

    def add(self, modules: Modules) -> None:
        pass

    def missed(self) -> str:
        return ""

    def stepped(self, parameters: Parameters) -> None:
        if self._sink.samples():
            self._sink.contain(lambda: self._look(parameters))

    def _look(self, parameters: Parameters) -> None:
        for name, parameter in parameters.items():
            is_whole = not hasattr(parameter, "_local_tensor")  # a shard's singular values say little of the weight's
            if parameter.ndim == 2 and parameter.is_floating_point() and is_whole and min(parameter.shape) > 1:
                largest = self._spectral_norm(parameter)
                frobenius = torch.linalg.vector_norm(parameter, dtype=torch.float32)
                self._sink.number(f"{name}.parameter:spectral_norm", largest)
                self._sink.number(f"{name}.parameter:stable_rank", (frobenius / largest).square())

    def _spectral_norm(self, parameter: torch.nn.Parameter) -> torch.Tensor:
        vector = self._vectors.get(parameter)
        iterations = _LATER if vector is not None else _FIRST
        if vector is None:  # the same in every run, and no draw from the program's random numbers
            places = torch.arange(parameter.shape[1], dtype=torch.float32, device=parameter.device)
            vector = torch.nn.functional.normalize(torch.cos(places * places), dim=0)
        for _ in range(iterations):
            left = torch.nn.functional.normalize((parameter @ vector.to(parameter.dtype)).float(), dim=0)
            right = (left.to(parameter.dtype) @ parameter).float()
            vector = torch.nn.functional.normalize(right, dim=0)
        self._vectors[parameter] = vector
        return torch.linalg.vector_norm(right)

    def close(self) -> None:
        self._vectors.clear()
