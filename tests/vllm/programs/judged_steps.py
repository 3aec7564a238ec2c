"""What judge_replies adds to a step: python judged_steps.py MODEL DUMP_CONFIG, with a model of looping_model.py.

64 requests with 5 log-probabilities are written at once. Every second step tells the server of its tokens. Prints TIMES
in seconds, of the thread that is the engine and computes the model; the first step tells nothing.
"""

import json
import sys
import time

from msprobe_vllm._runner_window import RunnerWindow
from vllm import LLM, SamplingParams

REQUESTS, STEPS = 64, 401


def main():
    model, config = sys.argv[1:]
    llm = LLM(
        model,
        dtype="float32",
        enforce_eager=True,
        max_model_len=512,
        max_num_seqs=REQUESTS,
        skip_tokenizer_init=True,
        gpu_memory_utilization=0.2,
        additional_config={"dump_config_path": config, "judge_replies": True},
    )
    (window,) = llm.collective_rpc(lambda worker: RunnerWindow.of(worker.model_runner))
    replies = window._replies
    sampling = SamplingParams(temperature=0, max_tokens=STEPS + 2, ignore_eos=True, logprobs=5, detokenize=False)
    for number in range(REQUESTS):
        llm.llm_engine.add_request(f"text{number}", {"prompt_token_ids": [100 + number]}, sampling)
    llm.llm_engine.step()  # the prompts
    times = []
    for step in range(STEPS):
        window._replies = replies if step % 2 else None
        begun = time.thread_time()
        llm.llm_engine.step()
        times.append(time.thread_time() - begun)
    sys.stdout.write(f"TIMES {json.dumps(times)}\n")


if __name__ == "__main__":
    main()
