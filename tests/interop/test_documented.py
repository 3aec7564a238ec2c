"""Every difference that the comparer allows is a row of docs/compatibility.md."""

import pytest
from allowed import ALLOWED, DOCUMENTED_RULES
from harness.processes import REPOSITORY

ROWS = sorted({rule.row for rules in ALLOWED.values() for rule in rules} | set(DOCUMENTED_RULES))


@pytest.mark.parametrize("row", ROWS)
def test_the_difference_is_documented(row):
    text = (REPOSITORY / "docs" / "compatibility.md").read_text()
    assert f"| `{row}` |" in text, f"docs/compatibility.md has no row `{row}`"
