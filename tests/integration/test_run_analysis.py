"""Analysis of a run that was captured live gives the same as analysis of its exported files."""

import pytest
from harness.processes import external_server

RUN = "live"


@pytest.fixture
def address(short_directory):
    return short_directory / "s.sock"


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("program", "arguments", "settings"),
    [
        ("train_steps.py", ("--steps", 2), {"level": "mix"}),
        ("train_steps.py", ("--steps", 2), {"level": "mix", "summary_mode": "md5"}),
        ("train_steps.py", ("--steps", 2), {"level": "L1", "summary_mode": "xor"}),
        ("train_steps.py", ("--steps", 1), {"level": "mix", "task": "tensor"}),
    ],
    ids=["statistics", "md5", "xor", "tensor"],
)
def test_a_live_run_equals_its_export(tmp_path, traced, address, program, arguments, settings):
    from msprobe_client.client import Client

    with external_server(address, tmp_path / "data", tmp_path / "server.log"):
        traced(program, *arguments, server=f"unix:{address}", run=RUN, **settings)
        with Client(f"unix:{address}") as client:
            client.export(RUN, tmp_path / "exported")
            client.import_dump(tmp_path / "exported", "exported")
            sides = [f"run:{RUN}", "run:exported"]
            for target, golden in (sides, sides[::-1], [sides[0]] * 2):
                found = list(client.compare(target, golden, rows="all", order="execution"))
                rows = [row for row in found if hasattr(row, "verdict")]
                assert len(rows) > 50
                assert not [row for row in rows if row.is_difference or row.verdict == "within"]
            tables = {}
            for source in sides:
                reports = client.compare_tables(
                    source, source, tmp_path / "tables", file_name=lambda chunk, at=source: f"{at[4:]}{chunk.step}.csv"
                )
                tables[source] = [(tmp_path / "tables" / report.path).read_text() for report in reports]
            assert tables[sides[0]] == tables[sides[1]] and tables[sides[0]]
