"""A tensor is remembered only while nobody writes it: no number of a changed weight is an old one."""

import json
import platform
import re
import shutil
import sys
import zlib

import pytest
import torch
from harness.dumps import read_dump, write_config
from harness.processes import PROGRAMS, launched, run

HAZARDS = (
    "unchanged",
    "data write",
    "data multiply",
    "data set",
    "pointer",
    "numpy",
    "dlpack",
    "in place",
    "through a view",
    "load_state_dict",
    "resize",
    "fused AdamW",
    "fused SGD",
    "foreach SGD",
    "custom operator",
    "inference mode",
    "running buffers",
    "freed addresses",
    "read ahead",
)


def watches_writes():
    """Whether this kernel reports writes; without that nothing is remembered."""
    release = tuple(int(part) for part in re.findall(r"\d+", platform.release())[:2])
    return release >= (6, 7)


def recalled(output):
    return int(re.search(r"RECALLED (\d+)", output)[1])


def run_hazards(directory, *hazards, **top):
    """The weight's true and recorded checksums, by hazard and "step call"; and the recalled numbers."""
    config = write_config(directory / "config.json", directory / "dump", section={"summary_mode": "md5"}, **top)
    output = run([sys.executable, PROGRAMS / "remembered.py", config, *hazards]).stdout
    true = json.loads(re.search("TRUE (.*)", output)[1])
    seen = {}
    for hazard, checksums in true.items():
        function = "batch_norm" if hazard == "running buffers" else "linear"
        seen[hazard] = {}
        for step in sorted({key.split()[0] for key in checksums}):
            (rank,) = (directory / "dump" / f"step{step}").iterdir()
            for name, entry in read_dump(rank)["data"].items():
                if found := re.fullmatch(rf"Functional\.{function}\.(\d+)\.forward", name):
                    seen[hazard][f"{step} {found[1]}"] = entry["input_args"][1]["md5"]
    return true, seen, recalled(output)


@pytest.fixture(scope="module")
def hazards(tmp_path_factory):
    return run_hazards(tmp_path_factory.mktemp("hazards"), *HAZARDS)


@pytest.mark.parametrize("hazard", HAZARDS)
def test_every_checksum_is_of_the_bytes_at_the_call(hazard, hazards):
    true, seen = hazards[0][hazard], hazards[1][hazard]
    assert len(true) >= 12
    wrong = {key: (seen.get(key), true[key]) for key in true if seen.get(key) != true[key]}
    assert not wrong, f"{len(wrong)} of {len(true)}"


@pytest.mark.skipif(not watches_writes(), reason="a kernel before 6.7 tells nothing, so nothing is remembered")
def test_a_weight_that_nobody_writes_is_read_once(tmp_path):
    assert run_hazards(tmp_path, "unchanged")[2] == 11, "of 12 calls"


def test_a_weight_with_a_gradient_is_not_watched(tmp_path):
    """An optimizer is about to write it, and would fault at each of its pages."""
    true, seen, count = run_hazards(tmp_path, "gradient")
    assert seen == true and count == 0


def test_off_reads_every_time(tmp_path):
    true, seen, count = run_hazards(tmp_path, "unchanged", reuse="off")
    assert seen == true and count == 0


def test_saved_tensors_are_the_bytes_at_the_call(tmp_path):
    """Bytes that nobody wrote since they were sent are not sent again; the server still has the right ones of each."""
    config = write_config(tmp_path / "config.json", tmp_path / "dump", task="tensor")
    names = ("unchanged", "data write", "fused SGD", "resize")
    output = run([sys.executable, PROGRAMS / "remembered.py", config, *names]).stdout
    for hazard, checksums in json.loads(re.search("TRUE (.*)", output)[1]).items():
        for key, checksum in checksums.items():
            step, call = key.split()
            (file,) = (tmp_path / "dump" / f"step{step}").glob(f"*/*/Functional.linear.{call}.forward.input.1.pt")
            assert f"{zlib.crc32(torch.load(file).numpy().tobytes()):08x}" == checksum, f"{hazard} {key}"


def test_a_saved_tensor_that_stays_as_it_was_is_one_file_of_all_steps(tmp_path):
    config = write_config(tmp_path / "config.json", tmp_path / "dump", task="tensor")
    output = run([sys.executable, PROGRAMS / "remembered.py", config, "unchanged"]).stdout
    checksums = json.loads(re.search("TRUE (.*)", output)[1])["unchanged"]
    first, *later = sorted((tmp_path / "dump").glob("step*"))
    (weight,) = first.glob("*/*/Functional.linear.0.forward.input.1.pt")
    inside = weight.relative_to(first)
    assert later and all((step / inside).samefile(weight) for step in later)
    shutil.rmtree(first)
    for step in later:
        content = torch.load(step / inside).numpy().tobytes()
        assert f"{zlib.crc32(content):08x}" == checksums[f"{step.name.removeprefix('step')} 0"]


def ranks(directory, kind, reuse):
    directory.mkdir()
    config = write_config(
        directory / "config.json", directory / "dump", level="mix", section={"summary_mode": "md5"}, reuse=reuse
    )
    with launched(2, [sys.executable, PROGRAMS / "remembered_ranks.py", config, kind], directory) as programs:
        for program in programs:
            program.finish(100)
        counts = [recalled(program.output) for program in programs]
    dumps = {
        str(path.relative_to(directory / "dump")): read_dump(path)["data"]
        for path in sorted((directory / "dump").glob("step*/*"))
    }
    return dumps, counts


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_ranks_record_the_same_with_and_without(kind, tmp_path):
    read, _ = ranks(tmp_path / "off", kind, "off")
    remembered, counts = ranks(tmp_path / "parameters", kind, "parameters")
    assert len(read) == 2 * 14 and all(read.values())
    assert remembered.keys() == read.keys()
    for step, data in read.items():
        # FSDP's own calls on memory that nothing has filled yet differ from run to run.
        layers = {name: entry for name, entry in data.items() if name.startswith(("Module.", "Functional."))}
        assert layers
        changed = [name for name, entry in layers.items() if entry != remembered[step].get(name)]
        assert not changed, f"{step}: {changed[:5]}"
    if kind == "ddp" and watches_writes():
        assert min(counts) > 0
