"""Trains a small net under one of mindstudio-probe's monitors: monitored.py {v1,v2} OUT."""

import json
import os
import pathlib
import sys

import torch

STEPS = 3
PASSES = 2  # of a step
LARGE = 2  # the step whose input is beyond what mindstudio-probe's databases hold
OPS = ["min", "max", "mean", "norm", "nans"]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(2)])
        self.norm = torch.nn.LayerNorm(4)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.norm(x)


def first(config, net, optimizer, out):
    os.environ["MONITOR_OUTPUT_DIR"] = str(out)
    from msprobe.pytorch import TrainerMon

    kinds = ("xy_distribution", "wg_distribution", "mv_distribution", "param_distribution", "monitor_mbs_grad")
    config.write_text(json.dumps({"targets": {}, "format": "csv", "ops": OPS, "ndigits": 9} | dict.fromkeys(kinds, True)))
    monitor = TrainerMon(str(config), params_have_main_grad=False)
    monitor.set_monitor(net, grad_acc_steps=PASSES, optimizer=optimizer)


def second(config, net, optimizer, out):
    from msprobe.core.monitor_v2.trainer import TrainerMonitorV2

    monitors = {name: {"enabled": True} for name in ("module", "weight_grad", "optimizer", "param")}
    monitors["weight_grad"] |= {"monitor_mbs_grad": True, "micro_batch_number": PASSES}
    config.write_text(json.dumps({"framework": "pytorch", "output_dir": str(out), "monitors": monitors}))
    TrainerMonitorV2(str(config)).start(net, optimizer=optimizer, grad_acc_steps=PASSES)


def main():
    torch.manual_seed(0)
    kind, out = sys.argv[1], pathlib.Path(sys.argv[2])
    out.mkdir(parents=True)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    {"v1": first, "v2": second}[kind](out / "config.json", net, optimizer, out)
    for step in range(STEPS):
        optimizer.zero_grad()
        for _ in range(PASSES):
            x = torch.randn(3, 4) * (1e12 if step == LARGE else 1)
            net(x).sum().backward()
        optimizer.step()


if __name__ == "__main__":
    main()
