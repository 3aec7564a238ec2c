"""Steps that run twice from one state (PrecisionDebugger.replay), clean or with a bit flipped in the second pass.

Writes a line for each replay to --said, in order: JSON with the step of the first pass and what a bit was flipped in.
"""

import argparse
import gc
import json
import random
import weakref
from pathlib import Path

import numpy as np
import torch
from msprobe.pytorch import PrecisionDebugger
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

torch.set_num_threads(1)

# An aten operator, which of its calls in a step, and which of its results.
OPERATORS = [
    ("addmm", 0, 0),  # stem
    ("native_layer_norm", 0, 0),
    ("addmm", 1, 0),  # blocks.0.up
    ("gelu", 0, 0),
    ("bernoulli_", 0, 0),
    ("addmm", 2, 0),  # blocks.0.down
    ("add", 0, 0),
    ("addmm", 3, 0),  # blocks.1.up, in the checkpointed block
    ("gelu", 1, 0),
    ("relu_", 0, 0),
    ("native_batch_norm", 0, 0),
    ("addmm", 5, 0),  # head
    ("nll_loss_forward", 0, 0),
    ("gelu_backward", 0, 0),
    ("native_layer_norm_backward", 1, 0),
    ("native_batch_norm_backward", 0, 0),
    ("mm", 0, 0),  # head: the gradient of its input
    ("threshold_backward", 0, 0),
]
# Modules whose output a hook flips, and those whose gradient of the input one flips.
MODULES = [("blocks.0", "forward"), ("blocks.1.up", "forward"), ("head", "forward"), ("blocks.0.down", "backward")]


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(32)
        self.up, self.down = torch.nn.Linear(32, 64), torch.nn.Linear(64, 32)
        self.drop = torch.nn.Dropout(0.2)

    def forward(self, x):
        return x + self.down(self.drop(torch.nn.functional.gelu(self.up(self.norm(x)))))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Linear(16, 32)
        self.blocks = torch.nn.ModuleList([Block(), Block()])
        self.norm = torch.nn.BatchNorm1d(32)
        self.head = torch.nn.Linear(32, 4)

    def forward(self, x):
        x = torch.relu_(self.stem(x))
        x = self.blocks[0](x)
        x = checkpoint(self.blocks[1], x, use_reentrant=False)
        return self.head(self.norm(x))


def flip(tensor):
    """Flips a bit of the mantissa of one element that is not zero; by numpy, so that no call is recorded."""
    values = tensor.detach().numpy()
    place = tuple(np.argwhere(np.atleast_1d(values) != 0)[0])[: values.ndim]
    values[place] = (values[place].view(np.int32) ^ np.int32(1 << 12)).view(np.float32)
    return tensor


def flipped(tensor):
    return flip(torch.from_numpy(tensor.detach().numpy().copy()))


class Flip(TorchDispatchMode):
    def __init__(self, operator, call, result):
        super().__init__()
        self.wanted, self.calls, self.result, self.done = (operator, call), 0, result, False

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function.overloadpacket.__name__ == self.wanted[0]:
            if self.calls == self.wanted[1]:
                flip(result[self.result] if isinstance(result, (list, tuple)) else result)
                self.done = True
            self.calls += 1
        return result


class Training:
    def __init__(self, debugger):
        self.debugger = debugger
        self.net = Net()
        self.optimizer = torch.optim.AdamW(self.net.parameters())
        self.batch = {"x": torch.randn(24, 16), "y": torch.randint(0, 4, (24,))}

    def step(self, batch):
        self.optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(self.net(batch["x"]), batch["y"])
        loss.backward()
        self.optimizer.step()
        batch["x"].mul_(0.5)
        return loss.item(), random.random()

    def replay(self, around=None):
        """around(number of the pass, step): what runs in a pass, in place of the step itself."""
        passes = []

        def one_pass(batch):
            passes.append(len(passes))
            return self.step(batch) if around is None else around(len(passes), lambda: self.step(batch))

        step = self.debugger.service.loop
        result = self.debugger.replay(one_pass, self.batch, model=self.net, optimizer=self.optimizer)
        assert len(passes) == 2
        return step, result


def refusals(training):
    """Words of what replay refuses."""
    debugger = training.debugger
    for arguments in ({"optimizer": 3}, {"model": "net"}):
        try:
            debugger.replay(training.step, training.batch, **arguments)
        except Exception as error:
            yield str(error)
    try:
        debugger.replay(training.step, iter([training.batch]))
    except Exception as error:
        yield str(error)
    debugger.start()
    try:
        debugger.replay(training.step, training.batch)
    except Exception as error:
        yield str(error)
    debugger.stop()
    debugger.step(dump=False)


def state(training):
    torch_state = [*training.net.state_dict().values(), training.batch["x"]]
    moments = [each for one in training.optimizer.state.values() for each in one.values()]
    gradients = [each.grad for each in training.net.parameters()]
    return [each.clone() for each in (*torch_state, *moments, *gradients, torch.get_rng_state())], random.getstate()


said = []


def say(what):
    said.append(json.dumps(what) + "\n")


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def trained(debugger, replays):
    """The state after three steps, the second of which is a replay or none."""
    torch.manual_seed(1)
    random.seed(1)
    training = Training(debugger)
    training.step(training.batch)
    if replays:
        step, result = training.replay()
        say({"step": step, "flip": None})
    else:
        result = training.step(training.batch)
    return result, training.step(training.batch), state(training)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dump_path", required=True)
    parser.add_argument("--said", type=Path, required=True)
    options = parser.parse_args()
    debugger = PrecisionDebugger(dump_path=options.dump_path, task="tensor", level="L1", step=[77])
    (once, after, ours), (plain, later, theirs) = trained(debugger, True), trained(debugger, False)
    same = (once, after) == (plain, later) and ours[1] == theirs[1]
    same = same and all(torch.equal(a, b) for a, b in zip(ours[0], theirs[0], strict=True))
    say({"same": same})
    training = Training(debugger)
    say({"refused": list(refusals(training))})
    for _ in range(2):
        training.batch["x"] = torch.randn(24, 16)
        step, _ = training.replay()
        say({"step": step, "flip": None})
    fds = open_files()
    for operator, call, result in OPERATORS:
        training.batch["x"] = torch.randn(24, 16)

        def with_flip(number, run, planted=(operator, call, result)):
            with Flip(*planted) as mode:
                if number == 1:
                    mode.wanted = ("", 0)
                value = run()
            assert mode.done == (number == 2), planted
            return value

        step, _ = training.replay(with_flip)
        say({"step": step, "flip": f"{operator}.{call}"})
    for name, direction in MODULES:
        training.batch["x"] = torch.randn(24, 16)
        module = training.net.get_submodule(name)

        def with_hook(number, run, module=module, direction=direction):
            if direction == "forward":
                handle = module.register_forward_hook(lambda module, args, out: flip(out) if number == 2 else out)
            else:
                handle = module.register_full_backward_hook(
                    lambda module, given, got: (flipped(given[0]),) if number == 2 else given
                )
            try:
                return run()
            finally:
                handle.remove()

        step, _ = training.replay(with_hook)
        say({"step": step, "flip": f"{name}.{direction}"})
    say({"fds": [fds, open_files()]})
    net = weakref.ref(training.net)
    training = module = with_hook = None
    step, _ = Training(debugger).replay()  # of another model
    say({"step": step, "flip": None})
    gc.collect()
    say({"freed": net() is None})
    options.said.write_text("".join(said))
    debugger.wait()


if __name__ == "__main__":
    main()
