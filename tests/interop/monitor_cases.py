"""Small trainings under a monitor of mindstudio-probe's interface: monitor_cases.py OUT. Either tool runs it.

Each case has a directory in OUT, with the monitor's files in it.
"""

import copy
import json
import os
import pathlib
import sys

import torch
import torch.distributed as dist
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
COMMUNICATION = {
    "cc_second": {"ops": ["min", "max", "mean", "norm", "nans"]},
    "cc_before": {"cc_pre_hook": True},
    "cc_lines": {"cc_codeline": [r"monitor_cases\.py\[\d+\]   talk"]},
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


def talk(step):
    """Collectives of one rank: several of one operation, of lists, by keyword, and asynchronous ones."""
    values = torch.tensor([1.0, 2.0, -2.0, 0.0, 4.0, 0.0]) * (step + 1)  # sums of norms without rounding
    dist.all_reduce(values)
    dist.all_reduce(values.reshape(2, 3), op=dist.ReduceOp.MAX)
    dist.broadcast(tensor=values * 3, src=0)
    work = dist.all_gather([torch.zeros(6)], values, async_op=True)
    work.wait()
    if step != 1:
        dist.reduce_scatter_tensor(torch.zeros(6), values)


def of_communication(out):
    """cc_distribution of both versions. A process group of one rank stays from here on."""
    from msprobe.core.monitor_v2.trainer import TrainerMonitorV2
    from msprobe.pytorch import TrainerMon

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    for name, chosen in COMMUNICATION.items():
        torch.manual_seed(3)
        net = Net()
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        directory = out / name
        directory.mkdir(parents=True)
        config = directory / "config.json"
        if name == "cc_second":
            config.write_text(
                json.dumps({"output_dir": str(directory), "monitors": {"cc": {"enabled": True} | chosen}})
            )
            second = TrainerMonitorV2(str(config), fr="pt")
            second.start(model=net, optimizer=optimizer)
            stop = second.stop
        else:
            os.environ["MONITOR_OUTPUT_DIR"] = str(directory)
            fields = {"targets": {}, "ops": OPS, "cc_distribution": {"enable": True} | chosen}
            config.write_text(json.dumps(fields))
            first = TrainerMon(str(config), params_have_main_grad=False)
            first.set_monitor(net, optimizer)
            stop = None
        for step in range(3):
            talk(step)
            train(net, optimizer, 1)
        if stop is not None:
            stop()


def main():
    torch.set_num_threads(1)
    out = pathlib.Path(sys.argv[1])
    for name, fields in CASES.items():
        first_version(out, name, fields)
    second_version(out)
    of_communication(out)


if __name__ == "__main__":
    main()
