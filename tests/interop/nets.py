"""Small nets whose backward passes nest, stop short or run blocks again: construct.json shows where modules begin and
end there. Each takes input_ids and gives something with a loss, as the models of families.py do.
"""

import types

import families


def made():
    """By name; torch is imported when the first is asked for."""
    import numpy
    import torch
    from torch import nn
    from torch.nn import functional
    from torch.utils.checkpoint import checkpoint

    width = 8

    class Net(nn.Module):
        def forward(self, input_ids):
            hidden = self.body(input_ids)
            return types.SimpleNamespace(
                loss=functional.cross_entropy(hidden.flatten(0, 1), input_ids.flatten() % width)
            )

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())

        def forward(self, x):
            return x + self.inner(x) * 2

    class Blocks(Net):
        def __init__(self, run=lambda block, x: block(x)):
            super().__init__()
            self.embedding = nn.Embedding(128, width)
            self.blocks = nn.ModuleList(Block() for _ in range(2))
            self.head = nn.Linear(width, width)
            self._run = run

        def body(self, ids):
            x = self.embedding(ids)
            for block in self.blocks:
                x = self._run(block, x)
            return self.head(x)

    class Again(nn.Module):
        """A module that runs its blocks again."""

        def __init__(self):
            super().__init__()
            self.blocks = nn.Sequential(Block(), Block())

        def forward(self, x):
            return checkpoint(self.blocks, x, use_reentrant=True) + 1

    class CheckpointInside(Net):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(128, width)
            self.outer = nn.Sequential(Again(), nn.Tanh(), Again())
            self.head = nn.Sequential(nn.Linear(width, width), nn.Identity(), nn.Linear(width, width))

        def body(self, ids):
            return self.head(self.outer(self.embedding(ids)))

    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(16, width)

        def forward(self, ids):
            return self.table(torch.arange(ids.shape[1])).to(torch.float32) * 1.0

    class Both(nn.Module):
        """Embeddings in embeddings: no input requires a gradient."""

        def __init__(self):
            super().__init__()
            self.words, self.positions = nn.Embedding(128, width), Positions()

        def forward(self, ids):
            return self.words(ids) + self.positions(ids).to(torch.float32)

    class NestedEmbeddings(Net):
        def __init__(self):
            super().__init__()
            self.embeddings = Both()
            self.block = Block()

        def body(self, ids):
            return self.block(self.embeddings(ids).contiguous().to(torch.float32))

    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(4))

        def forward(self, x, place, weight):
            out = torch.zeros_like(x)
            for number, expert in enumerate(self.experts):
                rows = (place == number).nonzero().squeeze(1)
                if len(rows):
                    out = out.index_add(0, rows, expert(x[rows]) * weight[rows])
            return out

    class Mixture(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.experts = nn.Linear(width, 4, bias=False), Experts()

        def forward(self, x):
            flat = x.reshape(-1, width)
            logits = self.gate(flat)
            weight, place = logits.softmax(-1).max(-1, keepdim=True)
            return self.experts(flat, place.squeeze(1), weight).reshape(x.shape), logits

    class MixtureNet(nn.Module):
        """Its loss also reads the logits of the gates, converted to their own dtype."""

        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(128, width)
            self.layers = nn.ModuleList(Mixture() for _ in range(2))

        def forward(self, input_ids):
            x, kept = self.embedding(input_ids), []
            for layer in self.layers:
                more, logits = layer(x)
                x = x + more
                kept.append(logits)
            spread = torch.cat([each.to(torch.float32) for each in kept]).softmax(-1).mean(0).pow(2).sum()
            loss = functional.cross_entropy(x.flatten(0, 1), input_ids.flatten() % width)
            return types.SimpleNamespace(loss=loss + spread)

    class Frozen(Net):
        """The first blocks learn nothing: gradients end at a parameter in the middle."""

        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(128, width)
            self.below, self.above = Block(), Block()
            for parameter in [*self.embedding.parameters(), *self.below.parameters()]:
                parameter.requires_grad_(False)

        def body(self, ids):
            return self.above(self.below(self.embedding(ids)).to(torch.float32))

    class Stopped(nn.Module):
        """Its input requires a gradient and gets none."""

        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(width, width)

        def forward(self, x):
            return self.inner(x.detach()).relu()

    class Stops(Net):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(128, width)
            self.block, self.stopped = Block(), Stopped()

        def body(self, ids):
            x = self.block(self.embedding(ids))
            return x + self.stopped(x * 3)

    class Scaled(nn.Module):
        def forward(self, x, scale, *, shift):
            return x * torch.from_numpy(scale) + torch.from_numpy(shift)

    class Arrays(Net):
        """Modules that are given numpy arrays: whole, cut, of whole numbers, empty."""

        def __init__(self):
            super().__init__()
            self.embedding, self.scaled, self.other = nn.Embedding(128, width), Scaled(), Scaled()

        def body(self, ids):
            wide = numpy.arange(2 * width, dtype=numpy.float32).reshape(2, width).T
            x = self.scaled(self.embedding(ids), wide[:, 1], shift=numpy.arange(width))
            return self.other(x, numpy.float64(2.0) * numpy.ones(width), shift=numpy.zeros((6, 0, 1))[:, :0].sum(1))

    class InPlace(Net):
        """A rectifier that writes into what a layer gave."""

        def __init__(self):
            super().__init__()
            self.embedding, self.layer = nn.Embedding(128, width), nn.Linear(width, width)
            self.rectifier, self.head = nn.ReLU(inplace=True), nn.Linear(width, width)

        def body(self, ids):
            return self.head(self.rectifier(self.layer(self.embedding(ids)) * 2) + 0)

    class Tiny(Net):
        """Numbers whose squares no float32 holds, and numbers that are hardly any."""

        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(128, width), nn.Linear(width, width)

        def body(self, ids):
            x = self.embedding(ids)
            return self.head(x + (x * 1e-20) * 1e-20 + x * 1e-30)

    class Recursive(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(width, width)

        def forward(self, x, depth):
            x = self.layer(x) * (depth + 1)
            return self(x, depth - 1) + 1 if depth > 0 else x

    class CallsItself(Net):
        def __init__(self):
            super().__init__()
            self.embedding, self.again = nn.Embedding(128, width), Recursive()

        def body(self, ids):
            return self.again(self.embedding(ids), 2)

    return {
        "in_place": InPlace,
        "tiny": Tiny,
        "recursive": CallsItself,
        "arrays": Arrays,
        "gpt2_reentrant": lambda: families.gpt2(reentrant=True),
        "reentrant": lambda: Blocks(lambda block, x: checkpoint(block, x, use_reentrant=True)),
        "not_reentrant": lambda: Blocks(lambda block, x: checkpoint(block, x, use_reentrant=False)),
        "not_checkpointed": Blocks,
        "checkpoint_inside": CheckpointInside,
        "nested_embeddings": NestedEmbeddings,
        "mixture": MixtureNet,
        "frozen": Frozen,
        "stopped": Stops,
    }


NAMES = (
    "in_place",
    "tiny",
    "recursive",
    "arrays",
    "gpt2_reentrant",
    "reentrant",
    "not_reentrant",
    "not_checkpointed",
    "checkpoint_inside",
    "nested_embeddings",
    "mixture",
    "frozen",
    "stopped",
)


def _ids():
    return {"input_ids": families.tokens()}


NETS = {
    name: families.Family(lambda name=name: made()[name](), families.text if name == "gpt2_reentrant" else _ids)
    for name in NAMES
}
