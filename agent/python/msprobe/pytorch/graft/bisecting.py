"""Bisecting inside one process: the program gives a function that computes, and it runs once for each set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from msprobe._common.errors import MsprobeError
from msprobe.pytorch.compare import with_client
from msprobe.pytorch.graft.chosen import children_first, chosen
from msprobe.pytorch.graft.grafting import Asked, Grafting


def bisect(
    debugger: Any,
    distance: Callable[[], Any],
    source: Any,
    model: Any,
    limit: float | None,
    names: Sequence[str],
    step: Any,
) -> Any:
    """As PrecisionDebugger.bisect has it."""

    def run(repaired: Sequence[str]) -> float:
        inherit = source not in ("float64", "float32")
        asked = Asked.of(list(repaired), source, inherit, step)
        grafting = Grafting(asked, str(debugger.config.server or ""), bisects=True)
        debugger._set_graft(grafting)
        debugger.start(model)
        try:
            if not debugger._running:
                raise MsprobeError(
                    f"bisect: nothing is captured at step {debugger.service.current_iter}; the configuration's step, "
                    "rank and dump_enable should allow it"
                )
            found = distance()
            return float(found.detach() if isinstance(found, torch.Tensor) else found)
        finally:
            debugger.stop()
            debugger.step(dump=False)
            debugger._set_graft(None)
            if grafting.failed:
                raise MsprobeError("bisect: " + "; ".join(f"{name}: {why}" for name, why in grafting.failed.items()))

    def candidates() -> list[str]:
        modules = dict(debugger._submodules())
        wanted = set(chosen(names, modules))
        return [name for name in children_first(list(modules)) if name in wanted]

    if debugger._started or debugger._step_has_records:
        raise MsprobeError(
            "bisect: the step has been started; call it after stop() and step(), before the next start()"
        )

    def search() -> Any:
        from msprobe_client.bisect.search import smallest

        return smallest(candidates, run, limit)

    return with_client(search)


__all__ = ["bisect"]
