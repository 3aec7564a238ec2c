"""Plants faults in modules of a model whose right outputs it has captured, and bisects each: a line of JSON for each.

--model mlp | qwen2. The mlp runs in bfloat16, too, against what was right in float32.
"""

import argparse
import contextlib
import json
import sys

import torch
from msprobe.pytorch import PrecisionDebugger


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, 2 * width)
        self.act = torch.nn.GELU()
        self.down = torch.nn.Linear(2 * width, width)
        self.kept = 1.0

    def forward(self, x):
        return self.kept * x + self.down(self.act(self.up(self.norm(x))))


class Mlp(torch.nn.Module):
    def __init__(self, width=16, depth=6):
        super().__init__()
        self.embed = torch.nn.Linear(8, width)
        self.blocks = torch.nn.ModuleList(Block(width) for _ in range(depth))
        self.head = torch.nn.Linear(width, 4)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@contextlib.contextmanager
def other(target, attribute, value):
    before = getattr(target, attribute)
    setattr(target, attribute, value)
    try:
        yield
    finally:
        setattr(target, attribute, before)


@contextlib.contextmanager
def weight(module, change, name="weight"):
    parameter = getattr(module, name).data
    before = parameter.clone()
    change(parameter)
    try:
        yield
    finally:
        parameter.copy_(before)


def given(module, change):
    """change(output) instead of what the module's forward gives."""
    forward = module.forward
    return other(module, "forward", lambda *args: change(forward(*args)))


def rounded(x):
    return x.bfloat16().float()


def mlp_faults(model):
    blocks, nan = model.blocks, float("nan")
    return [
        {"embed": weight(model.embed, lambda w: w[3].mul_(1.5))},
        {"head": weight(model.head, lambda b: b.zero_(), "bias")},
        {"blocks.0.norm": other(blocks[0].norm, "eps", 0.3)},
        {"blocks.1.act": other(blocks[1].act, "approximate", "tanh")},
        {"blocks.2.up": given(blocks[2].up, rounded)},
        {"blocks.3": other(blocks[3], "kept", 1.01)},
        {"blocks.4.down": weight(blocks[4].down, lambda w: w[5, 7].add_(1e-3))},
        {"blocks.5.act": given(blocks[5].act, lambda x: torch.where(x > x.mean(), x, torch.full_like(x, nan)))},
        {"blocks.3.up": weight(blocks[3].up, lambda w: w.copy_(w.half().float()))},
        {"blocks.1.up": given(blocks[1].up, rounded), "blocks.4.norm": other(blocks[4].norm, "eps", 0.1)},
        {
            "blocks.0.down": weight(blocks[0].down, lambda b: b.add_(0.01), "bias"),
            "head": weight(model.head, lambda w: w[1].mul_(1.001)),
        },
        {
            "blocks.2": other(blocks[2], "kept", 0.99),
            "blocks.5.down": given(blocks[5].down, rounded),
        },
    ]


def coarse_faults(model):
    """They show above the rounding of bfloat16."""

    def bias():
        return weight(model.head, lambda b: b.zero_(), "bias")

    return [
        {"embed": weight(model.embed, lambda w: w[3].mul_(1.5))},
        {"head": bias()},
        {"blocks.0.norm": other(model.blocks[0].norm, "eps", 0.3)},
        {"blocks.4": other(model.blocks[4], "kept", 1.2), "head": bias()},
    ]


def qwen2_faults(model):
    layers = model.model.layers
    first, second = layers
    return [
        {"model.embed_tokens": weight(model.model.embed_tokens, lambda w: w[7].mul_(1.1))},
        {"model.rotary_emb": weight(model.model.rotary_emb, lambda f: f.mul_(1.05), "inv_freq")},
        {"model.layers.0.self_attn.q_proj": weight(first.self_attn.q_proj, lambda w: w[2].mul_(1.2))},
        {"model.layers.0.self_attn": other(first.self_attn, "scaling", first.self_attn.scaling * 1.1)},
        {"model.layers.0.input_layernorm": other(first.input_layernorm, "variance_epsilon", 1e-2)},
        {"model.layers.1.mlp.act_fn": given(second.mlp.act_fn, torch.relu)},
        {"model.layers.1.mlp.down_proj": given(second.mlp.down_proj, rounded)},
        {"lm_head": given(model.lm_head, rounded)},
        {
            "model.layers.0.mlp.gate_proj": given(first.mlp.gate_proj, rounded),
            "model.layers.1.self_attn.v_proj": weight(second.self_attn.v_proj, lambda b: b.add_(0.05), "bias"),
        },
        {
            "model.norm": other(model.model.norm, "variance_epsilon", 1e-2),
            "model.layers.1.post_attention_layernorm": given(second.post_attention_layernorm, rounded),
        },
    ]


def made(kind):
    if kind == "mlp":
        model = Mlp()
        return model, torch.randn(3, 8), mlp_faults(model)
    from transformers import Qwen2Config, Qwen2ForCausalLM

    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=50,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            attn_implementation="eager",
            initializer_range=0.3,
            tie_word_embeddings=False,
        )
    )
    return model, torch.arange(12).reshape(2, 6), qwen2_faults(model)


def logits(model, x):
    output = model(x)
    return getattr(output, "logits", output).detach()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True)
    parser.add_argument("--model", choices=["mlp", "qwen2"], required=True)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, x, faults = made(args.model)
    model.eval()
    debugger = PrecisionDebugger(args.config)
    debugger.start(model)
    right = logits(model, x)
    debugger.stop()
    debugger.step()
    assert debugger.wait()

    def distance():
        return (logits(model, x).float() - right).norm() / right.norm()

    def plant(faults, limit):
        for fault in faults:
            with contextlib.ExitStack() as stack:
                for each in fault.values():
                    stack.enter_context(each)
                found = debugger.bisect(distance, debugger.config.dump_path, model=model, limit=limit, step=0)
            result = {
                "planted": sorted(fault),
                "found": sorted(name.partition(".")[2].rpartition(".")[0] for name in found.names),
                "runs": len(found.trials),
                "modules": sum(1 for _ in model.modules()) - 1,
                "first": found.trials[0].distance,
            }
            sys.stdout.write(json.dumps(result) + "\n")  # at once: the agent logs from other threads
        assert float(distance()) <= limit, "nothing is left behind"

    plant(faults, 0.0)
    if args.model == "mlp":
        model.bfloat16()
        x = x.bfloat16()
        plant(coarse_faults(model), 2 * float(distance()))


if __name__ == "__main__":
    main()
