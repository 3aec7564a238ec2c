"""Runs a small net right, then wrong in two places, and has local_error make its passes.

--golden: the right run, which is captured alone.
"""

import sys

import torch
from msprobe.pytorch import PrecisionDebugger


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.up = torch.nn.Linear(8, 16)
        self.act = torch.nn.GELU()
        self.down = torch.nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(self.act(self.up(self.norm(x))))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(3))
        self.head = torch.nn.Linear(8, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def main():
    torch.manual_seed(0)
    net, x = Net(), torch.randn(3, 8)
    debugger = PrecisionDebugger(sys.argv[sys.argv.index("--config") + 1])
    golden = sys.argv[sys.argv.index("--golden") + 1] if "--golden" in sys.argv else None

    def step():
        loss = net(x).square().sum()
        loss.backward()
        return loss

    if golden is None:
        debugger.start(net)
        step()
        debugger.stop()
        debugger.step()
    else:
        with torch.no_grad():
            net.blocks[0].up.weight[2, 5] += 0.5
        net.blocks[1].norm.eps = 0.1
        loss = debugger.local_error(step, model=net, golden=golden)
        reached = all(float(each.grad.abs().sum()) > 0 for each in net.parameters())
        print("LOSS", loss.item(), "REACHED", reached, flush=True)
    debugger.wait()


main()
