"""Gradient signs, TrainerMon, TrainerMonitorV2 and msprobe.watch in the real MindSpore."""

import concurrent.futures
import csv
import json
import zlib

import numpy
import pytest
from harness import answers
from harness.dumps import write_config
from harness.mindspore import PROGRAMS
from harness.processes import external_server, run
from msprobe_client import Client

PROBED = PROGRAMS / "probed.py"
BOUNDS = [-0.01, 0, 0.5, 2]
PARAMETERS = ["embedding.embedding_table", "norm.gamma", "norm.beta", "head.weight", "head.bias"]


class Probed:
    """Programs of task grad_probe, and what their gradients were."""

    def __init__(self, directory, address, run_program, client):
        self.directory, self.address, self.run_program, self.client = directory, address, run_program, client

    def train(self, name, *arguments, level="L2", section=None, **fields):
        config = write_config(
            self.directory / f"{name}.json",
            self.directory / name,
            task="grad_probe",
            section={"grad_level": level, "bounds": BOUNDS, **(section or {})},
            **fields,
        )
        done = self.run_program(PROBED, config, self.seen_of(name), *arguments)
        assert "same True" in done.output, "the run changed"

    def seen_of(self, name):
        return self.directory / f"{name}.npz"

    def seen(self, name):
        return numpy.load(self.seen_of(name))

    def ask(self, *arguments):
        return run([self.client, "--server", self.address, *arguments], check=False)


@pytest.fixture(scope="module")
def probed(run_program, tmp_path_factory, client):
    """monday is the golden run; tuesday has noise from step 1 on; alone has a level without signs and no server."""
    directory = tmp_path_factory.mktemp("probed")
    address = f"unix:{directory}/s"
    with (
        external_server(directory / "s", directory / "data", directory / "server.log"),
        concurrent.futures.ThreadPoolExecutor(2) as pool,
    ):
        every = Probed(directory, address, run_program, client)
        chosen = {"param_list": ["head.weight", "norm.beta"]}
        jobs = [
            pool.submit(every.train, "monday", server=address, run="monday", step=[0, 1]),
            pool.submit(every.train, "tuesday", "--noise=3", "--by-cell", server=address, run="tuesday"),
            pool.submit(every.train, "alone", level="L0", section=chosen, step=[1]),
        ]
        for job in jobs:
            job.result()
        yield every


def table(path):
    return list(csv.DictReader(path.read_bytes().decode("utf-8-sig").splitlines()))


def alike(one, other):
    return float(((one > 0) == (other > 0)).mean())


def test_signs_of_two_runs_are_compared_by_step_and_parameter(probed):
    done = probed.ask("signs", "tuesday", "monday", "--format", "json")
    assert done.returncode == 1, done.stderr
    rows = [row for row in answers.rows(done.stdout) if row["parameter"] != "summary"]
    assert [(row["step"], row["parameter"]) for row in rows] == [(step, name) for step in (0, 1) for name in PARAMETERS]
    ours, theirs = probed.seen("tuesday"), probed.seen("monday")
    for row in rows:
        place = f"{row['step']}/{row['parameter']}"
        assert (row["elements"], row["similarity"]) == (ours[place].size, alike(ours[place], theirs[place]))
    assert {row["verdict"] for row in rows if row["step"] == 0} == {"similar"}
    first = json.loads(done.stdout)["first"]
    assert (first["step"], first["verdict"]) == (1, "drop")


def test_files_have_what_the_gradients_were(probed, tmp_path):
    from msprobe import GradComparator

    for name in ("monday", "tuesday"):
        done = probed.ask("export", name, "--to", "grad_probe", "--output", str(tmp_path / name))
        assert done.returncode == 0, done.stderr
    seen = probed.seen("monday")
    for step in (0, 1):
        rows = table(tmp_path / f"monday/rank0/grad_summary_{step}.csv")
        assert [row["param_name"] for row in rows] == PARAMETERS
        for row in rows:
            gradient = seen[f"{step}/{row['param_name']}"]
            assert (float(row["max"]), float(row["min"])) == (gradient.max(), gradient.min())
            assert float(row["norm"]) == pytest.approx(float(numpy.linalg.norm(gradient)), rel=1e-6)
            assert row["shape"] == str(list(gradient.shape))
            places = numpy.searchsorted(numpy.array(BOUNDS, numpy.float32), gradient)
            shares = [float((places == place).mean()) for place in range(len(BOUNDS) + 1)]
            assert [float(row[name]) for name in list(row)[1:6]] == pytest.approx(shares)
            assert float(row["=0"]) == float((gradient == 0).mean())
            signs = numpy.load(tmp_path / f"monday/rank0/step{step}/{row['param_name']}.npy")
            assert signs.dtype == bool and (signs == (gradient > 0)).all()
    GradComparator.compare_distributed(str(tmp_path / "tuesday"), str(tmp_path / "monday"), str(tmp_path / "out"))
    content = (tmp_path / "out/rank0/similarities.csv").read_text(encoding="utf-8-sig")
    header, *rows = list(csv.reader(content.splitlines()))
    assert header == ["step", "0", "1"] and [row[0] for row in rows] == [*PARAMETERS, "summary"]
    for name, first, second in rows[:-1]:
        assert (float(first), float(second)) == (
            1.0,
            alike(probed.seen("tuesday")[f"1/{name}"], seen[f"1/{name}"]),
        )


def test_levels_and_lists_choose_what_is_kept(probed):
    rank = probed.directory / "alone" / "rank0"
    assert [path.name for path in rank.iterdir()] == ["grad_summary_1.csv"], "no signs at L0, and one step"
    rows = table(rank / "grad_summary_1.csv")
    assert list(rows[0]) == ["param_name", "MD5", "max", "min", "norm", "shape"]
    assert [row["param_name"] for row in rows] == ["norm.beta", "head.weight"]
    for row in rows:
        content = probed.seen("alone")[f"1/{row['param_name']}"].tobytes()
        assert row["MD5"] == f"{zlib.crc32(content):08x}"


@pytest.fixture(scope="module")
def monitored(run_program, run_theirs, tmp_path_factory):
    """Where either tool's monitors left their files, and what our program printed."""
    root = tmp_path_factory.mktemp("monitored")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        ours = pool.submit(run_program, PROGRAMS / "monitor_cases.py", root / "ours")
        pool.submit(run_theirs, PROGRAMS / "monitor_cases.py", root / "theirs").result()
        return root, ours.result().output


def monitor_files(directory):
    return {path.name: list(csv.reader(path.read_text().splitlines())) for path in directory.glob("*-rank0-*/*.csv")}


def equal(ours, theirs):
    """Extremes to the last digit; sums in another order."""
    if ours == theirs:
        return True
    try:
        return float(ours) == pytest.approx(float(theirs), rel=1e-5, abs=2e-6)
    except ValueError:
        return False


def under_their_header(row):
    """Of a moment: mindstudio-probe puts "exp_avg.fc.weight" first, then a number, then the step."""
    name, first, step, *others = row
    return ["0", name.partition(".")[2], step, first, *others]


@pytest.mark.parametrize("case", ["everything", "micro_batches", "chosen", "ends", "dynamic"])
def test_csv_files_have_the_tools_rows(monitored, case):
    ours, theirs = (monitor_files(monitored[0] / side / case) for side in ("ours", "theirs"))
    assert ours.keys() == theirs.keys() and theirs
    for file, (header, *rows) in theirs.items():
        if file.startswith("exp_avg"):
            rows = [under_their_header(row) for row in rows if not row[0].startswith("max_")]
        if file.startswith("actv_grad"):  # nobody asks for the data's gradient
            rows = [row for row in rows if row[1] not in (".input", "layers.0.input")]
        assert ours[file][0] == header
        assert [row[:3] for row in ours[file][1:]] == [row[:3] for row in rows], file
        wrong = [
            (mine, row)
            for mine, row in zip(ours[file][1:], rows, strict=True)
            if len(mine) != len(row) or not all(map(equal, mine, row))
        ]
        assert wrong == [], file


def test_a_monitor_changes_no_bit(monitored):
    assert [line for line in monitored[1].splitlines() if line.startswith("same ")] == ["same True"] * 3


def under_the_parameters_name(row):
    """Of a moment: mindstudio-probe has "exp_avg.fc.weight.exp_avg"."""
    stage, step, name, *others = row
    return [stage, step, name.partition(".")[2], *others]


def by_call(rows):
    """What mindstudio-probe gives is in another order where a call's input has no gradient."""
    return sorted(rows, key=lambda row: row[1:4])


def test_the_second_version_has_the_tools_rows(monitored):
    ours, theirs = (
        {path.name: list(csv.reader(path.read_text().splitlines())) for path in root.glob("second/rank_0/*.csv")}
        for root in (monitored[0] / side for side in ("ours", "theirs"))
    )
    kinds = ("module", "optimizer", "param", "weight_grad")
    assert sorted(ours) == sorted(theirs) == [f"{kind}_step{steps}.csv" for kind in kinds for steps in ("1-2", "3-4")]
    for file, (header, *rows) in theirs.items():
        if file.startswith("optimizer"):
            rows = [under_the_parameters_name(row) for row in rows if not row[2].startswith("max_")]
        assert ours[file][0] == header
        wrong = [
            (mine, row)
            for mine, row in zip(by_call(ours[file][1:]), by_call(rows), strict=True)
            if mine[:4] != row[:4] or not all(map(equal, mine, row))
        ]
        assert wrong == [], file


def test_the_second_version_needs_no_torch_and_says_what_has_no_effect(monitored):
    assert "torch False" in monitored[1]
    assert "monitor cc has no effect: calls between ranks are not watched in MindSpore" in monitored[1]
    assert "ops ['median'] are left out; they should be among min, max, mean, norm, nans" in monitored[1]


def test_the_rules_find_the_same_anomalies(monitored):
    ours, theirs = (
        json.loads((monitored[0] / side / "everything/anomaly_detected/rank0/anomaly.json").read_text())
        for side in ("ours", "theirs")
    )
    known, wanted = (
        {
            (each["tag_name"], each["step"])
            for each in anomalies.values()
            if "actv_grad" not in each["tag_name"] and "exp_avg" not in each["tag_name"]  # whose rows differ, as above
        }
        for anomalies in (ours, theirs)
    )
    assert known == wanted and known


def test_numbers_are_there_before_the_optimizer_steps(monitored):
    (line,) = (line for line in monitored[1].splitlines() if line.startswith("norms "))
    norms = json.loads(line.removeprefix("norms "))
    assert norms["0:weight/rank0/post_grad"] == norms["0:weight/rank0/acc_grad"] == pytest.approx(24**0.5)
    assert norms["0:.input:0/rank0/actv"] == pytest.approx(6**0.5)
    assert norms["0:.output:0/rank0/actv_grad"] == pytest.approx(2.0)
    assert norms["0:bias/rank0/exp_avg_sq"] == 0, "Adam calls it moment2"


@pytest.fixture(scope="module")
def watched(run_program, tmp_path_factory):
    """A client of a server with the run "watched", and what the program printed."""
    directory = tmp_path_factory.mktemp("watched")
    address = f"unix:{directory}/s"
    config = write_config(
        directory / "config.json",
        directory / "dump",
        task="monitor",
        level="L0",
        section={"micro_batches": True, "activations": 1, "list": ["head"]},
        server=address,
        run="watched",
    )
    with external_server(directory / "s", directory / "data", directory / "server.log"):
        output = run_program(PROGRAMS / "watched.py", config).output
        with Client(address) as client:
            yield client, output


def test_a_training_that_is_watched_keeps_its_bits_and_becomes_series(watched):
    client, output = watched
    assert "same True" in output
    (line,) = (line for line in output.splitlines() if line.startswith("norms "))
    norms = {f"head.weight.{name}:norm": values for name, values in json.loads(line.removeprefix("norms ")).items()}
    assert output.count("parameter needs no gradient and is not watched until an optimizer steps with one") == 1
    assert "watched until an optimizer steps with one: head.bias" in output
    (bias,) = client.monitor.series("watched", "head.bias.parameter:norm")
    assert tuple(bias.steps) == (1,), "it is watched once it is unfrozen"
    found = {series.name: series for series in client.monitor.series("watched", "head.weight.*:norm")}
    assert set(found) == {
        *norms,
        "head.weight.moment2:norm",
        "head.weight.parameters_grad.micro_batch.0:norm",
    }
    for name, values in norms.items():
        assert (tuple(found[name].steps), tuple(found[name].values)) == ((0, 1), pytest.approx(values, rel=1e-6)), name
    (ratio,) = client.monitor.series("watched", "update_ratio/head.weight")
    assert all(0 < value < 1 for value in ratio.values) and len(ratio.values) == 2
    assert list(client.monitor.series("watched", "first.*")) == []


def test_activations_are_captured_in_the_steps_that_are_asked_for(watched):
    client, _ = watched
    for step in client.steps("watched"):
        names = [record.full_name for record in client.records("watched", step=step.step, rank=step.rank)]
        assert any(name.startswith("Cell.head.Dense.forward") for name in names)
    assert [step.step for step in client.steps("watched")] == [0, 1]
