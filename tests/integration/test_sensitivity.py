"""msprobe-client sensitivity: ill-conditioned operators are listed with module and line, stable ones are not."""

import csv
import io
import json
import math
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

import pytest
import torch
from harness.processes import PROGRAMS, REPOSITORY, environment, external_server
from msprobe_client import Client
from msprobe_client.check.calls import Place
from msprobe_client.commands.sensitivity import Mode
from msprobe_client.sensitivity.estimate import Estimate, limit_of, rounding
from msprobe_client.sensitivity.perturbing import CHANGES, REPETITIONS
from msprobe_client.sensitivity.rows import MODES
from msprobe_client.sensitivity.sensing import Settings, measured

PLANTED = {"log.0", "softmax.0", "var.0", "sub.0", "index_add.0", "softmax.1"}
DOCUMENT = (REPOSITORY / "docs" / "sensitivity.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A server with the runs `planted`, and `net`, a transformer layer both ways."""
    scratch = tmp_path_factory.mktemp("sensitivity")
    programs = (("planted", "planted_operators.py", "mix"), ("net", "checked_net.py", "tensor"))
    for run, program, word in programs:
        command = [sys.executable, PROGRAMS / program, scratch / run, word]
        subprocess.run(command, check=True, timeout=120, env=environment())
    with tempfile.TemporaryDirectory(prefix="msp") as short:
        socket = pathlib.Path(short) / "s"
        with external_server(socket, scratch / "data", scratch / "log"):
            with Client(f"unix:{socket}") as made:
                for run, *_ in programs:
                    made.import_dump(scratch / run, run)
            yield f"unix:{socket}"


@pytest.fixture
def found(address):
    """found(run, ...): rows by call and output or gradient, measured in this process."""
    with Client(address) as client:

        def measure(run, name=None, **settings):
            places = [Place(run, each.step, each.rank) for each in client.steps(run)]
            answers = measured(client, places, Settings(shown=run, **settings), name)
            return {row.name.split(".", 1)[1]: row for _, _, rows in answers for row in rows}

        yield measure


def sensitive(rows):
    return {name.partition(".forward")[0] for name, row in rows.items() if row.verdict == "sensitive"}


def ask(client, address, line, *more):
    words = [client, "--server", address, *shlex.split(line), *more]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, env=environment())


def test_planted_operators_are_sensitive_and_stable_ones_are_silent(found):
    rows = found("planted")
    assert sensitive(rows) == PLANTED
    assert len([row for row in rows.values() if row.verdict == "stable"]) >= 20
    by_rounding = rows["index_add.0.forward.output.0"]  # 4096 numbers added up in bfloat16
    assert by_rounding.cause == "rounding" and by_rounding.rounding > 100 and by_rounding.amplification < 1
    log = rows["log.0.forward.output.0"]
    assert log.cause == "condition" and log.amplification == pytest.approx(1e4, rel=0.01) and log.rounding < 1
    assert log.least <= log.amplification <= log.most
    assert rows["sub.0.forward.output.0"].amplification == pytest.approx(math.sqrt(2) * 1e5, rel=0.1)
    assert rows["softmax.1.forward.output.0"].limit == pytest.approx(1 / math.sqrt(2**-7))
    assert {row.module for row in rows.values() if row.verdict == "sensitive"} == {
        "Module.sensitive.Sensitive.forward.0"
    }
    assert "planted_operators.py" in log.stack and "near 1" in log.stack


def test_gradients_are_measured_and_a_right_net_is_silent(found):
    rows = found("net", draws=4)
    assert not sensitive(rows)
    assert rows["layer_norm.0.backward.input.0"].amplification > 0.1
    assert rows["layer_norm.0.backward.input.0"].rounding < 10
    attention = rows["multi_head_attention_forward.0.forward"]
    assert attention.verdict == "skip" and "random" in attention.reason


def test_the_old_modes_find_what_their_noise_shows(found):
    assert set(CHANGES) | set(REPETITIONS) == set(MODES) == {mode.value for mode in Mode}
    named = "Torch.[ilsv]*"
    by_mode = {mode: sensitive(found("planted", named, mode=mode)) for mode in MODES[1:]}
    # Noise of 1e-8 at 1e6 is none; the last bit of both sides of a difference may move alike.
    assert by_mode["add_noise"] == {"log.0", "index_add.0"}
    assert by_mode["bit_noise"] == PLANTED - {"sub.0"}
    assert by_mode["change_value"] == by_mode["exchange_value"] >= {"log.0", "var.0"}
    assert by_mode["improve_precision"] == by_mode["to_cpu"] == {"index_add.0"}
    assert by_mode["no_change"] == set()
    row = found("planted", "Torch.log.*", mode="no_change")["log.0.forward.output.0"]
    assert row.amplification is None and row.rounding == 0


def test_workers_find_the_same_and_the_job_keeps_it(client, address, tmp_path):
    line, again = re.findall(
        r"^    msprobe-client (sensitivity tuesday --workers 2|sensitivity job:7)\b", DOCUMENT, re.M
    )
    file = tmp_path / "found.json"
    done = ask(
        client, address, line.replace("tuesday", "planted").replace("2", "1"), "--format", "json", "--output", file
    )
    assert done.returncode == 1, done.stderr
    document = json.loads(file.read_text())
    rows = document["rows"]
    assert {".".join(row["name"].split(".")[1:3]) for row in rows if row["verdict"] == "sensitive"} == PLANTED
    assert [row["verdict"] for row in rows[: len(PLANTED)]] == ["sensitive"] * len(PLANTED), "the worst come first"
    assert document["verdicts"]["sensitive"] == len(PLANTED)
    with Client(address) as asked:
        (job,) = [job for job in asked.jobs.of_run("planted") if job.kind == "sensitivity"]
    later = ask(client, address, again.replace("job:7", f"job:{job.job}"), "--format", "csv")
    assert later.returncode == 1
    assert [row["name"] for row in csv.DictReader(io.StringIO(later.stdout))] == [row["name"] for row in rows]
    wrong = ask(client, address, f"check job:{job.job}")
    assert wrong.returncode == 3 and "is of kind sensitivity; name one of kind check" in wrong.stderr


def test_repeat_gives_the_row_again(client, address, found):
    row = found("planted", "Torch.var.0.*")["var.0.forward.output.0"]
    done = ask(client, address, row.repeat.removeprefix("msprobe-client "), "--format", "json")
    (again,) = json.loads(done.stdout)["rows"]
    assert (again["amplification"], again["rounding"]) == (row.amplification, row.rounding)


def estimate(exact, *moved, change=1e-6):
    made = Estimate(exact)
    for each in moved:
        made.add(each, change)
    return made.amplification()


def test_an_output_that_becomes_nan_or_leaves_zero_is_amplified_without_bound():
    exact = torch.tensor([1.0, 2.0], dtype=torch.float64)
    assert estimate(exact, torch.tensor([math.nan, 2.0], dtype=torch.float64)).mean == math.inf
    assert estimate(exact * 0, torch.tensor([1e-9, 0.0], dtype=torch.float64)).mean == math.inf
    assert estimate(exact * 0, exact * 0).mean == 0
    assert estimate(exact * math.nan, exact) is None
    beside = torch.tensor([math.inf, 1.0], dtype=torch.float64)
    assert estimate(beside, beside * (1 + 1e-6)).mean == pytest.approx(1, rel=1e-6)


def test_small_elements_beside_a_large_one_are_seen():
    exact = torch.tensor([1e6, 1e-6, 1e-6, 1e-6], dtype=torch.float64)
    moved = exact + torch.tensor([0.0, 1e-6, 1e-6, 1e-6], dtype=torch.float64)
    seen = estimate(exact, moved)
    assert seen.mean < 1e-3 and seen.median == pytest.approx(1e6)


def test_rounding_is_in_epsilons_of_the_output():
    right = torch.tensor([1.0, 1e-30, 70000.0], dtype=torch.float64)
    half = right.half()
    assert half[2] == math.inf and rounding(half, right) == 0, "float16 has neither 1e-30 nor 70000"
    assert rounding(torch.tensor([1 + 2**-10]).half(), right[:1]) == pytest.approx(1)
    assert rounding(torch.tensor([math.nan]), right[:1]) == math.inf
    assert rounding(right[:2].float(), right[:1]) == math.inf
    assert rounding(torch.tensor([1]), right[:1]) is None
    assert limit_of(2**-10) == 32 and limit_of(0.25) == 10
