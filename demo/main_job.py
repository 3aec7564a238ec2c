"""The traced program: a small language model with random weights answers a prompt, then trains.

    python demo/main_job.py CONFIG

What msprobe needs of it: the import, the construction, and start, stop and step around what is to be seen.
"""

import sys

import torch
import torch.nn.functional as F
from msprobe.pytorch import PrecisionDebugger
from torch import nn

PROMPT_TOKENS = 12
NEW_TOKENS = 8
TRAINING_STEPS = 2
VOCABULARY = 512
HIDDEN = 128
HEADS = 4
LAYERS = 4


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv_proj = nn.Linear(HIDDEN, 3 * HIDDEN)
        self.o_proj = nn.Linear(HIDDEN, HIDDEN, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = hidden.shape
        query, key, value = self.qkv_proj(hidden).view(batch, tokens, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, tokens, HIDDEN))


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate_up_proj = nn.Linear(HIDDEN, 8 * HIDDEN, bias=False)
        self.down_proj = nn.Linear(4 * HIDDEN, HIDDEN, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate_up_proj(hidden).chunk(2, dim=-1)
        return self.down_proj(F.silu(gate) * up)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.input_norm = nn.RMSNorm(HIDDEN)
        self.attention = Attention()
        self.output_norm = nn.RMSNorm(HIDDEN)
        self.mlp = Perceptron()

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = hidden + self.attention(self.input_norm(hidden))
        return hidden + self.mlp(self.output_norm(hidden))


class LanguageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(HIDDEN)
        self.head = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(self.norm(hidden))


@torch.no_grad()
def answer(model: nn.Module, tokens: torch.Tensor, debugger: PrecisionDebugger) -> torch.Tensor:
    """The likeliest tokens behind `tokens`, each a step of its own."""
    for _ in range(NEW_TOKENS):
        tokens = torch.cat([tokens, model(tokens)[:, -1:].argmax(-1)], dim=1)
        debugger.step()
    return tokens


def main(config: str) -> None:
    torch.manual_seed(0)
    debugger = PrecisionDebugger(config_path=config)
    model = LanguageModel()
    prompt = torch.randint(VOCABULARY, (1, PROMPT_TOKENS))

    model.eval()
    debugger.start(model)
    tokens = answer(model, prompt, debugger)
    debugger.stop()
    print("generated tokens:", tokens[0, PROMPT_TOKENS:].tolist())

    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(TRAINING_STEPS):
        debugger.start(model)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        debugger.stop()
        debugger.step()
        print(f"loss: {loss.item():.6f}")


if __name__ == "__main__":
    main(sys.argv[1])
