"""Makes the script of one call: text, and what its bundle holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from msprobe_client.check import distribution, replay, ties
from msprobe_client.check.arguments import MINDSPORE, Arguments, Loader, NotReplayable, dtype_of, framework_of
from msprobe_client.check.calls import Call, Place
from msprobe_client.check.checker import scalars_as
from msprobe_client.check.operators import (
    DROPOUTS,
    GENERATORS,
    SUMS_OF_PRODUCTS,
    CallName,
    function_of,
    reason_to_skip,
)
from msprobe_client.check.other_run import grad_outputs
from msprobe_client.repro import verdicts
from msprobe_client.repro.bundle import bytes_of
from msprobe_client.repro.literals import keyword_of, of_this_machine, source_of

Direction = Literal["forward", "backward"]
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


@dataclass(frozen=True, slots=True)
class Script:
    name: str  # "Functional.linear.0.forward": of its files
    text: str
    contents: Mapping[str, tuple[torch.dtype, tuple[int, ...], bytes]]  # of the bundle


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
    if function_of(name) is None:
        raise NotReplayable(f"this torch has no operator {home}.{name.operation}")
    return name, f"{home}.{name.operation}"


def script_of(
    call: Call, loader: Loader, place: Place, *, direction: Direction, policy: str, level: str, seed: int, shown: str
) -> Script:
    """level: of the operator, for the policy `cann`. shown: the source as the user named it. Raises NotReplayable."""
    return _Writer(call, loader, direction, policy, level, seed).script(place, shown)


class _Writer:
    def __init__(self, call: Call, loader: Loader, direction: Direction, policy: str, level: str, seed: int) -> None:
        self._call = call
        self._direction = direction
        self._policy = policy
        self._level = level
        self._seed = seed
        self._name, self._function = operator_of(call)
        loaded = loader.arguments(call.forward)
        if not loaded.args and not loaded.kwargs:
            raise NotReplayable("its record has no arguments")
        self._given = replace(loaded, args=of_this_machine(loaded.args), kwargs=of_this_machine(loaded.kwargs))
        if reason := reason_to_skip(self._name, self._given.args, self._given.kwargs):
            raise NotReplayable(reason)
        self._random = self._name.operation in GENERATORS or self._drops()
        if direction == "backward" and call.backward is None:
            raise NotReplayable("it has no backward record")
        if direction == "backward" and self._random:
            raise NotReplayable(f"{self._name.operation} is random, and so is its gradient")
        self._grads = None if call.backward is None else grad_outputs(loader, call.backward)
        self._golden = self._exact()

    # --- what float64 gives here: the names of the outputs, and what rounding costs ---

    def _exact(self) -> replay.Result:
        arguments = self._given.mapped(replay.wide, scalars_as(self._name, self._given))
        tries = [self._grads] if self._direction == "backward" or self._grads is None else [self._grads, None]
        for grads in tries:
            try:
                found = replay.run(
                    self._watched, arguments, mutates=self._name.mutates, grad_outputs=grads, seed=self._seed
                )
            except Exception as error:  # whatever an operator raises
                reason = f"float64: {type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
                continue
            if self._direction == "backward" and not found.gradients:
                raise NotReplayable(found.no_backward or "no argument has a gradient")
            if not found.outputs:
                raise NotReplayable(f"{self._name.operation} returns no tensor")
            self._grads = grads
            return found
        raise NotReplayable(reason)

    def _watched(self, *args: Any, **kwargs: Any) -> Any:
        """The operator; keeps what kind of answer it gives."""
        function = function_of(self._name)
        assert function is not None
        answer = function(*args, **kwargs)
        self._answers = answer is not None
        self._single = answer is None or isinstance(answer, torch.Tensor)
        return answer

    def _compared(self) -> list[tuple[str, torch.Tensor, torch.dtype]]:
        """Name, golden value and dtype of each output, or gradient."""
        if self._direction == "backward":
            dtypes = {place: tensor.dtype for place, tensor in self._given.tensors}
            return [(place, tensor, dtypes[place]) for place, tensor in self._golden.gradients]
        recorded = {
            name.removeprefix(f"{self._call.forward.full_name}."): dtype_of(stats.dtype)
            for name, stats in self._call.forward.tensors()
        }
        missing = [place for place, _ in self._golden.outputs if place not in recorded]
        if missing:
            recorded |= self._dtypes_here()
        return [(place, tensor, recorded.get(place, tensor.dtype)) for place, tensor in self._golden.outputs]

    def _dtypes_here(self) -> dict[str, torch.dtype]:
        function = function_of(self._name)
        assert function is not None
        try:
            copied = self._given.mapped(replay.on("cpu"))
            found = replay.run(function, copied, mutates=self._name.mutates, grad_outputs=None, seed=self._seed)
        except Exception:  # a CPU may lack the operator for this dtype
            return {}
        return {place: tensor.dtype for place, tensor in found.outputs}

    def _noise(self, compared: list[tuple[str, torch.Tensor, torch.dtype]]) -> dict[str, tuple[float, float]]:
        """What rounding of the inputs costs, by output: the largest error and its rms."""
        function = function_of(self._name)
        assert function is not None
        floats = [each for each in compared if each[2].is_floating_point and each[1].numel()]
        if self._policy not in verdicts.BY_NOISE or self._random or not floats:
            return {}
        try:
            moved = replay.rounded_otherwise(
                function,
                self._given,
                mutates=self._name.mutates,
                grad_outputs=self._grads,
                seed=self._seed,
                scalar=scalars_as(self._name, self._given),
                sums=self._name.operation in SUMS_OF_PRODUCTS,
            )
        except Exception:  # as check has it
            return {}
        others = dict(moved.outputs if self._direction == "forward" else moved.gradients)
        found = {}
        for place, golden, dtype in floats:
            other = others.get(place)
            if other is not None and other.shape == golden.shape and other.is_floating_point():
                found[place] = verdicts.errors(other.to(dtype), golden)
        return found

    def _drops(self) -> bool:
        return self._name.operation in DROPOUTS and 0 < self._share() < 1 and self._trains()

    def _share(self) -> float:
        given = self._given.kwargs.get("p", self._given.args[1] if len(self._given.args) > 1 else 0.5)
        return float(given) if isinstance(given, int | float) else 0.5

    def _trains(self) -> bool:
        return bool(self._given.kwargs.get("training", self._given.args[2] if len(self._given.args) > 2 else True))

    # --- text ---

    def script(self, place: Place, shown: str) -> Script:
        name = f"{self._name.base}.{self._direction}"
        contents, tensors = self._tensors()
        compared = self._compared()[: 1 if self._random else None]
        judges, functions = self._judges(compared)
        noise = self._noise(compared)
        call, exact = self._calls()
        backward = self._direction == "backward"
        source = "as saved" if self._given.source == "saved" else f"drawn within the recorded ranges, seed {self._seed}"
        # Only where it decides; random outputs are held against their distribution.
        pairs = (
            not self._random
            and self._policy in verdicts.BY_NOISE
            and any(j.startswith("judged") for j in judges.values())
        )
        beside = not self._random and (pairs or self._policy == "cann")
        text = [
            f'"""{name}: {self._function} held against float64. Needs torch alone."""\n',
            f"# Of {shown!a}, step {place.step}, rank {ascii(str(place.rank))[1:-1]}; inputs {source}.\n",
            *self._origin(),
            "import argparse\nimport json\nimport math\nimport pathlib\nimport sys\n\nimport torch\n\n",
            "parser = argparse.ArgumentParser(description=__doc__)\n",
            'parser.add_argument("--device", default="cpu", help="cpu, cuda:0, npu:0")\n',
            "device = parser.parse_args().device\n",
            'if device.startswith("npu"):\n    import torch_npu\n\n',
            f'raw = pathlib.Path(__file__).with_name("{name}.safetensors").read_bytes()\n',
            'start = 8 + int.from_bytes(raw[:8], "little")\nheader = json.loads(raw[8:start])\n\n\n',
            "def tensor(name, dtype, *shape):\n",
            '    first, last = header[name]["data_offsets"]\n',
            "    content = bytearray(raw[start + first : start + last])\n",
            "    flat = torch.frombuffer(content, dtype=dtype) if content else torch.empty(0, dtype=dtype)\n",
            "    return flat.reshape(shape)\n\n\n",
            "TENSORS = {\n",
            *tensors,
            "}\n\n\n",
            f"def call(t, device):\n{call}\n\n",
            f"def exact(t, device):  # numbers as the operator rounds them, dtypes in float64\n{exact}\n\n"
            * (exact != call),
            *self._run(backward),
            *functions,
            "def wide(x):\n"
            "    floats = torch.float64 if x.is_floating_point() else x.dtype\n"
            "    return x.to(torch.complex128 if x.is_complex() else floats)\n\n\n",
            f'golden = run({"exact" if exact != call else "call"}, "cpu", wide)\n',
            "output = run(call, device)\n",
        ]
        if pairs:
            text.append("# What rounding costs the float64 result on a CPU: its largest and its rms error.\n")
            text.append(f"ROUNDING = {_pretty(noise)}\n")
        if beside:
            text.append(
                "plain = {}\n"
                'if not device.startswith("cpu"):\n'
                "    try:\n"
                '        plain = run(call, "cpu")\n'
                "    except RuntimeError as error:  # the CPU lacks the operator for this dtype\n"
                '        print(f"cpu: {error}")\n'
            )
        text += [
            f"JUDGES = {{{', '.join(f'{key!r}: {judge}' for key, judge in judges.items())}}}\n",
            f'print(f"{name} on {{device}}, torch {{torch.__version__}}, policy {self._policy_shown()}")\n',
            "wrong = False\n",
            "for name, judge in JUDGES.items():\n",
            "    mine, right = output[name], golden[name]\n",
            "    if mine.shape != right.shape:\n",
            '        verdict, rule, measured, limit = "fail", "shape", list(mine.shape), list(right.shape)\n',
            "    elif mine.numel() == 0:\n",
            '        verdict, rule, measured, limit = "pass", "no_elements", 0, 0\n',
            "    else:\n",
        ]
        if not beside:
            text.append("        verdict, rule, measured, limit = judge(mine, right)\n")
        elif pairs:
            text += [
                "        beside = errors(plain[name], right) if name in plain and judge is not equal else None\n"
                if "equal" in judges.values()
                else "        beside = errors(plain[name], right) if name in plain else None\n",
                "        verdict, rule, measured, limit = judge(mine, right, beside)\n",
                '        if verdict != "pass" and device.startswith("cpu") and name in ROUNDING:\n',
                "            verdict, rule, measured, limit = judge(mine, right, ROUNDING[name])\n",
            ]
        else:
            text.append("        verdict, rule, measured, limit = judge(mine, right, plain.get(name))\n")
        text += [
            '    print(f"{name}: {verdict} by {rule}: {measured}, limit {limit}")\n',
            '    wrong = wrong or verdict == "fail"\n',
            "sys.exit(wrong)\n",
        ]
        return Script(name, "".join(text), contents)

    def _policy_shown(self) -> str:
        return "distribution" if self._random else self._policy

    def _origin(self) -> Iterator[str]:
        if self._call.forward.stack:
            frame = self._call.forward.stack[0]
            said = f"{frame.path}:{frame.line} in {frame.function}: {frame.source}"
            yield f"# Called at {ascii(said)[1:-1]}\n"

    def _tensors(self) -> tuple[dict[str, tuple[torch.dtype, tuple[int, ...], bytes]], list[str]]:
        """What the bundle holds, and the lines that read it. Equal bytes are stored once."""
        named = list(self._given.tensors)
        if self._direction == "backward":
            named += [(f"grad.{i}", grad) for i, grad in enumerate(self._grads or []) if grad is not None]
        contents: dict[str, tuple[torch.dtype, tuple[int, ...], bytes]] = {}
        lines = []
        stored: dict[tuple[str, bytes], str] = {}
        for name, tensor in named:
            if not all(part.isidentifier() or part.isdecimal() for part in name.split(".")) or not name.isascii():
                raise NotReplayable(f"{name!r} is no name of an argument")
            content = bytes_of(tensor)
            first = stored.setdefault((str(tensor.dtype), content), name) if content else name
            if first == name:
                contents[name] = (tensor.dtype, tuple(tensor.shape), content)
            words = ", ".join([f'"{first}"', str(tensor.dtype), *map(str, tensor.shape)])
            lines.append(f'    "{name}": tensor({words}),{"" if first == name else f"  # the bytes of {first}"}\n')
        return contents, lines

    def _calls(self) -> tuple[str, str]:
        scalar = scalars_as(self._name, self._given)
        return self._body(lambda value: value), self._body(scalar)

    def _body(self, scalar: Any) -> str:
        names: dict[int, str] = {}
        kept = []  # ids stay theirs as long as the tensors live

        def same(tensor: torch.Tensor) -> torch.Tensor:
            new = tensor.view_as(tensor)
            kept.append(new)
            return new

        copied: Arguments = self._given.mapped(same, scalar)
        names = {id(tensor): name for name, tensor in copied.tensors}
        words = [source_of(value, names) for value in copied.args]
        words += [f"{keyword_of(key)}={source_of(value, names)}" for key, value in copied.kwargs.items()]
        line = f"{self._function}({', '.join(words)})"
        if not self._answers:
            return f"    {line}\n    return {words[0]}\n"
        return f"    return {line}\n"

    def _run(self, backward: bool) -> Iterator[str]:
        places = [place for place, _ in self._golden.outputs]
        results = "[function(t, device)]" if self._single else "flat(function(t, device))"
        if not self._single:
            yield _FLAT
        yield "def run(function, device, change=lambda x: x):\n"
        yield f"    torch.manual_seed({self._seed})\n"
        yield "    t = {name: change(x).to(device, copy=True) for name, x in TENSORS.items()}\n"
        if not backward:
            yield f"    with torch.no_grad():\n        outputs = {results}\n"
            yield f"    return dict(zip({places!r}, (x.cpu() for x in outputs)))\n\n\n"
            return
        wanted = [
            place
            for (place, tensor), need in zip(self._given.tensors, self._given.needs_grad, strict=True)
            if need and (tensor.is_floating_point() or tensor.is_complex())
        ]
        grads = [f'"grad.{i}"' if grad is not None else "None" for i, grad in enumerate(self._grads or [])]
        yield f"    leaves = [t[name].requires_grad_() for name in {wanted!r}]\n"
        if self._name.mutates:
            yield "    t = {name: x.clone() for name, x in t.items()}\n"
        yield f"    outputs = [x for x in {results} if x.requires_grad]\n"
        yield f"    pairs = [(x, t[name]) for x, name in zip(outputs, [{', '.join(grads)}]) if name]\n"
        yield "    incoming = [grad.to(x.dtype) for x, grad in pairs]\n"
        yield "    found = torch.autograd.grad([x for x, _ in pairs], leaves, incoming, allow_unused=True)\n"
        yield f"    return {{name: x.cpu() for name, x in zip({wanted!r}, found) if x is not None}}\n\n\n"

    def _judges(self, compared: list[tuple[str, torch.Tensor, torch.dtype]]) -> tuple[dict[str, str], list[str]]:
        """The function that judges each output, and their text."""
        if self._random:
            return {compared[0][0]: "judged"}, [self._random_source()]
        dtypes = list(dict.fromkeys(d for _, _, d in compared if d.is_floating_point or d.is_complex))
        names = {
            dtype: "judged" if len(dtypes) == 1 else f"judged_{str(dtype).removeprefix('torch.')}" for dtype in dtypes
        }
        functions = [
            verdicts.judge_source(self._policy, dtype, self._level, names[dtype].removeprefix("judged")) + "\n\n"
            for dtype in dtypes
        ]
        if dtypes and self._policy in verdicts.BY_NOISE:
            functions.append(verdicts.errors_source(dtypes[0]) + "\n\n")
        judges = {place: names.get(dtype, "equal") for place, _, dtype in compared}
        if "equal" in judges.values():
            functions.append(verdicts.equal_source(self._tied()) + "\n\n")
        return judges, functions

    def _tied(self) -> str:
        axis = ties.axis_of(self._name.operation, self._given)
        if axis is None:
            return ""
        dims = 1 if axis.flat else self._given.args[0].dim()
        reduced = self._golden.outputs[-1][1].dim() < dims
        values = f'TENSORS["{self._given.tensors[0][0]}"]' + ".flatten()" * axis.flat
        index = [f"{each}.unsqueeze({axis.dim})" if reduced else each for each in ("output", "golden")]
        inside = f"bool(((output >= 0) & (output < {axis.size})).all())"
        picked = (f"torch.take_along_dim({values}, {each}, {axis.dim})" for each in index)
        return f"{inside} and torch.equal({', '.join(picked)})"

    def _random_source(self) -> str:
        if self._name.operation in DROPOUTS:
            share, sigmas = self._share(), distribution.SIGMAS
            return (
                "def judged(output, golden):\n"
                "    # The share that is zero now, of what was not before. One right operator in a million fails.\n"
                f'    kept = TENSORS["{self._given.tensors[0][0]}"] != 0\n'
                "    count = int(kept.sum())\n"
                f"    off = abs(float((output[kept] == 0).sum()) / count - {share!r}) if count else 0.0\n"
                f"    limit = {sigmas!r} * math.sqrt({share * (1 - share)!r} / count) if count else 0.0\n"
                '    return "pass" if off <= limit else "fail", "zeroed_share", off, limit\n\n\n'
            )
        return (
            "def judged(output, golden):\n"
            "    # The two-sample test of Kolmogorov and Smirnov; one right operator in a million fails.\n"
            "    a, b = output.double().flatten().sort().values, golden.double().flatten().sort().values\n"
            '    if a.isnan().any() or b.isnan().any():\n        return "fail", "distribution", math.nan, 0\n'
            "    below = [torch.searchsorted(x, torch.cat((a, b)), right=True) / len(x) for x in (a, b)]\n"
            "    apart = float((below[0] - below[1]).abs().max())\n"
            f"    limit = {distribution.KOLMOGOROV!r} * math.sqrt((len(a) + len(b)) / (len(a) * len(b)))\n"
            '    return "pass" if apart <= limit else "fail", "distribution", apart, limit\n\n\n'
        )


def _pretty(noise: Mapping[str, tuple[float, float]]) -> str:
    return "{" + ", ".join(f'"{place}": {source_of(pair, {})}' for place, pair in noise.items()) + "}"
