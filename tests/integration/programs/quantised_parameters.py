"""Watches one step of parameters that stay as they are, and saves them: quantised_parameters.py CONFIG FILE."""

import sys

import msprobe
import torch


def main():
    torch.manual_seed(7)
    spread = torch.randn(48, 70) * torch.exp2(4 * torch.randn(48, 70))
    spread[3, 5:9] = 0
    model = torch.nn.ParameterDict(
        {
            "odd_rows": torch.nn.Parameter(spread),
            "bfloat16": torch.nn.Parameter(torch.randn(64, 64).bfloat16()),
            "columns": torch.nn.Parameter(torch.randn(96, 64).t()),
            "small": torch.nn.Parameter(torch.randn(33) * 1e-6),
        }
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    msprobe.watch(model, optimizer, config_path=sys.argv[1], rank_id=0)
    for parameter in model.values():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    torch.save({name: each.detach() for name, each in model.items()}, sys.argv[2])


if __name__ == "__main__":
    main()
