#!/usr/bin/env python3
"""Makes what parity tests compare with, on a machine without recordings: mindstudio-probe's dumps of programs.py, and
its tables of pairs.py.

    .oracle/bin/python tests/interop/recordings/record.py       into .oracle/reference, or the directory that is named

The Python is that of an environment with mindstudio-probe. Half a minute; a second call does nothing, until these
programs or the versions of that environment change. The directory appears whole or not at all:

    dump/make.py, dump/CASE/{config.json, step0/proc0/*.json}       programs.py and its cases
    dump/train_stat_md5_mix.true_md5.json                           checksums that mindstudio-probe's race got wrong
    compare/KIND_SIDE/{config.json, step0/proc1/...}                the pairs, tensor files with them
    compare/result_KIND.csv                                         the table of a pair

There is no dump of MindSpore among them: that needs MindSpore.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import importlib.metadata
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import zlib
from pathlib import Path

import pairs
import programs

HERE = Path(__file__).resolve().parent
STAMP = "made_from"
RACED = "train_stat_md5_mix"
RACES = 10  # runs until the race is lost once


def inputs():
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(HERE.glob("*.py")):
        digest.update(path.read_bytes())
    versions = [importlib.metadata.version(name) for name in ("mindstudio-probe", "torch", "transformers")]
    return f"{digest.hexdigest()} {' '.join(versions)}\n"


def to_its_end(call, arguments):
    os.dup2(2, 1)  # mindstudio-probe prints much
    call(*arguments)
    atexit._run_exitfuncs()  # some of it writes only then, and multiprocessing leaves that out


def apart(call, *arguments):
    """Calls in a process of its own, which inherits what is imported here."""
    process = multiprocessing.get_context("fork").Process(target=to_its_end, args=(call, arguments))
    process.start()
    process.join()
    if process.exitcode != 0:
        raise SystemExit(f"record: {' '.join(map(str, arguments))} failed")


@contextlib.contextmanager
def folder(**where):
    """A folder for a while. Unlike a TemporaryDirectory it is not removed when a forked process ends."""
    path = Path(tempfile.mkdtemp(**where))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def capture(directory, rank, case, call, *arguments):
    """Keeps a run's configuration and its one rank of step 0, as `rank`; gives that rank's directory."""
    with folder() as scratch:
        config, out = directory / "config.json", scratch / "out"
        directory.mkdir(parents=True)
        config.write_text(json.dumps(case.config(out), indent=1))
        apart(call, *arguments, str(config))
        (found,) = (out / "step0").iterdir()
        shutil.copytree(found, directory / "step0" / rank)
    return directory / "step0" / rank


def leaves(value, path=()):
    """(path, tensor's entry) of a document's tensors."""
    if isinstance(value, dict) and "dtype" in value and "shape" in value:
        yield path, value
    elif isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(each, (*path, key))


def data(rank):
    return json.loads((rank / "dump.json").read_text())["data"]


def true_checksums(scratch):
    """File name without suffix -> CRC-32, and path in dump.json -> that name, of the same program's tensors."""
    import torch

    case = programs.Case("train", "mix", task="tensor")
    programs.CASES["train_tensor"] = case
    rank = capture(scratch / "train_tensor", "proc0", case, programs.run, "train_tensor")
    names = {path: Path(leaf["data_name"]).stem for path, leaf in leaves(data(rank)) if leaf.get("data_name")}
    files = {name: torch.load(rank / "dump_tensor_data" / f"{name}.pt") for name in names.values()}
    found = {name: f"{zlib.crc32(tensor.detach().numpy().tobytes()):08x}" for name, tensor in files.items()}
    del programs.CASES["train_tensor"]
    return {path: (name, found[name]) for path, name in names.items()}


def lost_races(rank, truth):
    recorded = {path: leaf.get("md5") for path, leaf in leaves(data(rank))}
    return {name: true for path, (name, true) in truth.items() if recorded.get(path) not in (None, true)}


def record_dumps(root, scratch):
    truth = true_checksums(scratch)
    for name, case in programs.CASES.items():
        for _ in range(RACES if name == RACED else 1):
            shutil.rmtree(root / name, ignore_errors=True)
            rank = capture(root / name, "proc0", case, programs.run, name)
            lost = lost_races(rank, truth) if name == RACED else {}
            if lost:
                (root / f"{name}.true_md5.json").write_text(json.dumps(lost, indent=1))
                break
    shutil.copy(HERE / "programs.py", root / "make.py")


def record_pairs(root, scratch):
    from msprobe.pytorch.compare.pt_compare import pt_compare

    for kind, case in pairs.CASES.items():
        ranks = [capture(root / f"{kind}_{side}", "proc1", case, pairs.run, kind, side) for side in pairs.SIDES]
        golden, target = (str(rank / "dump.json") for rank in ranks)
        apart(pt_compare, {"npu_path": target, "bench_path": golden}, str(scratch / kind))
        (table,) = (scratch / kind).glob("compare_result_*.csv")
        shutil.copy(table, root / f"result_{kind}.csv")


def make(target):
    import msprobe.pytorch  # noqa: F401  (once, before the forks)
    import transformers  # noqa: F401

    with folder(dir=target.parent, prefix=f"{target.name}.") as whole:
        root, scratch = whole / "made", whole / "scratch"
        record_dumps(root / "dump", scratch)
        record_pairs(root / "compare", scratch)
        (root / STAMP).write_text(inputs())
        shutil.rmtree(target, ignore_errors=True)
        root.replace(target)


def main():
    target = Path(sys.argv[1] if len(sys.argv) > 1 else Path(sys.prefix) / "reference").absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f".{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = target / STAMP
        if not stamp.exists() or stamp.read_text() != inputs():
            print(f"mindstudio-probe runs the programs of {HERE.name}/ into {target}", flush=True)
            make(target)


if __name__ == "__main__":
    main()
