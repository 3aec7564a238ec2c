"""PrecisionDebugger.save at level debug: values under names, and the gradients that their tensors get later."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from msprobe._common import log

_KINDS = (int, float, str, dict, list, tuple)


class Saver:
    """Counts names and mirrors values for their gradients. agent and step are asked when a gradient comes.

    hook(tensor, callback): calls callback(gradient) once the tensor's gradient comes; nothing for a tensor without one.
    """

    def __init__(
        self,
        agent: Callable[[], Any],
        step: Callable[[], int],
        tensor_class: type,
        hook: Callable[[Any, Callable[[Any], None]], None],
    ) -> None:
        self._agent, self._step, self.tensor_class, self._hook = agent, step, tensor_class, hook
        self._counts: Counter[str] = Counter()

    def end_step(self) -> None:
        self._counts.clear()

    def accepts(self, variable: Any, name: Any, save_backward: Any) -> bool:
        """Says what is wrong with the arguments of save, which skips the call then."""
        wrong = ""
        if not isinstance(name, str):
            wrong = f"name is {name!r}; it should be a string"
        elif not isinstance(variable, (self.tensor_class, *_KINDS)):
            wrong = (
                f"{name!r} is a {type(variable).__name__}; it should be a tensor, int, float, str, dict, list or tuple"
            )
        elif isinstance(variable, dict) and not all(isinstance(key, str) for key in variable):
            wrong = f"{name!r} is a dict with keys {list(variable)[:5]}; they should be strings"
        elif not isinstance(save_backward, bool):
            wrong = f"save_backward is {save_backward!r}; it should be True or False"
        if wrong:
            log.warning(f"save: {wrong}. The call is skipped.")
        return not wrong

    def save(self, variable: Any, name: str, save_backward: bool) -> None:
        count = self.record(name, variable)
        if save_backward:
            self._save_gradients(variable, f"{name}_grad", count)

    def record(self, name: str, value: Any) -> int:
        """How many of the name the step has had before."""
        count = self._counts[name]
        self._counts[name] += 1
        self._agent().save(name, count=count, step=self._step(), value=value)
        return count

    def _save_gradients(self, variable: Any, name: str, count: int) -> None:
        step = self._step()
        root: list[Any] = [None]

        def keep(holder: Any, key: Any, gradient: Any) -> None:
            try:
                agent = self._agent()
                if agent is None or self._step() != step:
                    return
                holder[key] = agent.read(gradient)
                agent.save(name, count=count, step=step, value=root[0])
            except Exception as error:  # into the user's backward pass nothing of ours may go
                log.error(f"save: the gradient of {name!r} was not recorded: {error}")

        def mirror(value: Any, holder: Any, key: Any) -> None:
            if isinstance(value, self.tensor_class):
                self._hook(value, lambda gradient: keep(holder, key, gradient))
            elif isinstance(value, dict):
                holder[key] = dict.fromkeys(value)
                for inner, each in value.items():
                    mirror(each, holder[key], inner)
            elif isinstance(value, (list, tuple)):
                holder[key] = [None] * len(value)
                for index, each in enumerate(value):
                    mirror(each, holder[key], index)

        mirror(variable, root, 0)
        self._agent().save(name, count=count, step=step, value=root[0])


__all__ = ["Saver"]
