"""What graphs, trend databases and edges say to bad input: one line with the path, and nothing is left half-written."""

import json
import subprocess
import sys

import pytest
from harness.processes import run

CLIENT = "from msprobe_client.commands import main; main()"
LEGACY = "from msprobe_client.compat.legacy import main; main()"
MONITORED = "Jan01_00-00-00-rank0-0/actv_0-0.csv"
TENSOR = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "requires_grad": False}
CALL = {"input_args": [], "output": [TENSOR | {"Max": 1.0, "Min": 0.0, "Mean": 0.5, "Norm": 1.0}]}
DUMP = json.dumps({"task": "statistics", "level": "mix", "data": {"Torch.add.0.forward": CALL}})
FILES = {"dump.json": DUMP, "construct.json": '{"Torch.add.0.forward": null}', "stack.json": "{}"}


@pytest.fixture
def given(tmp_path):
    """Writes files of the directory `given`."""

    def write(files):
        directory = tmp_path / "given"
        directory.mkdir()
        for name, content in files.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return directory

    return write


def dump(**other):
    return {f"step0/rank0/{name}": content for name, content in (FILES | other).items()}


def refused(program, *arguments):
    """The one line that it says."""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 3, done
    assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr, done.stderr
    return done.stderr


def written(tmp_path):
    return sorted(path.name for path in tmp_path.rglob("*") if "given" not in path.parts and path.is_file())


TREND = ("trend-database",)
MONITOR = ("trend-database", "--of", "monitor")
GRAPH = ("graph", "--to", "model-explorer")
EDGES = ("records", "--edges")


@pytest.mark.parametrize(
    ("command", "files", "said"),
    [
        (TREND, {}, "given: no dump.json and no debug.json"),
        (TREND, dump(**{"dump.json": DUMP[:-20]}), "dump.json: line 1, column"),
        (MONITOR, {}, "given holds no files of a training monitor: {time}-rank{R}-{id}/actv_0-0.csv or"),
        (MONITOR, {MONITORED: "vpp_stage,max\n0,1\n"}, f'{MONITORED}: the first line has no column "name"; it has'),
        (
            MONITOR,
            {MONITORED: bytes(range(128, 255)) * 40},
            f'{MONITORED}: the first line has no column "name"; it has',
        ),
        (MONITOR, {MONITORED: ""}, "no column of a statistic that is known, or are empty"),
        (GRAPH, dump(**{"construct.json": '{"Torch.add'}), "construct.json: line 1, column"),
        (EDGES, {}, "given holds no dump: no step{N}/rank{R}"),
        (EDGES, dump(**{"dump.json": DUMP[:-20]}), "dump.json: line 1, column"),
    ],
)
def test_input_that_cannot_be_read(given, tmp_path, command, files, said):
    output = () if command == EDGES else ("-o", tmp_path / "out")
    line = refused(CLIENT, command[0], given(files), *command[1:], *output)
    assert said in line and len(line) < 800
    assert written(tmp_path) == []


def test_what_does_not_exist_is_named(tmp_path):
    missing = tmp_path / "missing"
    assert f"{missing} does not exist" in refused(CLIENT, "records", missing, "--edges")
    assert f"{missing} does not exist" in refused(LEGACY, "data2db", "--data", missing, "--db", tmp_path / "out")


@pytest.mark.parametrize(
    ("command", "name"), [(TREND, "dump_data.trend.db"), (GRAPH, "target.json")], ids=["trend-database", "graph"]
)
def test_a_directory_in_the_place_of_the_file(given, tmp_path, command, name):
    taken = tmp_path / "out" / name
    taken.mkdir(parents=True)
    line = refused(CLIENT, command[0], given(dump()), *command[1:], "-o", tmp_path / "out")
    assert f"{taken} cannot be written: Is a directory" in line
    assert written(tmp_path) == []


def test_a_disk_that_takes_a_part_leaves_no_database(tmp_path):
    """A limit of the file's size stands for the disk's end: the write that reaches it is short and is no error."""
    program = f"""
import pathlib, resource, signal
from msprobe_client.analysis_client import DatabaseFile
from msprobe_client.proto import analysis_pb2
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
try:
    DatabaseFile(pathlib.Path({str(tmp_path / "a.trend.db")!r}), lambda done, total: None).write(
        [analysis_pb2.TrendDatabaseResponse(content=bytes(150_000))])
except OSError as error:
    print(error.strerror)
"""
    assert run([sys.executable, "-c", program]).stdout == "File too large\n"
    assert written(tmp_path) == []
