"""Changes tensors right after, and during, recorded calls; prints the true CRC-32 of the bytes at each call."""

import json
import sys
import zlib

import torch
from say import say


def crc(tensor):
    return f"{zlib.crc32(tensor.numpy().tobytes()):08x}"


def main():
    torch.set_num_threads(1)
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(config_path=sys.argv[1])
    true = {}
    big = torch.arange(4_000_000, dtype=torch.float32)
    shared = big.numpy()
    debugger.start()
    for turn in range(4):
        true[f"Torch.neg.{turn}.forward.input.0"] = crc(big)
        result = torch.neg(big)
        true[f"Torch.neg.{turn}.forward.output.0"] = crc(result)
        result.numpy()[:] = 0  # no version counter moves
        shared[:] = shared + 1
    small = torch.zeros(3)
    for turn in range(50):
        true[f"Tensor.add_.{turn}.forward.input.0"] = crc(small)
        small.add_(1)
        true[f"Tensor.add_.{turn}.forward.output.0"] = crc(small)
    weight = torch.ones(64, 64)
    x = torch.ones(1, 64)
    for turn in range(6):
        # The same weight again and again, changed in between in ways that a version counter does not see.
        true[f"Functional.linear.{turn}.forward.input.1"] = crc(weight)
        torch.nn.functional.linear(x, weight)
        if turn % 2:
            weight.data.mul_(2)
        else:
            weight.numpy()[0, 0] += 1
    debugger.stop()
    debugger.step()
    say("TRUE", json.dumps(true))


if __name__ == "__main__":
    main()
