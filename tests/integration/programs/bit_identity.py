"""Runs the nets for --steps and prints, as JSON, everything that an invisible agent must not change.

--agent off: msprobe is not imported. constructed: a debugger exists and was never started. stopped: it dumped one step
of another net before, then was stopped. on: every step is dumped.
"""

import argparse
import hashlib
import json
import pathlib
import random

import nets
import torch
from torch.autograd import profiler


def digest(tensors):
    state = hashlib.sha256()
    for tensor in tensors:
        state.update(b"none" if tensor is None else tensor.detach().reshape(-1).view(torch.uint8).numpy().tobytes())
    return state.hexdigest()


def aten_operators(profile):
    """Names of the aten operators in the order in which they began."""
    events = [event for event in profile.function_events if event.name.startswith("aten::")]
    return [event.name for event in sorted(events, key=lambda event: event.time_range.start)]


class Agent:
    def __init__(self, options):
        self._debugger = None
        self._each_step = options.agent == "on"
        if options.agent == "off":
            return
        from msprobe.pytorch import PrecisionDebugger

        self._debugger = PrecisionDebugger(config_path=options.config)
        if options.agent == "stopped":
            seen = torch.nn.Linear(4, 4)
            self._debugger.start(model=seen)
            seen(torch.ones(2, 4)).sum().backward()
            self._debugger.stop()
            self._debugger.step()

    def start(self, model):
        if self._each_step:
            self._debugger.start(model=model)

    def stop(self):
        if self._each_step:
            self._debugger.stop()
            self._debugger.step()


def watch(agent, model, steps, body):
    """body(step) computes and returns (scalar, tensors to look at)."""
    found = {name: [] for name in ("values", "gradients", "parameters", "rng", "python_rng", "operators")}
    for step in range(steps):
        with profiler.profile(use_kineto=True) as profile:
            agent.start(model)
            value, tensors = body(step)
            agent.stop()
        found["values"].append(value.item().hex())
        found["gradients"].append(digest(tensors))
        found["parameters"].append(digest([*model.parameters(), *model.buffers()]))
        found["rng"].append(digest([torch.random.get_rng_state()]))
        found["python_rng"].append(hashlib.sha256(repr(random.getstate()).encode()).hexdigest())
        found["operators"].append(aten_operators(profile))
    return found


def train_qwen2(agent, steps, checkpointing=False):
    model = nets.qwen2()
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    # Dropout draws random numbers: an extra draw anywhere would show.
    model.config.attention_dropout = 0.1
    for module in model.modules():
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.1
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def body(step):
        tokens = nets.tokens(step)
        optimizer.zero_grad()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        gradients = [parameter.grad.clone() for parameter in model.parameters()]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss, gradients

    return watch(agent, model, steps, body)


def train_two_path(agent, steps, wrap=lambda model: model):
    model = wrap(nets.two_path())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def body(step):
        x = torch.randn(3, 32, requires_grad=True)
        optimizer.zero_grad()
        loss = model(x)
        loss.backward()
        gradients = [x.grad] + [parameter.grad.clone() for parameter in model.parameters()]
        optimizer.step()
        return loss, gradients

    return watch(agent, model, steps, body)


def train_conv(agent, steps):
    model = nets.conv_net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def body(step):
        x = torch.randn(2, 3, 8, 8)
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        gradients = [parameter.grad.clone() for parameter in model.parameters()]
        optimizer.step()
        return loss, gradients

    return watch(agent, model, steps, body)


def decode(agent, count=64):
    """As many tokens in one step, sampled, so that one bit or one random number more would show."""
    model = nets.qwen2(train=False)

    def body(step):
        tokens = model.generate(
            nets.tokens(),
            attention_mask=torch.ones(1, 8),
            max_new_tokens=count,
            min_new_tokens=count,
            do_sample=True,
            use_cache=True,
            pad_token_id=0,
        )
        return tokens.double().sum(), [tokens]

    return watch(agent, model, 1, body)


def run_encoder(agent, steps):
    model = nets.encoder_layer()

    def body(step):
        x = torch.randn(2, 5, 32)
        with torch.no_grad():
            out = model(x)
        return out.sum(), [out]

    return watch(agent, model, steps, body)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agent", choices=("off", "constructed", "stopped", "on"), required=True)
    parser.add_argument("--config")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    nets.seed()
    agent = Agent(options)
    found = {
        "qwen2": train_qwen2(agent, options.steps),
        "two_path": train_two_path(agent, options.steps),
        # On one device, as everywhere without CUDA: torch makes replicas with CUDA's communication alone.
        "data parallel": train_two_path(agent, options.steps, torch.nn.DataParallel),
        "encoder": run_encoder(agent, options.steps),
        "qwen2 checkpointing": train_qwen2(agent, options.steps, checkpointing=True),
        "conv": train_conv(agent, options.steps),
        "decode": decode(agent),
    }
    pathlib.Path(options.out).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
