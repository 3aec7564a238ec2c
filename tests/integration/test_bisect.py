"""debugger.graft, debugger.bisect and msprobe-client bisect: outputs of modules replaced, and the faulty ones found."""

import json
import math
import re
import sys

import pytest
import torch
from harness.answers import rows
from harness.dumps import embedded_data_directory
from harness.processes import REPOSITORY, find_binary, run
from msprobe.pytorch.graft.golden import INPUTS, OUTPUTS, Missing, golden_of
from msprobe_client import Client
from msprobe_client.bisect.search import Found, bound, smallest
from msprobe_client.errors import FailedPrecondition, InvalidArgument


def said(done):
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.parametrize(
    ("model", "faults", "pairs"), [("mlp", 16, 4), pytest.param("qwen2", 10, 2, marks=pytest.mark.nightly)]
)
def test_planted_faults_are_named_in_few_runs(traced, model, faults, pairs):
    found = said(traced("planted_modules.py", "--model", model, task="tensor", level="L0"))
    assert len(found) == faults and sum(len(each["planted"]) == 2 for each in found) == pairs
    for each in found:
        assert each["found"] == each["planted"]
        bisection = math.ceil(math.log2(each["modules"]))
        most = {1: bisection + 2, 2: 2 * (bisection + 1) + 2}
        assert each["runs"] <= most[len(each["planted"])], each
        assert not each["first"] <= 0, "the fault shows"


def test_outputs_are_replaced_and_records_say_so(traced, dump_path, ask):
    done = traced("grafted.py", task="tensor", level="L0")
    of = {each.pop("case"): each for each in said(done)}
    assert of["wrong"] == {"equal": False, "moved": True}
    assert of["stored"] == {"equal": True, "dtype": "torch.bfloat16", "straight": True, "reached": True}
    assert of["inherit"] == {"equal": True, "once": True}, "what is computed again leaves no trace"
    assert of["one of two"] == {"equal": False, "nearer": True}, "the other's error is inherited"
    assert of["float64"] == {"dtype": "torch.bfloat16", "near": True}
    assert of["ended"] == {"equal": True, "same": True}
    assert of["no such step"] == {"equal": True}
    unknown, nowhere, number, of_number, inherits, negative = of["refused"]["messages"]
    assert unknown == "graft: the model has no module 'secnd'; did you mean 'second'?"
    assert nowhere.startswith("source is 'nowhere', which is no directory; give the dump_path of a run")
    assert number == "graft: names is 3; it should be a list of names of modules"
    assert "source is 3; it should be a dump directory" in of_number
    assert "no inherit" in inherits and "step is -1" in negative
    *started, outside, nobody, right = of["bisected"]["messages"]
    assert all(each.startswith("bisect: the step has been started; call it after stop()") for each in started)
    assert "with all 4 modules repaired: what is wrong lies outside of them" in outside
    assert nobody == "graft: the model has no module 'nobody'; names are those of named_modules()"
    assert right == "found () in 1"
    assert of["precision"]["names"] == ["Module.variance.Variance"]
    assert of["precision"]["distances"][0] > 0.01 > of["precision"]["distances"][-1]
    assert done.stdout.count("not called while capturing, so nothing is grafted: Module.drop.Dropout") == 1
    assert "has no step7; capture it there with task tensor" in done.stdout

    directory = embedded_data_directory(dump_path)
    (name,) = {row["run"] for row in ask("runs", data_dir=directory)}
    touched = {}
    for row in ask("records", name, data_dir=directory):
        if row["touched"]:
            touched.setdefault(row["step"], set()).add(row["name"])
    first, second = (f"Module.{each}.Linear.forward.0" for each in ("first", "second"))
    gradients = {each.replace("forward", "backward") for each in (first, second)}
    assert touched[2] == {first, second} | gradients
    assert set(touched) == {2, 3, 4, 5} and "Module.second.Linear.forward.0" in touched[5]
    exported = dump_path.with_name("exported")
    command = [find_binary("msprobe-client"), "--data_dir", directory, "export", name, "--extended", "-o", exported]
    run([*command, "--step", "2"])
    data = json.loads(next(exported.rglob("dump.json")).read_text())["data"]
    assert {each for each, record in data.items() if record.get("touched")} == touched[2]


def test_the_document_s_program_is_bisected(tmp_path, client):
    text = (REPOSITORY / "docs" / "bisect.md").read_text()
    (tmp_path / "forward.py").write_text(text.partition("<!-- forward.py -->\n```python\n")[2].partition("```")[0])
    run([sys.executable, "forward.py", "--right"], cwd=tmp_path)
    bisect = [client, "bisect", "right", "--limit", "1e-6", "--", sys.executable, "forward.py"]
    done = run(bisect, cwd=tmp_path, check=False, timeout=200)
    assert done.returncode == 1, done.stderr
    line = re.compile(r"^ +([0-9]) +([0-9]) +(\S+)  (agrees|differs)$", re.MULTILINE)
    there, shown = line.findall(done.stdout), line.findall(text)
    assert [(number, names, verdict) for number, names, _, verdict in there] == [(*each[:2], each[3]) for each in shown]
    assert [float(each[2]) for each in there] == pytest.approx([float(each[2]) for each in shown], rel=1e-3)
    (last,) = [line for line in done.stdout.splitlines() if line.startswith("at fault")]
    assert f"    {last}\n" in text


@pytest.mark.nightly
def test_what_a_module_adds_stands_apart_from_what_it_inherits(traced, dump_path, ask, tmp_path):
    golden = tmp_path / "golden"
    traced("local_error.py", task="tensor", level="mix", dump_path=golden)
    with Client(data_dir=embedded_data_directory(golden)) as client:
        (stored,) = client.runs()
        sources = [golden_of(f"run:{stored.run}", None, client.address), golden_of(golden, 0, "")]
        for each in sources:
            each.begin(0, None)
        for fields in (INPUTS, OUTPUTS):
            of_run, of_dump = (each.tensors("Module.blocks.1.up.Linear.forward.0", fields) for each in sources)
            assert of_run and all(torch.equal(one, other) for one, other in zip(of_run, of_dump, strict=True))
        with pytest.raises(Missing, match="has no Module"):
            sources[0].tensors("Module.blocks.9", OUTPUTS)
    done = traced("local_error.py", "--golden", golden, level="L0")
    assert "REACHED True" in done.stdout
    directory = embedded_data_directory(dump_path)
    (name,) = {row["run"] for row in ask("runs", data_dir=directory)}
    modules = [row for row in ask("records", name, data_dir=directory) if re.match("Module.*forward", row["name"])]
    assert {(row["step"], row["touched"]) for row in modules} == {(0, False), (1, True)}

    command = [find_binary("msprobe-client"), "--data_dir", directory, "--format", "json", "local-error"]
    done = run([*command, name, golden], check=False)
    assert done.returncode == 1, done.stderr
    of = {row["name"].removesuffix(".forward.0.output.0"): row for row in rows(done.stdout)}
    adds = {each for each, row in of.items() if row["verdict"] == "adds"}
    assert adds == {"Module.blocks.0.up.Linear", "Module.blocks.1.norm.LayerNorm"}
    up, norm, act = (
        of[f"Module.{each}"] for each in ("blocks.0.up.Linear", "blocks.1.norm.LayerNorm", "blocks.1.act.GELU")
    )
    assert up["inherited"] == 0 and up["added"] == up["total"] > 0.01
    assert norm["inherited"] > 0.001 and norm["added"] > 0.001, "a fault behind another"
    assert act["added"] == 0 and act["inherited"] == act["total"] > 0.001
    linear = of["Functional.linear.3.forward.output.0"]
    assert (linear["kind"], linear["added"]) == ("api", 0) and linear["inherited"] == linear["total"] > 0.001

    done = run([*command, golden, dump_path, "--name", "*.act.*"], check=False)
    assert done.returncode == 0
    skipped, *more = rows(done.stdout)
    assert len(more) == 2 and skipped["verdict"] == "skip"
    assert "call debugger.local_error in the program, and name its run in the store" in skipped["reason"]
    (note,) = json.loads(done.stdout)["notes"]
    assert {row["verdict"] for row in more} == {"skip"}, "each of the three blocks has one"
    assert note.startswith("3 calls of modules are skipped, so what changed weights add is not seen"), note
    done = run([*command, name, golden, "--golden-step", "4"], check=False)
    assert done.returncode == 3 and "name one by --golden-step" in done.stderr


FORWARD = """
import json, os, pathlib, subprocess, sys
exchange, case = pathlib.Path(os.environ["MSPROBE_GRAFT"]), sys.argv[1]
if case == "broken":
    sys.exit("no model here")
if case != "silent":
    (exchange / "modules.json").write_text(json.dumps([f"Module.layers.{layer}.Linear" for layer in range(4)]))
names = json.loads((exchange / "graft.json").read_text())["names"]
if case == "pipe":
    os.mkfifo(exchange / "modules.1.json")
if case == "failed":
    (exchange / "failed.1.json").write_text(json.dumps({"Module.layers.0.Linear.forward.0": "it draws random numbers"}))
if case == "left behind":
    subprocess.Popen(["sleep", "60"])
    print(12345678 * "x")
if case == "odd numbers":
    print("1_0")
if case == "negative":
    print(-0.5)
elif case not in ("no number", "odd numbers"):
    print(0.5 if case == "outside" else 0.0 if "Module.layers.2.Linear" in names or case == "agrees" else 0.5)
"""


@pytest.mark.parametrize(
    ("case", "code", "says"),
    [
        ("one", 1, "at fault: layers.2; 4 runs, 4 modules"),
        ("agrees", 0, "the final output agrees as it is"),
        ("broken", 3, "broken ended with 1: no model here"),
        ("silent", 3, "it should call debugger.graft() before debugger.start(model)"),
        ("failed", 3, "Module.layers.0.Linear.forward.0 could not be repaired: it draws random numbers"),
        ("no number", 3, "prints no line with a number alone"),
        ("left behind", 1, "at fault: layers.2; 4 runs, 4 modules"),
        ("odd numbers", 3, "prints no line with a number alone"),
        ("negative", 3, "the distance is -0.5; it should be at least 0"),
        ("pipe", 3, "modules.1.json of the program cannot be read"),
        ("outside", 3, "with all 4 modules repaired: what is wrong lies outside of them"),
    ],
)
def test_what_a_program_answers(tmp_path, client, case, code, says):
    (tmp_path / "forward.py").write_text(FORWARD)
    command = [client, "bisect", "golden", "--limit", "0.1", "--", sys.executable, "-S", "forward.py", case]
    done = run(command, cwd=tmp_path, check=False)
    assert (done.returncode, says in done.stdout + done.stderr) == (code, True), done.stdout + done.stderr


def test_modules_are_chosen_by_name(tmp_path, client):
    (tmp_path / "forward.py").write_text(FORWARD)
    command = [client, "--format", "json", "bisect", "golden", "--limit", "0.1", "--name", "layers.[23]", "--"]
    done = run([*command, sys.executable, "-S", "forward.py", "one"], cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert [row["names"] for row in rows(done.stdout)][1:] == [["Module.layers.2.Linear"], ["Module.layers.2.Linear"]]
    assert json.loads(done.stdout)["at_fault"] == ["Module.layers.2.Linear"]


# The search alone.


def search(candidates, faults):
    return smallest(candidates, lambda repaired: 0.0 if faults <= set(repaired) else 1.0, 0.5)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 31, 32, 33])
def test_any_one_fault_and_any_two_are_found_within_the_bound(count):
    candidates = [str(number) for number in range(count)]
    for first in range(count):
        for second in range(first, count):
            faults = {str(first), str(second)}
            found = search(candidates, faults)
            assert set(found.names) == faults
            assert len(found.trials) <= bound(count, len(faults)), faults
    assert bound(count, 1) == math.ceil(math.log2(count)) + 2


def test_many_faults_are_found():
    candidates = [str(number) for number in range(64)]
    faults = {"3", "4", "5", "17", "40", "63"}
    found = search(candidates, faults)
    assert set(found.names) == faults and len(found.trials) <= bound(64, 6)


def test_what_no_search_can_find_is_said():
    assert search(["a", "b"], set()) == Found((), search(["a", "b"], set()).trials)
    with pytest.raises(FailedPrecondition, match="with all 2 modules repaired"):
        search(["a", "b"], {"c"})
    with pytest.raises(FailedPrecondition, match="no module to repair"):
        search([], {"c"})
    with pytest.raises(InvalidArgument, match="it should be a distance of at least 0"):
        smallest(["a"], lambda repaired: 1.0, -1.0)
    with pytest.raises(FailedPrecondition, match="is the program random"):
        smallest(["a", "b"], iter_of([1.0, 0.0, 1.0]), 0.5)


def test_without_a_limit_it_lies_between_no_repair_and_all():
    """Each module adds some rounding, as where a golden has another dtype; the limit of the right dtype names all."""
    names = [str(number) for number in range(32)]

    def distance(repaired):
        return 0.4 * sum(fault not in repaired for fault in ("7", "20")) + 1e-4 * (33 - len(repaired))

    assert set(smallest(names, distance, None).names) == {"7", "20"}
    assert len(smallest(names, distance, 1e-4).names) == 32
    assert len(smallest(names, distance, None).trials) <= bound(32, 2) + 1
    with pytest.raises(FailedPrecondition, match="without repair: what is wrong lies outside of them"):
        smallest(names, lambda repaired: 0.5, None)
    assert smallest(names, lambda repaired: 0.0 if "3" in repaired else math.nan, None).names == ("3",)
    assert smallest(names, lambda repaired: 0.0, None) == Found((), smallest(names, lambda repaired: 0.0, None).trials)


def iter_of(values):
    remaining = iter(values)
    return lambda repaired: next(remaining)
