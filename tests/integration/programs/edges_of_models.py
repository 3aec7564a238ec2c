"""A training step of each of several models, and beside the agent a log of its own: the memory that each call took and
gave."""

import argparse
import json
import pathlib

import nets
import torch
from msprobe.pytorch import PrecisionDebugger
from say import say
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._pytree import tree_leaves

PREFIXES = (("torch.nn.functional.", "Functional"), ("torch.Tensor.", "Tensor"), ("torch.", "Torch"))


class Log(TorchFunctionMode):
    """Of every call: its inputs' and outputs' memory (held by weak references, so that no address comes twice)."""

    def __init__(self):
        super().__init__()
        self.calls = []
        self.held = []

    def shown(self, tensor):
        storage = StorageWeakRef(tensor.untyped_storage())
        self.held.append(storage)
        version = None if tensor.is_inference() else tensor._version
        place = (tensor.storage_offset(), list(tensor.shape), list(tensor.stride()), str(tensor.dtype))
        return [storage.cdata, version, place]

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = resolve_name(function) or ""
        prefix = next(((text, kind) for text, kind in PREFIXES if name.startswith(text)), None)
        if prefix is None or name.count(".") > prefix[0].count("."):
            return function(*args, **(kwargs or {}))
        tensors = [
            each for each in tree_leaves((args, kwargs or {})) if type(each) in (torch.Tensor, torch.nn.Parameter)
        ]
        taken = [self.shown(each) for each in tensors]
        made = function(*args, **(kwargs or {}))
        outputs = [self.shown(each) for each in tree_leaves(made) if isinstance(each, torch.Tensor)]
        self.calls.append([f"{prefix[1]}.{name.removeprefix(prefix[0])}", taken, outputs])
        return made


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    nets.seed()
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=128,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            tie_word_embeddings=True,
            use_cache=False,
        )
    ).train()


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    nets.seed()
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=128, n_positions=64, n_embd=32, n_layer=2, n_head=4, use_cache=False)
    ).train()


class Views(torch.nn.Module):
    """What models do with memory: pieces written in place, a buffer filled by views, a tensor used three times."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(16, 32)
        self.second = torch.nn.Linear(32, 16)
        self.relu = torch.nn.ReLU(inplace=True)

    def forward(self, x):
        left, right = self.first(x).chunk(2, -1)
        cache = torch.zeros(x.shape[0], 32)
        cache[:, :16] = left
        cache[:, 16:] = right
        out = self.relu(self.second(cache))
        out = out + x + x * left
        return out.transpose(0, 1).reshape(-1)


class Compiled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.before = torch.nn.Linear(16, 16)
        self.inside = torch.compile(torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU()), backend="aot_eager")
        self.after = torch.nn.Linear(16, 4)

    def forward(self, x):
        return self.after(torch.relu(self.inside(torch.tanh(self.before(x)))))


def language(model, passes, **optimizer_options):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **optimizer_options)

    def step():
        for each in range(passes):
            tokens = torch.randint(0, 128, (2, 8), generator=torch.Generator().manual_seed(each))
            model(input_ids=tokens, labels=tokens).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return model, step


def plain(model, x, **optimizer_options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, **optimizer_options)

    def step():
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, step


def checkpointed(model, reentrant):
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    return model


def distributed(directory):
    torch.distributed.init_process_group("gloo", init_method=f"file://{directory}/store", rank=0, world_size=1)
    return torch.nn.parallel.DistributedDataParallel(Views(), gradient_as_bucket_view=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--log", type=pathlib.Path)
    options = parser.parse_args()
    debugger = PrecisionDebugger(config_path=options.config)
    nets.seed()
    x = torch.randn(8, 16)
    programs = {
        "llama": lambda: language(llama(), 2),
        "llama, recomputed": lambda: language(checkpointed(llama(), False), 1, foreach=False),
        "llama, recomputed by reentry": lambda: language(checkpointed(llama(), True), 1, fused=True),
        "gpt2": lambda: language(gpt2(), 2),
        "convolution": lambda: plain(nets.conv_net(), torch.randn(2, 3, 8, 8)),
        "views": lambda: plain(Views(), x),
        "compiled": lambda: plain(Compiled(), x),
        "distributed": lambda: plain(distributed(options.log.parent), x),
    }
    logs = {}
    for name, made in programs.items():
        model, step = made()
        step()  # what a first step alone does: the optimizer's state, compilation
        log = Log()
        debugger.start(model=model)
        with log:
            step()
        debugger.stop()
        debugger.step()
        logs[name] = log.calls
        log.held.clear()
    options.log.write_text(json.dumps(logs))
    say("DONE")


if __name__ == "__main__":
    main()
