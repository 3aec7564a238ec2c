"""Runs cases of the programs under test, with whichever `msprobe` is importable, and keeps all their files.

    python cases.py --list
    python cases.py --case train_tensor_mix --out DIR      # DIR/config.json and the dump below DIR/out
    python cases.py --case train_tensor_mix --with-backward-hooks --out DIR
    python cases.py --serve                                # one JSON object a line: {"case", "out", "hooks"}

The first programs, the tiny Qwen2 and its configurations are those of $MSPROBE_REFERENCE/dump/make.py; families.py and
switches.py add theirs. Unlike make.py this does not wait for files: they must be there when the process has ended.

--serve imports everything once and forks a process a case, so that a case costs what its model costs. The answer to a
line is {"case", "code"}, once the process has ended; what it printed is in OUT/log.txt.

--with-backward-hooks puts an empty full backward hook on every submodule, as mindstudio-probe does at L0 and mix.
Such hooks change the order in which gradients add up, so only then do two tools see the same bits.
"""

import argparse
import functools
import importlib.util
import json
import os
import pathlib
import sys

import families
import switches


@functools.cache
def load_make(reference=None):
    """The reference programs, with the cases of this folder added to its CASES."""
    path = pathlib.Path(reference or os.environ["MSPROBE_REFERENCE"]) / "dump" / "make.py"
    spec = importlib.util.spec_from_file_location("make", path)
    make = importlib.util.module_from_spec(spec)
    sys.modules["make"] = make
    spec.loader.exec_module(make)
    return make


def added_cases(make):
    case = make.Case
    return {
        "fwd_tensor_mix": case("forward", "mix", task="tensor"),
        "train_tensor_mix": case("train", "mix", task="tensor"),
        "train_tensor_L0": case("train", "L0", task="tensor"),
        "train_tensor_mix_bf16": case("train", "mix", task="tensor", dtype="bfloat16"),
        "train_tensor_L1_list": case("train", "L1", task="tensor", section={"list": ["linear", "softmax"]}),
        "train_stat_L1_tensor_list": case("train", "L1", section={"tensor_list": ["linear"]}),
        "fwd_stat_md5_mix": case("forward", "mix", section={"summary_mode": "md5"}),
        "fwd_stat_mix_fp16": case("forward", "mix", dtype="float16"),
        "fwd_tensor_mix_fp16": case("forward", "mix", task="tensor", dtype="float16"),
        "train_stat_mix_forward_input": case("train", "mix", section={"data_mode": ["forward", "input"]}),
        "train_stat_mix_backward": case("train", "mix", section={"data_mode": ["backward"]}),
        "train_stat_L0_scope": case(
            "train",
            "L0",
            section={
                "scope": [
                    "Module.model.layers.0.Qwen2DecoderLayer.forward.0",
                    "Module.model.layers.0.Qwen2DecoderLayer.forward.0",
                ]
            },
        ),
        "train_stat_L1_riskCORE": case("train", "L1", top={"risk_level": "CORE"}),
        "train_stat_L1_no_extra_info": case("train", "L1", top={"extra_info": False}),
        "types_debug_tensor": case("types_debug", "debug", task="tensor"),
    }


def hook_submodules(model):
    for module in model.modules():
        if module is not model:
            module.register_full_backward_hook(lambda *_: None)
    return model


def hook_every_submodule(make):
    plain, families.on_model = make.tiny_qwen2, hook_submodules
    make.tiny_qwen2 = lambda *args, **kwargs: hook_submodules(plain(*args, **kwargs))


def prepare(make):
    """Adds the cases and programs of this folder to make's."""
    make.CASES.update(added_cases(make))
    make.CASES.update(families.cases(make))
    make.CASES.update(switches.cases(make))
    make.PROGRAMS.update(families.programs(make))


def run_case(make, case, out):
    config = out / "config.json"
    config.write_text(json.dumps(make.CASES[case].config(out / "out"), indent=1))
    make.run(case, str(config))


def serve(make):
    import msprobe.pytorch  # noqa: F401  (imported once, before the forks)
    import torch

    torch.set_num_threads(1)
    families.import_models()
    make.tiny_qwen2(torch.float32, train=False)
    for line in sys.stdin:
        request = json.loads(line)
        out = pathlib.Path(request["out"])
        out.mkdir(parents=True)
        child = os.fork()
        if child == 0:
            # Returns from here and ends as any program does, exit handlers and all.
            with (out / "log.txt").open("wb") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            if request.get("hooks"):
                hook_every_submodule(make)
            run_case(make, request["case"], out)
            return
        _, status = os.waitpid(child, 0)
        print(json.dumps({"case": request["case"], "code": os.waitstatus_to_exitcode(status)}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--case", metavar="NAME")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--with-backward-hooks", action="store_true")
    options = parser.parse_args()
    make = load_make()
    prepare(make)
    if options.list:
        print("\n".join(make.CASES))
        return
    if options.serve:
        serve(make)
        return
    if options.case not in make.CASES or options.out is None:
        parser.error("give --list, --serve, or --case NAME and --out DIR; NAME is one of " + ", ".join(make.CASES))
    if options.with_backward_hooks:
        hook_every_submodule(make)
    options.out.mkdir(parents=True)
    run_case(make, options.case, options.out)


if __name__ == "__main__":
    main()
