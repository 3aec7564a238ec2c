"""Makes the script of one call: text, and what its bundle holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from msprobe_client.check import distribution, replay, ties
from msprobe_client.check.arguments import Loader, dtype_of
from msprobe_client.check.calls import Call, Place
from msprobe_client.check.checker import scalars_as
from msprobe_client.check.operators import DROPOUTS, SUMS_OF_PRODUCTS, function_of
from msprobe_client.repro import verdicts
from msprobe_client.repro.literals import source_of
from msprobe_client.repro.scripted_call import Contents, Direction, ScriptedCall


@dataclass(frozen=True, slots=True)
class Script:
    name: str  # "Functional.linear.0.forward": of its files
    text: str
    contents: Contents


def script_of(
    call: Call, loader: Loader, place: Place, *, direction: Direction, policy: str, level: str, seed: int, shown: str
) -> Script:
    """level: of the operator, for the policy `cann`. shown: the source as the user named it. Raises NotReplayable."""
    return _Writer(ScriptedCall(call, loader, direction, seed), policy, level, seed).script(place, shown)


class _Writer:
    def __init__(self, call: ScriptedCall, policy: str, level: str, seed: int) -> None:
        self._call = call
        self._policy = policy
        self._level = level
        self._seed = seed

    def _compared(self) -> list[tuple[str, torch.Tensor, torch.dtype]]:
        """Name, golden value and dtype of each output, or gradient."""
        if self._call.backward:
            dtypes = {place: tensor.dtype for place, tensor in self._call.given.tensors}
            return [(place, tensor, dtypes[place]) for place, tensor in self._call.golden.gradients]
        record = self._call.recorded.forward
        recorded = {
            name.removeprefix(f"{record.full_name}."): dtype_of(stats.dtype) for name, stats in record.tensors()
        }
        missing = [place for place, _ in self._call.golden.outputs if place not in recorded]
        if missing:
            recorded |= self._dtypes_here()
        return [(place, tensor, recorded.get(place, tensor.dtype)) for place, tensor in self._call.golden.outputs]

    def _dtypes_here(self) -> dict[str, torch.dtype]:
        function = function_of(self._call.name)
        assert function is not None
        try:
            copied = self._call.given.mapped(replay.on("cpu"))
            found = replay.run(function, copied, mutates=self._call.name.mutates, grad_outputs=None, seed=self._seed)
        except Exception:  # a CPU may lack the operator for this dtype
            return {}
        return {place: tensor.dtype for place, tensor in found.outputs}

    def _noise(self, compared: list[tuple[str, torch.Tensor, torch.dtype]]) -> dict[str, tuple[float, float]]:
        """What rounding of the inputs costs, by output: the largest error and its rms."""
        function = function_of(self._call.name)
        assert function is not None
        floats = [each for each in compared if each[2].is_floating_point and each[1].numel()]
        if self._policy not in verdicts.BY_NOISE or self._call.random or not floats:
            return {}
        try:
            moved = replay.rounded_otherwise(
                function,
                self._call.given,
                mutates=self._call.name.mutates,
                grad_outputs=self._call.grads,
                seed=self._seed,
                scalar=scalars_as(self._call.name, self._call.given),
                sums=self._call.name.operation in SUMS_OF_PRODUCTS,
            )
        except Exception:  # as check has it
            return {}
        others = dict(moved.outputs if not self._call.backward else moved.gradients)
        found = {}
        for place, golden, dtype in floats:
            other = others.get(place)
            if other is not None and other.shape == golden.shape and other.is_floating_point():
                found[place] = verdicts.errors(other.to(dtype), golden)
        return found

    # --- text ---

    def script(self, place: Place, shown: str) -> Script:
        name = self._call.full_name
        contents, tensors = self._call.bundled_tensors()
        compared = self._compared()[: 1 if self._call.random else None]
        judges, functions = self._judges(compared)
        noise = self._noise(compared)
        call, exact = self._call.body(), self._call.body(scalars_as(self._call.name, self._call.given))
        source = (
            "as saved" if self._call.given.source == "saved" else f"drawn within the recorded ranges, seed {self._seed}"
        )
        # Only where it decides; random outputs are held against their distribution.
        pairs = (
            not self._call.random
            and self._policy in verdicts.BY_NOISE
            and any(j.startswith("judged") for j in judges.values())
        )
        beside = not self._call.random and (pairs or self._policy == "cann")
        text = [
            f'"""{name}: {self._call.function} held against float64. Needs torch alone."""\n',
            f"# Of {shown!a}, step {place.step}, rank {ascii(str(place.rank))[1:-1]}; inputs {source}.\n",
            *self._call.origin(),
            "import argparse\nimport json\nimport math\nimport pathlib\nimport sys\n\nimport torch\n\n",
            "parser = argparse.ArgumentParser(description=__doc__)\n",
            'parser.add_argument("--device", default="cpu", help="cpu, cuda:0, npu:0")\n',
            "device = parser.parse_args().device\n",
            'if device.startswith("npu"):\n    import torch_npu\n\n',
            self._call.reads_bundle(),
            "TENSORS = {\n",
            *tensors,
            "}\n\n\n",
            f"def call(t, device):\n{call}\n\n",
            f"def exact(t, device):  # numbers as the operator rounds them, dtypes in float64\n{exact}\n\n"
            * (exact != call),
            *self._call.run_function(seeded=True),
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
        return "distribution" if self._call.random else self._policy

    def _judges(self, compared: list[tuple[str, torch.Tensor, torch.dtype]]) -> tuple[dict[str, str], list[str]]:
        """The function that judges each output, and their text."""
        if self._call.random:
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
        axis = ties.axis_of(self._call.name.operation, self._call.given)
        if axis is None:
            return ""
        dims = 1 if axis.flat else self._call.given.args[0].dim()
        reduced = self._call.golden.outputs[-1][1].dim() < dims
        values = f'TENSORS["{self._call.given.tensors[0][0]}"]' + ".flatten()" * axis.flat
        index = [f"{each}.unsqueeze({axis.dim})" if reduced else each for each in ("output", "golden")]
        inside = f"bool(((output >= 0) & (output < {axis.size})).all())"
        picked = (f"torch.take_along_dim({values}, {each}, {axis.dim})" for each in index)
        return f"{inside} and torch.equal({', '.join(picked)})"

    def _random_source(self) -> str:
        if self._call.name.operation in DROPOUTS:
            share, sigmas = self._call.dropout_share(), distribution.SIGMAS
            return (
                "def judged(output, golden):\n"
                "    # The share that is zero now, of what was not before. One right operator in a million fails.\n"
                f'    kept = TENSORS["{self._call.given.tensors[0][0]}"] != 0\n'
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
