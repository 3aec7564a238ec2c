"""What ConfigChecker asks of a framework: its modules, its ranks, and four numbers of a tensor."""

from __future__ import annotations

import functools
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

from msprobe._common.errors import MsprobeError

# The numbers, in the order of `Framework.numbers`.
NUMBERS = ("max", "min", "mean", "norm")
# Of containers in containers.
_DEPTH = 100

BeforePass = Callable[[Any, "tuple[Any, ...]", "dict[str, Any]"], None]


def framework_of(name: Any) -> Framework:
    if name == "pytorch":
        return PyTorch()
    if name == "mindspore":
        return MindSpore()
    raise MsprobeError(f'fmk is {name!r}; it should be "pytorch" or "mindspore"')


class Framework(ABC):
    @abstractmethod
    def is_module(self, value: Any) -> bool: ...

    @abstractmethod
    def before_each_pass(self, model: Any, call: BeforePass) -> Callable[[], None]:
        """Has call(model, args, kwargs) before each forward pass; the result ends that."""

    @abstractmethod
    def random_functions(self) -> Iterator[tuple[Any, str, str]]:
        """Holder, attribute, and name in the pack, of what draws random numbers."""

    @abstractmethod
    def is_compiling(self) -> bool:
        """Whether a compiler reads the program rather than runs it: then nothing may be counted or packed."""

    @abstractmethod
    def weights(self, model: Any) -> dict[str, dict[str, float]]: ...

    @abstractmethod
    def _distributed_rank(self) -> int | None: ...

    @abstractmethod
    def _is_tensor(self, value: Any) -> bool: ...

    @abstractmethod
    def _numbers(self, tensor: Any) -> dict[str, float] | str:
        """By NUMBERS; "" for what has none: no elements, no memory."""

    @abstractmethod
    def _bytes(self, tensor: Any) -> Any:
        """Its elements as int64 or float64, row-major, on the host."""

    def rank(self) -> int:
        """Before the group of ranks is made, that of the launcher."""
        rank = self._distributed_rank()
        if rank is not None:
            return rank
        said = os.environ.get("RANK", "")
        return int(said) if said.isdigit() else 0

    def features(self, tree: Any) -> tuple[Any, dict[str, str]]:
        """The tree with numbers in place of tensors and "" in place of other values; and path -> CRC-32 of tensors."""
        checksums: dict[str, str] = {}
        return self._features(tree, "", checksums, 0), checksums

    def _features(self, node: Any, path: str, checksums: dict[str, str], depth: int) -> Any:
        if self._is_tensor(node):
            found = self._numbers(node)
            if found:
                checksums[path] = f"{zlib.crc32(self._bytes(node)):08x}"
            return found
        if isinstance(node, (tuple, list)):
            node = dict(enumerate(node))
        if not isinstance(node, dict) or depth == _DEPTH:
            return ""
        return {
            str(key): self._features(value, f"{path}.{key}" if path else str(key), checksums, depth + 1)
            for key, value in node.items()
        }


class PyTorch(Framework):
    def __init__(self) -> None:
        import torch

        self._torch = torch

    def is_module(self, value: Any) -> bool:
        return isinstance(value, self._torch.nn.Module)

    def before_each_pass(self, model: Any, call: BeforePass) -> Callable[[], None]:
        def hook(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if not self.is_compiling():
                call(module, args, kwargs)

        handle = model.register_forward_pre_hook(hook, with_kwargs=True)
        return lambda: handle.remove()

    def random_functions(self) -> Iterator[tuple[Any, str, str]]:
        for name in ("rand", "randint", "randn", "rand_like", "randint_like", "randn_like", "manual_seed"):
            yield self._torch, name, f"torch.{name}"
        for name in ("exponential_", "geometric_", "log_normal_", "cauchy_"):
            yield self._torch.Tensor, name, f"torch.Tensor.{name}"

    def is_compiling(self) -> bool:
        return bool(self._torch.compiler.is_compiling())

    def weights(self, model: Any) -> dict[str, dict[str, float]]:
        """One wait for each device, whatever the number of parameters."""
        found: dict[str, Any] = {name: self._stacked(tensor) for name, tensor in model.named_parameters()}
        by_device: dict[Any, list[str]] = {}
        for name, numbers in found.items():
            if numbers is not None:
                by_device.setdefault(numbers.device, []).append(name)
        for names in by_device.values():
            rows = self._torch.stack([found[name] for name in names]).tolist()
            found.update((name, dict(zip(NUMBERS, row))) for name, row in zip(names, rows))
        return {name: numbers for name, numbers in found.items() if numbers is not None}

    def _distributed_rank(self) -> int | None:
        distributed = self._torch.distributed
        return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else None

    def _is_tensor(self, value: Any) -> bool:
        return isinstance(value, self._torch.Tensor)

    def _numbers(self, tensor: Any) -> dict[str, float] | str:
        stacked = self._stacked(tensor)
        return "" if stacked is None else dict(zip(NUMBERS, stacked.tolist()))

    def _stacked(self, tensor: Any) -> Any:
        """The numbers as float32 on the tensor's device; None: it has none."""
        with self._torch.no_grad():
            plain = self._plain(tensor)
            if plain is None:
                return None
            values = plain.float()
            return self._torch.stack((values.max(), values.min(), values.mean(), values.norm()))

    def _plain(self, tensor: Any) -> Any:
        """Strided, of real numbers; None: it has no elements to read."""
        plain = getattr(tensor, "_local_tensor", tensor).detach()
        if plain.is_sparse:
            plain = plain.coalesce().values()
        if plain.layout != self._torch.strided or plain.is_meta or plain.is_quantized or plain.numel() == 0:
            return None
        return self._torch.view_as_real(plain.resolve_conj()) if plain.is_complex() else plain

    def _bytes(self, tensor: Any) -> Any:
        with self._torch.no_grad():
            plain = self._plain(tensor)
            kind = self._torch.float64 if plain.is_floating_point() else self._torch.int64
            return plain.to("cpu", kind).contiguous().numpy()


class MindSpore(Framework):
    def __init__(self) -> None:
        try:
            import mindspore
        except ImportError:
            raise MsprobeError(
                'fmk is "mindspore", which this environment lacks; it should be "pytorch" here'
            ) from None
        self._mindspore = mindspore

    def is_module(self, value: Any) -> bool:
        return isinstance(value, self._mindspore.nn.Cell)

    def before_each_pass(self, model: Any, call: BeforePass) -> Callable[[], None]:
        construct = model.construct

        @functools.wraps(construct)
        def counted(*args: Any, **kwargs: Any) -> Any:
            call(model, args, kwargs)
            return construct(*args, **kwargs)

        model.construct = counted

        def remove() -> None:
            model.construct = construct

        return remove

    def random_functions(self) -> Iterator[tuple[Any, str, str]]:
        for name in ("rand", "randint", "randn"):
            yield self._mindspore.ops, name, f"mindspore.ops.{name}"
        yield self._mindspore, "set_seed", "mindspore.manual_seed"

    def is_compiling(self) -> bool:
        return False

    def weights(self, model: Any) -> dict[str, dict[str, float]]:
        found = {name: self._numbers(parameter) for name, parameter in model.parameters_and_names()}
        return {name: numbers for name, numbers in found.items() if isinstance(numbers, dict)}

    def _distributed_rank(self) -> int | None:
        communication = self._mindspore.communication
        return int(communication.get_rank()) if communication.GlobalComm.INITED else None

    def _is_tensor(self, value: Any) -> bool:
        return isinstance(value, self._mindspore.Tensor)

    def _numbers(self, tensor: Any) -> dict[str, float] | str:
        import numpy

        values = tensor.astype(self._mindspore.float32).asnumpy()
        if values.size == 0:
            return ""
        norm = numpy.linalg.norm(values.astype(numpy.float64))
        return dict(zip(NUMBERS, map(float, (values.max(), values.min(), values.mean(dtype=numpy.float64), norm))))

    def _bytes(self, tensor: Any) -> Any:
        import numpy

        kind = self._mindspore.float64 if tensor.is_floating_point() else self._mindspore.int64
        return numpy.ascontiguousarray(tensor.astype(kind).asnumpy())
