"""The traced program: a small Qwen2 with random weights answers a prompt, then trains.

    python demo/main_job.py CONFIG

What msprobe needs of it: the import, the construction, and start, stop and step around what is to be seen.
"""

import sys

import torch
from msprobe.pytorch import PrecisionDebugger
from transformers import Qwen2Config, Qwen2ForCausalLM, StoppingCriteria

PROMPT_TOKENS = 12
NEW_TOKENS = 8
TRAINING_STEPS = 2
VOCABULARY = 512


class StepAfterToken(StoppingCriteria):
    """Ends a step after each generated token; stops nothing."""

    def __init__(self, debugger: PrecisionDebugger) -> None:
        self._debugger = debugger

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **kwargs: object) -> torch.Tensor:
        self._debugger.step()
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)


def build_model() -> Qwen2ForCausalLM:
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=VOCABULARY,
            hidden_size=128,
            intermediate_size=512,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            bos_token_id=0,
            eos_token_id=None,
            pad_token_id=0,
        )
    )


def main(config: str) -> None:
    torch.manual_seed(1234)
    debugger = PrecisionDebugger(config_path=config)
    model = build_model()
    prompt = torch.randint(1, VOCABULARY, (1, PROMPT_TOKENS))

    model.eval()
    debugger.start(model)
    answer = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=NEW_TOKENS,
        min_new_tokens=NEW_TOKENS,
        do_sample=False,
        stopping_criteria=[StepAfterToken(debugger)],
    )
    debugger.stop()
    print("generated tokens:", answer[0, PROMPT_TOKENS:].tolist())

    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(TRAINING_STEPS):
        debugger.start(model)
        optimizer.zero_grad()
        loss = model(input_ids=answer, labels=answer).loss
        loss.backward()
        optimizer.step()
        debugger.stop()
        debugger.step()
        print(f"loss: {loss.item():.6f}")


if __name__ == "__main__":
    main(sys.argv[1])
