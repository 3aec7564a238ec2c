"""Dumps of a training step and of the inference engine that serves the same weights, as verl makes them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

HIDDEN, HEADS, WIDE, VOCABULARY, TOKENS = 8, 4, 12, 32, 6

# (module of the training side, class, sizes of parameters, size of input, size of output); {} is the prefix of a layer.
_FSDP = "Module._fsdp_wrapped_module."
_FSDP_LAYER = _FSDP + "model.layers.{}._fsdp_wrapped_module."
_MEGATRON = "Module.module.module."
_MEGATRON_LAYER = _MEGATRON + "decoder.layers.{}."
_VLLM_LAYER = "Module.model.layers.{}."


class Side:
    """One dump directory, entry by entry."""

    def __init__(self, root: Path, seed: int, task: str) -> None:
        self._root = root
        self._draw = random.Random(seed)
        self._task = task
        self._data: dict[str, Any] = {}
        (root / "dump_tensor_data").mkdir(parents=True)

    def leaf(self, name: str, shape: list[int], dtype: str = "bfloat16", **more: Any) -> dict[str, Any]:
        values = [self._draw.choice([-3.5, 0.25, 1.0, 2.0, 7e-05]) for _ in range(4)]
        found = {
            "type": "torch.Tensor",
            "dtype": f"torch.{dtype}",
            "shape": shape,
            **dict(zip(("Max", "Min", "Mean", "Norm"), values, strict=True)),
            "requires_grad": self._draw.random() < 0.5,
            **more,
        }
        if self._task == "tensor":
            import torch

            found["data_name"] = f"{name}.pt"
            content = torch.randint(-8, 8, shape, generator=torch.Generator().manual_seed(self._draw.randrange(99)))
            torch.save(content.to(getattr(torch, dtype)), self._root / "dump_tensor_data" / found["data_name"])
        return found

    def add(
        self,
        name: str,
        inputs: list[list[int] | object],
        outputs: list[list[int]],
        parameters: dict[str, list[int]] | None = None,
        dtype: str = "bfloat16",
    ) -> None:
        entry: dict[str, Any] = {"input_args": [], "input_kwargs": {}}
        for i, shape in enumerate(inputs):
            if isinstance(shape, list):
                entry["input_args"].append(self.leaf(f"{name}.input.{i}", shape, dtype))
            else:
                entry["input_args"].append({"type": type(shape).__name__, "value": shape})
        if parameters is not None:
            entry["parameters"] = {
                key: self.leaf(f"{name}.parameters.{key}", shape, dtype) for key, shape in parameters.items()
            }
        entry["output"] = [self.leaf(f"{name}.output.{i}", shape, dtype) for i, shape in enumerate(outputs)]
        self._data[name] = entry

    def add_gradients(self, name: str, parameters: dict[str, list[int]]) -> None:
        self._data[name] = {key: [self.leaf(f"{name}.{key}", shape)] for key, shape in parameters.items()}

    def write(self) -> None:
        head = {"task": self._task, "level": "mix", "framework": "pytorch", "dump_data_dir": "x"}
        (self._root / "dump.json").write_text(json.dumps({**head, "data": self._data}))
        lines = ["File a.py, line 3, in forward, \n x = f(x)"]
        stacks = {"0": [list(self._data), lines]}
        (self._root / "stack.json").write_text(json.dumps(stacks))
        (self._root / "construct.json").write_text("{}")


def fsdp(root: Path, task: str) -> tuple[Path, Path]:
    """A step of Qwen2 under FSDP beside vLLM: q, k, v and gate, up are one there."""
    train = Side(root / "train", 1, task)
    train.add("Torch.arange.0.forward", [6], [[TOKENS]])
    for call in range(2):  # one micro batch after the other; the backward pass between them is left out
        train.add(
            f"{_FSDP}model.embed_tokens.Embedding.forward.{call}",
            [[1, TOKENS]],
            [[1, TOKENS, HIDDEN]],
            {"weight": [VOCABULARY, HIDDEN]},
        )
        for layer in range(2):
            at = _FSDP_LAYER.format(layer)
            hidden = [1, TOKENS, HIDDEN]
            train.add(f"{at}input_layernorm.Qwen2RMSNorm.forward.{call}", [hidden], [hidden], {"weight": [HIDDEN]})
            for part in ("q_proj", "k_proj", "v_proj"):
                train.add(
                    f"{at}self_attn.{part}.Linear.forward.{call}",
                    [hidden],
                    [[1, TOKENS, HEADS]],
                    {"weight": [HEADS, HIDDEN], "bias": [HEADS]},
                )
                train.add(f"Functional.linear.{layer * 3 + call}.forward", [hidden, [HEADS, HIDDEN]], [hidden])
            train.add(f"{at}self_attn.o_proj.Linear.forward.{call}", [hidden], [hidden], {"weight": [HIDDEN, HIDDEN]})
            train.add(f"{at}self_attn.Qwen2Attention.forward.{call}", [hidden, True, 0.5, "causal"], [hidden])
            for part in ("gate_proj", "up_proj"):
                train.add(
                    f"{at}mlp.{part}.Linear.forward.{call}",
                    [hidden],
                    [[1, TOKENS, WIDE]],
                    {"weight": [WIDE, HIDDEN]},
                )
            train.add(f"{at}mlp.act_fn.SiLU.forward.{call}", [[1, TOKENS, WIDE]], [[1, TOKENS, WIDE]])
            train.add(
                f"{at}mlp.down_proj.Linear.forward.{call}",
                [[1, TOKENS, WIDE]],
                [hidden],
                {"weight": [HIDDEN, WIDE]},
            )
            train.add(f"{at}mlp.Qwen2MLP.forward.{call}", [hidden], [hidden])
            train.add(f"{at}Qwen2DecoderLayer.forward.{call}", [hidden], [hidden])
        train.add(f"{_FSDP}model.norm.Qwen2RMSNorm.forward.{call}", [hidden], [hidden], {"weight": [HIDDEN]})
        train.add(f"{_FSDP}model.Qwen2Model.forward.{call}", [[1, TOKENS]], [hidden])
        train.add(f"{_FSDP}model.Qwen2Model.backward.{call}", [hidden], [hidden])
        train.add(f"{_FSDP}model.norm.Qwen2RMSNorm.backward.{call}", [hidden], [hidden])
        train.add_gradients(f"{_FSDP}model.norm.Qwen2RMSNorm.parameters_grad", {"weight": [HIDDEN]})
    train.write()

    infer = Side(root / "infer", 2, task)
    hidden = [TOKENS, HIDDEN]
    infer.add(
        "Module.model.embed_tokens.VocabParallelEmbedding.forward.0",
        [[TOKENS]],
        [hidden],
        {"weight": [VOCABULARY, HIDDEN]},
    )
    for layer in range(2):
        at = _VLLM_LAYER.format(layer)
        infer.add(f"{at}input_layernorm.RMSNorm.forward.0", [hidden], [hidden], {"weight": [HIDDEN]})
        infer.add(
            f"{at}self_attn.qkv_proj.QKVParallelLinear.forward.0",
            [hidden],
            [[TOKENS, 3 * HEADS]],
            {"weight": [3 * HEADS, HIDDEN], "bias": [3 * HEADS]},
        )
        infer.add(f"{at}self_attn.rotary_emb.RotaryEmbedding.forward.0", [hidden], [hidden, hidden])
        infer.add(f"{at}self_attn.o_proj.RowParallelLinear.forward.0", [hidden], [hidden], {"weight": [HIDDEN, HIDDEN]})
        infer.add(f"{at}self_attn.Qwen2Attention.forward.0", [hidden, True, 0.25, "causal"], [hidden])
        infer.add(
            f"{at}mlp.gate_up_proj.MergedColumnParallelLinear.forward.0",
            [hidden],
            [[TOKENS, 2 * WIDE]],
            {"weight": [2 * WIDE, HIDDEN]},
        )
        infer.add(f"{at}mlp.act_fn.SiluAndMul.forward.0", [[TOKENS, 2 * WIDE]], [[TOKENS, WIDE]])
        infer.add(
            f"{at}mlp.down_proj.RowParallelLinear.forward.0", [[TOKENS, WIDE]], [hidden], {"weight": [HIDDEN, WIDE]}
        )
        infer.add(f"{at}mlp.Qwen2MLP.forward.0", [hidden], [hidden])
        infer.add(f"{at}Qwen2DecoderLayer.forward.0", [hidden, hidden], [hidden, hidden])
    infer.add("Module.model.norm.RMSNorm.forward.0", [hidden], [hidden], {"weight": [HIDDEN]}, dtype="float32")
    infer.add("Module.lm_head.ParallelLMHead.forward.0", [hidden], [hidden])
    infer.write()
    return root / "train", root / "infer"


def megatron(root: Path, task: str) -> tuple[Path, Path]:
    """A step of Megatron's GPT beside an engine that has gate and up apart."""
    train = Side(root / "train", 3, task)
    hidden = [TOKENS, 1, HIDDEN]
    train.add(
        f"{_MEGATRON}embedding.word_embeddings.VocabParallelEmbedding.forward.0",
        [[1, TOKENS]],
        [hidden],
        {"weight": [VOCABULARY, HIDDEN]},
    )
    for layer in range(2):
        at = _MEGATRON_LAYER.format(layer)
        train.add(f"{at}input_layernorm.RMSNorm.forward.0", [hidden], [hidden], {"weight": [HIDDEN]})
        train.add(
            f"{at}self_attention.linear_qkv.ColumnParallelLinear.forward.0",
            [hidden],
            [[TOKENS, 1, 3 * HEADS]],
            {"weight": [3 * HEADS, HIDDEN]},
        )
        train.add(f"{at}self_attention.core_attention.Attention.forward.0", [hidden], [[TOKENS, 2, HEADS]])
        train.add(
            f"{at}self_attention.linear_proj.RowParallelLinear.forward.0",
            [hidden],
            [hidden],
            {"weight": [HIDDEN, HIDDEN]},
        )
        train.add(f"{at}self_attention.SelfAttention.forward.0", [hidden], [hidden])
        train.add(
            f"{at}mlp.linear_fc1.ColumnParallelLinear.forward.0",
            [hidden],
            [[TOKENS, 1, 2 * WIDE]],
            {"weight": [2 * WIDE, HIDDEN]},
        )
        train.add(
            f"{at}mlp.linear_fc2.RowParallelLinear.forward.0",
            [[TOKENS, 1, WIDE]],
            [hidden],
            {"weight": [HIDDEN, WIDE]},
        )
        train.add(f"{at}mlp.MLP.forward.0", [hidden], [hidden])
        train.add(f"{at}TransformerLayer.forward.0", [hidden], [hidden])
    train.add(f"{_MEGATRON}decoder.final_layernorm.RMSNorm.forward.0", [hidden], [hidden], {"weight": [HIDDEN]})
    train.add(f"{_MEGATRON}GPTModel.forward.0", [[1, TOKENS]], [hidden])
    train.add(f"{_MEGATRON}GPTModel.backward.0", [hidden], [hidden])
    train.write()

    infer = Side(root / "infer", 4, task)
    hidden = [TOKENS, HIDDEN]
    infer.add(
        "Module.model.embed_tokens.VocabParallelEmbedding.forward.0",
        [[TOKENS]],
        [hidden],
        {"weight": [VOCABULARY, HIDDEN]},
    )
    for layer in range(2):
        at = _VLLM_LAYER.format(layer)
        infer.add(f"{at}input_layernorm.RMSNorm.forward.0", [hidden], [hidden], {"weight": [HIDDEN]})
        infer.add(
            f"{at}self_attn.qkv_proj.QKVParallelLinear.forward.0",
            [hidden],
            [[TOKENS, 3 * HEADS]],
            {"weight": [3 * HEADS, HIDDEN]},
        )
        infer.add(f"{at}self_attn.attn.Attention.forward.0", [hidden], [[TOKENS, 2 * HEADS]])
        infer.add(f"{at}self_attn.o_proj.RowParallelLinear.forward.0", [hidden], [hidden], {"weight": [HIDDEN, HIDDEN]})
        infer.add(f"{at}self_attn.Qwen2Attention.forward.0", [hidden], [hidden])
        for part in ("gate_up_proj", "linear_fc1"):
            infer.add(
                f"{at}mlp.{part}.ColumnParallelLinear.forward.0",
                [hidden],
                [[TOKENS, WIDE]],
                {"weight": [WIDE, HIDDEN]},
            )
        infer.add(
            f"{at}mlp.down_proj.RowParallelLinear.forward.0", [[TOKENS, WIDE]], [hidden], {"weight": [HIDDEN, WIDE]}
        )
        infer.add(f"{at}mlp.MLP.forward.0", [hidden], [hidden])
        infer.add(f"{at}Qwen2DecoderLayer.forward.0", [hidden, hidden], [hidden])
    infer.add("Module.model.norm.RMSNorm.forward.0", [hidden], [hidden], {"weight": [HIDDEN]})
    infer.write()
    return root / "train", root / "infer"
