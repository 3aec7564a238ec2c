"""What mindstudio-probe's PtdbgDispatch leaves: the tables of acc_check, and .npy files of both sides.

python -m msprobe_client.compat.dispatch_tables DUMP_JSON FOLDER TIME MODE [OPERATOR ...]: a process of its own, so that
the operators of the program that was captured do not compute what is right.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msprobe_client.check.checker import Replayed


def write(dump: Path, folder: Path, time: str, mode: str, names: Sequence[str]) -> tuple[Path, Path]:
    """Checks what a dump.json of aten operators holds against a higher precision.

    mode: whose tensors become .npy files: OFF, all, list (operators of names), auto (what does not pass).
    Gives the paths of accuracy_checking_result_{time}.csv and accuracy_checking_details_{time}.csv.
    """
    from msprobe_client.check.checker import RECORDED
    from msprobe_client.compat.acc_check_command import imported
    from msprobe_client.compat.accuracy_tables import BLANK, PASS, SKIP, AccuracyTables
    from msprobe_client.compat.replayed_calls import Choice, ReplayedCalls

    with (
        imported(dump, RECORDED) as (client, source),
        AccuracyTables.new(folder, time) as tables,
        ReplayedCalls(client, source) as calls,
    ):
        for name in calls.chosen(Choice()):
            call = calls.rows(name, Choice())
            tables.add(call)
            if calls.replayed is None:
                continue
            operator = name.split(".")[1]
            right = {call.forward, call.backward} <= {PASS, SKIP, BLANK}
            if mode == "all" or (mode == "list" and operator in names) or (mode == "auto" and not right):
                _keep(folder, f"{operator}_{int(name.split('.')[2]) + 1}", calls.replayed)
    return tables.paths


def _keep(folder: Path, name: str, replayed: Replayed) -> None:
    """cpu/ has what the check computed, npu/ what the program did. Both have the same inputs."""
    sides = (("cpu", replayed.golden.outputs), ("npu", replayed.output.outputs))
    for side, outputs in sides:
        (folder / side).mkdir(exist_ok=True)
        tensors = [("input", i, tensor) for i, (_, tensor) in enumerate(replayed.arguments.tensors)]
        tensors += [("output", i, tensor) for i, (_, tensor) in enumerate(outputs)]
        for word, index, tensor in tensors:
            _save(folder / side / f"{name}_{word}.{index}.npy", tensor)


def _save(path: Path, tensor: Any) -> None:
    import numpy as np
    import torch

    plain = tensor.detach().cpu()
    try:
        array = plain.numpy()
    except TypeError:  # numpy has no bfloat16 and no 8-bit floats
        array = plain.to(torch.float32).numpy()
    np.save(path, array, allow_pickle=False)


def main(words: list[str]) -> None:
    from msprobe_client.errors import MsprobeError

    dump, folder, time, mode, *names = words
    try:
        write(Path(dump), Path(folder), time, mode, names)
    except MsprobeError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1:])
