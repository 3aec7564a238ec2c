"""Trains, rolls out or shards a small model, and records its weights. Roles in order: trainer, rollout, ranks.

Files go through the directory of --files: what the trainer had at each step, and the checkpoints that it saved.
"""

import argparse
import os
import pathlib

import torch
from msprobe.pytorch import Part, PrecisionDebugger
from safetensors.torch import load_file, save_file

STEPS = 3
LAYER = "model.layers.{}."


def qwen2():
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(1)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=200, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=True,
        )
    )  # fmt: skip


def train(model, after_step, around=lambda compute: compute()):
    """Plain SGD on drawn tokens. Gives the losses."""
    torch.manual_seed(2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(STEPS):
        tokens = torch.randint(200, (2, 8))

        def compute(tokens=tokens):
            optimizer.zero_grad()
            loss = model(input_ids=tokens, labels=tokens).loss
            loss.backward()
            optimizer.step()
            return loss

        losses.append(around(compute))
        after_step(step, model)
    return [float(loss) for loss in losses], torch.get_rng_state()


def trainer(files):
    undisturbed = qwen2()
    expected = train(undisturbed, lambda step, model: None)
    debugger = PrecisionDebugger(dump_path=str(files / "dump"), level="mix", task="statistics")
    model = qwen2()

    def captured(compute):
        debugger.start(model)
        if debugger.service.current_iter == 1:  # while the step is captured; the later call counts
            debugger.weights(model, cast=torch.bfloat16)
        return compute()

    def record(step, model):
        debugger.stop()
        debugger.weights(model, cast=torch.bfloat16)
        debugger.step()
        save_file({name: value.clone() for name, value in model.state_dict().items()}, files / f"{step}.safetensors")

    losses, state = train(model, record, captured)
    assert losses == expected[0]
    assert torch.equal(state, expected[1])
    for name, value in undisturbed.state_dict().items():
        assert torch.equal(value, model.state_dict()[name]), name
    model.save_pretrained(files / "published")
    model.to(torch.bfloat16).save_pretrained(files / "published-bf16")
    debugger.wait()


def rollout(files):
    """bfloat16 weights of the step before the trainer's last, of the last but for planted faults, and of the last."""
    debugger = PrecisionDebugger(dump_path=str(files / "dump-rollout"), level="mix", task="statistics")
    before, now = (
        {name: value.to(torch.bfloat16) for name, value in load_file(files / f"{step}.safetensors").items()}
        for step in (STEPS - 2, STEPS - 1)
    )
    debugger.set_init_step(STEPS - 2)
    faulty = dict(now)
    del faulty["model.norm.weight"]  # dropped
    first, second = LAYER.format(0), LAYER.format(1)
    faulty[f"{first}mlp.up_proj.weight"] = before[f"{first}mlp.up_proj.weight"]  # stale
    key, value = f"{second}self_attn.k_proj.weight", f"{second}self_attn.v_proj.weight"
    faulty[key], faulty[value] = now[value], now[key]  # swapped
    partial = now["model.embed_tokens.weight"].clone()
    partial[100:120] = before["model.embed_tokens.weight"][100:120]
    faulty["model.embed_tokens.weight"] = partial
    zeros = now[f"{second}self_attn.o_proj.weight"].clone()
    zeros[16:] = 0
    faulty[f"{second}self_attn.o_proj.weight"] = zeros
    flipped = now[f"{second}mlp.down_proj.weight"].clone()
    flipped[3, 5] += 1
    faulty[f"{second}mlp.down_proj.weight"] = flipped
    faulty[f"{first}input_layernorm.weight"] = torch.zeros_like(now[f"{first}input_layernorm.weight"])
    faulty["sampler.scale"] = torch.ones(())
    for weights in (before, faulty, now):
        debugger.weights(weights)
        debugger.step()
    debugger.wait()


def ranks(files):
    """Two ranks: DTensors by rows, by columns and replicated, plain Parts, and one weight that rank 1 has otherwise."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2,))
    rank = dist.get_rank()
    debugger = PrecisionDebugger(dump_path=str(files / "dump-ranks"), level="mix", task="statistics")
    debugger.set_init_step(STEPS - 1)
    weights = load_file(files / f"{STEPS - 1}.safetensors")
    placements = {"q_proj": Shard(0), "o_proj": Shard(1), "k_proj": Replicate()}
    held = {}
    for name, value in weights.items():
        placement = next((each for part, each in placements.items() if part in name), None)
        if placement is not None:
            held[name] = distribute_tensor(value, mesh, [placement])
        elif "down_proj" in name:
            begin, end = (0, 20) if rank == 0 else (20, 48)  # columns, unevenly
            held[name] = Part(value[:, begin:end], value.shape, (0, begin))
        elif "up_proj" in name and "layers.1" in name:
            if rank == 0:  # rank 1 says nothing of its rows
                held[name] = Part(value[:24], value.shape, (0, 0))
        else:
            held[name] = value
    if rank == 1:
        drifted = held["model.norm.weight"].clone()
        drifted[7] += 1
        held["model.norm.weight"] = drifted
    debugger.weights(held)
    debugger.step()
    debugger.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("trainer", "rollout", "ranks"))
    parser.add_argument("--files", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    {"trainer": trainer, "rollout": rollout, "ranks": ranks}[arguments.role](arguments.files)
