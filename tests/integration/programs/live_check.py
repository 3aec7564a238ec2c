"""python live_check.py HOLD STEPS CONFIG [wrong]: trains a small net for STEPS steps; prints a hash of its weights.

After the third step it waits until the file HOLD is gone. CONFIG: a config.json to capture with; "off": none.
wrong: gelu on the CPU has another constant than it should, in this process alone.
"""

import hashlib
import pathlib
import sys
import time

import torch
from msprobe.pytorch import PrecisionDebugger

hold, steps, config, *wrong = sys.argv[1:]
torch.manual_seed(7)
torch.set_num_threads(1)
if wrong:
    library = torch.library.Library("aten", "IMPL")

    def wrong_gelu(x, *, approximate="none"):
        return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.0447 * x * x * x)))

    library.impl("gelu", wrong_gelu, "CPU")

net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 8))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
debugger = None if config == "off" else PrecisionDebugger(config_path=config)
for step in range(int(steps)):
    if debugger is not None:
        debugger.start(net)
    loss = torch.nn.functional.cross_entropy(net(torch.randn(16, 32)), torch.randint(0, 8, (16,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if debugger is not None:
        debugger.stop()
        debugger.step()
    print("step", step, flush=True)
    while step == 2 and pathlib.Path(hold).exists():
        time.sleep(0.02)
digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters()))
print("weights", digest.hexdigest(), flush=True)
