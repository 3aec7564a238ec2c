"""Runs programs that a test has drawn at random, and writes the results that the test must find. One JSON request a
line, a fork each.

A request is {"out": DIR, "config": PATH, "mode": summary_mode, "cuts": [...], "steps": [...]}; a step is one of
{"calls": [...]} (argument trees of a custom API) and {"model": ...} (random_models.py). In DIR: log.txt, and
outcome.json, a list with one object a step: {"expected": {...}, "changed": [...]} or {"raised": TRACEBACK}.
"""

import json
import os
import pathlib
import sys
import traceback
import types

import encoding
import random_models
import random_values
import torch
from say import say


def take(*args, **kwargs):
    """The first of what it was given, or the named one."""
    return args[0] if args else next(iter(kwargs.values()), None)


def register(debugger):
    apis = types.ModuleType("drawn")
    apis.take = take
    debugger.register_custom_api(apis, "take", "Custom")
    return apis


def run_calls(debugger, apis, calls, encoder):
    expected = {}
    built = []
    for index, (args, kwargs) in enumerate(calls):
        values = [random_values.build(each) for each in args]
        named = {name: random_values.build(each) for name, each in kwargs}
        built.append((values, named))
        entry = encoder.arguments(values, named)
        entry["output"] = encoder.output(take(*values, **named))
        expected[f"Custom.take.{index}.forward"] = entry
    debugger.start()
    changed = []
    for index, (values, named) in enumerate(built):
        given = take(*values, **named)
        if apis.take(*values, **named) is not given:
            changed.append(f"call {index} gave another object")
    debugger.stop()
    debugger.step()
    return {"expected": expected, "changed": changed}


def run_step(debugger, apis, step, encoder):
    if "calls" in step:
        return run_calls(debugger, apis, step["calls"], encoder)
    return random_models.run(debugger, step["model"], encoder)


def run(request):
    from msprobe.pytorch import PrecisionDebugger

    encoder = encoding.Encoder(request["mode"], tuple(request["cuts"]))
    outcomes = []
    try:
        debugger = PrecisionDebugger(config_path=request["config"])
        apis = register(debugger)
        for step in request["steps"]:
            outcomes.append(run_step(debugger, apis, step, encoder))
    except Exception:
        outcomes.append({"raised": traceback.format_exc()})
    (pathlib.Path(request["out"]) / "outcome.json").write_text(json.dumps(outcomes))


def main():
    import msprobe.pytorch  # noqa: F401  (once, before the forks)

    torch.set_num_threads(1)
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            with (pathlib.Path(request["out"]) / "log.txt").open("wb") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            run(request)
            return
        _, status = os.waitpid(child, 0)
        say(json.dumps({"code": os.waitstatus_to_exitcode(status)}))


if __name__ == "__main__":
    main()
