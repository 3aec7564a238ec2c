"""The work queue, its workers and its server killed at random: tests/chaos has it at length."""

import pytest
from harness.job_chaos import Fire


@pytest.mark.timeout(150)
def test_each_item_has_one_result_whatever_is_killed(tmp_path, short_directory):
    assert Fire(tmp_path, short_directory / "s", seed=20).run(items=400, seconds=8) >= 4
