"""Three replies of looping_model.py in one batch: python replies.py MODEL DUMP_CONFIG GO; DUMP_CONFIG may be empty.

`loop` and `bare` go round in the loop, the latter without log-probabilities, `text` does not. After 300 tokens each it
prints PAUSED and waits until the file GO is there; then it goes on to 400. Prints STEP_US, the median time of a step.
"""

import pathlib
import statistics
import sys
import time

from vllm import LLM, SamplingParams

PAUSE, TOKENS = 300, 400


def say(word, value=""):
    sys.stdout.write(f"{word} {value}\n")
    sys.stdout.flush()


def main():
    model, config, go = sys.argv[1:]
    more = {"additional_config": {"dump_config_path": config, "judge_replies": True}} if config else {}
    llm = LLM(
        model,
        dtype="float32",
        enforce_eager=True,
        max_model_len=512,
        max_num_seqs=4,
        skip_tokenizer_init=True,
        gpu_memory_utilization=0.2,
        **more,
    )
    for name, first, logprobs in (("loop", 2, 5), ("bare", 2, None), ("text", 100, 5)):
        sampling = SamplingParams(
            temperature=0, max_tokens=TOKENS, ignore_eos=True, logprobs=logprobs, detokenize=False
        )
        llm.llm_engine.add_request(name, {"prompt_token_ids": [first]}, sampling)
    steps, times = 0, []
    while llm.llm_engine.has_unfinished_requests():
        began = time.perf_counter()
        llm.llm_engine.step()
        times.append(time.perf_counter() - began)
        steps += 1
        if steps == PAUSE:
            say("PAUSED")
            while not pathlib.Path(go).exists():
                time.sleep(0.05)
    say("STEP_US", round(1e6 * statistics.median(times)))


if __name__ == "__main__":
    main()
