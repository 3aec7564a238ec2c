"""Small trainings under a monitor of mindstudio-probe's interface: monitor_cases.py OUT. Either tool runs it.

Each case has a directory in OUT, with the monitor's files in it.
"""

import copy
import json
import os
import pathlib
import sys

import torch
import transformers

OPS = ["min", "max", "mean", "norm", "zeros", "nans"]
EVERYTHING = dict.fromkeys(("xy_distribution", "wg_distribution", "mv_distribution", "param_distribution"), True)
ALERT = {"rules": [{"rule_name": "AnomalyTurbulence", "args": {"threshold": 0.5}}], "dump": True}
NAN = {"rules": [{"rule_name": "AnomalyNan", "args": {"threshold": 100.0}}], "dump": True}
CASES = {
    "everything": {"ops": OPS, "alert": ALERT, **EVERYTHING},
    "micro_batches": {"ops": ["norm", "zeros"], "wg_distribution": True, "monitor_mbs_grad": True, "ndigits": 9},
    "chosen": {
        "targets": {"layers.1": {}, "norm": {}},
        "xy_distribution": True,
        "forward_only": True,
        "wg_distribution": True,
        "start_step": 1,
        "step_interval": 2,
        "step_count_per_record": 3,
        "ops": ["max", "norm"],
        "alert": NAN,
    },
    "ends": {"ops": ["min", "id"], "param_distribution": True, "collect_times": 2, "step_count_per_record": 4},
    "qwen": {"ops": OPS, "squash_name": True, "all_xy": True, **EVERYTHING},
    "optimizer_without_moments": {"ops": ["mean"], "mv_distribution": True, "param_distribution": True},
}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(6, 6) for _ in range(2)])
        self.norm = torch.nn.LayerNorm(6)
        self.head = torch.nn.Linear(6, 2)

    def forward(self, x, *, scale):
        for layer in self.layers:
            x = torch.relu(layer(x * scale))
        return self.head(self.norm(x)), None


def small_qwen():
    config = transformers.Qwen2Config(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        use_cache=False,
    )
    return transformers.Qwen2ForCausalLM(config)


def loss_of(net, step):
    if isinstance(net, Net):
        out, _ = net(torch.randn(5, 6), scale=torch.tensor(2.0))
        return out.square().mean() * (1000 if step == 3 else 1)
    tokens = torch.randint(0, 32, (2, 7))
    return net(input_ids=tokens, labels=tokens).loss


def train(net, optimizer, steps=5):
    for step in range(steps):
        optimizer.zero_grad()
        for _ in range(2):
            (loss_of(net, step) / 2).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()


def first_version(out, name, fields):
    from msprobe.pytorch import TrainerMon

    torch.manual_seed(1)
    net = small_qwen() if name == "qwen" else Net()
    net.train()
    kind = torch.optim.SGD if name == "optimizer_without_moments" else torch.optim.AdamW
    optimizer = kind(net.parameters(), lr=0.01)
    directory = out / name
    directory.mkdir(parents=True)
    os.environ["MONITOR_OUTPUT_DIR"] = str(directory)
    config = directory / "config.json"
    config.write_text(json.dumps({"targets": {}, "format": "csv"} | copy.deepcopy(fields)))
    monitor = TrainerMon(str(config), params_have_main_grad=False)
    monitor.set_monitor(net, optimizer, grad_acc_steps=2)
    train(net, optimizer, 3 if name == "qwen" else 5)


def second_version(out):
    from msprobe.core.monitor_v2.trainer import TrainerMonitorV2

    torch.manual_seed(2)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    directory = out / "second"
    directory.mkdir()
    monitors = {name: {"enabled": True} for name in ("module", "weight_grad", "optimizer", "param")}
    monitors["param"]["ops"] = ["norm", "max", "median"]
    config = directory / "config.json"
    fields = {"output_dir": str(directory), "monitors": monitors, "start_step": 1, "step_count_per_record": 2}
    config.write_text(json.dumps(fields))
    monitor = TrainerMonitorV2(str(config), fr="pt")
    monitor.start(model=net, optimizer=optimizer, grad_acc_steps=2)
    train(net, optimizer)
    monitor.stop()


def main():
    torch.set_num_threads(1)
    out = pathlib.Path(sys.argv[1])
    for name, fields in CASES.items():
        first_version(out, name, fields)
    second_version(out)


if __name__ == "__main__":
    main()
