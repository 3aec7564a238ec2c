"""A recorded call as lines of Python: its tensors, the call itself, and the function that runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import torch

from msprobe_client.check import replay
from msprobe_client.check.arguments import MINDSPORE, Arguments, Loader, NotReplayable, framework_of
from msprobe_client.check.calls import Call
from msprobe_client.check.checker import scalars_as
from msprobe_client.check.operators import DROPOUTS, GENERATORS, CallName, function_of, reason_to_skip
from msprobe_client.check.other_run import grad_outputs
from msprobe_client.repro.bundle import bytes_of
from msprobe_client.repro.literals import keyword_of, of_this_machine, source_of

Direction = Literal["forward", "backward"]
Contents: TypeAlias = Mapping[str, tuple[torch.dtype, tuple[int, ...], bytes]]  # of a bundle
_HOMES = {
    "Functional": "torch.nn.functional",
    "Torch": "torch",
    "Tensor": "torch.Tensor",
    "VF": "torch._VF",
    "Aten": "torch.ops.aten",
}


_FLAT = """\
def flat(value):  # the tensors of a result; numbers are tensors without dimensions
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return flat(list(value.values()))
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return [leaf for item in value for leaf in flat(item)]
    if isinstance(value, (bool, int, float)):
        return [torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)]
    return []


"""
_READS_BUNDLE = """\
raw = pathlib.Path(__file__).with_name("{name}.safetensors").read_bytes()
start = 8 + int.from_bytes(raw[:8], "little")
header = json.loads(raw[8:start])


def tensor(name, dtype, *shape):
    first, last = header[name]["data_offsets"]
    content = bytearray(raw[start + first : start + last])
    flat = torch.frombuffer(content, dtype=dtype) if content else torch.empty(0, dtype=dtype)
    return flat.reshape(shape)


"""


def operator_of(call: Call) -> tuple[CallName, str]:
    """The name, and the function's path in torch. Raises NotReplayable for what no script with torch alone can call."""
    record = call.forward
    if framework_of(record) == MINDSPORE:
        raise NotReplayable(
            "it is a call of MindSpore, and the script has torch alone; check it by msprobe-client check"
        )
    name = CallName.parse(record.full_name)
    if name is None or not record.full_name.isascii():
        raise NotReplayable("it is no call of an operator")
    if reason := reason_to_skip(name, [], {}):
        raise NotReplayable(reason)
    if name.prefix == "NPU":
        raise NotReplayable(f"{name.operation} is an operator of torch_npu, and the script has torch alone")
    home = _HOMES.get(name.prefix)
    if home is None:
        raise NotReplayable(f"{name.operation} is an operator of {name.prefix}, and the script has torch alone")
    function = function_of(name)
    if function is None:
        raise NotReplayable(f"this torch has no operator {home}.{name.operation}")
    if home == "torch" and function is getattr(torch.linalg, name.operation, None):
        home = "torch.linalg"
    return name, f"{home}.{name.operation}"


class ScriptedCall:
    """One call that a script can make. Its functions in the script read TENSORS, the tensors by their names here."""

    def __init__(self, call: Call, loader: Loader, direction: Direction, seed: int) -> None:
        """seed: of random operators. Raises NotReplayable."""
        self.recorded = call
        self.backward = direction == "backward"
        self._seed = seed
        self.name, self.function = operator_of(call)
        self.full_name = f"{self.name.base}.{direction}"
        loaded = loader.arguments(call.forward)
        if not loaded.args and not loaded.kwargs:
            raise NotReplayable("its record has no arguments")
        self.given = replace(loaded, args=of_this_machine(loaded.args), kwargs=of_this_machine(loaded.kwargs))
        if reason := reason_to_skip(self.name, self.given.args, self.given.kwargs):
            raise NotReplayable(reason)
        self.random = self.name.operation in GENERATORS or self._drops()
        if self.backward and call.backward is None:
            raise NotReplayable("it has no backward record")
        if self.backward and self.random:
            raise NotReplayable(f"{self.name.operation} is random, and so is its gradient")
        # Given to the call's outputs; None: there are none.
        self.grads = None if call.backward is None else grad_outputs(loader, call.backward)
        self.golden = self._exact()

    # --- what float64 gives here: the names of the outputs, and their values ---

    def _exact(self) -> replay.Result:
        arguments = self.given.mapped(replay.wide, scalars_as(self.name, self.given))
        tries = [self.grads] if self.backward or self.grads is None else [self.grads, None]
        for grads in tries:
            try:
                found = replay.run(
                    self._watched, arguments, mutates=self.name.mutates, grad_outputs=grads, seed=self._seed
                )
            except Exception as error:  # whatever an operator raises
                reason = f"float64: {type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
                continue
            if self.backward and not found.gradients:
                raise NotReplayable(found.no_backward or "no argument has a gradient")
            if not found.outputs:
                raise NotReplayable(f"{self.name.operation} returns no tensor")
            self.grads = grads
            return found
        raise NotReplayable(reason)

    def _watched(self, *args: Any, **kwargs: Any) -> Any:
        """The operator; keeps what kind of answer it gives."""
        function = function_of(self.name)
        assert function is not None
        answer = function(*args, **kwargs)
        self._answers = answer is not None
        self.single = answer is None or isinstance(answer, torch.Tensor)
        self.answers_a_number = isinstance(answer, int | float)
        return answer

    def dropout_share(self) -> float:
        given = self.given.kwargs.get("p", self.given.args[1] if len(self.given.args) > 1 else 0.5)
        return float(given) if isinstance(given, int | float) else 0.5

    def _drops(self) -> bool:
        return self.name.operation in DROPOUTS and 0 < self.dropout_share() < 1 and self._trains()

    def _trains(self) -> bool:
        return bool(self.given.kwargs.get("training", self.given.args[2] if len(self.given.args) > 2 else True))

    # --- text ---

    def origin(self) -> Iterator[str]:
        """A comment that names the line of the call, where that is known."""
        if self.recorded.forward.stack:
            yield f"# Called at {ascii(str(self.recorded.forward.stack[0]))[1:-1]}\n"

    def reads_bundle(self) -> str:
        """The function `tensor`, over the bundle beside the script."""
        return _READS_BUNDLE.format(name=self.full_name)

    def named_tensors(self) -> list[tuple[str, torch.Tensor]]:
        """The arguments', and in backward the gradients that the outputs are given: grad.0."""
        named = list(self.given.tensors)
        if self.backward:
            named += [(f"grad.{i}", grad) for i, grad in enumerate(self.grads or []) if grad is not None]
        for name, _ in named:
            if not all(part.isidentifier() or part.isdecimal() for part in name.split(".")) or not name.isascii():
                raise NotReplayable(f"{name!r} is no name of an argument")
        return named

    def bundled_tensors(self) -> tuple[Contents, list[str]]:
        """What the bundle holds, and the lines of TENSORS that read it. Equal bytes are stored once."""
        contents: dict[str, tuple[torch.dtype, tuple[int, ...], bytes]] = {}
        lines = []
        stored: dict[tuple[str, bytes], str] = {}
        for name, tensor in self.named_tensors():
            content = bytes_of(tensor)
            first = stored.setdefault((str(tensor.dtype), content), name) if content else name
            if first == name:
                contents[name] = (tensor.dtype, tuple(tensor.shape), content)
            words = ", ".join([f'"{first}"', str(tensor.dtype), *map(str, tensor.shape)])
            lines.append(f'    "{name}": tensor({words}),{"" if first == name else f"  # the bytes of {first}"}\n')
        return contents, lines

    def body(self, scalar: Callable[[Any], Any] = lambda value: value) -> str:
        """Of a function of t, the tensors by name, and device. scalar: changes numbers and dtypes."""
        kept = []  # ids stay theirs as long as the tensors live

        def same(tensor: torch.Tensor) -> torch.Tensor:
            new = tensor.view_as(tensor)
            kept.append(new)
            return new

        copied: Arguments = self.given.mapped(same, scalar)
        names = {id(tensor): name for name, tensor in copied.tensors}
        words = [source_of(value, names) for value in copied.args]
        words += [f"{keyword_of(key)}={source_of(value, names)}" for key, value in copied.kwargs.items()]
        line = f"{self.function}({', '.join(words)})"
        if not self._answers:
            return f"    {line}\n    return {words[0]}\n"
        return f"    return {line}\n"

    def run_function(self, *, seeded: bool) -> Iterator[str]:
        """run(function, device, change): outputs, or gradients, by their places. seeded: sets the seed first."""
        results = "[function(t, device)]" if self.single else "flat(function(t, device))"
        if not self.single:
            yield _FLAT
        yield "def run(function, device, change=lambda x: x):\n"
        if seeded:
            yield f"    torch.manual_seed({self._seed})\n"
        yield "    t = {name: change(x).to(device, copy=True) for name, x in TENSORS.items()}\n"
        if not self.backward:
            places = [place for place, _ in self.golden.outputs]
            yield f"    with torch.no_grad():\n        outputs = {results}\n"
            yield f"    return dict(zip({places!r}, (x.cpu() for x in outputs)))\n\n\n"
            return
        wanted = self._wanted()
        grads = [f'"grad.{i}"' if grad is not None else "None" for i, grad in enumerate(self.grads or [])]
        yield f"    leaves = [t[name].requires_grad_() for name in {wanted!r}]\n"
        if self.name.mutates:
            yield "    t = {name: x.clone() for name, x in t.items()}\n"
        yield f"    outputs = [x for x in {results} if x.requires_grad]\n"
        yield f"    pairs = [(x, t[name]) for x, name in zip(outputs, [{', '.join(grads)}]) if name]\n"
        yield "    incoming = [grad.to(x.dtype) for x, grad in pairs]\n"
        yield "    found = torch.autograd.grad([x for x, _ in pairs], leaves, incoming, allow_unused=True)\n"
        yield f"    return {{name: x.cpu() for name, x in zip({wanted!r}, found) if x is not None}}\n\n\n"

    def _wanted(self) -> list[str]:
        """The arguments whose gradients are asked for."""
        return [
            place
            for (place, tensor), need in zip(self.given.tensors, self.given.needs_grad, strict=True)
            if need and (tensor.is_floating_point() or tensor.is_complex())
        ]
