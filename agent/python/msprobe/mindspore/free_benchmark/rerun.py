"""A call once more, on copies of its arguments, so that the program does not notice."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import mindspore
from mindspore import Tensor

from msprobe._common.free_benchmark import rerun
from msprobe._common.free_benchmark.rerun import NotRepeatable
from msprobe._common.nested import instances
from msprobe.mindspore._gradients import graph_api

_EXECUTOR = getattr(graph_api(), "_pynative_executor", None)
_NO_GRADIENTS = getattr(graph_api(), "_no_grad", contextlib.nullcontext)

# Functions and classes of primitives that draw, without underscores: their kernels hold generators of their own, which
# nothing can put back.
_DRAWING = frozenset(
    (
        *(
            "choicewithmask",
            "exponential",
            "fractionalmaxpool",
            "fractionalmaxpool3d",
            "fractionalmaxpoolwithfixedksize",
        ),
        *("gamma", "geometric", "gumbelsoftmax", "laplace", "loguniformcandidatesampler", "multinomial"),
        *("multinomialwithreplacement", "normal", "poisson", "rrelu", "shuffle", "standardlaplace", "standardnormal"),
        *("truncatednormal", "uniform", "uniformcandidatesampler", "uniformint", "uniformreal"),
    )
)
_DRAWING_PARTS = ("bernoulli", "dropout", "random")
_DRAWING_STARTS = ("rand",)


def draws(name: str) -> bool:
    """name: "dropout2d" or "StandardNormal"."""
    plain = name.replace("_", "").lower()
    return plain in _DRAWING or plain.startswith(_DRAWING_STARTS) or any(part in plain for part in _DRAWING_PARTS)


class Arguments(rerun.Arguments):
    """Those of one call."""

    kind = Tensor

    def refuse_unrepeatable(self) -> None:
        for value in (*self._args, *self._kwargs.values()):
            if isinstance(value, mindspore.Generator):
                raise NotRepeatable("it draws random numbers")


def wait() -> None:
    """Until what the program has asked for is done. Raises what went wrong there: it is the program's."""
    if _EXECUTOR is not None:
        _EXECUTOR.sync()


@contextlib.contextmanager
def unnoticed() -> Iterator[None]:
    """What runs inside is in no graph of gradients, and leaves the default generator as it was.

    NotRepeatable: it drew from the generator.
    """
    before = mindspore.get_rng_state().asnumpy().copy()
    try:
        with _NO_GRADIENTS():
            yield
    finally:
        drawn = bool((mindspore.get_rng_state().asnumpy() != before).any())
        if drawn:
            mindspore.set_rng_state(Tensor(before))
    if drawn:
        raise NotRepeatable("it draws random numbers")


def computed(run: Callable[[], Any]) -> Any:
    """What run() gives, once it is there: an error of its operators is raised here, and not into the program."""
    try:
        result = run()
        for tensor in instances(result, Tensor):
            tensor.asnumpy()
    finally:
        wait()
    return result


__all__ = ["Arguments", "NotRepeatable", "computed", "draws", "unnoticed", "wait"]
