"""The nets that the traced programs run: seeded, built from configurations, one thread."""

import random

import torch


def seed(value=1234):
    torch.set_num_threads(1)
    random.seed(value)
    torch.manual_seed(value)


def qwen2(dtype=torch.float32, train=True, attention="sdpa"):
    from transformers import Qwen2Config, Qwen2ForCausalLM

    seed()
    return (
        Qwen2ForCausalLM(
            Qwen2Config(
                vocab_size=256,
                hidden_size=64,
                intermediate_size=128,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                max_position_embeddings=256,
                tie_word_embeddings=False,
                use_cache=False,
                attn_implementation=attention,
            )
        )
        .to(dtype)
        .train(train)
    )


def tokens(step=0, batch=1):
    return torch.randint(0, 256, (batch, 8), generator=torch.Generator().manual_seed(7 + step))


class TwoPathBlock(torch.nn.Module):
    """Two paths from one input: the order in which their gradients add up shows in the last bits."""

    def __init__(self):
        super().__init__()
        self.direct = torch.nn.Linear(32, 32)
        self.norm = torch.nn.BatchNorm1d(32)
        self.normed = torch.nn.Linear(32, 32)

    def forward(self, x):
        return self.direct(x) + self.normed(self.norm(x))


class TwoPathNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block1 = TwoPathBlock()
        self.block2 = TwoPathBlock()

    def forward(self, x):
        o1 = self.block1(x)
        return o1.sum() + self.block2(o1).sum()


def two_path():
    seed()
    return TwoPathNet()


class ConvNet(torch.nn.Module):
    """Running statistics, which are written without a word, and an activation that is overwritten in place."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.relu = torch.nn.ReLU(inplace=True)
        self.head = torch.nn.Linear(8 * 8 * 8, 4)

    def forward(self, x):
        return self.head(self.relu(self.norm(self.conv(x))).flatten(1))


def conv_net():
    seed()
    return ConvNet()


def encoder_layer():
    seed()
    return torch.nn.TransformerEncoderLayer(d_model=32, nhead=4, dim_feedforward=64, batch_first=True).eval()
