"""seed_all: the same random numbers in every run."""

import os
import random
from typing import Any

import mindspore
from mindspore import mint, ops

from msprobe._common import arguments
from msprobe._common.errors import MsprobeError

_LARGEST_SEED = 2**32 - 1


def seed_all(seed: int = 1234, mode: bool = False, rm_dropout: bool = False) -> None:
    """Makes runs repeatable.

    seed: for random, PYTHONHASHSEED, numpy and MindSpore; an int from 0 to 2**32 - 1.
    mode: deterministic kernels and collectives.
    rm_dropout: dropout drops nothing in layers that are made from now on.
    """
    if not arguments.is_integer(seed) or not 0 <= seed <= _LARGEST_SEED:
        raise MsprobeError(f"seed is {seed!r}; it should be an integer from 0 to {_LARGEST_SEED}")
    for name, value in (("mode", mode), ("rm_dropout", rm_dropout)):
        arguments.boolean(value, name)
    os.environ["PYTHONHASHSEED"] = str(seed)
    os.environ["HCCL_DETERMINISTIC"] = str(mode)
    random.seed(seed)
    mindspore.set_seed(seed)  # numpy's too
    mindspore.set_context(deterministic="ON" if mode else "OFF")
    if rm_dropout:
        _remove_dropout()


def _remove_dropout() -> None:
    """Dropout is asked for with a share that it keeps of 1, or drops of 0."""
    for name, share in (
        ("Dropout", {"keep_prob": 1.0}),
        ("Dropout2D", {"keep_prob": 1.0}),
        ("Dropout3D", {"keep_prob": 1.0}),
    ):
        kind = _without(getattr(ops, name), share)
        for owner in (ops, ops.operations):
            setattr(owner, name, kind)
    mint.nn.Dropout = _without(mint.nn.Dropout, {"p": 0.0})
    mint.nn.functional.dropout = _drops_nothing


def _without(kind: Any, share: dict[str, float]) -> Any:
    """A class of the same name, whose instances drop nothing."""
    if getattr(kind, "drops_nothing", False):
        return kind

    def initialise(self: Any, *args: Any, **kwargs: Any) -> None:
        kind.__init__(self, **({**kwargs, **share}))

    return type(kind.__name__, (kind,), {"__init__": initialise, "drops_nothing": True})


def _drops_nothing(input: Any, p: float = 0.5, training: bool = True) -> Any:
    return input
