"""vLLM without a server: three prompts, greedily. Prints TOKENS, one list a prompt.

--call-sites CONFIG: the debugger is called where vllm-ascend's runner calls it, by whichever `msprobe` is installed.
Otherwise nothing is called from here: the package's own plugin or worker extension may be at work.
"""

import argparse
import json
import sys

from vllm import LLM, SamplingParams

PROMPTS = ["The quick brown", "lazy dog near the river", "fox"]


def call(runner, config):
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(config)
    update_states, sample_tokens = runner._update_states, runner.sample_tokens
    started = False

    def batch_is_known(scheduler_output):
        nonlocal started
        result = update_states(scheduler_output)
        if scheduler_output.total_num_scheduled_tokens and not started:
            debugger.start(runner.model, scheduled_tokens=scheduler_output.num_scheduled_tokens)
            started = True
        return result

    def sampled(*arguments, **keywords):
        nonlocal started
        result = sample_tokens(*arguments, **keywords)
        if started:
            debugger.stop()
            started = False
            debugger.step()
        return result

    runner._update_states, runner.sample_tokens = batch_is_known, sampled


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--call-sites", metavar="CONFIG")
    parser.add_argument("--tokens", type=int, default=4)
    parser.add_argument("--requests", type=int, default=len(PROMPTS))
    parser.add_argument("--llm", type=json.loads, default={}, help="more arguments of LLM, as JSON")
    options = parser.parse_args()
    llm = LLM(
        options.model,
        **{"dtype": "float32", "enforce_eager": True, "max_model_len": 256, "max_num_seqs": 4, **options.llm},
        gpu_memory_utilization=0.2,  # of the host's memory, which vLLM for CPUs measures others' use against
    )
    if options.call_sites:
        call(llm.llm_engine.model_executor.driver_worker.worker.model_runner, options.call_sites)
    sampling = SamplingParams(temperature=0, max_tokens=options.tokens, ignore_eos=True)
    outputs = llm.generate((PROMPTS * options.requests)[: options.requests], sampling, use_tqdm=False)
    sys.stdout.write(f"TOKENS {json.dumps([list(output.outputs[0].token_ids) for output in outputs])}\n")
    if "worker_extension_cls" in options.llm:
        sys.stdout.write(f"STATUS {json.dumps(llm.collective_rpc('msprobe_status'))}\n")


if __name__ == "__main__":
    main()
