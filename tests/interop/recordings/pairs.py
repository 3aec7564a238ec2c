"""Two models, equal but for one weight: what mindstudio-probe captures of a training step of each is compared."""

from __future__ import annotations

import programs

SIDES = ("golden", "perturb")
NOISE = 0.02
# The tensor files stay few: a smaller model, and these names alone.
FEW = ["linear", "Linear", "embedding", "Embedding", "softmax", "cross_entropy"]

CASES = {
    "statistics": programs.Case("pair", "mix", section={"summary_mode": "statistics"}),
    "md5": programs.Case("pair", "mix", section={"summary_mode": "md5"}),
    "tensor": programs.Case("pair", "mix", task="tensor", section={"list": FEW}),
}
SIZES = {"statistics": (16, 8), "md5": (16, 8), "tensor": (8, 4)}  # hidden size, tokens of a sequence


def run(kind, side, config_path):
    """Runs one side in this process. The perturbed side has noise on the down projection of its only layer."""
    import torch
    import transformers
    from msprobe.pytorch import PrecisionDebugger

    torch.set_num_threads(1)
    torch.manual_seed(0)
    hidden, tokens = SIZES[kind]
    sizes = {"vocab_size": 32, "hidden_size": hidden, "intermediate_size": 2 * hidden, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "attn_implementation": "eager"}
    config = transformers.Qwen2Config(**sizes, **heads, max_position_embeddings=64, use_cache=False)
    model = transformers.Qwen2ForCausalLM(config).float()
    if side == "perturb":
        with torch.no_grad():
            weight = model.model.layers[-1].mlp.down_proj.weight
            weight.add_(torch.randn_like(weight) * NOISE)
    debugger = PrecisionDebugger(config_path=config_path)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ids = torch.randint(0, 32, (2, tokens), generator=torch.Generator().manual_seed(1))
    debugger.start(model=model)
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    debugger.stop()
    debugger.step()
