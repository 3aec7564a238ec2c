"""The tiny Qwen2: step 0 trained plainly, step 1 with non-reentrant, step 2 with reentrant checkpointing."""

import sys

import nets
import torch
from say import say


def main():
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(config_path=sys.argv[1])
    for checkpointing in (None, False, True):
        model = nets.qwen2()
        if checkpointing is not None:
            model.gradient_checkpointing_enable({"use_reentrant": checkpointing})
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        tokens = nets.tokens()
        debugger.start(model=model)
        optimizer.zero_grad()
        model(input_ids=tokens, labels=tokens).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        debugger.stop()
        debugger.step()
    say("DONE")


if __name__ == "__main__":
    main()
