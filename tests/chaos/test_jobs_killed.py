"""The work queue under fire for minutes, with other seeds: each item has one result."""

import pytest
from harness.job_chaos import Fire


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(3))
def test_each_item_has_one_result_whatever_is_killed(seed, tmp_path, short_directory):
    assert Fire(tmp_path, short_directory / "s", seed).run(items=6000, seconds=120) >= 50
