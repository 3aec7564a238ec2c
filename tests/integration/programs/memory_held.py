"""Prints the MiB that capture adds to the process at most: steps of layers whose activations have many sizes."""

import itertools
import pathlib
import sys

import torch
from say import say


def status_mib(field: str) -> float:
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise AssertionError(field)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        widths = [1024 + 96 * i for i in range(12)]
        self.layers = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in itertools.pairwise(widths))
        self.head = torch.nn.Linear(widths[-1], 4096)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.head(x)


def main() -> None:
    torch.set_num_threads(1)
    net = Net()
    x = torch.randn(256, 1024)

    def step() -> None:
        with torch.no_grad():
            net(x)

    from msprobe.pytorch import PrecisionDebugger

    step()
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    for _ in range(3):
        step()
    before = status_mib("VmHWM")
    debugger = PrecisionDebugger(config_path=sys.argv[1])
    for _ in range(5):
        debugger.start(model=net)
        step()
        debugger.stop()
        debugger.step()
    debugger.wait(120)
    counters = debugger._agent.counters()
    assert counters["payloads_dropped"] == 0 and counters["fragments_dropped"] == 0, counters
    say("SENT", counters["bytes_sent"] >> 20, "ADDED", round(status_mib("VmHWM") - before, 1))


if __name__ == "__main__":
    main()
