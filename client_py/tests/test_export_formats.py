"""export --to: the files are those of the commands of their own."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from conftest import Run
from fake_server import FakeServer
from test_graph import write

from msprobe_client import Client
from msprobe_client.errors import FailedPrecondition, InvalidArgument, NotFound

Rows = dict[str, list[tuple[object, ...]]]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Of a server that has the run "pair", of two steps and two ranks."""
    named = os.environ.get("MSPROBE_SERVER_BINARY", str(Path(sys.executable).parent / "msprobe-server"))
    if not os.access(named, os.X_OK):
        pytest.skip(f"no msprobe-server at {named}: run `make build` or set MSPROBE_SERVER_BINARY")
    folder = tmp_path_factory.mktemp("formats")
    for step in (0, 1):
        for rank in (0, 1):
            write(folder / "dump" / f"step{step}" / f"rank{rank}")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("MSPROBE_SERVER_BINARY", named)
        with Client(data_dir=folder / "data", create=True) as made:
            made.import_dump(folder / "dump", "pair")
            yield made


def tables(file: Path) -> Rows:
    with closing(sqlite3.connect(file)) as connection:
        names = [name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")]
        return {name: sorted(connection.execute(f"select * from {name}"), key=repr) for name in names}


@pytest.mark.parametrize(
    ("to", "name", "ask"),
    [
        ("vis", "graph.vis.db", lambda client, file: client.graph("run:pair", file)),
        ("trend", "steps.trend.db", lambda client, file: client.trend_database("run:pair", file)),
    ],
)
def test_a_database_is_that_of_its_own_command(
    client: Client, tmp_path: Path, to: str, name: str, ask: Callable[[Client, Path], object]
) -> None:
    report = client.export("pair", tmp_path / "out", to=to)
    assert report.directories == (tmp_path / "out" / name,)
    ask(client, tmp_path / f"asked.{to}.db")
    exported = tables(report.directories[0])
    assert exported == tables(tmp_path / f"asked.{to}.db") and any(map(len, exported.values()))


def test_files_of_model_explorer_are_those_of_graph(client: Client, tmp_path: Path) -> None:
    report = client.export("pair", tmp_path / "out", to="model-explorer", steps=[1])
    asked = client.model_explorer("run:pair", tmp_path / "asked", steps=[(1, 1)])
    assert [file.name for file in report.directories] == [Path(file).name for file in asked.files]
    assert "target.json" in {file.name for file in report.directories}
    for file in report.directories:
        assert file.read_bytes() == (tmp_path / "asked" / file.name).read_bytes()


def test_graph_says_how_many_steps_and_ranks_it_has(client: Client, tmp_path: Path) -> None:
    report = client.graph("run:pair", tmp_path / "a.vis.db", steps=[(1, 1)])
    assert (report.steps, report.ranks) == (1, 2)


def test_the_output_may_name_a_database(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "mine.vis.db"
    report = client.export("pair", file, to="vis", ranks=["rank1"])
    assert (report.directories, report.files) == ((file,), 1)
    assert {row[-2] for row in tables(file)["nodes"]} == {1}  # the rank
    with pytest.raises(FailedPrecondition, match=r"mine\.vis\.db exists already"):
        client.export("pair", file, to="vis")
    left = tmp_path / "mine.vis.db-wal"
    left.write_bytes(b"of an earlier file")
    client.export("pair", file, to="vis", force=True)
    assert len({row[-2] for row in tables(file)["nodes"]}) == 2 and not left.exists()


def test_what_a_format_does_not_have_is_refused(client: Client, tmp_path: Path) -> None:
    there = "dump, grad_probe, model-explorer, trend, vis"
    with pytest.raises(InvalidArgument, match=f'no export format "pdf"; there are {there}'):
        client.export("pair", tmp_path / "out", to="pdf")
    with pytest.raises(InvalidArgument, match="strict JSON is for the format dump, and the format is trend"):
        client.export("pair", tmp_path / "out", to="trend", strict_json=True)
    with pytest.raises(NotFound, match="no step 7"):
        client.export("pair", tmp_path / "out", to="vis", steps=[7])
    assert not any((tmp_path / "out").iterdir())


def test_workers_write_dumps_only(server: FakeServer, run_client: Run, tmp_path: Path) -> None:
    result = run_client(
        "export", "training", "--to", "vis", "--engine", "queue", "-o", tmp_path / "o", "--server", server.address
    )
    assert result.returncode == 3 and "--engine queue is for dumps, not for vis" in result.stderr, result.stderr
    listed = subprocess.run(
        [sys.executable, "-m", "msprobe_client", "export", "--help"], capture_output=True, text=True, check=True
    ).stdout
    listed = re.sub(r"[\s│]+", "", listed)  # a line may end within a name
    assert all(f"{name}:" in listed for name in ("dump", "vis", "trend", "grad_probe", "model-explorer"))
