"""Trains the runs of a catalogue (rule_catalogue.py), each in a process forked from this one, and says of each how long
it took: rule_runs.py DIRECTORY ADDRESS GROUP [NAME ...], where GROUP is HEALTHY or ILL. Without names: all of them.
"""

import json
import math
import multiprocessing
import os
import pathlib
import sys
import time
import traceback

import rule_catalogue
import torch
from say import say
from torch import nn

VOCABULARY = 32
BATCH = 16


class Mlp(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.first, self.relu = nn.Linear(16, 32), nn.ReLU()
        self.second, self.tanh = nn.Linear(32, 32), nn.Tanh()
        self.dropout, self.last = nn.Dropout(dropout), nn.Linear(32, 4)

    def forward(self, x):
        return self.last(self.dropout(self.tanh(self.second(self.relu(self.first(x))))))


class Cnn(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.first, self.norm, self.relu = nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU()
        self.second, self.dropout, self.last = nn.Conv2d(8, 8, 3), nn.Dropout(dropout), nn.Linear(128, 4)

    def forward(self, x):
        x = self.relu(self.second(self.relu(self.norm(self.first(x)))))
        return self.last(self.dropout(x.flatten(1)))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.lstm = nn.Embedding(VOCABULARY, 16), nn.LSTM(16, 24, batch_first=True)
        self.last = nn.Linear(24, VOCABULARY)

    def forward(self, tokens):
        return self.last(self.lstm(self.embedding(tokens))[0])


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=VOCABULARY, n_embd=16, n_layer=1, n_head=2, n_positions=16, use_cache=False)
    return GPT2LMHeadModel._from_config(config, attn_implementation="eager")


def moe():
    from transformers import Qwen2MoeConfig, Qwen2MoeForCausalLM

    return Qwen2MoeForCausalLM(
        Qwen2MoeConfig(
            vocab_size=VOCABULARY,
            hidden_size=16,
            intermediate_size=16,
            moe_intermediate_size=16,
            shared_expert_intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            num_experts=4,
            num_experts_per_tok=2,
            output_router_logits=True,
            use_cache=False,
        )
    )


def entropy(shares):
    return -(shares * shares.clamp_min(1e-30).log()).sum(-1).mean().item()


class Training:
    """One run, on one rank. Without options: 56 steps of AdamW with a constant learning rate, in float32."""

    def __init__(self, options, rank):
        self.options, self.rank = options, rank
        torch.manual_seed(rank if options.get("seed_by_rank") else 0)
        dropout = options.get("dropout", 0.0)
        self.net = options["net"]
        makers = {"mlp": lambda: Mlp(dropout), "cnn": lambda: Cnn(dropout), "lstm": Lstm, "gpt2": gpt2, "moe": moe}
        self.model = makers[self.net]()
        self.lr = options.get("lr", 1e-3)
        if options.get("optimizer") == "sgd":
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=self.lr, momentum=0.9)
        else:
            self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.lr, fused=options.get("fused", False))
        self.steps = options.get("steps", 56)
        self.random = torch.Generator().manual_seed(rank if options.get("seed_by_rank") else 1)
        self.teacher = torch.randn(4, 16 if self.net == "mlp" else 108 * 3, generator=torch.Generator().manual_seed(2))
        self.precision = options.get("precision")
        self.scaler = torch.amp.GradScaler(
            "cpu", init_scale=options.get("scale", 2.0**10), enabled=self.precision == "fp16"
        )
        self.plant = PLANTS[options["plant"]] if "plant" in options else None
        self.batch, self.before, self.loss, self.extra, self.step = None, None, None, {}, 0
        self.memory = self.draw() if options.get("memorises") else None

    # --- data

    def draw(self):
        size = 5 if self.step % self.options.get("last_batch_of", 1 << 30) == 7 else BATCH
        if self.net == "mlp":
            x = torch.randn(size, 16, generator=self.random)
            return x, (x @ self.teacher.T).argmax(-1)
        if self.net == "cnn":
            x = torch.randn(size, 3, 8, 8, generator=self.random)
            return x, x.flatten(1)[:, : 4 * 48].reshape(size, 4, 48).mean(-1).argmax(-1)
        first = torch.randint(0, VOCABULARY, (size, 1), generator=self.random)
        stride = torch.randint(1, 3, (size, 1), generator=self.random)
        tokens = (first + stride * torch.arange(13)) % VOCABULARY
        return tokens[:, :-1], tokens[:, 1:]

    def loss_of(self, batch):
        inputs, labels = batch
        if self.net in ("gpt2", "moe"):
            given = {"output_attentions": True} if self.options.get("attention") else {}
            found = self.model(input_ids=inputs, **given)
            if given:
                self.extra["h.0.attention_entropy:mean"] = entropy(found.attentions[0].detach())
            if self.net == "moe":
                shares = found.router_logits[0].detach().float().softmax(-1)
                self.extra["layers.0.router_entropy:mean"] = entropy(shares)
                chosen = shares.topk(2).indices.unique().numel()
                self.extra["layers.0.dead_experts"] = shares.shape[-1] - chosen
            logits = found.logits
        else:
            logits = self.model(inputs)
        return nn.functional.cross_entropy(logits.float().flatten(0, -2), labels.flatten())

    # --- the loop

    def rate(self, step):
        share = step / self.steps
        kind = self.options.get("schedule", "constant")
        if kind == "cosine":  # from 0 in a tenth of the steps, and back to 0
            return self.lr * (share * 10 if share < 0.1 else 0.5 + 0.5 * math.cos(math.pi * (share - 0.1) / 0.9))
        if kind == "steps":
            return self.lr * (1 if share < 0.6 else 0.1)
        return self.lr * (math.sin(math.pi * share) + 0.01 if kind == "cycle" else 1)

    def moment(self, name):
        """Does what is planted, if it belongs to this moment of the step: batch, loss, gradients or stepped."""
        first = self.options.get("at")
        if self.plant is None or self.plant.moment != name or self.step < first:
            return
        if self.step < first + self.options.get("steps_ill", self.plant.steps):
            self.plant(self)

    def train_step(self):
        kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.precision)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(self.step)
        self.batch, self.extra = self.memory or self.draw(), {"step_time": 0.1}
        self.moment("batch")
        micro_batches = self.options.get("micro_batches", 1)
        for _ in range(micro_batches):
            with torch.autocast("cpu", dtype=kind, enabled=kind is not None):
                self.loss = self.loss_of(self.batch) / micro_batches
            self.moment("loss")
            self.scaler.scale(self.loss).backward()
        self.moment("gradients")
        worse = self.extra.pop("validation", 1.0)
        scalars = {"loss": self.loss.item(), "lr": self.optimizer.param_groups[0]["lr"], **self.extra}
        if "clip" in self.options:
            self.scaler.unscale_(self.optimizer)
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.options["clip"])
            scalars["grad_norm"] = norm.item()
        if self.options.get("validated") or self.options.get("memorises"):
            with torch.no_grad():
                scalars["val/loss"] = self.loss_of(self.draw()).item() * worse
            scalars["train/loss"] = self.loss.item()
        if "features" in self.options:
            scalars[self.options["features"]] = self.batch[0].float().abs().mean().item()
        if "log_as" in self.options:
            scalars[self.options["log_as"]] = scalars.get("observed", self.loss.item())
        import msprobe

        msprobe.log(scalars)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        self.before = self.batch
        self.step += 1

    def train(self, config, barrier):
        import msprobe
        from msprobe.pytorch import PrecisionDebugger

        if self.options.get("task") == "grad_probe":
            PrecisionDebugger(config).monitor(self.model)
        else:
            msprobe.watch(self.model, self.optimizer, config_path=config, rank_id=self.rank)
        while self.step < self.steps:
            self.train_step()
            if barrier is not None:
                if self.step == 1:
                    PrecisionDebugger._instance.wait()
                barrier.wait(60)


# --- what is planted

PLANTS = {}


def plant(moment, steps=1 << 30):
    """steps: how many it is done at, from `at` on."""

    def add(do):
        do.moment, do.steps = moment, steps
        PLANTS[do.__name__] = do
        return do

    return add


def first_parameter(training):
    return next(training.model.parameters())


def factor(name, number):
    @plant("loss")
    def times(training):
        training.loss = training.loss * number

    PLANTS[name] = times


factor("loss_nan", float("nan"))
factor("loss_times_10", 10.0)
factor("loss_times_10000", 1e4)
factor("loss_times_1e_20", 1e-20)
factor("loss_tiny", 1e-4)


@plant("batch")
def bad_batch(training):
    inputs, labels = training.batch
    training.batch = inputs * 4, (labels + 1) % 4


@plant("batch", steps=1)
def infinite_batch(training):
    training.batch[0][0, 0] = float("inf")


@plant("batch", steps=1)
def infinite_weight(training):
    first_parameter(training).data[:] = float("inf")


@plant("batch", steps=1)
def infinite_router(training):
    next(each for name, each in training.model.named_parameters() if "mlp.gate.weight" in name).data[0] = float("inf")


@plant("batch", steps=1)
def no_labels(training):
    training.batch = training.batch[0], torch.full_like(training.batch[1], -100)


@plant("gradients", steps=1)
def gradient_nan(training):
    first_parameter(training).grad[0] = float("nan")


@plant("gradients")
def gradient_times_10000(training):
    first_parameter(training).grad.mul_(1e4)


@plant("gradients", steps=1)
def negative_moment(training):
    training.optimizer.state[first_parameter(training)]["exp_avg_sq"].fill_(-1)


@plant("gradients", steps=1)
def nan_moment(training):
    training.optimizer.state[first_parameter(training)]["exp_avg"][0] = float("nan")


@plant("gradients", steps=1)
def huge_momentum(training):
    training.optimizer.state[first_parameter(training)]["momentum_buffer"].fill_(1e6)


def rate(name, change, steps=1 << 30):
    @plant("batch", steps)
    def set_rate(training):
        for group in training.optimizer.param_groups:
            group["lr"] = change(group["lr"])

    PLANTS[name] = set_rate


rate("lr_spike", lambda lr: lr * 1e5, steps=1)
rate("lr_times_100", lambda lr: lr * 100)
rate("lr_zero", lambda lr: 0.0)
rate("lr_tiny", lambda lr: lr * 1e-9)


@plant("batch")
def black_images(training):
    training.batch = torch.zeros_like(training.batch[0]), training.batch[1]


@plant("batch")
def scaled_images(training):
    training.batch = training.batch[0] * 3, training.batch[1]


@plant("batch")
def other_tokens(training):
    training.batch = training.batch[0] // 8, training.batch[1]


@plant("batch", steps=1)
def dead_relu(training):
    training.model.first.bias.data.fill_(-1000)


@plant("batch", steps=1)
def cut_branch(training):
    training.model.transformer.h[0].mlp.register_forward_hook(lambda module, args, output: output * 0)


@plant("batch", steps=1)
def noisy_weights(training):
    for parameter in training.model.parameters():
        parameter.data.add_(torch.randn(parameter.shape) * 5)


@plant("gradients")
def own_gradient(training):
    if training.rank == 1:
        for parameter in training.model.parameters():
            parameter.grad.add_(0.01)


@plant("gradients", steps=1)
def flipped_bit(training):
    if training.rank == 1:
        parameter = training.model.transformer.wte.weight
        parameter.data.view(torch.int32)[3, 5] ^= 1 << 22


@plant("batch", steps=1)
def sharp_router(training):
    next(each for name, each in training.model.named_parameters() if "mlp.gate.weight" in name).data.mul_(1e6)


@plant("batch", steps=1)
def sharp_attention(training):
    training.model.transformer.h[0].attn.c_attn.weight.data.mul_(1e4)


@plant("batch", steps=1)
def sharp_tanh(training):
    training.model.second.weight.data.mul_(1e4)


@plant("batch", steps=1)
def large_activations(training):
    training.model.first.weight.data.zero_()
    training.model.first.bias.data.fill_(1e4)


@plant("batch")
def same_batch(training):
    training.memory = training.memory or training.before
    training.batch = training.memory


@plant("batch", steps=1)
def short_batch(training):
    training.batch = training.batch[0][:5], training.batch[1][:5]


@plant("loss")
def loss_constant(training):
    training.extra["observed"] = 0.01


@plant("loss")
def validation_doubles(training):
    training.extra["validation"] = 2.0


@plant("batch", steps=1)
def two_experts(training):
    """One feature is large of every token, and the router looks at nothing else."""
    training.model.get_input_embeddings().weight.data[:, 0] = 10
    gate = next(each for name, each in training.model.named_parameters() if "mlp.gate.weight" in name)
    gate.data.zero_()
    gate.data[:, 0] = torch.tensor([2.0, 1.0, -1.0, -2.0])


@plant("gradients")
def flipped_signs(training):
    first_parameter(training).grad.neg_()


@plant("batch")
def slow(training):
    if training.rank == 1:
        training.extra["step_time"] = 0.4


def run(directory, address, name, options, rank, barrier):
    config = directory / f"{name}.{rank}.json"
    task = options.get("task", "monitor")
    fields = {"task": task, "dump_path": str(directory / "dump"), "server": address, "run": name}
    section = {"activations": options.get("activations", 0)} if task == "monitor" else {}
    config.write_text(json.dumps(fields | {task: section}))
    Training(options, rank).train(str(config), barrier)


def main():
    torch.set_num_threads(1)
    directory, address, group = pathlib.Path(sys.argv[1]), sys.argv[2], getattr(rule_catalogue, sys.argv[3])
    names = sys.argv[4:] or list(group)
    import msprobe.pytorch  # noqa: F401  (once, before the forks)

    if any(group[name]["net"] in ("gpt2", "moe") for name in names):
        import transformers.models.gpt2.modeling_gpt2
        import transformers.models.qwen2_moe.modeling_qwen2_moe  # noqa: F401

    failed = False
    runs = []
    for name in names:
        if group[name].get("golden"):
            runs.append((f"{name}-golden", {key: of for key, of in group[name].items() if key != "plant"}))
        runs.append((name, group[name]))
    for name, options in runs:
        began, children = time.monotonic(), []
        ranks = options.get("ranks", 1)
        barrier = multiprocessing.get_context("fork").Barrier(ranks) if ranks > 1 else None
        for rank in range(ranks):
            child = os.fork()
            if child == 0:
                try:
                    run(directory, address, name, options, rank, barrier)
                except BaseException:
                    traceback.print_exc()
                    sys.exit(1)
                sys.exit(0)
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        failed = failed or any(codes)
        say(f"RUN {name} {codes} {time.monotonic() - began:.2f} s")
    sys.exit(failed)


if __name__ == "__main__":
    main()
