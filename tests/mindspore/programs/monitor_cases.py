"""Small trainings under a monitor of mindstudio-probe's interface: monitor_cases.py OUT. Either tool runs it.

Each case has a directory in OUT, with the monitor's files in it. Prints `same BOOL` for each case that is trained
without a monitor too: whether the bits of losses and parameters are the same.
"""

import json
import os
import pathlib
import sys

import mindspore as ms
import numpy as np
from lines import tell
from mindspore import Tensor, mint, nn, ops
from mindspore.experimental import optim as experimental

if os.environ.get("MSPROBE_SHIM"):  # mindstudio-probe calls a kernel that MindSpore does not have on a CPU
    mint.norm = lambda x: ops.norm(x)

from msprobe.core.monitor_v2 import TrainerMonitorV2
from msprobe.mindspore import TrainerMon

ms.set_context(mode=ms.PYNATIVE_MODE)
ms.set_device("CPU")
OPS = ["min", "max", "mean", "norm", "zeros", "nans"]
EVERYTHING = dict.fromkeys(("xy_distribution", "wg_distribution", "mv_distribution", "param_distribution"), True)
ALERT = {"rules": [{"rule_name": "AnomalyNan", "args": {"threshold": 1.0}}], "dump": True}
CASES = {
    "everything": {"ops": OPS, "alert": ALERT, **EVERYTHING},
    "micro_batches": {"ops": ["norm", "zeros"], "wg_distribution": True, "monitor_mbs_grad": True, "ndigits": 4},
    "chosen": {
        "targets": {"layers.1": {}, "norm": {}},
        "xy_distribution": True,
        "forward_only": True,
        "wg_distribution": True,
        "start_step": 1,
        "step_interval": 2,
        "step_count_per_record": 3,
        "ops": ["max", "norm"],
    },
    "ends": {"ops": ["min"], "param_distribution": True, "collect_times": 2, "step_count_per_record": 4},
    "dynamic": {"ops": ["max"], "param_distribution": True, "collect_times": 1, "dynamic_on": False},
}


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.layers = nn.CellList([mint.nn.Linear(6, 6) for _ in range(2)])
        self.norm = nn.LayerNorm((6,))
        self.head = mint.nn.Linear(6, 2)

    def construct(self, x, *, scale):
        for layer in self.layers:
            x = mint.nn.functional.relu(layer(x * scale))
        return self.head(self.norm(x))


def train(begin, steps, micro_batches=1, kind=experimental.AdamW, between=lambda step: None):
    """Bits of losses and parameters. begin(net, optimizer): before the first step."""
    ms.set_seed(1)
    np.random.seed(1)
    net = Net().set_train()
    # mindstudio-probe changes the class of the optimizer, for good; its second version sees calls of step alone.
    members = {"step": lambda optimizer, gradients: optimizer(gradients)}
    optimizer = type("Optimizer", (kind,), members)(net.trainable_params(), 0.01)
    step = ms.value_and_grad(lambda x, scale: net(x, scale=scale).square().sum(), None, optimizer.parameters)
    begin(net, optimizer)
    data, bits = np.random.RandomState(3), []
    for number in range(steps):
        between(number)
        total = None
        for _ in range(micro_batches):
            loss, gradients = step(Tensor(data.randn(3, 6).astype(np.float32)), Tensor(np.float32(0.5)))
            total = (
                gradients if total is None else tuple(one + more for one, more in zip(total, gradients, strict=True))
            )
        for parameter, gradient in zip(optimizer.parameters, total, strict=True):
            parameter.main_grad = parameter.grad = gradient  # mindstudio-probe reads no other
        optimizer.step(total)
        bits += [each.asnumpy().tobytes() for each in (loss, *net.get_parameters())]
    return bits


def monitored(out, case, fields):
    config, directory = pathlib.Path(out, f"{case}.json"), pathlib.Path(out, case)
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(json.dumps({"targets": {}, **fields}))
    os.environ["MONITOR_OUTPUT_DIR"] = str(directory)
    os.environ["DYNAMIC_MONITOR"] = str(case == "dynamic")
    micro_batches = 2 if case == "micro_batches" else 1

    def begin(net, optimizer):
        TrainerMon(str(config)).set_monitor(net, optimizer, micro_batches)

    def between(step):
        if case == "dynamic" and step == 1:
            config.write_text(json.dumps({"targets": {}, **fields, "dynamic_on": True}))
            os.utime(config, (1, 1))

    return train(begin, 4 if "chosen" in case else 3, micro_batches, between=between)


def second_version(out):
    """Of TrainerMonitorV2, in steps of two micro-batches."""
    config, directory = pathlib.Path(out, "second.json"), pathlib.Path(out, "second")
    directory.mkdir()
    monitors = {name: {"enabled": True} for name in ("module", "weight_grad", "optimizer", "param", "cc")}
    monitors["weight_grad"]["monitor_mbs_grad"] = True
    monitors["param"]["ops"] = ["norm", "max", "median"]
    fields = {"output_dir": str(directory), "monitors": monitors, "start_step": 1, "step_count_per_record": 2}
    config.write_text(json.dumps({"framework": "mindspore", **fields}))
    monitor = TrainerMonitorV2(str(config))
    bits = train(lambda net, optimizer: monitor.start(net, optimizer, grad_acc_steps=2), 4, 2)
    monitor.stop()
    return bits


def interface(out):
    """Format api, with an optimizer that has other names for its moments, and that is called with the gradients."""
    config = pathlib.Path(out, "api.json")
    config.write_text(json.dumps({"format": "api", "ops": ["norm"], "targets": {}, **EVERYTHING}))
    os.environ |= {"MONITOR_OUTPUT_DIR": str(pathlib.Path(out, "api")), "DYNAMIC_MONITOR": "False"}
    ms.set_seed(1)
    net = nn.Dense(3, 2).set_train()
    optimizer = nn.Adam(net.trainable_params(), 0.01)
    monitor = TrainerMon(str(config))
    monitor.set_monitor(net, optimizer)
    _, gradients = ms.value_and_grad(lambda x: net(x).sum(), None, optimizer.parameters)(ops.ones((2, 3), ms.float32))
    seen = []
    optimizer.register_forward_pre_hook(
        lambda *_: seen.extend(
            (monitor.generate_wgrad_metrics(), monitor.generate_xy_metrics(), dict(monitor._moments))
        )
    )
    optimizer(gradients)
    (post, pre), (activations, activation_gradients), moments = seen
    norms = {
        tag: float(numbers["norm"])
        for each in (post, pre, activations, activation_gradients, *moments.values())
        for tag, numbers in each.items()
    }
    tell("norms", json.dumps(norms))


def main(out):
    for case, fields in CASES.items():
        bits = monitored(out, case, fields)
        if case in ("everything", "micro_batches") and not os.environ.get("MSPROBE_SHIM"):
            plain = train(lambda _net, _optimizer: None, 3, 2 if case == "micro_batches" else 1)
            tell("same", str(bits == plain))
    bits = second_version(out)
    if not os.environ.get("MSPROBE_SHIM"):
        tell("same", str(bits == train(lambda _net, _optimizer: None, 4, 2)))
        tell("torch", str("torch" in sys.modules))
        interface(out)


main(*sys.argv[1:])
