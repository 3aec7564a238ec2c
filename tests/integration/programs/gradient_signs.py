"""Trains a small net for some steps with task grad_probe. Prints a digest of all bits: losses, parameters, gradients.

--noise: share by which gradients are disturbed from step --from on. --oracle FILE: writes what the gradients were, for
tests: by step and parameter. --probe no: without the debugger.
"""

import argparse
import hashlib
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent))


class Net(torch.nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.embedding = torch.nn.Embedding(12, 10)
        self.convolution = torch.nn.Conv1d(10, 6, 3).to(memory_format=torch.preserve_format)
        self.norm = torch.nn.LayerNorm(6)
        self.head = torch.nn.Linear(6, 3).to(dtype)
        self.unused = torch.nn.Linear(2, 2)

    def forward(self, tokens):
        hidden = self.convolution(self.embedding(tokens).transpose(1, 2)).transpose(1, 2)
        return self.head(torch.relu(self.norm(hidden)).mean(1).to(self.head.weight.dtype)).float()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True)
    parser.add_argument("--probe", default="yes")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--noise", type=float, default=0.0)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--oracle")
    options = parser.parse_args()
    torch.manual_seed(7)
    model = Net(getattr(torch, options.dtype))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if options.probe == "yes":
        from msprobe.pytorch import PrecisionDebugger

        debugger = PrecisionDebugger(config_path=options.config)
        debugger.monitor(model)
    data = torch.Generator().manual_seed(3)
    noise = torch.Generator().manual_seed(5)
    digest = hashlib.sha256()
    seen = []
    for step in range(options.steps):
        tokens = torch.randint(12, (4, 9), generator=data)
        loss = torch.nn.functional.cross_entropy(model(tokens), torch.randint(3, (4,), generator=data))
        optimizer.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.grad is not None and step >= options.first and options.noise:
                    scale = options.noise * parameter.grad.abs().mean()
                    parameter.grad += scale * torch.randn(parameter.grad.shape, generator=noise)
        named = [(name, parameter.grad) for name, parameter in model.named_parameters() if parameter.grad is not None]
        seen.append({name: gradient.clone() for name, gradient in named})
        optimizer.step()
        for value in (loss, *(gradient for _, gradient in named), *model.parameters()):
            digest.update(value.detach().float().numpy().tobytes())
    if options.oracle:
        torch.save(seen, options.oracle)
    print(f"BITS {digest.hexdigest()}")


if __name__ == "__main__":
    main()
