"""Task grad_probe on a device: gradients of one call of an optimizer, which SEEN then has."""

import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import npu
from msprobe.pytorch import PrecisionDebugger


def main():
    config, seen = sys.argv[1:]
    device = npu.load()
    model = torch.nn.Linear(300, 401).to(device)
    debugger = PrecisionDebugger(config_path=config)
    debugger.monitor(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    gradients = {name: torch.randn(parameter.shape) for name, parameter in model.named_parameters()}
    for name, parameter in model.named_parameters():
        gradients[name].view(-1)[::7] = 0
        parameter.grad = gradients[name].to(device)
    optimizer.step()
    torch.save(gradients, seen)


if __name__ == "__main__":
    main()
