"""Callbacks for mindspore.train.Model."""

import contextlib
import importlib
from typing import Any

from mindspore.train import Callback


class MsprobeStep(Callback):
    """Captures each step that Model.train runs: the debugger starts where a step begins, and stops where it ends.

    The model is the one that debugger.start(model) was given before the training, else the network of Model.train.
    """

    def __init__(self, debugger: Any) -> None:
        super().__init__()
        self.debugger = debugger

    def on_train_begin(self, run_context: Any) -> None:
        self.debugger.remember(run_context.original_args().network)
        set_kernel_step(0)

    def on_train_step_begin(self, run_context: Any) -> None:
        self.debugger.start()

    def on_train_step_end(self, run_context: Any) -> None:
        self.debugger.stop()
        self.debugger.step()


class MsprobeInitStep(Callback):
    """A training that goes on from a checkpoint counts its steps from there: in kernel dumps, and in the debugger's."""

    def on_train_begin(self, run_context: Any) -> None:
        from msprobe.mindspore.debugger import PrecisionDebugger

        done = int(run_context.original_args().cur_step_num)
        set_kernel_step(done)
        if PrecisionDebugger.exists():
            PrecisionDebugger.set_init_step(done)


def set_kernel_step(step: int) -> None:
    """Where MindSpore's own dump counts from. A version without one counts from 0."""
    with contextlib.suppress(ImportError, AttributeError):
        importlib.import_module("mindspore._c_expression")._set_init_iter(step)
