"""The programs that parity is tested with, for whichever `msprobe` is importable: each captures one step.

Seeds, sizes and values are fixed, and torch computes in one thread, so two runs see the same bits. record.py keeps what
mindstudio-probe makes of them, with this file beside it as dump/make.py; cases.py loads it from there.
"""

from __future__ import annotations

import collections
import dataclasses
import random
import types

PAYLOAD = (1, 2, 3, 4, 5)
DTYPES = (
    *("float64", "float32", "float16", "bfloat16"),
    *("int8", "uint8", "int16", "int32", "int64", "bool", "complex64"),
    *("float8_e4m3fn", "float8_e5m2"),
)
SEED, TOKEN_SEED = 1234, 7


@dataclasses.dataclass(frozen=True)
class Case:
    """A program and what is configured for it."""

    program: str
    level: str
    task: str = "statistics"
    section: dict = dataclasses.field(default_factory=dict)  # of the task
    top: dict = dataclasses.field(default_factory=dict)
    dtype: str = "float32"  # of the model

    def config(self, dump_path):
        common = {"task": self.task, "dump_path": str(dump_path), "rank": [], "step": [], "level": self.level}
        everything = {"scope": [], "list": [], "data_mode": ["all"]}
        return {**common, "async_dump": False, **self.top, self.task: everything | self.section}


def _cases():
    levels = ("L0", "L1", "mix")
    yield from ((f"fwd_statistics_{level}", Case("forward", level)) for level in levels)
    yield from ((f"train_statistics_{level}", Case("train", level)) for level in levels)
    yield "train_stat_mix_riskALL", Case("train", "mix", top={"risk_level": "ALL"})
    for mode, level in (("md5", "mix"), ("xor", "L1")):
        yield f"train_stat_{mode}_{level}", Case("train", level, section={"summary_mode": mode})
    yield "train_stat_mix_bf16", Case("train", "mix", dtype="bfloat16")
    yield "train_structure_mix", Case("train", "mix", task="structure")
    yield "train_stat_L1_list", Case("train", "L1", section={"list": ["linear"]})
    yield "train_stat_mix_list_module", Case("train", "mix", section={"list": ["layers.0.mlp"]})
    ends = [f"Functional.linear.{count}.forward" for count in (0, 3)]
    yield "train_stat_L1_scope", Case("train", "L1", section={"scope": ends})
    yield "train_stat_L1_slice", Case("train", "L1", section={"slice": [{"dim": 1, "begin": 0, "end": 4}]})
    yield "types_api", Case("types_api", "L1")
    yield "types_api_md5", Case("types_api", "L1", section={"summary_mode": "md5"})
    yield "types_module", Case("types_module", "L0")
    yield "types_debug", Case("types_debug", "debug")


CASES = dict(_cases())
Named = collections.namedtuple("Named", "a b")


@dataclasses.dataclass
class Place:
    x: object
    y: int = 3


def seed_everything(seed=SEED):
    import numpy
    import torch

    for sow in (random.seed, numpy.random.seed, torch.manual_seed):
        sow(seed)


def tiny_qwen2(dtype, train):
    """Two layers of random weights; nothing is downloaded."""
    import transformers

    sizes = {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "attn_implementation": "sdpa"}
    more = {"max_position_embeddings": 2048, "tie_word_embeddings": False, "use_cache": False}
    seed_everything()
    model = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**sizes, **heads, **more))
    return model.to(dtype).train(train)


def model_and_tokens(case, train):
    import torch

    drawn = torch.Generator().manual_seed(TOKEN_SEED)
    return tiny_qwen2(getattr(torch, case.dtype), train), torch.randint(0, 256, (1, 8), generator=drawn)


def forward(debugger, case):
    import torch

    model, tokens = model_and_tokens(case, train=False)
    debugger.start(model=model)
    with torch.no_grad():
        model(tokens)
    debugger.stop()
    debugger.step()


def train(debugger, case):
    import torch

    model, tokens = model_and_tokens(case, train=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    debugger.start(model=model)
    optimizer.zero_grad()
    model(input_ids=tokens, labels=tokens).loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    debugger.stop()
    debugger.step()


def _tensors():
    import torch

    nan, inf = float("nan"), float("inf")
    yield from ((f"t_{name}", torch.tensor(PAYLOAD).to(getattr(torch, name))) for name in DTYPES)
    yield "scalar_f32", torch.tensor(1.5)
    yield "scalar_f32_negative", torch.tensor(-1.5)
    yield "scalar_f16", torch.tensor(1.1, dtype=torch.float16)
    yield "scalar_i64", torch.tensor(7)
    yield "scalar_bool", torch.tensor(True)
    yield "t_nan", torch.tensor([1.0, nan, 2.0])
    yield "t_inf", torch.tensor([1.0, inf, -inf])
    yield "t_positive_inf", torch.tensor([1.0, inf])
    yield "f16_norm_overflow", torch.full((4096,), 3000.0, dtype=torch.float16)
    yield "f16_large_mean", torch.full((100000,), 60000.0, dtype=torch.float16)
    yield "f32_sum_overflow", torch.full((4,), 3e38)
    yield "i64_large", torch.tensor([1 << 62] * 2)
    yield "u8_large", torch.tensor([255, 1], dtype=torch.uint8)
    yield "negative_zero", torch.tensor([-0.0])
    yield "denormal", torch.tensor([1e-42])
    yield "empty", torch.empty(0, 3)
    yield "meta", torch.empty(2, 3, device="meta")
    yield "parameter", torch.nn.Parameter(torch.ones(2))
    yield "buffer", torch.nn.Buffer(torch.ones(2))
    yield "transposed", torch.arange(6.0).reshape(2, 3).t()
    yield "strided", torch.arange(10.0)[::2]
    yield "expanded", torch.ones(1).expand(5)
    yield "quantized", torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8)


def _other_values():
    import numpy
    import torch
    from transformers.modeling_outputs import BaseModelOutput

    yield from {"none": None, "bool": True, "int": 3, "float": 2.5, "str": "abc", "ellipsis": ...}.items()
    yield from {"float_nan": float("nan"), "float_inf": float("inf"), "complex": 1 + 2j, "bytes": b"ab"}.items()
    yield from {"slice": slice(1, None, 2), "set": {1, 2}, "object": object(), "function": print}.items()
    for kind, value in {"dtype": torch.float32, "device": torch.device("cpu")}.items():
        yield from {kind: value, f"{kind}_other_key": value}.items()
    yield from {"size": torch.Size([1, 2]), "memory_format": torch.channels_last, "layout": torch.strided}.items()
    yield "generator", torch.Generator()
    yield "list", [torch.ones(2), 1, [None, "x"]]
    yield "tuple", (1, torch.zeros(1))
    yield "dict", {"k": torch.ones(1), "n": {"m": 2}}
    yield from {"int_key_dict": {1: 2}, "empty_list": [], "empty_dict": {}}.items()
    yield "namedtuple", Named(torch.ones(2), 1)
    yield "dataclass", Place(torch.ones(2))
    yield "model_output", BaseModelOutput(last_hidden_state=torch.ones(1, 2))
    yield from {"np_float32": numpy.float32(1.5), "np_int64": numpy.int64(5), "np_bool": numpy.bool_(True)}.items()
    yield from {"np_str": numpy.str_("q"), "np_array_f32": numpy.arange(4, dtype=numpy.float32)}.items()
    yield from {"np_array_i64": numpy.arange(3), "np_array_str": numpy.array(["a"])}.items()
    yield "np_array_empty", numpy.zeros(0)


def sample_values():
    """Name -> value, one of each kind that a call can carry.

    mindstudio-probe fails on unsigned integers of more than 8 bits, sparse tensors and numpy's complex64: none is here.
    """
    return dict(_tensors()) | dict(_other_values())


# A recorded call that returns a dict without a tensor ends mindstudio-probe with StopIteration.
TENSORLESS_DICTS = ("int_key_dict", "empty_dict")


def types_api(debugger, case):
    """Custom.take_NAME: the first call has the value by position and returns it, the second has it as keyword NAME.

    The prefix keeps the names apart from those of torch, some of which no risk level records.
    """
    values, apis = sample_values(), types.ModuleType("sample_apis")
    for name in values:
        back = name not in TENSORLESS_DICTS
        setattr(apis, f"take_{name}", lambda *args, back=back, **kwargs: args[0] if back else None)
        debugger.register_custom_api(apis, f"take_{name}", "Custom")
    debugger.start()
    for name, value in values.items():
        call = getattr(apis, f"take_{name}")
        call(value)
        call(1, **{name: value})
    debugger.stop()
    debugger.step()


def types_module(debugger, case):
    """Modules that return a ModelOutput and a namedtuple, one with two names, one that is never called."""
    import torch
    from transformers.modeling_outputs import BaseModelOutput

    class Inner(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = torch.nn.Linear(2, 2)
            self.never = torch.nn.Identity()

        def forward(self, x, named=False):
            y = self.lin(x)
            return Named(y, 2) if named else BaseModelOutput(last_hidden_state=y)

    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.block = Inner()
            self.shared = self.block.lin

        def forward(self, x):
            first = self.block(x, named=False).last_hidden_state
            second = self.block(x, named=True)[0]  # mindstudio-probe makes a plain tuple of it
            return (first + second + self.shared(x)).sum()

    seed_everything()
    model = Outer()
    debugger.start(model=model)
    model(torch.ones(3, 2, requires_grad=True)).backward()
    debugger.stop()
    debugger.step()


def types_debug(debugger, case):
    """save() of a tensor, twice; of a nested and a plain value; and of what it refuses."""
    import torch

    seed_everything()
    x = torch.randn(3, requires_grad=True)
    y = x * 2
    debugger.save(y, "y")
    debugger.save({"a": y, "b": [x, 1, "s"]}, "z")
    debugger.save(y, "y", save_backward=False)
    for value, name in ((3, "three"), (None, "none"), (1 + 1j, "complex"), (y, 5)):
        debugger.save(value, name)
    y.sum().backward()
    debugger.step()


PROGRAMS = {program.__name__: program for program in (forward, train, types_api, types_module, types_debug)}


def run(name, config_path):
    """Runs a case in this process, which can run no other: a debugger is made once a process."""
    import torch
    from msprobe.pytorch import PrecisionDebugger

    torch.set_num_threads(1)
    case = CASES[name]
    PROGRAMS[case.program](PrecisionDebugger(config_path=config_path), case)
