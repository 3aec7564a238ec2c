"""Three small steps of training with tensors, of which the second makes a NaN: what every version captures alike."""

import json
import pathlib
import sys

import torch
from msprobe.pytorch import PrecisionDebugger

dump_path = pathlib.Path(sys.argv[1])
dump_path.mkdir(parents=True, exist_ok=True)
config = {"task": "tensor", "level": "mix", "dump_path": str(dump_path), "rank": [], "step": []}
config["tensor"] = {"scope": [], "list": [], "data_mode": ["all"]}
(dump_path / "config.json").write_text(json.dumps(config))

torch.manual_seed(7)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
debugger = PrecisionDebugger(config_path=str(dump_path / "config.json"))
for step in range(3):
    debugger.start(model)
    output = model(torch.ones(2, 4) * (step + 1))
    loss = torch.log(output - output.abs().max() if step == 1 else output.abs() + 1).sum()
    loss.backward()
    debugger.stop()
    debugger.step()
debugger.wait()
