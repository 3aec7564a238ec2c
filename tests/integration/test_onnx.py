"""An ONNX model runs value by value, and its values meet those of the PyTorch run that it was exported from."""

import json
import os
import re
import sys

import numpy
import onnx
import onnxruntime
import pytest
from harness.dumps import embedded_data_directory, write_config
from harness.processes import PROGRAMS, REPOSITORY, run, wait_for_servers_to_leave


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The directory of the models, the data directory of the run, and the run's name."""
    root = tmp_path_factory.mktemp("exported")
    config = write_config(root / "config.json", root / "dump", task="tensor", level="mix", run="eager")
    try:
        run([sys.executable, "-W", "ignore", PROGRAMS / "exported.py", "--config", config, root / "out"], timeout=240)
        wait_for_servers_to_leave(root / "dump")
        yield root / "out", embedded_data_directory(root / "dump"), "eager"
    finally:
        wait_for_servers_to_leave(root / "dump")


@pytest.fixture
def compared(client, exported):
    """compared(model, name, ...): exit code and JSON document of the comparison with the run."""
    out, data, eager = exported

    def call(model, name, *arguments):
        command = [client, "--data_dir", data, "--format", "json", "onnx", model, "--input", f"x={out / 'x.npy'}"]
        done = run([*command, "--run", name, "--against", eager, *arguments], check=False)
        assert done.returncode in (0, 1), done.stderr
        return done.returncode, json.loads(done.stdout)

    return call


def test_every_call_has_its_partner_and_agrees(exported, compared):
    out, _, _ = exported
    code, answer = compared(out / "dynamo.onnx", "onnx-dynamo", "--all")
    rows = {row["name"]: row for row in answer["rows"]}
    # The views (chunk, transpose) and torch.cat are not recorded by default. Views are seen through; what takes the
    # result of cat, as what takes x, is paired by order.
    assert code == 0 and answer["calls"] == 23 and answer["alone"] == 3, answer
    assert answer["paired"] == {"edge": 18, "order": 2, "name": 12}
    assert rows["Tensor.__matmul__.0.forward.output.0"]["how"] == "edge"  # of two parts of one tensor
    assert "Tensor.__matmul__.0.forward.input.0" not in rows  # which part is which, edges do not tell
    assert rows["Functional.gelu.1.forward.output.0"]["node"] == "node_gelu_1"
    assert rows["Functional.gelu.1.forward.input.0"]["verdict"] in ("equal", "within")
    assert rows["Module.layers.1.Block.forward.0.output.0"]["how"] == "name"
    assert {row["verdict"] for row in rows.values()} <= {"equal", "within"}


def test_calls_that_names_cannot_tell_apart_are_paired_by_what_they_take(exported, compared):
    out, _, _ = exported
    model = onnx.load(out / "dynamo.onnx")
    first, second = (at for at, node in enumerate(model.graph.node) if node.op_type == "Tanh")
    flip = next(node for node in model.graph.node if "flip" in node.output)
    nodes = list(model.graph.node)
    # As an optimizer may order them: what the program called second stands first.
    moved = [node for node in nodes if node is not nodes[first]]
    moved.insert(second, nodes[first])
    del model.graph.node[:], flip
    model.graph.node.extend(moved)
    onnx.save(model, out / "moved.onnx")
    code, answer = compared(out / "moved.onnx", "onnx-moved", "--all")
    tanh = {row["name"]: row["node"] for row in answer["rows"] if row["name"].startswith("Torch.tanh")}
    assert code == 0
    assert tanh["Torch.tanh.0.forward.output.0"] == "node_tanh"
    assert tanh["Torch.tanh.1.forward.output.0"] == "node_tanh_1"


def test_what_onnxruntime_fused_is_compared_where_it_leaves_a_value(exported, compared):
    """Without a word of the exporter, nodes keep their edges and operators."""
    out, _, _ = exported
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(out / "fused.onnx")
    onnxruntime.InferenceSession(str(out / "dynamo.onnx"), options, providers=["CPUExecutionProvider"])
    assert any(node.domain == "com.microsoft" for node in onnx.load(out / "fused.onnx").graph.node)
    code, answer = compared(out / "fused.onnx", "onnx-fused", "--all")
    rows = {row["name"]: row for row in answer["rows"]}
    assert code == 0, answer
    assert rows["Torch.tanh.1.forward.output.0"]["node"] == "node_tanh_1"
    assert rows["Functional.layer_norm.1.forward.output.0"]["how"] == "edge"


@pytest.fixture
def approximate(exported):
    """A model with a fault: the second GELU is the approximation by tanh."""
    out, _, _ = exported
    model = onnx.load(out / "dynamo.onnx")
    (gelu,) = (node for node in model.graph.node if node.name == "node_gelu_1")
    del gelu.attribute[:]
    gelu.attribute.append(onnx.helper.make_attribute("approximate", "tanh"))
    onnx.save(model, out / "model.onnx")
    return out / "model.onnx"


def test_the_first_that_differs_is_named(approximate, compared):
    code, answer = compared(approximate, "onnx-approximate")
    assert code == 1
    assert answer["first"] == "Functional.gelu.1.forward.output.0"
    assert not any(row["name"].startswith("Module.layers.0") for row in answer["rows"])


def test_folded_normalizations_are_said_and_judged_at_their_end(exported, client):
    out, data, eager = exported
    command = [client, "--data_dir", data, "--format", "json", "onnx", "--input", f"image={out / 'image.npy'}"]
    behind = ["--against", eager, "--step", "1"]
    done = run([*command, out / "folded.onnx", "--run", "onnx-folded", "--all", *behind], check=False)
    rows = {row["name"]: row for row in json.loads(done.stdout)["rows"]}
    assert done.returncode == 0, done.stdout
    assert rows["Functional.batch_norm.1.forward.output.0"]["node"] == "/conv2/Conv"
    assert "Functional.conv2d.1.forward.output.0" not in rows and "Module.conv2.Conv2d.forward.0.output.0" not in rows
    # A fault in a folded call is named with the range that the node stands for.
    model = onnx.load(out / "folded.onnx")
    node = next(node for node in model.graph.node if node.name == "/conv2/Conv")
    bias = next(each for each in model.graph.initializer if each.name == node.input[2])
    bias.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(bias) + numpy.float32(0.5), bias.name))
    onnx.save(model, out / "fault.onnx")
    done = run([*command, out / "fault.onnx", "--run", "onnx-fault", *behind], check=False)
    assert done.returncode == 1 and json.loads(done.stdout)["first"] == "Functional.batch_norm.1.forward.output.0"
    notes = " ".join(json.loads(done.stdout)["notes"])
    assert "node /conv2/Conv stands for Functional.conv2d.1.forward to Functional.batch_norm.1.forward" in notes
    assert "all from Functional.conv2d.1.forward to it are one node" in notes


def test_a_dump_directory_is_taken_without_a_store(exported, client, tmp_path):
    out, data, eager = exported
    run([client, "--data_dir", data, "export", eager, "--step", "0", "-o", tmp_path / "dump"])
    command = [client, "--format", "json", "onnx", out / "dynamo.onnx", "--input", f"x={out / 'x.npy'}"]
    answer = json.loads(run([*command, "--run", "exported", "--against", tmp_path / "dump"]).stdout)
    assert answer["first"] is None and answer["paired"]["name"] == 12


def test_the_example_of_the_document(approximate, exported, client):
    _, data, eager = exported
    text = (REPOSITORY / "docs" / "offline.md").read_text()
    (command,) = re.findall(r"^    msprobe-client (onnx .*)$", text, re.MULTILINE)
    words = command.replace("tuesday", eager).split()
    done = run([client, "--data_dir", data, *words], check=False, cwd=approximate.parent)
    assert done.returncode == 1
    for line in re.findall(r"^    (\d+ calls: .*|first: .*)$", text, re.MULTILINE):
        assert line in done.stdout, done.stdout


def test_a_model_of_the_older_exporter_is_paired_by_module(exported, compared):
    out, _, _ = exported
    code, answer = compared(out / "script.onnx", "onnx-script", "--all")
    rows = {row["name"]: row for row in answer["rows"]}
    assert code == 0
    for name in ("Module.layers.0.norm.LayerNorm", "Module.layers.1.shrink.Linear", "Module.head.Linear"):
        assert rows[f"{name}.forward.0.output.0"]["verdict"] in ("equal", "within")


def test_values_are_a_run_like_others(exported, client, ask):
    out, data, _ = exported
    command = [
        client,
        "--data_dir",
        data,
        "--format",
        "json",
        "onnx",
        out / "dynamo.onnx",
        "--input",
        f"x={out / 'x.npy'}",
    ]
    (row,) = json.loads(run([*command, "--run", "values"]).stdout)["rows"]
    assert row == {"run": "values", "calls": 23, "values": 25}
    names = {row["name"] for row in ask("records", "values", "--step", "0", "--rank", "0", data_dir=data)}
    assert "Onnx.layer_norm.1.forward" in names


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{out}/model.om"], "model.om is an offline model of CANN, which runs on an Ascend NPU alone"),
        (["{out}/x.npy"], "x.npy is no ONNX model"),
        (["{out}/dynamo.onnx"], "the model takes x, tensor(float) of [2, 3, 8]; give --input x=FILE.npy"),
        (["{out}/dynamo.onnx", "--input", "x"], "--input 'x' is not understood; write NAME=FILE.npy, as in x=x.npy"),
        (["{out}/dynamo.onnx", "--input", "x={out}/wide.npy"], "onnxruntime cannot run"),
        (["{out}/gives.onnx", "--input", "x={out}/two.npy"], "gives.onnx: parts is seq(tensor(float)); a model is run"),
        (["{out}/takes.onnx", "--input", "parts={out}/two.npy"], "the model takes parts, seq(tensor(float))"),
        (["{out}/pipe.onnx"], "pipe.onnx is a named pipe; name a regular file"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(exported, client, arguments, said):
    out, data, _ = exported
    (out / "model.om").touch()
    make, kind = onnx.helper, onnx.TensorProto
    x = make.make_tensor_value_info("x", kind.FLOAT, [2])
    parts = make.make_tensor_sequence_value_info("parts", kind.FLOAT, None)
    count = make.make_tensor_value_info("n", kind.INT64, [])
    node = make.make_node("SequenceConstruct", ["x"], ["parts"])
    node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value="[" * 5000)
    gives = make.make_graph([node], "g", [x], [parts])
    takes = make.make_graph([make.make_node("SequenceLength", ["parts"], ["n"])], "g", [parts], [count])
    for name, graph in (("gives", gives), ("takes", takes)):
        made = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8)
        onnx.save(made, out / f"{name}.onnx")
    if not (out / "pipe.onnx").exists():
        os.mkfifo(out / "pipe.onnx")
    numpy.save(out / "two.npy", numpy.ones(2, "f4"))
    numpy.save(out / "wide.npy", numpy.ones((2, 3, 9), "f4"))
    command = [client, "--data_dir", data, "onnx", *(each.format(out=out) for each in arguments), "--run", "refused"]
    done = run(command, check=False)
    assert done.returncode != 0 and said in done.stderr and done.stderr.count("\n") == 1, done.stderr
