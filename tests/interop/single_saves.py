"""Saves tensors by SingleSave into ROOT/one and ROOT/other, and compares them into ROOT/out, under either tool."""

import pathlib
import sys


def save(dump, other):
    import torch
    from msprobe.core import SingleSave

    drawn = torch.Generator().manual_seed(1)
    SingleSave(dump)
    SingleSave.save_config({"lr": 1e-3, "model": "small"})
    for _ in range(2):
        for _ in range(2):
            states = torch.randn(5, 7, generator=drawn)
            if other:
                states[2, 3] *= 1.0005
                states[3, 1] += 1e-6
                states[0, 0] *= 1.005
            SingleSave.save(
                {
                    "states": states,
                    "pair": [states, -states],
                    "counts": torch.arange(12).reshape(3, 4) + (1 if other else 0),
                    "padded": torch.zeros(3, 4) if other else torch.ones(2, 5),
                    "flat": states.reshape(-1) if other else states,
                    "zeros": torch.zeros(3),
                    "number": torch.tensor(2.5),
                    "skipped": 3,
                }
            )
        SingleSave.save_ex({"by_name": {"first": states, "second": states + 1}})
        SingleSave.step()
    SingleSave.save({"other_only" if other else "one_only": states})


if __name__ == "__main__":
    from msprobe.core import SingleComparator, SingleSave

    root = pathlib.Path(sys.argv[1])
    for name in ("one", "other"):
        SingleSave._instance = None  # a second program, without the seconds that one takes to start
        save(str(root / name), name == "other")
    SingleComparator.compare(str(root / "one"), str(root / "other"), str(root / "out"), num_processes=2)
