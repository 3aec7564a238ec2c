"""msprobe.watch: series of weights, gradients and optimizer of a real training, and the rules over them."""

import json
import pathlib
import re
import shlex
import sys
import textwrap

import pytest
from harness import answers
from harness.dumps import embedded_data_directory
from harness.processes import PROGRAMS, Background, external_server, launched, run
from msprobe_client import Client

DOCUMENT = pathlib.Path(__file__).parents[2] / "docs" / "monitoring.md"
PROGRAM = PROGRAMS / "watched_training.py"
RULES = [
    {"name": "exploding", "exploding": {"limit": 1e4}},
    {"name": "vanishing", "vanishing": {"limit": 1e-10}},
    {"name": "all-zero", "allZero": {}},
    {"name": "unchanged", "series": "*.weight.parameter:norm", "unchanged": {}},
    {"name": "update-ratio", "updateRatio": {}},
    {"name": "not-finite", "notFinite": {}},
]


class Trained:
    def __init__(self, directory):
        self.directory, self.address = directory, f"unix:{directory}/s"

    def config(self, run_name, section):
        config = self.directory / f"{run_name}.json"
        fields = {"task": "monitor", "dump_path": str(self.directory / "dump"), "server": self.address, "run": run_name}
        config.write_text(json.dumps(fields | {"monitor": section}))
        return config

    def train(self, run_name, *arguments, **section):
        config = self.config(run_name, section)
        done = run([sys.executable, PROGRAM, "--config", config, *arguments], timeout=120)
        return done.stdout

    def train_ranks(self, kind, **section):
        """Two of them. The norms that the first one prints, step by step."""
        config = self.config(kind, {"activations": 0} | section)
        command = [sys.executable, PROGRAMS / "watched_ranks.py", config, kind]
        with launched(2, command, self.directory, kind) as ranks:
            for program in ranks:
                program.finish(100)
            return [float(norm) for norm in re.findall(r"norm (.*)", ranks[0].output)]

    def series(self, run_name, name="*"):
        with Client(self.address) as client:
            return {series.name: series for series in client.monitor.series(run_name, name)}

    def alarms(self, run_name):
        return answers.rows(run([*self.question("alarms"), run_name, "--format", "json"], check=False).stdout)

    def question(self, command):
        return [sys.executable, "-m", "msprobe_client", "--server", self.address, command]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    directory = tmp_path_factory.mktemp("watch")
    rules = directory / "rules.json"
    rules.write_text(json.dumps({"rules": RULES}))
    with external_server(directory / "s", directory / "data", directory / "log", "--rules", rules):
        trained = Trained(directory)
        trained.healthy = trained.train("healthy", "--fused")
        trained.ill = trained.train("ill", "--ill")
        yield trained


def test_a_run_that_is_watched_computes_the_same_bits(trained):
    plain = run([sys.executable, PROGRAM, "--fused"]).stdout
    assert re.search("HASH .*", trained.healthy)[0] == re.search("HASH .*", plain)[0]


def test_every_kind_of_series_is_there_for_every_step(trained):
    found = trained.series("healthy", "first.weight.*:norm")
    assert set(found) == {
        "first.weight.parameters_grad.reduced:norm",
        "first.weight.parameters_grad.clipped:norm",
        "first.weight.parameter:norm",
        "first.weight.exp_avg:norm",
        "first.weight.exp_avg_sq:norm",
    }
    assert {series.steps for series in found.values()} == {tuple(range(12))}
    (last,) = trained.series("healthy", "update_ratio/last.weight").values()
    assert all(0 < value < 0.1 for value in last.values)
    norm = float(re.search("NORM (.*)", trained.healthy)[1])
    assert found["first.weight.parameter:norm"].values[-1] == pytest.approx(norm, rel=1e-6)
    kinds = {name.rpartition(":")[2] for name in trained.series("healthy", "last.bias.*")}
    assert kinds == {"min", "max", "mean", "norm", "nan"}


def test_activations_are_captured_every_tenth_step(trained):
    with Client(trained.address) as client:
        assert [step.step for step in client.steps("healthy")] == [0, 10]


def test_a_healthy_run_raises_no_alarm(trained):
    assert trained.alarms("healthy") == []


def test_planted_illnesses_are_named_by_their_rules(trained):
    alarms = {alarm["rule"]: alarm for alarm in trained.alarms("ill")}
    assert set(alarms) == {"exploding", "vanishing", "all-zero", "unchanged", "update-ratio"}
    assert (alarms["exploding"]["step"], alarms["exploding"]["value"] > 1e4) == (6, True)
    assert alarms["vanishing"]["series"].startswith("vanishing.")
    assert alarms["all-zero"]["series"].startswith("dead.")
    assert {alarms["all-zero"]["step"], alarms["vanishing"]["step"]} == {2}, "the third point in a row"
    for rule, ill, well in (
        ("unchanged", ("frozen.weight.parameter:norm", "dead.weight.parameter:norm"), "first.weight.parameter:norm"),
        ("update-ratio", ("update_ratio/frozen.weight", "update_ratio/dead.weight"), "update_ratio/first.weight"),
    ):
        named = {alarms[rule]["series"], *alarms[rule]["others"]}
        assert set(ill) <= named and well not in named, rule
        further = len(alarms[rule]["others"])
        table = run([*trained.question("alarms"), "ill"], check=False).stdout
        assert re.search(rf"{rule} .* {re.escape(alarms[rule]['series'])} +{further} more series ", table), table


def test_sections_and_lists_choose(trained):
    trained.train(
        "chosen",
        "--optimizer",
        "SGD",
        list=["last", "name-regex(^first.*bias$)"],
        interval=3,
        activations=0,
        ops=["norm", "rms", "zero_share", "kurtosis", "underflow_e4m3"],
        parameters=False,
        micro_batches=True,
        update_ratio=False,
    )
    found = trained.series("chosen")
    assert set(found) == {
        f"{name}.parameters_grad.{stage}:{op}"
        for name in ("last.weight", "last.bias", "first.bias")
        for stage in ("micro_batch.0", "micro_batch.1", "reduced", "clipped")
        for op in ("norm", "rms", "zero_share", "kurtosis", "underflow_e4m3")
        if (name, op) != ("last.bias", "kurtosis")  # of one element
    }
    assert {series.steps for series in found.values()} == {(0, 3, 6, 9)}
    last = {op: found[f"last.weight.parameters_grad.reduced:{op}"].values for op in ("norm", "rms", "kurtosis")}
    assert last["rms"] == pytest.approx([norm / 32**0.5 for norm in last["norm"]], rel=1e-6)
    assert all(1 <= value < 32 for value in last["kurtosis"])
    shares = found["first.bias.parameters_grad.reduced:underflow_e4m3"].values
    assert all(0 < share <= 1 and share * 32 == int(share * 32) for share in shares)


def test_gradients_are_without_the_factor_of_a_scaler(trained):
    trained.train("scaled", "--scaler", list=["first.weight"], micro_batches=True, activations=0, ops=["norm"])
    found = trained.series("scaled")
    stepped = tuple(step for step in range(12) if step != 5)
    for stage in ("micro_batch.0", "micro_batch.1", "reduced", "clipped"):
        assert found[f"first.weight.parameters_grad.{stage}:norm"].steps == stepped, "nothing of what was skipped"
    whole = found["first.weight.parameters_grad.micro_batch.1:norm"].values
    assert whole == pytest.approx(found["first.weight.parameters_grad.reduced:norm"].values, rel=1e-5)
    assert found["grad_scaler/skipped"].steps == (5,)
    assert trained.alarms("scaled") == []


def of_ranks(trained, kind, name):
    with Client(trained.address) as client:
        found = {series.rank: series.values for series in client.monitor.series(kind, name)}
    return [found[rank] for rank in sorted(found, key=str)]


def test_gradients_are_seen_before_and_after_ranks_reduce_them(trained):
    norms = trained.train_ranks("ddp", ops=["mean", "norm"], communication=True)
    assert of_ranks(trained, "ddp", "communication/all_reduce@watched_ranks.py:*:bytes") == [(24.0,) * 3] * 2
    assert of_ranks(trained, "ddp", "communication/all_reduce@watched_ranks.py:*.output:mean") == [(2.0,) * 3] * 2
    first, second = of_ranks(trained, "ddp", "0.weight.parameters_grad.unreduced:mean")
    reduced = of_ranks(trained, "ddp", "0.weight.parameters_grad.reduced:mean")
    assert first != second and reduced[0] == reduced[1]
    assert reduced[0] == pytest.approx([(one + other) / 2 for one, other in zip(first, second, strict=True)], rel=1e-5)
    assert of_ranks(trained, "ddp", "0.weight.parameter:norm")[0] == pytest.approx(norms, rel=1e-6)


REDUCED = ["max", "min", "mean", "norm", "variance", "rms", "abs_max", "range", "zero_share", "nan"]


@pytest.fixture(scope="module")
def sharded(trained):
    """Two ranks of FSDP2, and the same training in one process."""
    trained.train_ranks("fsdp", ops=[*REDUCED, "kurtosis"])
    config = trained.config("alone", {"ops": [*REDUCED, "kurtosis"], "activations": 0})
    run([sys.executable, PROGRAMS / "watched_ranks.py", config, "alone"], timeout=100)
    return trained


def test_shards_give_the_statistics_of_the_whole(sharded):
    """The last bias has one element, so its other shard is empty; the first weight has 17 and 16 rows."""
    whole = sharded.series("alone")
    reduced = {name: of for name, of in sharded.series("fsdp").items() if ".shard(" not in name}
    assert set(reduced) == {name for name in whole if not name.endswith(":kurtosis")}
    assert {of.rank for of in reduced.values()} == {next(iter(whole.values())).rank}
    for name, of in reduced.items():
        size = max(map(abs, whole[f"{name.rpartition(':')[0]}:rms"].values)) if ":" in name else 1
        size *= size if name.endswith(":variance") else 1
        assert of.steps == whole[name].steps, name
        assert of.values == pytest.approx(whole[name].values, rel=1e-3, abs=1e-4 * size), name


def test_what_cannot_be_reduced_stays_with_its_rank(sharded):
    shards = sharded.series("fsdp", "0.weight.parameter.*")
    assert set(shards) == {
        "0.weight.parameter.shard(136/264@0-1):kurtosis",
        "0.weight.parameter.shard(128/264@0-1):kurtosis",
    }
    named = sharded.series("fsdp", "0.weight.parameter.shard(*:norm")
    assert len(named) == 2, "and shards are there where they are named"


def test_rules_see_the_whole_of_shards_once(sharded):
    """The same alarms as of the training in one process."""

    def told(alarm):
        named = sorted([alarm["series"], *alarm["others"]])  # which shards come last decides who is first
        return alarm["rule"], alarm["step"], alarm["rank"], alarm["offences"], named

    alarms = sharded.alarms("fsdp")
    assert sorted(map(told, alarms)) == sorted(map(told, sharded.alarms("alone")))
    (exploding,) = (each for each in alarms if each["rule"] == "exploding")
    assert (exploding["step"], exploding["offences"], exploding["ranks"]) == (2, 4, ["rank0"])


def test_moments_of_a_zero_optimizer_come_from_the_ranks_that_have_them(trained):
    trained.train_ranks("zero", ops=["norm"])
    with Client(trained.address) as client:
        moments = [(series.name, series.rank) for series in client.monitor.series("zero", "*.exp_avg:norm")]
    assert {name for name, _ in moments} == {
        f"{layer}.{kind}.exp_avg:norm" for layer in (0, 2) for kind in ("weight", "bias")
    }
    assert len(moments) == 4 and len({rank for _, rank in moments}) == 2, "each from one of both"


def example(name):
    block = re.search(rf"<!-- example: {name} -->\n((?:    .*\n|\n)+)", DOCUMENT.read_text())[1]
    return textwrap.dedent(block)


def test_the_documented_line_is_all_that_it_takes(trained, tmp_path):
    head = """
        import torch
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        batches = [torch.ones(2, 4)] * 3
    """
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(head) + example("watch"))
    run([sys.executable, program], cwd=tmp_path, MSPROBE_SERVER=trained.address, MSPROBE_RUN="documented")
    found = trained.series("documented", "weight.*:norm")
    assert {series.steps for series in found.values()} == {(0, 1, 2)}
    assert {name.removeprefix("weight.").removesuffix(":norm") for name in found} == {
        "parameters_grad.reduced",
        "parameters_grad.clipped",
        "parameter",
        "momentum_buffer",
    }


def test_the_documented_configuration_is_taken(tmp_path):
    from msprobe import _agent

    fields = json.loads(example("monitor")) | {"dump_path": str(tmp_path)}
    config = _agent.parse_config(json.dumps(fields), task=None, dump_path=None, level=None, step=None)
    assert (config.task, config.level, config.activations, config.warnings) == ("monitor", "L0", 100, [])


def test_a_program_that_ends_its_own_steps_starts_once(trained, tmp_path):
    """The debugger finds the optimizer, and modules are captured at the steps that `activations` says.

    A layer is watched from the step on at which it is unfrozen.
    """
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""
        import sys, torch
        from msprobe.pytorch import PrecisionDebugger
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
        model[1].requires_grad_(False)
        optimizer = torch.optim.Adam(model.parameters())
        debugger = PrecisionDebugger(sys.argv[1])
        debugger.start(model=model, rank_id=0)
        for step in range(7):
            model[1].requires_grad_(step >= 4)
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
            debugger.log({"loss": 1.0, "w.shard(1/2@0-1):norm": 3.0})
            debugger.step()
        debugger.stop()
    """)
    )
    output = run([sys.executable, program, trained.config("own", {"activations": 3, "micro_batches": True})]).stdout
    frozen = "2 parameters need no gradient and are not watched until an optimizer steps with one: 1.weight, 1.bias"
    assert output.count(frozen) == 1
    assert trained.series("own", "1.weight.parameters_grad.reduced:norm").popitem()[1].steps == (4, 5, 6)
    assert trained.series("own", "1.weight.parameters_grad.micro_batch.0:norm").popitem()[1].steps == (5, 6)
    assert trained.series("own", "1.bias.parameter:norm").popitem()[1].steps == (4, 5, 6)
    assert trained.series("own", "0.weight.exp_avg:max").popitem()[1].steps == tuple(range(7))
    assert trained.series("own", "loss").popitem()[1].steps == tuple(range(7))
    with Client(trained.address) as client:
        assert [step.step for step in client.steps("own")] == [0, 3, 6]
    assert set(trained.series("own", "w*")) == {"w.shard(1/2@0-1):norm"}, "the other rank has sent nothing"


def test_an_alarm_without_a_server_is_a_line_that_says_where_more_is(tmp_path):
    dump, end = tmp_path / "dump", tmp_path / "end"
    with Background([sys.executable, PROGRAMS / "ill.py", dump, end], tmp_path / "log") as program:
        told = re.compile(r"msprobe: alarm 1 \(not-finite\): step 4, loss: it is nan\. More of it: (msprobe-client .*)")
        program.wait_for(lambda: told.search(program.output), 60, "the alarm is told")
        command = shlex.split(told.search(program.output)[1])
        command = [sys.executable, "-m", "msprobe_client", *command[1:], "--format", "json"]
        running = run(command, check=False)
        assert running.returncode == 1, running.stderr
        end.touch()
        program.finish(60)
        assert len(told.findall(program.output)) == 1, "once, however many offences follow"
    embedded_data_directory(dump)  # waits until its server has left
    ended = run(command, check=False)
    assert ended.returncode == 1, ended.stderr
    for said in (running, ended):
        (alarm,) = answers.rows(said.stdout)
        assert (alarm["rule"], alarm["series"], alarm["step"]) == ("not-finite", "loss", 4)
