"""load: the forward inputs of some modules are replaced by those of an earlier dump."""

from __future__ import annotations

import difflib
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from msprobe._common import log
from msprobe._common.earlier_dump import rank_directory


class ModuleInputs:
    """The tensors that stand in for the arguments of the calls that ``load.modules`` names.

    A tensor is replaced where the other dump has one of the same place, shape and dtype; everything else stays as it
    is, and is warned of. Nothing here raises into a call.
    """

    def __init__(self, load: Any) -> None:
        self._load = load
        self.names = list(load.modules)
        self._directory: Path | None = None
        self._hit: set[str] = set()
        self._handles: list[Any] = []
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def begin(self, step: int, rank: int | None) -> bool:
        """The step that begins; False: nothing is to be replaced in it."""
        if (self._load.step and step not in self._load.step) or (self._load.rank and rank not in self._load.rank):
            return False
        self._directory = rank_directory(self._load.path, step, rank)
        if self._directory is None:
            place = f"step{step}" if rank is None else f"step{step}/rank{rank}"
            log.warning(f"load: {self._load.path} has no {place}, so its inputs are not replaced")
            return False
        return True

    def check(self, known: Iterable[str]) -> None:
        """Warns of names that no module of the model has; known: names without ``.forward.N``."""
        known = list(known)
        for name in self.names:
            module = name.rsplit(".", 2)[0]
            if module not in known:
                nearest = difflib.get_close_matches(module, known, 1)
                hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
                log.warning(f"load.modules: the model has no {module!r}{hint}")

    def hook(self, modules: Iterable[tuple[str, torch.nn.Module]]) -> None:
        """Replaces inputs by hooks on the modules that are named, where their calls are not captured."""
        wanted = {name.rsplit(".", 2)[0] for name in self.names}
        for name, module in modules:
            if name in wanted:
                self._handles.append(
                    module.register_forward_pre_hook(self._hook_of(name), prepend=True, with_kwargs=True)
                )

    def unhook(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def end_step(self) -> None:
        self._counts.clear()
        self._hit.clear()

    def tell_missed(self) -> None:
        missed = [name for name in self.names if name not in self._hit]
        if missed:
            log.warning(f"load: not called while capturing, so not replaced: {', '.join(missed)}")

    def __call__(self, call: Any) -> Any:
        """A stage of the chain that calls pass through: the call goes on with the other dump's inputs."""
        args, kwargs = self.replace(call.name, call.args, call.kwargs) or (call.args, call.kwargs)
        return call(*args, **kwargs)

    def replace(
        self, full_name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """The arguments to call with, or None: as they are."""
        try:
            self._hit.add(full_name)
            new_args = tuple(self._value(f"{full_name}.input.{index}", each) for index, each in enumerate(args))
            return new_args, {key: self._value(f"{full_name}.kwargs.{key}", each) for key, each in kwargs.items()}
        except Exception as error:  # into the user's forward pass nothing of ours may go
            log.error(f"load: the inputs of {full_name} are not replaced: {error}")
            return None

    def _hook_of(self, name: str) -> Any:
        def hook(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            with self._lock:
                count = self._counts[name]
                self._counts[name] += 1
            full_name = f"{name}.forward.{count}"
            return self.replace(full_name, args, kwargs) if full_name in self.names else None

        return hook

    def _value(self, place: str, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(place, value)
        if type(value) in (list, tuple):
            return type(value)(self._value(f"{place}.{index}", each) for index, each in enumerate(value))
        if type(value) is dict:
            return {key: self._value(f"{place}.{key}", each) for key, each in value.items()}
        return value

    def _tensor(self, place: str, present: torch.Tensor) -> torch.Tensor:
        assert self._directory is not None
        path = self._directory / "dump_tensor_data" / f"{place}.pt"
        if not path.exists():
            log.warning(f"load: {path} is missing; the value stays")
            return present
        try:
            loaded = torch.load(path, map_location=present.device, weights_only=True)
        except Exception as error:  # unpickling raises many kinds
            log.warning(f"load: {path} cannot be loaded ({error}); the value stays")
            return present
        if not isinstance(loaded, torch.Tensor) or loaded.shape != present.shape or loaded.dtype != present.dtype:
            kind = (
                f"{loaded.dtype} of {list(loaded.shape)}" if isinstance(loaded, torch.Tensor) else type(loaded).__name__
            )
            log.warning(
                f"load: {path} holds {kind}, the call has {present.dtype} of {list(present.shape)}; the value stays"
            )
            return present
        return loaded.requires_grad_() if present.requires_grad else loaded
