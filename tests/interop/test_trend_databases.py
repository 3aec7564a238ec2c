"""Our trend databases against mindstudio-probe's own of the same dumps and CSV files, row for row, and as its plugin
TrendVis answers from both, except for rows of docs/compatibility.md."""

import json
import pathlib
import sqlite3
import sys
import tempfile
import urllib.request

import parallel_dumps
import pytest
from harness.dumps import write_config
from harness.nightly import mostly_nightly
from harness.processes import REPOSITORY, external_server, run
from harness.tensorboard import tensorboard
from test_compare import binary  # noqa: F401

PROGRAM = "from msprobe_client.compat.legacy import main; main()"
MONITORED = pathlib.Path(__file__).with_name("monitored.py")
STATISTICS = ("norm", "max", "min", "mean")
LIMIT = 1e9  # of mindstudio-probe's databases
INFINITY = 1e39  # what stands for it in ours
QUESTIONS = ("step", "rank", "module_name")
# Reference dumps -> how many micro steps mindstudio-probe finds in their one step; None: not asked.
MODELS = {"train_statistics_mix": 3, "train_stat_mix_bf16": None}


def ours(data, out, *options, binary):  # noqa: F811
    run(
        [sys.executable, "-c", PROGRAM, "data2db", "--data", data, "--db", out, *options],
        MSPROBE_SERVER_BINARY=binary,
        timeout=120,
    )
    return only(out)


def theirs(data, out, *options, python):
    out.mkdir()
    program = pathlib.Path(python).parent / "msprobe"
    run([program, "data2db", "--data", data, "--db", out, *options], PYTHONPATH=None, OMP_NUM_THREADS=1, timeout=240)
    return only(out)


def only(directory):
    (path,) = directory.glob("*.trend.db")
    return path


def asked(path, sql):
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def values(path, statistics=STATISTICS):
    """(rank, step, metric, target, stage, call) -> statistic -> value."""
    columns = ", ".join(statistics)
    sql = f"""select rank, step, metric_name, target_name, vpp_stage, micro_step, {columns} from trend_data
              join monitoring_targets using (target_id) join monitoring_metrics using (metric_id)"""
    found = {row[:6]: dict(zip(statistics, row[6:], strict=True)) for row in asked(path, sql)}
    assert found
    return found


def tags(path):
    return set(
        asked(
            path,
            """select target_name, micro_step, tag_name, category, metric_name from monitoring_tags
               join tag_target_mapping using (tag_id) join monitoring_targets using (target_id)
               join monitoring_metrics using (metric_id)""",
        )
    )


def clamped(value):
    """`trend-values`."""
    if value is None:
        return None
    if abs(value) == INFINITY:
        return LIMIT + 1 if value > 0 else -LIMIT - 1
    return max(-LIMIT, min(LIMIT, value))


def same_values(here, there, where=None):
    for key, row in there.items():
        assert {name: clamped(value) for name, value in here[key].items()} == row, (where, key)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """Two steps of two ranks of a model that runs once a step."""
    return parallel_dumps.write(tmp_path_factory.mktemp("ranks") / "dump", 2, 2, 1, steps=2)


@pytest.fixture(scope="module")
def monitored(tmp_path_factory, oracle_python):
    root = tmp_path_factory.mktemp("monitored")
    for kind in ("v1", "v2"):
        run([oracle_python, MONITORED, kind, root / kind], PYTHONPATH=None, OMP_NUM_THREADS=1, timeout=120)
    return root


@pytest.mark.timeout(300)
@pytest.mark.parametrize("micro_step", mostly_nightly(["true", "false"], "true"))
def test_every_row_of_several_ranks(micro_step, ranks, oracle_python, binary, tmp_path):  # noqa: F811
    options = ("--micro_step", micro_step)
    here = ours(ranks, tmp_path / "ours", *options, binary=binary)
    there = theirs(ranks, tmp_path / "theirs", *options, python=oracle_python)
    assert here.name == there.name == "dump_data.trend.db"
    mine, other = values(here), values(there)
    same_values(mine, other)
    assert {key[:2] for key in mine} == {(rank, step) for rank in (0, 1) for step in (0, 1)}
    for key in mine.keys() - other.keys():  # `trend-more`, `trend-roots`
        named = not key[3].rsplit(".", 1)[1].isdecimal()
        assert named or (micro_step == "true" and not key[3].startswith("Module.")), key
    assert tags(here) >= tags(there)
    columns = "max_rank, min_step, max_step, forward, backward, recompute, parameters_grad"
    assert asked(here, f"select {columns} from global_stats") == asked(there, f"select {columns} from global_stats")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", mostly_nightly(MODELS, "train_stat_mix_bf16"))
def test_every_row_of_a_model(name, reference, oracle_python, binary, tmp_path):  # noqa: F811
    data = reference / "dump" / name
    here = ours(data, tmp_path / "ours", "--micro_step", "false", binary=binary)
    there = theirs(data, tmp_path / "theirs", "--micro_step", "false", python=oracle_python)
    mine, other = values(here), values(there)
    same_values(mine, other)
    assert tags(here) >= tags(there)
    # `trend-micro-steps`: the model ran once, whatever stands at the root of its construct.json.
    counted = values(ours(data, tmp_path / "counted", binary=binary))
    assert {key[1] for key in counted} == {0}
    if MODELS[name] is None:
        return
    wrong = asked(theirs(data, tmp_path / "wrong", python=oracle_python), "select max_step + 1 from global_stats")
    assert wrong == [(MODELS[name],)]


@pytest.mark.timeout(300)
@pytest.mark.nightly
@pytest.mark.parametrize("micro_step", ["true", "false"])
def test_every_row_of_the_first_monitor(micro_step, monitored, oracle_python, binary, tmp_path):  # noqa: F811
    options = ("--micro_step", micro_step, "--format", "monitor", "--process_num", "2")
    here = ours(monitored / "v1", tmp_path / "ours", *options, binary=binary)
    there = theirs(monitored / "v1", tmp_path / "theirs", *options, python=oracle_python)
    assert here.name == there.name == "monitor_data.trend.db"
    statistics = (*STATISTICS, "nans")
    mine, other = values(here, statistics), values(there, statistics)
    assert mine.keys() == other.keys()
    same_values(mine, other)
    assert max(row["max"] or 0 for row in mine.values()) > LIMIT  # `trend-values`
    assert tags(here) == tags(there)
    steps = "select max_rank, min_step, max_step from global_stats"
    assert asked(here, steps) == asked(there, steps) == [(0, 0, 5 if micro_step == "true" else 2)]


def test_every_row_of_the_second_monitor(monitored, oracle_python, binary, tmp_path):  # noqa: F811
    """`trend-second-monitor`: mindstudio-probe reads none of these files."""
    here = ours(monitored / "v2", tmp_path / "ours", "--micro_step", "false", binary=binary)
    mine = values(here, (*STATISTICS, "nans"))
    first = values(ours(monitored / "v1", tmp_path / "v1", "--micro_step", "false", binary=binary))
    # Both watched the same training: what they name alike, they measured alike.
    shared = mine.keys() & first.keys()
    assert {key[2] for key in shared} == {"param_origin", "param_updated", "grad_reduced"}
    for key in shared:
        assert mine[key]["norm"] == pytest.approx(first[key]["norm"], rel=1e-4, abs=1e-6), key
    outputs, others = (
        {key[1:2] + key[5:]: row["norm"] for key, row in found.items() if key[2:4] == ("actv", name)}
        for found, name in ((mine, "layers.0.output.0"), (first, "layers.0.output"))
    )
    assert outputs.keys() == others.keys() == {(step, call) for step in range(3) for call in range(2)}
    assert outputs == {key: pytest.approx(value, rel=1e-6) for key, value in others.items()}
    directory = tmp_path / "theirs"
    directory.mkdir()
    run(
        [pathlib.Path(oracle_python).parent / "msprobe", "data2db", "--data", monitored / "v2", "--db", directory],
        PYTHONPATH=None,
    )
    assert not list(directory.iterdir())


class TrendVis:
    """The real plugin in the real TensorBoard."""

    def __init__(self, port):
        self._url = f"http://127.0.0.1:{port}/data/plugin/TrendVis/"

    def ask(self, route, **question):
        data = json.dumps(question).encode() if question else None
        with urllib.request.urlopen(self._url + route, data, timeout=60) as answer:
            return json.load(answer)

    def everything(self, database):
        """Every answer that the page can ask for."""
        assert self.ask("switch_db", db_filename=database)["success"]
        found = {"metrics": self.ask("metrics")}
        for metric in found["metrics"]["data"]:
            about = {"metric": metric["name"], "stat": "norm"}
            found[metric["name"], "tags"] = sorted(map(str, self.ask(f"tags?metric={metric['name']}")["data"]))
            for dimension in QUESTIONS:
                about["dimension"] = dimension
                choices = self.ask("values", **about)
                found[metric["name"], dimension, "values"] = choices
                for value in list(choices["data"])[:4]:
                    key = (metric["name"], dimension, value)
                    cells = found[key] = self.ask("heatmap_data", **about, value=str(value), tags=[])
                    if not cells["data"]:
                        continue
                    # The first cell, clicked: a curve along the dimension.
                    x, (y, _), _ = cells["data"][0]
                    across = {"step": (x, y), "rank": (x, y), "module_name": (x, y)}[dimension]
                    found[(*key, "trend")] = self.ask("trend", **about, dimX=across[0], dimYIdx=across[1], tags=[])
        return found


@pytest.mark.timeout(300)
def test_the_plugin_answers_the_same(oracle_python, binary, tmp_path):  # noqa: F811
    """Of a model without keyword arguments, and that runs once a step: see `trend-more`."""
    dump = tmp_path / "dump"
    for step in range(2):
        for rank in range(2):
            plain_step(dump / f"step{step}" / f"rank{rank}", 1 + step + 10 * rank)
    logs = tmp_path / "logs"
    logs.mkdir()
    ours(dump, tmp_path / "ours", binary=binary).rename(logs / "ours.trend.db")
    theirs(dump, tmp_path / "theirs", python=oracle_python).rename(logs / "theirs.trend.db")
    with tensorboard("mindstudio-probe", logs, tmp_path / "log") as board:
        page = TrendVis(board.port)
        assert page.ask("db_files")["data"] == ["ours.trend.db", "theirs.trend.db"]
        mine, other = (page.everything(f"{side}.trend.db") for side in ("ours", "theirs"))
    assert len([key for key in mine if "trend" in key]) > 10
    assert mine == other


def plain_step(directory, value):
    tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "requires_grad": True}

    def leaf(scale):
        numbers = {"Max": value * scale, "Min": -value * scale, "Mean": value / 4, "Norm": value * scale * 1.5}
        return tensor | numbers

    data, construct = {}, {}
    net = "Module.net.Net.forward.0"
    for layer in range(3):
        name = f"Module.net.layers.{layer}.Linear.forward.0"
        construct[f"Functional.linear.{layer}.forward"] = name
        construct[name] = net
        for each in (f"Functional.linear.{layer}.forward", name):
            data[each] = {"input_args": [leaf(layer + 1)], "input_kwargs": {}, "output": [leaf(layer + 2)]}
        data[name]["parameters"] = {"weight": leaf(7)}
    construct[net] = None  # without data: a name that two metrics share has another number there, `trend-numbers`
    back = "Module.net.Net.backward.0"
    data[back] = {"input": [leaf(5)], "output": [leaf(6)]}
    construct[back] = None
    data["Module.net.layers.0.Linear.parameters_grad"] = {"weight": [leaf(9)]}
    directory.mkdir(parents=True)
    (directory / "construct.json").write_text(json.dumps(construct))
    (directory / "stack.json").write_text("{}")
    (directory / "dump.json").write_text(json.dumps({"task": "statistics", "level": "mix", "data": data}))


def dump(directory, value=1.0):
    leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": value, "Min": 0.0, "Mean": value}
    entry = {"input_args": [], "input_kwargs": {}, "output": [leaf | {"Norm": value, "requires_grad": False}]}
    directory.mkdir(parents=True)
    (directory / "dump.json").write_text(
        json.dumps({"task": "statistics", "level": "mix", "data": {"Module.net.Net.forward.0": entry}})
    )
    (directory / "construct.json").write_text('{"Module.net.Net.forward.0": null}')


def test_processes_without_a_rank_keep_their_number(binary, tmp_path):  # noqa: F811
    """`trend-processes`; and `trend-index`: the page finds a target or a step by an index."""
    for step, processes in enumerate(((11, 12), (12,), (11, 12))):
        for process in processes:
            dump(tmp_path / f"dump/step{step}/proc{process}", float(process))
    here = ours(tmp_path / "dump", tmp_path / "out", "--micro_step", "false", binary=binary)
    assert {(key[0], row["max"]) for key, row in values(here).items()} == {(0, 11.0), (1, 12.0)}
    indexed = " ".join(
        sql for (sql,) in asked(here, "select sql from sqlite_master where type = 'index' and sql != ''")
    )
    assert "trend_data" in indexed and "target_id" in indexed and "step" in indexed


def test_a_monitor_that_began_again_has_all_of_its_output(binary, tmp_path):  # noqa: F811
    """`trend-restarts`."""
    for began, rows in (("Nov30_00-00-00", "0,fc,1,1\n0,fc,2,1\n"), ("Dec01_00-00-00", "0,fc,2,2\n0,fc,3,2\n")):
        folder = tmp_path / "monitor" / f"{began}-rank0-{began[:3].lower()}"
        folder.mkdir(parents=True)
        (folder / "actv_1-3.csv").write_text("vpp_stage,name,step,max\n" + rows)
    here = ours(tmp_path / "monitor", tmp_path / "out", "--micro_step", "false", binary=binary)
    assert {key[1]: row["max"] for key, row in values(here, ("max",)).items()} == {1: 1, 2: 2, 3: 2}


def test_a_stored_run_has_counts(binary, tmp_path):  # noqa: F811
    """`trend-counts`: a captured run has the numbers of NaN and of zeros."""
    program = REPOSITORY / "tests" / "operate" / "programs" / "overflowing.py"
    with tempfile.TemporaryDirectory(prefix="mspt", dir="/tmp") as short:
        socket = pathlib.Path(short) / "s"
        with external_server(socket, tmp_path / "data", tmp_path / "log"):
            config = write_config(tmp_path / "c.json", tmp_path / "dump", server=f"unix:{socket}", run="stored")
            run([sys.executable, program, "--config", config, "--steps", 2, "--nan-at", 1])
            client = [sys.executable, "-m", "msprobe_client", "--server", f"unix:{socket}"]
            run([*client, "trend-database", "stored", "-o", tmp_path / "out"], MSPROBE_SERVER_BINARY=binary)
    found = values(only(tmp_path / "out"), ("nans", "zeros"))
    assert any(row["nans"] for key, row in found.items() if key[1] == 1)
    assert not any(row["nans"] for key, row in found.items() if key[1] == 0)


def test_what_checkpointing_computes_again_is_a_metric(binary, tmp_path):  # noqa: F811
    """`trend-recompute`; and one micro step."""
    rank = tmp_path / "dump" / "step0" / "rank0"
    rank.mkdir(parents=True)
    numbers = {"Max": 1.0, "Min": 0.0, "Mean": 0.5, "Norm": 1.0}
    tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "requires_grad": True} | numbers
    block = "Module.block.Block"
    calls = [f"{block}.forward.0", "Module.head.Head.forward.0", "Module.head.Head.backward.0", f"{block}.forward.1"]
    data = {name: {"input": [], "input_args": [], "output": [tensor]} for name in calls}
    stacks = {"0": [[calls[3]], ["File /torch/utils/checkpoint.py, line 1, in recompute_fn, \n f()"]]}
    (rank / "dump.json").write_text(json.dumps({"task": "statistics", "level": "L0", "data": data}))
    (rank / "construct.json").write_text(json.dumps(dict.fromkeys(calls)))
    (rank / "stack.json").write_text(json.dumps(stacks))
    found = values(ours(tmp_path / "dump", tmp_path / "out", binary=binary))
    assert {(step, metric, call) for _, step, metric, name, _, call in found if name.startswith(block)} == {
        (0, "forward", 0),
        (0, "recompute", 0),
    }


def test_where_nothing_can_be_read_it_says_so(binary, tmp_path):  # noqa: F811
    """`trend-nothing`."""
    (tmp_path / "empty").mkdir()
    with pytest.raises(AssertionError, match="ended with 3"):
        ours(tmp_path / "empty", tmp_path / "out", binary=binary)
    assert not list((tmp_path / "out").glob("*"))
