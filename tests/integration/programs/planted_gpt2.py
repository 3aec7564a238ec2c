"""Trains a small GPT-2 of transformers, one dump step a training step, with a fault in it if one is named.

--fault weight: one weight of a layer is nudged from the beginning; nan: one element of a weight is NaN from step 2 on.
"""

import argparse

import torch
from msprobe.pytorch import PrecisionDebugger
from transformers import GPT2Config, GPT2LMHeadModel


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True)
    parser.add_argument("--fault", choices=["weight", "nan"])
    parser.add_argument("--steps", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(0)
    quiet = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
    model = GPT2LMHeadModel(GPT2Config(n_layer=3, n_embd=48, n_head=4, vocab_size=101, n_positions=32, **quiet))
    layers = model.transformer.h
    if args.fault == "weight":
        layers[1].mlp.c_fc.weight.data[3, 5] += 0.5
    debugger = PrecisionDebugger(config_path=args.config)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tokens = torch.arange(24).reshape(2, 12) % 101
    for step in range(args.steps):
        if args.fault == "nan" and step == 2:
            layers[2].ln_1.weight.data[7] = float("nan")
        debugger.start(model=model)
        model(tokens, labels=tokens).loss.backward()
        debugger.stop()
        debugger.step()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
