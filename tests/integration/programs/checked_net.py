"""python checked_net.py DUMP_PATH TASK [wrong]: a transformer layer and some operators, both ways, at level L1.

wrong: gelu on the CPU has another constant than it should, in this process alone.
"""

import sys

import torch
from msprobe.pytorch import PrecisionDebugger

dump_path, task, *wrong = sys.argv[1:]
torch.manual_seed(7)
if wrong:
    library = torch.library.Library("aten", "IMPL")

    def wrong_gelu(x, *, approximate="none"):
        return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.0447 * x * x * x)))

    library.impl("gelu", wrong_gelu, "CPU")

layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.1)
debugger = PrecisionDebugger(dump_path=dump_path, task=task, level="L1")
debugger.start(layer)
y = layer(torch.randn(2, 5, 32, requires_grad=True))
z = torch.nn.functional.gelu(torch.matmul(y, y.transpose(1, 2)))
values, indices = torch.topk(z, 2, dim=-1)
z[0, 0, 0].detach().numpy()
w = torch.cat([values, values]).to(torch.bfloat16)
w = torch.mul(w, 0.1)
c = torch.fft.fft(z.detach()[0])
n = torch.empty(4)
r = torch.rand(2000)
m = torch.mul(torch.tensor([1.0, float("nan"), float("inf"), 3.0]), 2)
a = torch.arange(6).add_(1)
loss = torch.nn.functional.cross_entropy(z.reshape(-1, 5), torch.randint(0, 5, (10,))) + (w.float() ** 2).mean()
loss.backward()
debugger.stop()
debugger.step()
debugger.wait()
