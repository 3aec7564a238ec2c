"""A training step, captured with tensors: DUMP_PATH digits | residual | transformer. Nothing is downloaded."""

import sys

import torch
from msprobe.pytorch import PrecisionDebugger

torch.set_num_threads(1)
torch.manual_seed(3)


def digits():
    """A convolutional net of MNIST's size, and a batch of its shape."""
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(8, 16, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(7),
        torch.nn.Flatten(),
        torch.nn.Dropout(0.25),
        torch.nn.Linear(16 * 7 * 7, 32),
        torch.nn.GELU(),
        torch.nn.Linear(32, 10),
    )
    images, labels = torch.rand(4, 1, 28, 28), torch.randint(0, 10, (4,))
    return net, lambda: torch.nn.functional.cross_entropy(net(images), labels)


class Block(torch.nn.Module):
    """As in ResNet. BatchNorm takes out what the biases add, so that their gradients cancel to nothing."""

    def __init__(self, inner, outer, stride):
        super().__init__()
        self.first = torch.nn.Sequential(torch.nn.Conv2d(inner, outer, 3, stride, 1), torch.nn.BatchNorm2d(outer))
        self.second = torch.nn.Sequential(torch.nn.Conv2d(outer, outer, 3, 1, 1), torch.nn.BatchNorm2d(outer))
        self.skip = torch.nn.Sequential(torch.nn.Conv2d(inner, outer, 1, stride), torch.nn.BatchNorm2d(outer))

    def forward(self, x):
        return torch.relu(self.second(torch.relu(self.first(x))) + self.skip(x))


def residual():
    """Gradients of weights add up 12,544 terms: 16 images of 28 by 28."""
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1),
        torch.nn.BatchNorm2d(16),
        torch.nn.ReLU(),
        Block(16, 16, 1),
        Block(16, 32, 2),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(32, 10),
    )
    labels = torch.randint(0, 10, (16,))
    images = torch.randn(16, 3, 28, 28) + 0.3 * labels.view(-1, 1, 1, 1)
    return net, lambda: torch.nn.functional.cross_entropy(net(images), labels)


def transformer():
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        attn_implementation="eager",
    )
    net = Qwen2ForCausalLM(config)
    tokens = torch.randint(0, 97, (2, 16))
    return net, lambda: net(input_ids=tokens, labels=tokens).loss


def main():
    dump_path, which = sys.argv[1:]
    net, loss_of = {"digits": digits, "residual": residual, "transformer": transformer}[which]()
    net.train()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    debugger = PrecisionDebugger(dump_path=dump_path, task="tensor", level="L1")
    for step in range(3):
        if step == 2:
            debugger.start(net)
        optimizer.zero_grad()
        loss_of().backward()
        optimizer.step()
    debugger.stop()
    debugger.step()
    debugger.wait()


if __name__ == "__main__":
    main()
