"""What-if formats held against torch's and ml_dtypes' own casts, select, and the series that only some models have."""

import json
import re
import sys

import ml_dtypes
import numpy as np
import pytest
import torch
from harness.processes import PROGRAMS, external_server, run
from msprobe_client import Client

TORCH_FORMATS = {"bf16": torch.bfloat16, "fp16": torch.float16, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
FORMATS = (*TORCH_FORMATS, "mxfp8_e4m3", "mxfp8_e5m2", "mxfp4", "nvfp4")
OPS = [f"{kind}_{each}" for kind in ("error", "to_zero") for each in FORMATS]


class Watched:
    def __init__(self, directory):
        self.directory, self.address = directory, f"unix:{directory}/s"

    def config(self, name, section, **fields):
        path = self.directory / f"{name}.json"
        whole = {"task": "monitor", "dump_path": str(self.directory / "dump"), "server": self.address, "run": name}
        path.write_text(json.dumps(whole | fields | {"monitor": section}))
        return path

    def series(self, name, pattern="*"):
        with Client(self.address) as client:
            return {series.name: series for series in client.monitor.series(name, pattern)}


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    directory = tmp_path_factory.mktemp("series")
    with external_server(directory / "s", directory / "data", directory / "log"):
        yield Watched(directory)


def cast(values, dtype):
    """Scaled so that nothing overflows, by torch where it has the format and can cast to it."""
    if isinstance(dtype, torch.dtype):
        return torch.from_numpy(values).to(dtype).float().numpy()
    return values.astype(dtype).astype(np.float32)


def quantised(values, name):
    """The values as a format has them: an oracle of rows of floats."""
    largest = np.abs(values).max()
    if name in ("bf16", "fp16"):
        return cast(values, TORCH_FORMATS[name])
    if name in ("e4m3", "e5m2"):
        scale = np.float32(torch.finfo(TORCH_FORMATS[name]).max) / largest
        return cast(values * scale, TORCH_FORMATS[name]) / scale
    block = 16 if name == "nvfp4" else 32
    out = np.empty_like(values)
    for begin in range(0, values.shape[-1], block):
        part = values[..., begin : begin + block]
        most = np.abs(part).max(-1, keepdims=True)
        if name == "nvfp4":
            whole = np.float32(448 * 6) / largest
            scale = cast(most / np.float32(6) * whole, torch.float8_e4m3fn) / whole
            dtype, limit = ml_dtypes.float4_e2m1fn, 6
        else:
            dtype, power, limit = {
                "mxfp8_e4m3": (torch.float8_e4m3fn, 8, 448),
                "mxfp8_e5m2": (torch.float8_e5m2, 15, 57344),
                "mxfp4": (ml_dtypes.float4_e2m1fn, 2, 6),
            }[name]
            scale = np.exp2(np.floor(np.log2(np.where(most == 0, 1, most))) - power).astype(np.float32)
        scaled = np.divide(part, scale, out=np.zeros_like(part), where=scale != 0)
        out[..., begin : begin + block] = cast(np.clip(scaled, -limit, limit), dtype) * scale
    return out


def test_formats_lose_what_other_libraries_casts_lose(watched):
    saved = watched.directory / "parameters.pt"
    section = {"ops": OPS, "activations": 0, "update_ratio": False, "weight_grad": False}
    run([sys.executable, PROGRAMS / "quantised_parameters.py", watched.config("formats", section), saved])
    found = watched.series("formats", "*.parameter:*")
    for name, parameter in torch.load(saved).items():
        values = parameter.float().numpy()
        for each in FORMATS:
            other = quantised(values, each)
            error = np.linalg.norm((other - values).astype(np.float64)) / np.linalg.norm(values.astype(np.float64))
            zeroed = ((values != 0) & (other == 0)).mean()
            got = {kind: found[f"{name}.parameter:{kind}_{each}"].values[0] for kind in ("error", "to_zero")}
            assert got["error"] == pytest.approx(error, rel=1e-3, abs=1e-7), (name, each)
            assert got["to_zero"] == pytest.approx(zeroed, abs=2.5 / values.size), (name, each)


def test_kurtosis_is_there_for_a_parameter_that_is_remembered(watched):
    program = watched.directory / "frozen.py"
    program.write_text(
        "import sys, msprobe, torch\n"
        "model = torch.nn.Linear(256, 256)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.0)\n"
        "msprobe.watch(model, optimizer, config_path=sys.argv[1], rank_id=0)\n"
        "for _ in range(4):\n"
        "    optimizer.zero_grad()\n"
        "    model(torch.ones(1, 256)).sum().backward()\n"
        "    optimizer.step()\n"
    )
    config = watched.config("remembered", {"ops": ["norm", "kurtosis"], "activations": 1}, reuse="all")
    run([sys.executable, program, config])
    found = watched.series("remembered", "weight.parameter:*")
    assert {name.rpartition(":")[2]: series.steps for name, series in found.items()} == dict.fromkeys(
        ("norm", "kurtosis"), (0, 1, 2, 3)
    )


def test_select_chooses_modules_and_parameters(watched):
    program = watched.directory / "selected.py"
    program.write_text(
        "import sys, msprobe, torch\n"
        "from msprobe.select import Linear, depth, name, under\n"
        "block = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 4))\n"
        "model = torch.nn.Sequential(block, torch.nn.Linear(4, 1))\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "chosen = Linear & under('0') & (depth <= 2) & ~name('*.2')\n"
        'assert str(chosen) == \'(((Linear & under("0")) & depth(<=2)) & ~name("*.2"))\'\n'
        "msprobe.watch(\n"
        "    model, optimizer, config_path=sys.argv[1], rank_id=0, select=chosen,\n"
        "    model_series=['weights', 'experts'], communication=True,\n"
        ")\n"
        "assert msprobe.pytorch.PrecisionDebugger._the().config.communication\n"
        "for _ in range(2):\n"
        "    model(torch.ones(2, 4)).sum().backward()\n"
        "    optimizer.step()\n"
    )
    output = run([sys.executable, program, watched.config("selected", {"ops": ["norm"]})]).stdout
    assert output.count("model_series: experts has no series: no module of the model fits the field routers") == 1
    found = watched.series("selected", "*.parameter:*")
    names = {re.match(r"\d[.\d]*\.(weight|bias)", name)[0] for name in found}
    assert names == {"0.0.weight", "0.0.bias"}
    assert "0.0.weight.parameter:stable_rank" in found, "model_series is an argument, too"
    with Client(watched.address) as client:
        (step,) = client.steps("selected")
        records = {record.full_name for record in client.records("selected", step=step.step, rank=0)}
    assert {name.split(".forward")[0].split(".backward")[0].split(".parameters_grad")[0] for name in records} == {
        "Module.0.0.Linear"
    }


def bits(output):
    """What the program prints of its parameters and of the random generator."""
    found = re.findall("^(?:HASH|RANDOM) .*", output, re.MULTILINE)
    assert len(found) == 2
    return found


def train(watched, name, *arguments, series):
    section = {
        "ops": ["max", "mean"],
        "activations": 1,
        "update_ratio": False,
        "weight_grad": False,
        "parameters": False,
    }
    config = watched.config(name, section | {"moments": False, "model_series": series})
    output = run([sys.executable, PROGRAMS / "model_series.py", "--config", config, *arguments], timeout=120).stdout
    return output, json.loads(re.search("EXPECTED (.*)", output)[1]), watched.series(name)


def test_attention_weights_tokens_and_scales(watched):
    plain = run([sys.executable, PROGRAMS / "model_series.py"], timeout=120).stdout
    names = ["attention", "weights", "tokens", "scales"]
    eager, expected, found = train(watched, "eager", series=names)
    assert bits(eager) == bits(plain), "no bit of the training, and no random number, differs"
    layer = "model.layers.0.self_attn"
    heads = [found[f"{layer}.attention_entropy.head.{head}"].values[0] for head in range(4)]
    assert heads == pytest.approx(expected["attention_entropy"], rel=1e-4)
    assert found[f"{layer}.attention_entropy:mean"].values[0] == pytest.approx(np.mean(heads), rel=1e-5)
    for kind in ("spectral_norm", "stable_rank"):
        assert found[f"{layer}.q_proj.weight.parameter:{kind}"].values[0] == pytest.approx(expected[kind], rel=0.05)
    assert {len(found[f"model.layers.{i}.token_similarity"].values) for i in range(2)} == {3}
    assert all(-1 <= value <= 1 for value in found["model.layers.1.token_similarity"].values)
    assert found["scaled.weight_scale_inv.scale:max"].values == (2.0, 2.0, 2.0)
    assert found["scaled.fp8_meta.scaling_fwd.scale.scale:max"].values == (4.0, 4.0, 4.0)

    _, _, fused = train(watched, "fused", "--attention", "sdpa", series=["attention"])
    for kind in ("attention_entropy", "attention_logit"):
        for head in range(4):
            name = f"{layer}.{kind}.head.{head}"
            assert fused[name].values[0] == pytest.approx(found[name].values[0], rel=1e-3, abs=1e-5), name


def test_routers_of_a_mixture_of_experts(watched):
    plain = run([sys.executable, PROGRAMS / "model_series.py", "--model", "mixtral"], timeout=120).stdout
    output, expected, found = train(watched, "experts", "--model", "mixtral", series=["experts"])
    assert bits(output) == bits(plain)
    router = next(name for name in found if name.endswith("router_entropy")).removesuffix(".router_entropy")
    assert ".layers.0." in router
    assert found[f"{router}.router_entropy"].values[0] == pytest.approx(expected["router_entropy"], rel=1e-4)
    assert found[f"{router}.expert_load:max"].values[0] == pytest.approx(expected["expert_load"], rel=1e-4)
    assert found[f"{router}.expert_load:mean"].values[0] == pytest.approx(2 / 4), "each token goes to two of four"
    assert all(0 <= dead < 4 for dead in found[f"{router}.dead_experts"].values)
