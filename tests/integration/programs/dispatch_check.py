"""python dispatch_check.py DUMP_PATH MODE [wrong]: a linear layer and a gelu, both ways, in PtdbgDispatch and without.

Prints the directory of the results. wrong: gelu on the CPU has another constant than it should.
"""

import sys

import torch
from msprobe.pytorch import PtdbgDispatch

dump_path, mode, *wrong = sys.argv[1:]
if wrong:
    library = torch.library.Library("aten", "IMPL")

    def wrong_gelu(x, *, approximate="none"):
        return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.0447 * x * x * x)))

    library.impl("gelu", wrong_gelu, "CPU")


def gradient():
    torch.manual_seed(3)
    layer = torch.nn.Linear(16, 8)
    torch.nn.functional.gelu(layer(torch.randn(4, 16))).sum().backward()
    return layer.weight.grad.clone()


plain = gradient()
with PtdbgDispatch(
    dump_mode=mode, api_list=["addmm"] if mode == "list" else None, dump_path=dump_path, tag="t"
) as block:
    checked = gradient()
assert torch.equal(plain, checked)
print(block.folder)
