"""Calls methods of PrecisionDebugger with right and wrong arguments; prints the results, one JSON object a line:
{"name": ...}.

python api_surface.py NAME DUMP_PATH
"""

import json
import os
import pickle
import random
import sys

import torch
from say import say


def tell(name, **values):
    say(json.dumps({"name": name, **values}))


def attempt(name, call):
    try:
        call()
    except Exception as error:  # whatever it is, the test reads it
        tell(name, error=type(error).__name__, message=str(error))
    else:
        tell(name, error=None, message="")


def debugger(**arguments):
    from msprobe.pytorch import PrecisionDebugger

    return PrecisionDebugger(dump_path=sys.argv[2], **{"level": "L1", **arguments})


def wrong_arguments():
    from msprobe.pytorch import PrecisionDebugger, module_dump, random_save, seed_all

    attempt("before construction", PrecisionDebugger.start)
    for name, arguments in {
        "config_path number": {"config_path": 3},
        "config_path missing": {"config_path": "/nowhere/config.json"},
        "task number": {"task": 3, "dump_path": sys.argv[2]},
        "level list": {"level": ["L1"], "dump_path": sys.argv[2]},
        "dump_path number": {"dump_path": 3},
        "step number": {"step": 3, "dump_path": sys.argv[2]},
        "step fraction": {"step": [1.5], "dump_path": sys.argv[2]},
    }.items():
        attempt(name, lambda arguments=arguments: PrecisionDebugger(**arguments))
    tool = debugger()
    model = torch.nn.Linear(2, 2)
    for name, arguments in {
        "model number": {"model": 3},
        "model list": {"model": [model, "x"]},
        "token_range number": {"model": model, "token_range": 3},
        "token_range of three": {"model": model, "token_range": [1, 2, 3]},
        "token_range reversed": {"model": model, "token_range": [3, 1]},
        "token_range negative": {"model": model, "token_range": [-1, 1]},
        "token_range bool": {"model": model, "token_range": [False, True]},
        "token_range without model": {"token_range": [0, 1]},
        "rank_id text": {"rank_id": "0"},
        "rank_id negative": {"rank_id": -1},
        "scheduled_tokens list": {"scheduled_tokens": [1]},
        "scheduled_tokens key": {"scheduled_tokens": {1: 1}},
        "scheduled_tokens zero": {"scheduled_tokens": {"a": 0}},
    }.items():
        attempt(name, lambda arguments=arguments: tool.start(**arguments))
    attempt("dump text", lambda: tool.step(dump="no"))
    attempt("init step negative", lambda: tool.set_init_step(-1))
    attempt("init step bool", lambda: tool.set_init_step(True))
    attempt("api missing", lambda: tool.register_custom_api(torch, "no_such_thing"))
    attempt("api number", lambda: tool.register_custom_api(torch, 3))
    attempt("api prefix", lambda: tool.register_custom_api(torch, "add", 3))
    attempt("restore missing", lambda: tool.restore_custom_api(torch, "no_such_thing"))
    attempt("module number", lambda: module_dump(3, "a"))
    attempt("dump_name empty", lambda: module_dump(model, ""))
    attempt("seed text", lambda: seed_all(seed="1"))
    attempt("seed large", lambda: seed_all(seed=2**32))
    attempt("seed mode", lambda: seed_all(mode=1))
    attempt("seed rm_dropout", lambda: seed_all(rm_dropout=None))
    attempt("seed is_enhanced", lambda: seed_all(is_enhanced="no"))
    attempt("output_path number", lambda: random_save(3))
    attempt("output_path file", lambda: random_save("/dev/null/below"))
    tell("afterwards", started=tool._running)


def identities():
    """Every function is itself while capturing, and behind it."""
    add, gelu, linear = torch.add, torch.nn.functional.gelu, torch.nn.functional.linear
    relu_code = torch.nn.functional.relu.__code__
    from torch import neg

    held = {"torch.add": add, "F.gelu": gelu, "F.linear": linear, "Tensor.mul": torch.Tensor.mul}
    tool = debugger()

    def same():
        now = {
            "torch.add": torch.add,
            "F.gelu": torch.nn.functional.gelu,
            "F.linear": torch.nn.functional.linear,
            "Tensor.mul": torch.Tensor.mul,
        }
        return {name: now[name] is function for name, function in held.items()}

    def pickled():
        return {name: pickle.loads(pickle.dumps(held[name])) is held[name] for name in ("torch.add", "F.gelu")}

    tool.start()
    neg(torch.ones(2))
    tell("capturing", same=same(), pickled=pickled())
    tool.stop()
    tell("stopped", same=same(), pickled=pickled(), code=torch.nn.functional.relu.__code__ is relu_code)
    tool.step()


def numbering():
    tool = debugger()
    for dump in (True, False, True):
        tool.start()
        torch.neg(torch.full((1,), float(tool.service.current_iter)))
        tool.forward_backward_dump_end()
        torch.abs(torch.ones(1))
        tool.step(dump=dump)
        tell("step", loop=tool.service.loop)
    tool.set_init_step(7)
    tool.start()
    torch.neg(torch.ones(1))
    tool.stop()
    tool.step()
    tell("attributes", task=tool.task, iteration=tool.service.current_iter, level=tool.config.level)


def custom_api():
    class Ops:
        @staticmethod
        def twice(x):
            return x * 2

    original = Ops.twice
    tool = debugger()
    tool.register_custom_api(Ops, "twice", "Mine")
    tool.start()
    Ops.twice(torch.ones(2))
    tool.restore_custom_api(Ops, "twice")
    tell("restored", same=Ops.twice is original)
    Ops.twice(torch.ones(2))
    tool.stop()
    tool.step()


def listed_apis():
    """APIs listed in $MSPROBE_CUSTOM_WRAP_OPS; one of them is made between two steps."""
    import colorsys

    tool = debugger()
    for _ in range(2):
        tool.start()
        colorsys.rgb_to_yiq(0.5, 0.25, 0.125)
        tool.stop()
        tool.step()
        if not hasattr(colorsys, "later"):
            colorsys.later = torch.nn.Identity()
    tool.start()
    colorsys.later(torch.ones(2))
    tool.stop()
    tool.step()


def saving():
    tool = debugger(level="debug", task="tensor")
    weight = torch.ones(2, requires_grad=True)
    product = weight * 3
    tool.save({"a": product, "b": [1, "text", 2.5]}, "values")
    tool.save(product, "alone", save_backward=False)
    tool.save(product, "alone", save_backward=False)
    for wrong in (None, 1j, {1: 2}):
        tool.save(wrong, "wrong")
    tool.save(product, 3)
    tool.save(product, "backward", "yes")
    product.sum().backward()
    tool.step()


def second():
    from msprobe.pytorch import PrecisionDebugger

    first = debugger(task="statistics")
    tell("same", same=PrecisionDebugger() is first and debugger(task="statistics") is first)
    PrecisionDebugger(dump_path=sys.argv[2] + "/other", level="mix")


def seeds():
    import numpy
    from msprobe.pytorch import seed_all

    def draw():
        return [random.random(), numpy.random.rand(), torch.rand(1).item(), torch.empty(1).normal_().item()]

    seed_all(42)
    first = draw()
    seed_all(42)
    again = draw()
    seed_all(43)
    other = draw()
    tell("seeded", first=first, again=again, other=other, hash=os.environ["PYTHONHASHSEED"])
    seed_all(42, mode=True)
    tell("mode", deterministic=torch.are_deterministic_algorithms_enabled())
    seed_all(42, mode=False, rm_dropout=True)
    functional = torch.nn.functional
    kept = [
        bool((functional.dropout(torch.ones(100), 0.5) == 1).all()),
        bool((torch.nn.Dropout(0.9)(torch.ones(100)) == 1).all()),
        bool((functional.dropout2d(torch.ones(1, 10, 2, 2)) == 1).all()),
        bool((functional.dropout3d(torch.ones(1, 10, 2, 2, 2)) == 1).all()),
    ]
    try:
        functional.dropout(torch.ones(1), 2.0)
        refused = False
    except ValueError:
        refused = True
    tell("rm_dropout", kept=kept, refused=refused)
    seed_all(42, is_enhanced=True)
    tell("is_enhanced", first=draw(), again=draw(), twice=draw())


def random_calls():
    import numpy
    from msprobe.pytorch import random_save

    random_save(sys.argv[2])
    random_save(sys.argv[2])
    torch.manual_seed(0)
    torch.rand(2)
    torch.rand(2)
    torch.empty(3).normal_()
    random.random()
    numpy.random.randint(3)
    random.seed(3)


if __name__ == "__main__":
    torch.set_num_threads(1)
    globals()[sys.argv[1]]()
