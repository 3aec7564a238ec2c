"""Task grad_probe: signs of gradients from the program to files, comparisons, GradComparator and alarms."""

import csv
import json
import math
import pathlib
import re
import shutil
import sys
import textwrap
import zlib

import numpy
import pytest
import torch
import yaml
from harness import answers
from harness.dumps import write_config
from harness.processes import PROGRAMS, external_server, run
from msprobe_client import Client
from msprobe_client.compat import grad_comparator
from msprobe_client.errors import DataError

PROGRAM = PROGRAMS / "gradient_signs.py"
DOCUMENT = pathlib.Path(__file__).parents[2] / "docs" / "monitoring.md"
BOUNDS = [-0.01, 0, 0.5, 2]


def train(directory, *arguments, level="L2", **fields):
    """What the program printed, and what its gradients were."""
    directory.mkdir(parents=True, exist_ok=True)
    config = write_config(
        directory / "config.json",
        directory / "dump",
        task="grad_probe",
        section={"grad_level": level, "bounds": BOUNDS, **fields.pop("section", {})},
        **fields,
    )
    oracle = directory / "oracle.pt"
    done = run([sys.executable, PROGRAM, "--config", config, "--oracle", oracle, *arguments], timeout=180)
    return done.stdout, torch.load(oracle)


def table(path):
    content = path.read_bytes()
    assert content.startswith(b"\xef\xbb\xbf") and content.endswith(b"\r\n"), "as mindstudio-probe writes it"
    return list(csv.DictReader(content.decode("utf-8-sig").splitlines()))


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """Two dumps of levels L2 and L1 without a server, of which the second has noise from step 1 on."""
    directory = tmp_path_factory.mktemp("signs")
    return [
        (directory / name / "dump", *train(directory / name, *more, level=level))
        for name, more, level in (("golden", [], "L2"), ("noisy", ["--noise", "1", "--from", "1"], "L1"))
    ]


def test_files_have_what_the_gradients_were(local):
    dump, printed, seen = local[0]
    assert printed.count("gradients are in ") == printed.count(f"gradients are in {dump}/rank0. ") == 1
    for step, gradients in enumerate(seen):
        rows = table(dump / "rank0" / f"grad_summary_{step}.csv")
        assert list(rows[0]) == [
            "param_name", "(-inf, -0.01]", "(-0.01, 0]", "(0, 0.5]", "(0.5, 2]", "(2, inf)", "=0",
            "max", "min", "norm", "shape",
        ]  # fmt: skip
        assert [row["param_name"] for row in rows] == list(gradients), "in the model's order; unused ones have none"
        for row in rows:
            gradient = gradients[row["param_name"]]
            assert float(row["max"]) == gradient.max().item()
            assert float(row["min"]) == gradient.min().item()
            assert float(row["norm"]) == pytest.approx(gradient.norm().item(), rel=1e-6)
            assert row["shape"] == str(list(gradient.shape))
            places = torch.bucketize(gradient, torch.Tensor(BOUNDS))
            shares = [(places == place).sum().item() / gradient.numel() for place in range(len(BOUNDS) + 1)]
            assert [float(row[name]) for name in list(row)[1:6]] == shares
            assert float(row["=0"]) == (gradient == 0).sum().item() / gradient.numel()
            signs = numpy.load(dump / "rank0" / f"step{step}" / f"{row['param_name']}.npy")
            assert signs.dtype == bool and (signs == (gradient > 0).numpy()).all()


def test_levels_and_lists_choose_what_is_kept(tmp_path):
    _, seen = train(tmp_path, level="L0", step=[1], section={"param_list": ["head.weight", "norm.bias"]})
    rank = tmp_path / "dump" / "rank0"
    assert [path.name for path in rank.iterdir()] == ["grad_summary_1.csv"], "no signs at L0, and one step"
    rows = table(rank / "grad_summary_1.csv")
    assert list(rows[0]) == ["param_name", "MD5", "max", "min", "norm", "shape"]
    assert [row["param_name"] for row in rows] == ["norm.bias", "head.weight"]
    for row in rows:
        content = seen[1][row["param_name"]].numpy().tobytes()
        assert row["MD5"] == f"{zlib.crc32(content):08x}"


def test_half_precision_is_checked_as_float32(tmp_path):
    _, seen = train(tmp_path, "--dtype", "bfloat16", level="L0")
    (row,) = [row for row in table(tmp_path / "dump/rank0/grad_summary_0.csv") if row["param_name"] == "head.bias"]
    assert row["MD5"] == f"{zlib.crc32(seen[0]['head.bias'].float().numpy().tobytes()):08x}"


def test_intervals_of_float16_are_counted(tmp_path):
    _, seen = train(tmp_path, "--dtype", "float16")
    (row,) = [row for row in table(tmp_path / "dump/rank0/grad_summary_0.csv") if row["param_name"] == "head.weight"]
    gradient = seen[0]["head.weight"].float()
    places = torch.bucketize(gradient, torch.Tensor(BOUNDS))
    assert float(row["(-0.01, 0]"]) == (places == 1).sum().item() / gradient.numel()
    signs = numpy.load(tmp_path / "dump/rank0/step0/head.weight.npy")
    assert (signs == (gradient > 0).numpy()).all()


def test_a_device_packs_its_own_signs(tmp_path):
    section = {"grad_level": "L2", "bounds": BOUNDS}
    config = write_config(tmp_path / "config.json", tmp_path / "dump", task="grad_probe", section=section)
    program = PROGRAMS / "gradient_signs_on_device.py"
    run([sys.executable, program, config, tmp_path / "seen.pt"], timeout=180)
    rows = {row["param_name"]: row for row in table(tmp_path / "dump/rank0/grad_summary_0.csv")}
    for name, gradient in torch.load(tmp_path / "seen.pt").items():
        signs = numpy.load(tmp_path / f"dump/rank0/step0/{name}.npy")
        assert (signs == (gradient > 0).numpy()).all()
        places = torch.bucketize(gradient, torch.Tensor(BOUNDS))
        assert float(rows[name]["(0, 0.5]"]) == (places == 2).sum().item() / gradient.numel()
        assert float(rows[name]["=0"]) == (gradient == 0).sum().item() / gradient.numel()


def test_no_bit_of_the_run_changes(local, tmp_path):
    config = write_config(tmp_path / "config.json", tmp_path / "dump")
    plain = run([sys.executable, PROGRAM, "--config", config, "--probe", "no"], timeout=180).stdout
    assert re.findall(r"BITS \w+", plain) == re.findall(r"BITS \w+", local[0][1])


def expected_similarity(one, other):
    return ((one > 0) == (other > 0)).sum().item() / one.numel()


def test_grad_comparator_writes_the_old_files(local, tmp_path):
    (golden, _, wanted), (noisy, _, seen) = local
    from msprobe import GradComparator

    GradComparator.compare_distributed(str(noisy), str(golden), str(tmp_path / "out"))
    content = (tmp_path / "out/rank0/similarities.csv").read_bytes()
    assert content.startswith(b"\xef\xbb\xbf")
    rows = list(csv.reader(content.decode("utf-8-sig").splitlines()))
    assert rows[0] == ["step", "0", "1", "2"]
    assert [row[0] for row in rows[1:]] == [*seen[0], "summary"]
    for name, *values in rows[1:-1]:
        assert [float(value) for value in values] == [
            expected_similarity(ours[name], theirs[name]) for ours, theirs in zip(seen, wanted, strict=True)
        ]
    summary = [float(value) for value in rows[-1][1:]]
    elements = sum(gradient.numel() for gradient in seen[1].values())
    equal = sum(round(expected_similarity(seen[1][name], wanted[1][name]) * seen[1][name].numel()) for name in seen[1])
    assert summary[0] == 1 and summary[1] == equal / elements
    pictures = sorted(path.name for path in (tmp_path / "out/rank0/similarities_picture").iterdir())
    assert pictures == sorted(f"{name}_similarities.png" for name in [*seen[0], "summary"])
    GradComparator.compare(str(noisy / "rank0"), str(golden / "rank0"), str(tmp_path / "one"))
    assert (tmp_path / "one/similarities.csv").read_bytes() == content


def test_a_parameter_without_a_gradient_leaves_a_cell_empty(local, tmp_path):
    shutil.copytree(local[1][0], tmp_path / "dump")
    (tmp_path / "dump/rank0/step1/norm.bias.npy").unlink()
    grad_comparator.compare(tmp_path / "dump/rank0", local[0][0] / "rank0", tmp_path / "out")
    rows = list(csv.reader((tmp_path / "out/similarities.csv").read_text(encoding="utf-8-sig").splitlines()))
    (row,) = [row for row in rows if row[0] == "norm.bias"]
    assert row[1] == "1.0" and row[2] == "" and float(row[3]) <= 1


def test_grad_comparator_says_what_is_wrong(local, tmp_path):
    with pytest.raises(DataError, match=r"have no directory rank\{R\} in common"):
        grad_comparator.compare_distributed(tmp_path, local[0][0], tmp_path / "out")
    broken = tmp_path / "broken" / "rank0"
    (broken / "step0").mkdir(parents=True)
    (broken / "grad_summary_0.csv").write_text("param_name\nhead.bias\n", encoding="utf-8-sig")
    (broken / "step0" / "head.bias.npy").write_text("no array")
    with pytest.raises(DataError, match=r"head.bias.npy is no .npy file of bools"):
        grad_comparator.compare(broken, local[0][0] / "rank0", tmp_path / "out")
    numpy.save(broken / "step0" / "head.bias.npy", numpy.zeros(4, dtype=bool))
    with pytest.raises(DataError, match=r"has the shape \[4\], .* has \[3\]"):
        grad_comparator.compare(broken, local[0][0] / "rank0", tmp_path / "out")


class Runs:
    def __init__(self, directory, address):
        self.directory, self.address = directory, address
        self.seen = {}

    def train(self, name, *arguments):
        _, self.seen[name] = train(self.directory / name, *arguments, level="L1", server=self.address, run=name)

    def ask(self, *arguments):
        command = [sys.executable, "-m", "msprobe_client", "--server", self.address, *arguments]
        return run(command, check=False)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """monday is the golden run, wednesday equal to it; tuesday has noise from step 2 on, and a rule that knows."""
    directory = tmp_path_factory.mktemp("runs")
    address = f"unix:{directory}/s"
    rules = directory / "rules.json"
    example = re.search(r"<!-- example: signs -->\n((?:    .*\n|\n)+)", DOCUMENT.read_text(encoding="utf-8"))
    rules.write_text(json.dumps(yaml.safe_load(textwrap.dedent(example[1]))))
    with external_server(directory / "s", directory / "data", directory / "server.log", f"--rules={rules}"):
        every = Runs(directory, address)
        every.train("monday", "--steps", "4")
        every.train("tuesday", "--steps", "4", "--noise", "3", "--from", "2")
        every.train("wednesday", "--steps", "4")
        yield every


def test_signs_of_two_runs_are_compared_by_step_and_parameter(runs):
    done = runs.ask("signs", "tuesday", "monday", "--format", "json")
    assert done.returncode == 1, done.stderr
    rows = answers.rows(done.stdout)
    ours, theirs = runs.seen["tuesday"], runs.seen["monday"]
    assert [(row["step"], row["parameter"]) for row in rows] == [
        (step, name) for step in range(4) for name in [*ours[0], "summary"]
    ]
    for row in rows:
        if row["parameter"] == "summary":
            continue
        one, other = (side[row["step"]][row["parameter"]] for side in (ours, theirs))
        assert row["elements"] == one.numel()
        assert row["similarity"] == expected_similarity(one, other)
    verdicts = {row["verdict"] for row in rows if row["step"] < 2}
    assert verdicts == {"similar"}
    first = json.loads(done.stdout)["first"]
    assert (first["step"], first["verdict"]) == (2, "drop")
    shown = runs.ask("signs", "tuesday", "monday")
    assert re.search(r"first: step 2 \S+: the signs of \S+ are less alike than the step before", shown.stdout)
    assert runs.ask("signs", "wednesday", "monday").returncode == 0
    lax = runs.ask("signs", "tuesday", "monday", "--drop", "1", "--name", "summary", "--format", "csv")
    assert lax.returncode == 0 and len(lax.stdout.splitlines()) == 1 + 4


def test_what_cannot_be_compared_is_said(runs):
    missing = runs.ask("signs", "tuesday", "friday")
    assert missing.returncode == 3 and "friday" in missing.stderr
    refused = runs.ask("signs", "tuesday", "monday", "--least", "2")
    assert refused.returncode == 2
    other = runs.ask("signs", "tuesday", "monday", "--name", "nothing")
    assert other.returncode == 0 and "no signs are on both sides" in other.stdout + other.stderr


def test_equal_signs_are_stored_once_and_take_a_bit(runs):
    with Client(runs.address) as client:
        (monday, tuesday, wednesday) = (
            [
                record.fields["signs"][0].payload
                for step in client.steps(name)
                for record in client.records(name, step=step.step, rank=step.rank)
            ]
            for name in ("monday", "tuesday", "wednesday")
        )
    assert [payload.hash for payload in monday] == [payload.hash for payload in wednesday]
    assert [payload.hash for payload in monday] != [payload.hash for payload in tuesday]
    elements = [gradient.numel() for step in runs.seen["monday"] for gradient in step.values()]
    assert [payload.size for payload in monday] == [math.ceil(count / 8) for count in elements]


def test_a_run_is_exported_as_the_old_files(runs, tmp_path, local):
    done = runs.ask("export", "tuesday", "--to", "grad_probe", "--output", str(tmp_path / "exported"))
    assert done.returncode == 0, done.stderr
    signs = numpy.load(tmp_path / "exported/rank0/step3/embedding.weight.npy")
    assert (signs == (runs.seen["tuesday"][3]["embedding.weight"] > 0).numpy()).all()
    assert table(tmp_path / "exported/rank0/grad_summary_3.csv")


def test_a_drop_is_an_alarm_with_the_numbers(runs):
    done = runs.ask("alarms", "tuesday", "--format", "json")
    assert done.returncode == 1
    found = [row for row in answers.rows(done.stdout) if row["rule"] == "signs-like-monday"]
    assert found and all(row["step"] == 2 and row["series"].endswith(":sign_similarity") for row in found)
    assert all("of the signs are those of run monday" in row["why"] for row in found)
    assert runs.ask("alarms", "wednesday").returncode == 0
