"""Figures in documents are those that a bench kept, with machine and date."""

import json
import pathlib
import sys

import pytest
from harness.processes import REPOSITORY

sys.path.append(str(REPOSITORY / "tests" / "bench"))
import figures
import sizing

KEPT = figures.FIGURES / "load.json"


def run(ranks, rate, *, steps, a_step, cpu):
    tensors = steps * a_step
    found = {"ranks": ranks, "tensors_a_second": rate, "tensors_stored": tensors, "tensors_emitted": tensors}
    found |= {"steps_stored": steps, "tensors_a_step": a_step, "server_cpu_seconds": cpu, "generator_cpu_seconds": 1.0}
    found |= {"wire_bytes_a_tensor": 39.3, "disk_bytes_a_tensor": 32.5, "server_rss_max_mb": 361.2, "seconds": 8.7}
    found |= {"batches_sent": 1000, "emitting_seconds": 8.0, "syncs_a_second": 5400.0, "sequential_mb_a_second": 1400.0}
    return {**found, "payload_bytes": 4e9, "payload_mb_a_second": 607.0}


@pytest.fixture
def kept():
    results = {
        "ranks64": run(64, 2e6, steps=16_000, a_step=1000, cpu=8.0),
        "ranks256": run(256, 1.8e6, steps=16_000, a_step=1000, cpu=8.0),
        "small_steps": run(64, 1e5, steps=100_000, a_step=10, cpu=10.5),
        "payloads_new": run(8, 5000.0, steps=40, a_step=1000, cpu=4.0),
        "payloads_repeated": run(8, 5000.0, steps=40, a_step=1000, cpu=1.0),
    }
    return {"machine": "a machine, 2 cores", "date": "2026-01-02", "results": results}


def test_the_page_on_sizes_has_the_figures_that_are_kept():
    text = sizing.PAGE.read_text()
    if KEPT.exists():
        assert sizing.with_figures(text, json.loads(KEPT.read_text())) == text, "tests/bench/load.py --write"
    else:
        assert sizing.part(text, "measured").startswith("The machine and the day of these figures were not kept.")


def test_sizes_follow_from_what_was_measured(kept):
    page = sizing.with_figures(sizing.PAGE.read_text(), kept)
    measured, computed = sizing.part(page, "measured"), sizing.part(page, "computed")
    assert measured.startswith("On 2026-01-02, on a machine, 2 cores,")
    assert "| tensor records durable a second | 2,000,000 | 1,800,000 |" in measured
    # 0.5 us a record; 10.5 s for 100,000 steps of 10 records leave 100 us a step.
    assert "rate x 0.5 us + R / T x 100 us" in computed
    assert "rate x 40 B" in computed and "rate x 33 B as it comes" in computed and "rate / 900,000 " in computed
    assert "| 256 | 30,000 every 5 s | 1.5 M/s | 61 MB/s | 5.3 TB | 0.77 | 2 |" in computed
    assert "| 2.1 TB | 0.3 | 3, for the sessions |" in computed
    assert sizing.with_figures(page, kept) == page, "a second time changes nothing"


def test_everything_else_on_the_page_stays(kept):
    before = sizing.PAGE.read_text()
    page = sizing.with_figures(before, kept)
    for name in sizing.PARTS:
        before, page = (text.replace(sizing.part(text, name), "") for text in (before, page))
    assert page == before


def test_kept_figures_name_machine_and_day():
    for path in pathlib.Path(figures.FIGURES).glob("*.json"):
        found = json.loads(path.read_text())
        assert found["machine"] and found["date"] and found["results"], path.name
