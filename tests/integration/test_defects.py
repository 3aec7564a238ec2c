"""Defects of mindstudio-probe that are absent here, where no other suite shows it; test_documented.py has the whole
list.
"""

import pytest
from harness.dumps import entries, exported_steps, read_dump

FORWARD_OF_BLOCK = [
    "Functional.linear.1.forward",
    "Torch.sigmoid.0.forward",
    "Functional.linear.2.forward",
    "Torch.relu.0.forward",
]


def apis(data):
    return [name for name in data if name.endswith(".forward") and not name.startswith("Module.")]


@pytest.mark.timeout(120)
def test_a_scope_from_a_module_to_itself_holds_what_runs_inside(traced, dump_path):
    scope = ["Module.block.Block.forward.0"] * 2
    traced("defects.py", level="mix", section={"scope": scope})
    data = entries(dump_path)
    assert apis(data) == FORWARD_OF_BLOCK
    modules = [name for name in data if name.startswith("Module.") and ".forward." in name]
    assert sorted(modules) == [
        "Module.block.Block.forward.0",
        "Module.block.first.Linear.forward.0",
        "Module.block.second.Linear.forward.0",
    ]


@pytest.mark.timeout(120)
def test_a_rank_filter_without_ranks_is_said_and_nothing_is_written(traced, dump_path):
    done = traced("defects.py", rank=[0])
    (line,) = [line for line in done.stdout.splitlines() if "rank" in line and "WARNING" in line]
    assert "torch.distributed" in line and "rank_id" in line
    assert exported_steps(dump_path) == []


@pytest.mark.timeout(120)
def test_one_cpu_is_enough(traced, dump_path):
    traced("defects.py", "--one-cpu", section={"summary_mode": "md5"})
    assert "Torch.tanh.0.forward" in entries(dump_path)


@pytest.mark.timeout(180)
def test_two_programs_with_one_dump_path_keep_their_own(traced, dump_path):
    for _ in range(2):
        traced("defects.py")
    ranks = sorted((dump_path / "step0").iterdir())
    assert len(ranks) == 2
    first, second = (read_dump(rank)["data"] for rank in ranks)
    assert first == second and "Torch.tanh.0.forward" in first


@pytest.mark.timeout(120)
def test_a_step_without_a_record_ends_at_once(traced, dump_path):
    done = traced("defects.py", section={"list": ["matches nothing"]}, timeout=60)
    assert "ENDED" in done.stdout and "not exported" not in done.stdout
    assert exported_steps(dump_path) == []
