"""Packs, scripts and logs of training runs, for `msprobe config_check` of either tool."""

import json
import zipfile

TENSOR = {"max": 2.0, "min": -1.0, "mean": 0.25, "norm": 3.0}
NPU = {"ASCEND_HOME_PATH": "/usr/local/Ascend", "HCCL_ALGO": "level0:ring", "HCCL_INTRA_ROCE_ENABLE": "1"}
GPU = {"CUDA_HOME": "/usr/local/cuda", "NCCL_ALGO": "Ring", "CUDA_VISIBLE_DEVICES": "0,1"}

SCRIPT = """#!/bin/bash
# torchrun --lr 9
export LR=1e-4
DATA_PATH=/data/text  # where it lies
DISTRIBUTED_ARGS="
    --nproc_per_node 8 \\
    --nnodes 1
"
GPT_ARGS="
    --num-layers 12 \\
    --lr ${LR} \\
    --weight-decay 0.1 \\
    --bf16
"
torchrun $DISTRIBUTED_ARGS pretrain_gpt.py \\
    $GPT_ARGS \\
    --data-path $DATA_PATH \\
    --other $UNSET \\
    --seed 42 \\
    --use-flash-attn | tee log.txt --not-this 1
"""
YAML = """
optimizer: {lr: 0.001, betas: [0.9, 0.95], name: adam, nothing: null}
layers:
  - {kind: a, size: 3}
  - {kind: b, size: 4}
flag: true
"""

VERL = {
    "actor_rollout_ref": {
        "actor": {
            "shuffle": False,
            "load_weight": True,
            "use_dynamic_bsz": True,
            "optim": {"lr": 1e-06, "betas": [0.9, 0.999]},
        },
        "model": {"path": "/models/qwen", "use_remove_padding": True, "override_config": {}, "external_lib": None},
        "profiler": {"enable": False, "ranks": [0, 1]},
        "rollout": {"name": "vllm", "prompt": "a 'quoted' text: with, commas {and} brackets]", "seed": -1},
    },
    "algorithm": {"filter_groups": {"enable": False, "max_num_gen_batches": 0}, "gamma": 1.0},
    "critic": {"shuffle": False, "use_dynamic_bsz": True, "model": {"use_remove_padding": False}},
    "data": {"shuffle": False, "train_files": ["a.parquet", "b.parquet"], "max_prompt_length": 1024},
    "ray_init": {"num_cpus": 16},
    "trainer": {"balance_batch": True, "nnodes": 1},
}


def pack(path, environment, packages, *, statistics=(), weights=(), static=None, dynamic=None, random=()):
    """statistics, weights: {step/rank: document}; random: {rank: document}."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("env", json.dumps(environment))
        file.writestr("pip", "".join(f"{name}={version}\n" for name, version in packages.items()))
        for folder, name, documents in (("dataset", "dataset", statistics), ("weights", "weight", weights)):
            for (step, rank), document in dict(documents).items():
                file.writestr(f"{folder}/step{step}/rank{rank}/{name}.json", json.dumps(document))
        for name, document in (("static", static), ("dynamic", dynamic)):
            if document is not None:
                file.writestr(f"hyperparameters/hyperparameters_{name}.json", json.dumps(document))
        for rank, document in dict(random).items():
            file.writestr(f"random/rank{rank}.json", json.dumps(document))
    return path


def call(count, *frames):
    return {
        "count": count,
        "stack": [
            f"File /{folder}/{file}, line {line}, in {where}, {code}" for folder, file, line, where, code in frames
        ],
    }


def write_packs(root):
    """name -> (bench, cmp)"""
    negative = {**TENSOR, "mean": -0.5}
    bench_random = {
        "torch.rand": [
            call(
                3,
                ("a", "train.py", 10, "main", "x = torch.rand(4, device=device)"),
                ("a", "net.py", 5, "forward", "noise = torch.rand(3)"),
            ),
            call(1, ("a", "train.py", 11, "main", "y = torch.rand(1)")),
        ],
        "random.random": [call(2, ("a", "train.py", 3, "<module>", "random.random()"))],
    }
    cmp_random = {
        "torch.rand": [
            call(
                4,
                ("b", "train.py", 99, "main", "x = torch.rand(4, device=npu)"),
                ("b", "net.py", 6, "forward", "noise = torch.rand(3)"),
            ),
            call(1, ("b", "other.py", 11, "main", "y = torch.rand(1)")),
        ],
        "np.random.rand": [call(7, ("b", "train.py", 3, "<module>", "np.random.rand()"))],
    }
    full = (
        pack(
            root / "bench.zip",
            GPU,
            {"torch": "2.1.0", "numpy": "1.26.4", "peft": "0.1"},
            statistics={
                (0, 0): {"args": {"0": TENSOR, "1": "", "2": negative}, "kwargs": {"mask": TENSOR, "gone": TENSOR}},
                (1, 0): {"args": {"0": TENSOR}, "kwargs": {}},
                (10, 1): {"args": {"0": {"0": TENSOR, "1": {**TENSOR, "min": 0.0}}}, "kwargs": {}},
            },
            weights={(0, 0): {"a.weight": TENSOR, "b.bias": negative, "gone": TENSOR}, (1, 1): {"a.weight": TENSOR}},
            static={
                "learning-rate": "1e-4",
                "train.bs": 8,
                "seed": "42",
                "hidden_size": 768,
                "bf16": True,
                "alone": 1,
                "betas": [0.9, 0.95],
            },
            dynamic={"lr": 0.1, "padded_vocab_size": 50304},
            random={0: bench_random, 1: {"torch.rand": bench_random["torch.rand"][:1]}},
        ),
        pack(
            root / "cmp.zip",
            NPU,
            {"torch": "2.1.0", "numpy": "2.0.0", "mindspore": "2.3"},
            statistics={
                (0, 0): {
                    "args": {"0": TENSOR, "1": "", "2": {**negative, "mean": -0.25}},
                    "kwargs": {"mask": {**TENSOR, "max": 4.0}, "new": TENSOR},
                },
                (10, 1): {"args": {"0": {"0": TENSOR, "1": {**TENSOR, "min": 1.0}}}, "kwargs": {}},
                (11, 1): {"args": {"0": TENSOR}, "kwargs": {}},
            },
            weights={(0, 0): {"a.weight": TENSOR, "b.bias": {**negative, "norm": 6.0}, "new": TENSOR}},
            static={
                "lr": "2e-4",
                "batch_size": 16,
                "seed": 42,
                "hidden_sizes": 768.5,
                "bf16": True,
                "other": [1],
                "betas": [0.9, 0.99],
            },
            dynamic={"lr": 0.1, "padded_vocab_sizes": 50304},
            random={0: cmp_random, 1: {"torch.rand": bench_random["torch.rand"][:1]}},
        ),
    )
    npus = (
        pack(root / "npu_a.zip", NPU, {"torch": "2.1.0"}),
        pack(
            root / "npu_b.zip",
            {**NPU, "HCCL_ALGO": "level0:mesh", "ASCEND_RT_VISIBLE_DEVICES": "3"},
            {"torch": "2.1.0"},
        ),
    )
    return {"full": full, "npus": npus, "reversed": full[::-1], "same": (full[0], full[0])}


def verl_log(configuration, *, prefix="\x1b[36m(TaskRunner pid=4242)\x1b[0m ", foreign=()):
    """As pprint breaks it; foreign: line -> what another process says before it."""
    import pprint

    lines = [f"{prefix}{line}" for line in pprint.pformat(configuration).splitlines()]
    for at, text in dict(foreign).items():
        lines.insert(at, text)
    return "\n".join(("2026-01-01 INFO starting", *lines, f"{prefix}step 1", ""))


def slime_log(values):
    lines = [f"  {name} {'.' * (40 - len(name))} {value}" for name, value in values.items()]
    return "\n".join(
        (
            "start",
            "------------------------ arguments ------------------------",
            *lines,
            "-------------------- end of arguments ---------------------",
            "step 1",
        )
    )
