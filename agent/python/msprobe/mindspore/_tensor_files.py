"""save, save_grad and step: single tensors as files, also from inside graphs."""

import itertools
import os
from pathlib import Path
from typing import Any

import mindspore
import numpy
from mindspore import Tensor, ops

from msprobe._common import log
from msprobe.mindspore._open_agent import distributed_rank

_step = 0
_numbers = itertools.count()


def save(save_dir: str, name: str, data: Any) -> None:
    """Writes a tensor, or each of a list, tuple or dict, as ``{save_dir}/{step}/{rank}/{name}_{number}.npy``.

    bfloat16 is written as float32. A tensor that cannot be written is a line in the log.
    """
    _save(save_dir, name, data)


def save_grad(save_dir: str, name: str, data: Any) -> Any:
    """Gives `data`, whose gradient is written like a tensor of save, under ``{name}_grad``, once it has come."""

    def keep(gradient: Any) -> None:
        _save(save_dir, f"{name}_grad", gradient)

    return ops.HookBackward(keep)(data)


def step() -> None:
    """What is saved from now on belongs to the next step."""
    global _step, _numbers
    _step += 1
    _numbers = itertools.count()


def _save(save_dir: str, name: str, data: Any) -> None:
    if isinstance(data, dict):
        for key, item in data.items():
            _save(save_dir, f"{name}.{key}", item)
    elif isinstance(data, (list, tuple)):
        for index, item in enumerate(data):
            _save(save_dir, f"{name}.{index}" if len(data) > 1 else name, item)
    elif isinstance(data, Tensor):
        folder = Path(save_dir) / str(_step) / str(distributed_rank() or 0)
        path = folder / f"{name}_{next(_numbers)}.npy"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            array = (data.astype(mindspore.float32) if data.dtype == mindspore.bfloat16 else data).asnumpy()
            with Path(os.fspath(path)).open("wb") as file:
                numpy.save(file, array)
        except (OSError, RuntimeError) as error:
            log.warning(f"save: {path} cannot be written: {error}")
    else:
        log.warning(
            f"save: {name!r} is a {type(data).__name__}; it should be a Tensor, or a list, tuple or dict of them"
        )
