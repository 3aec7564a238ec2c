"""vLLM without a server: three prompts, greedily. Prints TOKENS, one list a prompt.

--call-sites CONFIG: the debugger is called where vllm-ascend's runner calls it, by whichever `msprobe` is installed.
--watch: the package's own plugin looks at the engine that there is, as it does at one that begins.
Otherwise nothing is called from here: the plugin or the worker extension may be at work.

--serve: an engine is made once, and one JSON request a line, {"arguments": [...], "env": {...}, "log": PATH}, is done
in a fork of it; answers {"code": exit status}.
"""

import argparse
import json
import os
import pathlib
import sys
import traceback

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


def say(word, value):
    sys.stdout.write(f"{word} {json.dumps(value)}\n")
    sys.stdout.flush()


def dummy_run(worker):
    """The dummy run of an idle rank. It also makes the buffers into which a later stage of a pipeline receives."""
    worker.model_runner._dummy_run(4)


def parsed(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--call-sites", metavar="CONFIG")
    parser.add_argument("--watch", action="store_true")
    parser.add_argument("--tokens", type=int, default=4)
    parser.add_argument("--requests", type=int, default=len(PROMPTS))
    parser.add_argument("--embed", action="store_true", help="the model pools: prints EMBEDDINGS instead of TOKENS")
    parser.add_argument("--dummy-runs", action="store_true", help="of each worker, before the prompts")
    parser.add_argument("--llm", type=json.loads, default={}, help="more arguments of LLM, as JSON")
    parser.add_argument("--serve", action="store_true")
    return parser.parse_args(arguments)


def engine(options):
    return LLM(
        options.model,
        **{"dtype": "float32", "enforce_eager": True, "max_model_len": 256, "max_num_seqs": 4, **options.llm},
        gpu_memory_utilization=0.2,  # of the host's memory, which vLLM for CPUs measures others' use against
    )


def generate(llm, options):
    if options.call_sites:
        call(llm.llm_engine.model_executor.driver_worker.worker.model_runner, options.call_sites)
    if options.watch:
        from msprobe_vllm._workers import watch

        watch(llm.llm_engine.model_executor.driver_worker.worker)
    prompts = (PROMPTS * options.requests)[: options.requests]
    if options.dummy_runs:
        llm.collective_rpc(dummy_run)
    if options.embed:
        say("EMBEDDINGS", [output.outputs.embedding for output in llm.embed(prompts, use_tqdm=False)])
        return
    sampling = SamplingParams(temperature=0, max_tokens=options.tokens, ignore_eos=True)
    outputs = llm.generate(prompts, sampling, use_tqdm=False)
    say("TOKENS", [list(output.outputs[0].token_ids) for output in outputs])
    if "worker_extension_cls" in options.llm:
        say("STATUS", llm.collective_rpc("msprobe_status"))


def end_fork(status):
    """Leaves out the engine's exit, which would wait for threads of the parent."""
    debugger = getattr(sys.modules.get("msprobe.pytorch"), "PrecisionDebugger", None)
    if hasattr(debugger, "wait"):  # mindstudio-probe has written everything
        debugger.wait()
    sys.stdout.flush()
    os._exit(status)


def serve(options):
    llm = engine(options)
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            with pathlib.Path(request["log"]).open("wb") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            os.environ.update(request["env"])
            status = 1
            try:
                generate(llm, parsed([options.model, *request["arguments"]]))
                status = 0
            except Exception:
                traceback.print_exc()
            end_fork(status)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(json.dumps({"code": os.waitstatus_to_exitcode(status)}) + "\n")
        sys.stdout.flush()


def main():
    options = parsed(None)
    if options.serve:
        serve(options)
    else:
        generate(engine(options), options)


if __name__ == "__main__":
    main()
