"""Writes a Qwen2 with planted weights, without a tokenizer, into the directory of argument 1: a token decides the next.

Tokens 2 to 9 lead round in a loop of eight, all others through a chain without repetition. The layers add nothing, so
the last token's embedding is the hidden state, and its row of lm_head is that of the token that shall follow.
"""

import sys

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

TOKENS = 512
LOOP = range(2, 10)


def followers():
    chain = [token for token in range(TOKENS) if token not in LOOP]
    order = [chain[i] for i in torch.randperm(len(chain), generator=torch.Generator().manual_seed(1)).tolist()]
    follows = {}
    for circle in (list(LOOP), order):
        follows |= dict(zip(circle, circle[1:] + circle[:1], strict=True))
    return [follows[token] for token in range(TOKENS)]


def main():
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=TOKENS,
        hidden_size=128,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        bos_token_id=0,
        eos_token_id=0,
        tie_word_embeddings=False,
    )
    model = Qwen2ForCausalLM(config)
    with torch.no_grad():
        layer = model.model.layers[0]
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
        directions = torch.nn.functional.normalize(torch.randn(TOKENS, 128), dim=1)
        model.model.embed_tokens.weight.copy_(directions)
        model.lm_head.weight[followers()] = directions
    model.save_pretrained(sys.argv[1])


if __name__ == "__main__":
    main()
