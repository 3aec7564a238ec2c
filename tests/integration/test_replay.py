"""PrecisionDebugger.replay and msprobe-client replay: a step twice from one state, and ranks beside each other."""

import json
import sys

import pytest
from harness.dumps import embedded_data_directory, write_config
from harness.processes import PROGRAMS, REPOSITORY, find_binary, launched, run, wait_until

# The record that is at fault where a bit is flipped in a result of an aten operator, or in what a module gives.
PLANTED = {
    "addmm.0": "Functional.linear.0.forward",
    "native_layer_norm.0": "Functional.layer_norm.0.forward",
    "addmm.1": "Functional.linear.1.forward",
    "gelu.0": "Functional.gelu.0.forward",
    "bernoulli_.0": "Functional.dropout.0.forward",
    "addmm.2": "Functional.linear.2.forward",
    "add.0": "Tensor.__add__.0.forward",
    "addmm.3": "Functional.linear.3.forward",
    "gelu.1": "Functional.gelu.1.forward",
    "relu_.0": "Torch.relu_.0.forward",
    "native_batch_norm.0": "Functional.batch_norm.0.forward",
    "addmm.5": "Functional.linear.5.forward",
    "nll_loss_forward.0": "Functional.cross_entropy.0.forward",
    "gelu_backward.0": "Functional.gelu.1.backward",
    "native_layer_norm_backward.1": "Functional.layer_norm.0.backward",
    "native_batch_norm_backward.0": "Functional.batch_norm.0.backward",
    "mm.0": "Functional.linear.5.backward",
    "threshold_backward.0": "Torch.relu_.0.backward",
    "blocks.0.forward": "Module.blocks.0.Block.forward.0",
    "blocks.1.up.forward": "Module.blocks.1.up.Linear.forward.0",
    "head.forward": "Module.head.Linear.forward.0",
    "blocks.0.down.backward": "Module.blocks.0.down.Linear.backward.0",
}


class Replayed:
    """The program's words, its dump, and how msprobe-client answers for it."""

    def __init__(self, dump_path):
        self.dump_path = dump_path
        said = dump_path.with_suffix(".said")
        run([sys.executable, PROGRAMS / "replayed.py", "--dump_path", dump_path, "--said", said], timeout=120)
        self.said = [json.loads(line) for line in said.read_text().splitlines()]
        self.data_dir = embedded_data_directory(dump_path)
        self.run = json.loads(self.ask("runs").stdout)["rows"][0]["run"]

    def ask(self, *words, returns=0):
        done = run(
            [find_binary("msprobe-client"), "--data_dir", self.data_dir, "--format", "json", *words], check=False
        )
        assert done.returncode == returns, done.stderr
        return done

    def of(self, name):
        """(first pass, flip) where the program said so."""
        return next(each[name] for each in self.said if name in each)


@pytest.fixture(scope="module")
def replayed(tmp_path_factory):
    return Replayed(tmp_path_factory.mktemp("replayed") / "dump")


def test_each_planted_flip_is_located_and_nothing_else(replayed):
    planted = {each["step"]: each["flip"] for each in replayed.said if "flip" in each}
    document = json.loads(replayed.ask("replay", replayed.run, returns=1).stdout)
    assert [row["step"] for row in document["rows"]] == sorted(planted), "every replay, and no other step"
    wrong = {}
    for row in document["rows"]:
        flip = planted[row["step"]]
        expected = ("same", "", "") if flip is None else ("differs", "computation", PLANTED[flip])
        if (row["verdict"], row["blame"], row["op"]) != expected:
            wrong[flip] = (row["op"], row["reason"])
    assert not wrong
    assert sum(flip is not None for flip in planted.values()) == len(PLANTED) >= 20
    named = next(row for row in document["rows"] if planted[row["step"]] == "addmm.2")
    assert named["module"] == "blocks.0.down" and any("replayed.py" in line for line in named["stack"])
    assert document["first"]["op"] == PLANTED["addmm.0"]


def test_replays_leave_nothing_open(replayed):
    few, many = replayed.of("fds")
    assert many <= few + 10, "twenty replays later"
    assert replayed.of("freed"), "a model that the program dropped"


def test_one_replay_is_asked_for_by_its_first_pass(replayed):
    clean = replayed.said[0]["step"]
    document = json.loads(replayed.ask("replay", replayed.run, "--step", clean).stdout)
    assert [(row["step"], row["again"], row["verdict"]) for row in document["rows"]] == [(clean, clean + 1, "same")]
    assert "no replay" in replayed.ask("replay", replayed.run, "--step", clean + 1, returns=3).stderr


def test_a_dump_directory_answers_too(replayed):
    step = next(each["step"] for each in replayed.said if each.get("flip") == "gelu.0")
    client = find_binary("msprobe-client")
    done = run([client, "replay", replayed.dump_path, "--step", step], check=False)
    assert done.returncode == 1, done.stderr
    assert "Functional.gelu.0.forward: inputs and weights agree" in done.stdout
    refused = run([client, "replay", replayed.dump_path], check=False)
    assert refused.returncode == 2 and "--step" in refused.stderr


def test_the_program_goes_on_as_after_one_step(replayed):
    assert replayed.of("same") is True, "results, weights, buffers, gradients, moments, batch and generators"
    marked = [
        {
            row["touched"]
            for row in json.loads(replayed.ask("records", replayed.run, "--step", step).stdout)["rows"]
            if row["name"].endswith("forward")
        }
        for step in (0, 1)
    ]
    assert marked == [{False}, {True}], "the second pass is one that the program did not ask for"


def test_what_cannot_be_replayed_is_refused(replayed):
    optimizer, model, iterator, inside = replayed.of("refused")
    assert "optimizer is 3; it should be" in optimizer
    assert "model is a str" in model
    assert "list_iterator" in iterator and "give the batch" in iterator
    assert "after stop() and step()" in inside


def _checksums(dump_path, step):
    """Of every tensor of a step, by record and place."""
    (dump,) = dump_path.glob(f"step{step}/*/dump.json")
    found = {}

    def look(place, value):
        if isinstance(value, dict) and "md5" in value:
            found[place] = value["md5"]
        elif isinstance(value, (dict, list)):
            for key, each in value.items() if isinstance(value, dict) else enumerate(value):
                look(f"{place}.{key}", each)

    look("", json.loads(dump.read_text())["data"])
    return found


def test_what_is_handed_on_is_read_once_and_what_was_written_between_calls_is_read_again(tmp_path, dump_path):
    section = {"summary_mode": "md5"}
    config = write_config(tmp_path / "config.json", dump_path, level="mix", reuse="off", section=section)
    done = run([sys.executable, PROGRAMS / "handed_on.py", config])
    said = json.loads(done.stdout.splitlines()[-1])
    first, second, plain, *trained = said["read"]
    assert first == second < 0.75 * plain
    for step in (0, 1, 2):
        (dump,) = dump_path.glob(f"step{step}/*/dump.json")
        data = json.loads(dump.read_text())["data"]
        assert {name: data[name]["input_args"][0]["md5"] for name in said["given"]} == said["given"], step
        linear, module = data["Functional.linear.1.forward"], data["Module.2.Linear.forward.0"]
        assert linear["output"][0]["md5"] == module["output"][0]["md5"] == said["given"]["Torch.exp.0.forward"]
    first, second, plain = trained
    assert first == second < 0.6 * plain, "weights and gradients, too"
    again, once_more, captured = (_checksums(dump_path, step) for step in (3, 4, 5))
    assert again == once_more == captured and len(captured) > 30


@pytest.mark.timeout(180)
def test_a_weight_that_changed_on_one_rank_is_named_with_the_rank(tmp_path, dump_path):
    config = write_config(tmp_path / "config.json", dump_path, level="mix", section={"summary_mode": "md5"})
    with launched(3, [sys.executable, PROGRAMS / "ddp_train.py", config, "1"], tmp_path) as ranks:
        wait_until(lambda: not any(each.alive() for each in ranks), 120, "all ranks end")
        for each in ranks:
            each.finish()
    data_dir = embedded_data_directory(dump_path)

    def ask(*words):
        return run([find_binary("msprobe-client"), "--data_dir", data_dir, "--format", "json", *words], check=False)

    name = json.loads(ask("runs").stdout)["rows"][0]["run"]
    clean = ask("replay", name, "--ranks", "--step", "0")
    assert clean.returncode == 0, clean.stdout + clean.stderr
    found = ask("replay", name, "--ranks")
    assert found.returncode == 1, found.stderr
    (row,) = [row for row in json.loads(found.stdout)["rows"] if row["kind"] == "parameter"]
    assert row["tensor"] == "Module.module.0.Linear.forward.0.parameters.weight"
    assert (row["step"], row["odd"], row["others"]) == (1, ["rank1"], ["rank0", "rank2"])


def test_the_documented_program_runs(tmp_path, dump_path):
    text = (REPOSITORY / "docs" / "replay.md").read_text()
    body = text.split("```python\n")[1].split("```")[0]
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\nfrom msprobe.pytorch import PrecisionDebugger\n"
        "model = torch.nn.Linear(4, 2)\noptimizer = torch.optim.AdamW(model.parameters())\n"
        "loader = [{'x': torch.randn(3, 4)} for _ in range(502)]\n" + body + "debugger.wait()\n"
    )
    run([sys.executable, program], cwd=tmp_path)
    done = run([find_binary("msprobe-client"), "replay", dump_path, "--step", "0"], check=False)
    assert done.returncode == 0, done.stderr
    assert "the same, bit by bit" in done.stdout
