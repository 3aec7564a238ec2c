"""Runs a case of the reference program in this process, with whichever `msprobe` is importable, and keeps all it wrote.

    python cases.py --list
    python cases.py --case train_tensor_mix --out DIR      # DIR/config.json and the dump below DIR/out
    python cases.py --case train_tensor_mix --with-backward-hooks --out DIR

The programs, the tiny Qwen2 and the configurations are those of $MSPROBE_REFERENCE/dump/make.py; added here are the
cases of task tensor and of fp16, which make.py has not. Unlike make.py this does not wait for files: they must be there
when the process has ended.

--with-backward-hooks puts an empty full backward hook on every submodule, as the established tool does at L0 and mix.
Such hooks change the order in which gradients add up, so only then do two tools see the same bits.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import sys


def load_make(reference=None):
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


def hook_every_submodule(make):
    plain = make.tiny_qwen2

    def hooked(*args, **kwargs):
        model = plain(*args, **kwargs)
        for module in model.modules():
            if module is not model:
                module.register_full_backward_hook(lambda *_: None)
        return model

    make.tiny_qwen2 = hooked


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--case", metavar="NAME")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--with-backward-hooks", action="store_true")
    options = parser.parse_args()
    make = load_make()
    make.CASES.update(added_cases(make))
    if options.with_backward_hooks:
        hook_every_submodule(make)
    if options.list:
        print("\n".join(added_cases(make)))
        return
    if options.case not in make.CASES or options.out is None:
        parser.error("give --list, or --case NAME and --out DIR; NAME is one of " + ", ".join(make.CASES))
    options.out.mkdir(parents=True)
    config = options.out / "config.json"
    config.write_text(json.dumps(make.CASES[options.case].config(options.out / "out"), indent=1))
    make.run(options.case, str(config))


if __name__ == "__main__":
    main()
