"""python repro_transformer.py DUMP_PATH gpt2|qwen2: the tensors of a training step of one block, at level L1."""

import sys

import torch
import transformers
from msprobe.pytorch import PrecisionDebugger

dump_path, kind = sys.argv[1:]
torch.manual_seed(3)
if kind == "gpt2":
    sizes = {"vocab_size": 64, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}
    drops = {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **drops))
else:
    sizes = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 32}
    model = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**sizes, **heads))
debugger = PrecisionDebugger(dump_path=dump_path, task="tensor", level="L1")
debugger.start(model)
tokens = torch.randint(0, 64, (2, 8))
model(tokens, labels=tokens).loss.backward()
debugger.stop()
debugger.step()
debugger.wait()
