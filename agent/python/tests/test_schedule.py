"""Which steps a schedule captures: those that torch.profiler.schedule records."""

import itertools
import json

import torch
from msprobe._common.native import extension
from torch.profiler import ProfilerAction

RECORDED = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


def test_it_is_that_of_torch_profiler(tmp_path):
    grid = itertools.product((0, 1, 3), (0, 2), (1, 2, 5), (0, 1, 3), (0, 1, 4))
    for wait, warmup, active, repeat, skip_first in grid:
        fields = {"wait": wait, "warmup": warmup, "active": active, "repeat": repeat, "skip_first": skip_first}
        text = json.dumps({"dump_path": str(tmp_path), "schedule": fields})
        config = extension.parse_config(text, task=None, dump_path=None, level=None, step=None)
        theirs = torch.profiler.schedule(**fields)
        steps = range(50)
        recorded = [step for step in steps if theirs(step) in RECORDED]
        assert [step for step in steps if config.scheduled(step)] == recorded, fields
        assert config.schedule == fields
        over = [step for step in steps if config.schedule_is_over(step)]
        assert bool(over) == (repeat > 0) and not set(over) & set(recorded), fields


def test_the_argument_stands_above_the_file(tmp_path):
    from msprobe._common.config_file import ConfigFile

    path = tmp_path / "config.json"
    path.write_text(json.dumps({"dump_path": str(tmp_path), "schedule": {"active": 5}}))
    file = ConfigFile(path, None, None, None, None, {"wait": 1, "active": 2})
    assert [file.parse().scheduled(step) for step in range(4)] == [False, True, True, False]
    assert file.asked()["schedule"] == {"wait": 1, "active": 2}
