"""The device `npu` of tests (tests/npu_backend): a torch backend whose memory the host cannot touch.

For the programs of tests: a process that has loaded it has it for good.
"""

import dataclasses
import pathlib
import types

import torch

LIBRARY = pathlib.Path(__file__).resolve().parents[3] / "build" / "tests" / "libnpu_backend.so"


@dataclasses.dataclass(frozen=True)
class Counters:
    allocations: int  # of device memory
    host_to_device: int  # copies
    device_to_host: int  # copies that nobody waited for
    waiting_device_to_host: int
    synchronizations: int  # of a stream, an event or the device, by any thread
    kernels: int


def load():
    """Makes torch.device("npu") work; gives it."""
    if not LIBRARY.exists():
        raise FileNotFoundError(f"{LIBRARY} is not built: run `ninja -C build npu_backend`")
    torch.utils.rename_privateuse1_backend("npu")
    torch.ops.load_library(LIBRARY)
    module = types.ModuleType("torch.npu")
    module.is_available = lambda: True
    module.device_count = lambda: 1
    module.current_device = lambda: 0
    module.set_device = lambda device: None
    module.is_initialized = lambda: True
    module._is_in_bad_fork = lambda: False
    module.manual_seed_all = lambda seed: None
    module.get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16]
    module.synchronize = lambda device=None: torch.accelerator.synchronize(device)
    torch._register_device_module("npu", module)
    torch.utils.generate_methods_for_privateuse1_backend(unsupported_dtype=[torch.quint8])
    return torch.device("npu:0")


def counters():
    return Counters(*torch.ops.npu_backend.counters())


def reset():
    torch.ops.npu_backend.reset()


class Held:
    """While the block runs, the device begins no kernel: whoever waits for one waits for good."""

    def __enter__(self):
        torch.ops.npu_backend.hold(True)

    def __exit__(self, *_):
        torch.ops.npu_backend.hold(False)


def touch(tensor):
    """Reads the device's memory from the host, which no host survives."""
    return torch.ops.npu_backend.touch(tensor)
