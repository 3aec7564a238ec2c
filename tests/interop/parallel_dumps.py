"""Dumps of a small Megatron model over several ranks, made up: statistics without a model behind them."""

import json
import pathlib
import random
import struct
import zlib

STACK = ["File train.py, line 1, in step, \n model(x)"]


def single(value):
    """As float32 has it."""
    return struct.unpack("f", struct.pack("f", value))[0]


class Rank:
    """One rank's step: data, construct and stack, filled call by call."""

    def __init__(self, rank, tp, pp, ranks, shift=0.0, group=True, vpp=1):
        self.rank, self.tp, self.shift, self.group = rank, tp, shift, group
        self.share = rank % tp
        self.stage, self.stages = rank // (ranks // pp), pp
        self.chunks = [f"Module.{chunk}.module" for chunk in range(vpp)] if vpp > 1 else ["Module.module"]
        self.data, self.construct, self.counts = {}, {}, {}

    def tensor(self, name, *, shared, staged):
        """shared: equal on ranks that share tensors; staged: differs from stage to stage."""
        key = f"{name}/{'' if shared else self.share}/{self.stage if staged else ''}"
        draw = random.Random(zlib.crc32(key.encode()))
        low, high = sorted(draw.uniform(-3, 3) for _ in range(2))
        mean, norm = draw.uniform(low, high), draw.uniform(1, 9)
        values = [single(value + self.shift) for value in (high, low, mean, norm)]
        leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4, 8]}
        return leaf | dict(zip(("Max", "Min", "Mean", "Norm"), values, strict=True)) | {"requires_grad": True}

    def call(self, kind, parent, inputs, outputs, kwargs=None):
        """An API call; inputs and outputs are tensors."""
        count = self.counts[kind] = self.counts.get(kind, -1) + 1
        name = f"{kind}.{count}.forward"
        self.construct[name] = parent
        self.data[name] = {"input_args": inputs, "input_kwargs": kwargs or {}, "output": outputs}
        return name

    def module(self, name, parent, direction="forward"):
        full = f"{name}.{direction}.0"
        self.construct[full] = parent
        return full

    def end(self, full, inputs, outputs):
        backward = ".backward." in full
        self.data[full] = {"input" if backward else "input_args": inputs, "output": outputs}

    def linear(self, name, parent, rows):
        """A parallel linear layer: of columns, or of rows with a sum over ranks at its end."""
        full = self.module(f"{name}.{'Row' if rows else 'Column'}ParallelLinear", parent)
        whole = self.tensor(f"{name}.in", shared=not rows, staged=True)
        part = self.tensor(f"{name}.part", shared=False, staged=True)
        out = self.tensor(f"{name}.out", shared=rows, staged=True)
        self.call("Torch.matmul", full, [whole, self.tensor(f"{name}.w", shared=False, staged=True)], [part])
        if rows:
            ranks = list(range(self.rank - self.share, self.rank - self.share + self.tp))
            group = {"type": "torch.ProcessGroup", "group_ranks": ranks, "group_id": str(ranks[0])}
            self.call("Distributed.all_reduce", full, [part], [out], {"group": group} if self.group else None)
        self.end(full, [whole], [out])

    def layer(self, number, parent, chunk="Module.module"):
        name = f"{chunk}.decoder.layers.{number}"
        full = self.module(f"{name}.TransformerLayer", parent)
        mlp = self.module(f"{name}.mlp.MLP", full)
        self.linear(f"{name}.mlp.linear_fc1", mlp, rows=False)
        inner = [self.tensor(f"{name}.act{i}", shared=False, staged=True) for i in range(2)]
        self.call("Functional.gelu", mlp, inner[:1], inner[1:])
        self.linear(f"{name}.mlp.linear_fc2", mlp, rows=True)
        ends = [self.tensor(f"{name}.end{i}", shared=True, staged=True) for i in range(2)]
        self.end(mlp, ends[:1], ends[1:])
        self.end(full, ends[:1], ends[1:])

    def backward(self, number, parent, chunk="Module.module"):
        name = f"{chunk}.decoder.layers.{number}.TransformerLayer"
        full = self.module(name, parent, "backward")
        grads = [self.tensor(f"{name}.grad{i}", shared=True, staged=True) for i in range(2)]
        self.end(full, grads[:1], grads[1:])

    def whole(self, chunk=""):
        """What goes into a model and what comes out of it."""
        return [self.tensor(f"{chunk}whole{i}", shared=True, staged=i == 1) for i in range(2)]

    def chunk_forward(self, chunk, layers, head):
        first, last = chunk == self.chunks[0], chunk == self.chunks[-1]
        whole = self.whole(chunk if not first else "")
        model = self.module(f"{chunk}.GPTModel", None)
        if self.stage == 0 and first:
            embedding = self.module(f"{chunk}.embedding.Embedding", model)
            self.call("Functional.embedding", embedding, whole[:1], whole[:1])
            self.end(embedding, whole[:1], whole[:1])
        elif head or first:
            self.call("Torch.mul", model, whole[:1], whole[1:])
        decoder = self.module(f"{chunk}.decoder.TransformerBlock", model)
        for number in range(layers):
            self.layer(number, decoder, chunk)
        if head and last and self.stage == self.stages - 1:
            self.end(self.module(f"{chunk}.decoder.final_layernorm.LayerNorm", decoder), whole[:1], whole[1:])
        self.end(decoder, whole[:1], whole[1:])
        if head and last and self.stage == self.stages - 1:
            self.end(self.module(f"{chunk}.output_layer.Linear", model), whole[:1], whole[1:])
        self.end(model, whole[:1], whole[1:])

    def chunk_backward(self, chunk, layers):
        whole = self.whole(chunk if chunk != self.chunks[0] else "")
        back = self.module(f"{chunk}.GPTModel", None, "backward")
        block = self.module(f"{chunk}.decoder.TransformerBlock", back, "backward")
        for number in reversed(range(layers)):
            self.backward(number, block, chunk)
        self.end(block, whole[1:], whole[:1])
        self.end(back, whole[1:], whole[:1])

    def step(self, layers=2, *, head=False):
        """head: a norm and an output layer, which the last chunk of the last stage has alone."""
        whole = self.whole()
        self.call("Torch.arange", None, whole[:1], whole[:1])
        self.call("Torch.add", None, whole[:1], whole[1:])
        for chunk in self.chunks:
            self.chunk_forward(chunk, layers, head)
        for chunk in reversed(self.chunks):
            self.chunk_backward(chunk, layers)
        self.call("Torch.sqrt", None, whole[:1], whole[:1])
        self.call("Torch.relu", None, whole[:1], whole[:1])
        return self

    def write(self, directory: pathlib.Path):
        directory.mkdir(parents=True)
        dump = {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None, "data": self.data}
        (directory / "dump.json").write_text(json.dumps(dump))
        (directory / "construct.json").write_text(json.dumps(self.construct))
        (directory / "stack.json").write_text(json.dumps({"0": [list(self.construct), STACK]}))


def write(root: pathlib.Path, ranks, tp, pp, *, steps=1, shift=0.0, group=True, vpp=1, head=False):
    """root/step{N}/rank{R} of each rank."""
    for step in range(steps):
        for rank in range(ranks):
            made = Rank(rank, tp, pp, ranks, shift + step, group, vpp).step(head=head)
            made.write(root / f"step{step}" / f"rank{rank}")
    return root


def plant_nan(rank: pathlib.Path, call: str):
    """NaN begins in the first call of this name, and is in whatever comes after."""
    path = rank / "dump.json"
    dump = json.loads(path.read_text())
    names = list(dump["data"])
    first = next(at for at, name in enumerate(names) if call in name)
    for at, name in enumerate(names[first:]):
        for kind, leaves in dump["data"][name].items():
            if kind == "input_kwargs" or (at == 0 and kind == "input_args"):
                continue
            for leaf in leaves:
                leaf |= dict.fromkeys(("Max", "Min", "Mean", "Norm"), float("nan"))
    path.write_text(json.dumps(dump))
    return names[first]
