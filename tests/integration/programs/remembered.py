"""Reads one weight at every step and changes it in between in ways that torch's version counters may not see.

remembered.py CONFIG HAZARD...: prints, of each hazard, the true CRC-32 of the weight at each call ("step call"), and
how often a tensor was not read again.
"""

import ctypes
import json
import sys
import zlib
from collections.abc import Callable

import numpy
import torch
from say import say

STEPS = 6
SIDE = 256  # 256 KiB of float32
Change = Callable[[torch.Tensor, int], None]


def crc(tensor: torch.Tensor) -> str:
    return f"{zlib.crc32(tensor.detach().clone().numpy().tobytes()):08x}"


def unchanged(weight: torch.Tensor, turn: int) -> None:
    pass


def data_write(weight: torch.Tensor, turn: int) -> None:
    weight.data[3, 5] = turn


def data_multiply(weight: torch.Tensor, turn: int) -> None:
    weight.data.mul_(1.5)


def data_set(weight: torch.Tensor, turn: int) -> None:
    weight.data = torch.full_like(weight, turn)


def pointer(weight: torch.Tensor, turn: int) -> None:
    at = weight.data_ptr() + 4 * (SIDE * SIDE - 1 - turn)  # the last, partial page too
    ctypes.cast(at, ctypes.POINTER(ctypes.c_float))[0] = turn


def numpy_write(weight: torch.Tensor, turn: int) -> None:
    weight.detach().numpy()[200, turn] += 1


def dlpack(weight: torch.Tensor, turn: int) -> None:
    numpy.from_dlpack(weight.detach())  # read-only in numpy
    torch.from_dlpack(weight.detach())[10, turn] += 1


def in_place(weight: torch.Tensor, turn: int) -> None:
    weight.add_(1)


def through_view(weight: torch.Tensor, turn: int) -> None:
    weight.detach()[7].view(16, 16).t()[3, turn] = 100


def load_state_dict(weight: torch.Tensor, turn: int) -> None:
    holder = torch.nn.Module()
    holder.weight = weight
    holder.load_state_dict({"weight": torch.full_like(weight, turn)})


def resize(weight: torch.Tensor, turn: int) -> None:
    kept = weight.detach().clone()
    storage = weight.untyped_storage()
    size = storage.size()
    storage.resize_(0)
    storage.resize_(size)
    weight.data.copy_(kept + turn)


def optimizer(kind: type[torch.optim.Optimizer], **options: object) -> Change:
    made: list[torch.optim.Optimizer] = []

    def step(weight: torch.Tensor, turn: int) -> None:
        if not made:
            made.append(kind([weight], lr=0.1, **options))  # type: ignore[call-arg]
        weight.grad = torch.zeros_like(weight)
        weight.grad[turn] = 1  # one row, as the gradient of an embedding
        made[0].step()
        weight.grad = None

    return step


def custom_operator() -> Change:
    library = torch.library.Library("hazard", "DEF")
    library.define("poke(Tensor(a!) x, int at) -> ()")
    library.impl("poke", lambda x, at: x.numpy().__setitem__((at, at), 9 + at), "CPU")
    keep.append(library)
    return lambda weight, turn: torch.ops.hazard.poke(weight.detach(), turn)


keep: list[object] = []

HAZARDS: dict[str, Callable[[], Change]] = {
    "unchanged": lambda: unchanged,
    "data write": lambda: data_write,
    "data multiply": lambda: data_multiply,
    "data set": lambda: data_set,
    "pointer": lambda: pointer,
    "numpy": lambda: numpy_write,
    "dlpack": lambda: dlpack,
    "in place": lambda: in_place,
    "through a view": lambda: through_view,
    "load_state_dict": lambda: load_state_dict,
    "resize": lambda: resize,
    "fused AdamW": lambda: optimizer(torch.optim.AdamW, fused=True),
    "fused SGD": lambda: optimizer(torch.optim.SGD, fused=True),
    "foreach SGD": lambda: optimizer(torch.optim.SGD, foreach=True),
    "custom operator": custom_operator,
}


def changing_weight(debugger, first: int, change: Change, make: Callable[[], torch.Tensor]) -> dict[str, str]:
    """Two reads a step, a change between them and between steps; every third step nothing changes."""
    true = {}
    weight, x = make(), torch.ones(1, SIDE)
    for step in range(first, first + STEPS):
        for call in range(2):
            if step % 3 != 2:
                change(weight, 2 * (step - first) + call)
            true[f"{step} {call}"] = crc(weight)
            debugger.start()
            torch.nn.functional.linear(x, weight)
            debugger.stop()
        debugger.step()
    return true


def parameter() -> torch.Tensor:
    return torch.nn.Parameter(torch.rand(SIDE, SIDE))


def parameter_with_gradient() -> torch.Tensor:
    weight = parameter()
    weight.grad = torch.zeros_like(weight)
    return weight


def inference_tensor() -> torch.Tensor:
    with torch.inference_mode():
        return torch.rand(SIDE, SIDE)


def running_buffers(debugger, first: int) -> dict[str, str]:
    """The running mean is an input of batch_norm, which writes it without saying so."""
    true = {}
    norm = torch.nn.BatchNorm1d(SIDE * SIDE)
    x = torch.rand(4, SIDE * SIDE)
    for step in range(first, first + STEPS):
        norm.train(step % 3 != 2)
        for call in range(2):
            true[f"{step} {call}"] = crc(norm.running_mean)
            debugger.start()
            norm(x)
            debugger.stop()
        debugger.step()
    return true


def freed_addresses(debugger, first: int) -> dict[str, str]:
    """Weights that die at once, whose memory comes back with other content at the same version."""
    true = {}
    x = torch.ones(1, SIDE)
    for step in range(first, first + 4):
        for call in range(500):
            weight = torch.nn.Parameter(torch.full((SIDE, SIDE), float(500 * step + call)))
            if call % 2:
                weight = weight.detach()
            true[f"{step} {call}"] = crc(weight)
            debugger.start()
            torch.nn.functional.linear(x, weight)
            debugger.stop()
        debugger.step()
    return true


def replace(weight: torch.Tensor) -> None:
    weight.data = torch.rand_like(weight)


def empty(weight: torch.Tensor) -> None:
    weight.untyped_storage().resize_(0)


def read_ahead(debugger, first: int) -> dict[str, str]:
    """Weights of a model that is new in each step: once the first was captured, a thread reads the others."""
    true = {}
    x = torch.ones(1, 4 * SIDE)
    changes = (None, lambda weight: data_multiply(weight, 0), replace, lambda weight: resize(weight, 1), empty)
    for step, change in enumerate(changes, first):
        layers = [torch.nn.Linear(4 * SIDE, 4 * SIDE, bias=False) for _ in range(8)]  # 4 MiB each
        debugger.start(model=torch.nn.ModuleList(layers))
        for call, layer in enumerate(layers):
            if call > 1 and change is not None:
                for each in layers[call:]:
                    change(each.weight)
            if call > 1 and change is empty:
                break
            content = ctypes.string_at(layer.weight.data_ptr(), 4 * layer.weight.numel())
            true[f"{step} {call}"] = f"{zlib.crc32(content):08x}"
            torch.nn.functional.linear(x, layer.weight)
        debugger.stop()
        debugger.step()
    return true


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    from msprobe.pytorch import PrecisionDebugger

    config, *hazards = sys.argv[1:]
    debugger = PrecisionDebugger(config_path=config)
    true = {}
    for hazard in hazards:
        first = debugger.service.loop
        with torch.no_grad():
            if hazard == "running buffers":
                true[hazard] = running_buffers(debugger, first)
            elif hazard == "freed addresses":
                true[hazard] = freed_addresses(debugger, first)
            elif hazard == "read ahead":
                true[hazard] = read_ahead(debugger, first)
            elif hazard == "gradient":
                true[hazard] = changing_weight(debugger, first, unchanged, parameter_with_gradient)
            elif hazard == "inference mode":
                with torch.inference_mode():
                    true[hazard] = changing_weight(debugger, first, in_place, inference_tensor)
            else:
                true[hazard] = changing_weight(debugger, first, HAZARDS[hazard](), parameter)
    counters = debugger._agent.counters()
    say("TRUE", json.dumps(true))
    say("RECALLED", counters["statistics_recalled"])
    assert counters["statistics_wrong"] == 0


if __name__ == "__main__":
    main()
