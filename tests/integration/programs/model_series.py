"""Trains a tiny transformer and prints a hash of its parameters; with --config it is watched.

It also prints what the series should say, by torch's own functions: JSON behind EXPECTED.
"""

import argparse
import hashlib
import json

import torch


def build(kind, attention):
    from transformers import MixtralConfig, MixtralForCausalLM, Qwen2Config, Qwen2ForCausalLM

    common = {
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "use_cache": False,
        "attn_implementation": attention,
    }
    if kind == "mixtral":
        return MixtralForCausalLM(MixtralConfig(**common, num_local_experts=4, num_experts_per_tok=2))
    return Qwen2ForCausalLM(Qwen2Config(**common))


class Scaled(torch.nn.Module):
    """A module of fp8 as DeepSeek and TransformerEngine have them."""

    def __init__(self):
        super().__init__()
        self.weight_scale_inv = torch.nn.Parameter(torch.tensor([0.5, 2.0]), requires_grad=False)
        forward = argparse.Namespace(scale=torch.tensor([4.0]), scale_inv=torch.tensor([0.25]))
        self.fp8_meta = {"scaling_fwd": forward, "recipe": None}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config")
    parser.add_argument("--model", default="qwen2")
    parser.add_argument("--attention", default="eager")
    options = parser.parse_args()
    torch.manual_seed(5)
    torch.set_num_threads(1)
    model = build(options.model, options.attention).train()
    model.scaled = Scaled()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    tokens = torch.randint(0, 64, (2, 24), generator=torch.Generator().manual_seed(1))
    expected = {}
    with torch.no_grad():
        more = {"output_router_logits": True} if options.model == "mixtral" else {}
        given = model(input_ids=tokens, output_attentions=options.attention == "eager", **more)
        if options.attention == "eager":
            shares = given.attentions[0][0]
            expected["attention_entropy"] = (-(shares * shares.clamp_min(1e-30).log()).sum(-1).mean(-1)).tolist()
        if options.model == "mixtral":
            logits = given.router_logits[0].reshape(-1, 4)
            chosen = logits.topk(2, -1).indices.flatten()
            expected["expert_load"] = (torch.bincount(chosen, minlength=4) / len(logits)).max().item()
            expected["router_entropy"] = torch.distributions.Categorical(logits=logits).entropy().mean().item()
    if options.config:
        import msprobe

        msprobe.watch(model, optimizer, config_path=options.config, rank_id=0)
    for step in range(3):
        optimizer.zero_grad()
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        if step == 0:
            weight = model.model.layers[0].self_attn.q_proj.weight.detach()
            largest = torch.linalg.matrix_norm(weight, 2)
            expected["spectral_norm"] = largest.item()
            expected["stable_rank"] = (torch.linalg.matrix_norm(weight) / largest).square().item()
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    print("HASH", digest.hexdigest())
    print("RANDOM", torch.rand(1).item())
    print("EXPECTED", json.dumps(expected))


if __name__ == "__main__":
    main()
