"""Tests that are too many for every change."""

from collections.abc import Iterable
from typing import Any

import pytest


def mostly_nightly(cases: Iterable[Any], *always: Any) -> list[Any]:
    """The cases for parametrize: `make test` runs those of `always`, `make nightly` runs the others."""
    return [case if case in always else _nightly(case) for case in cases]


def _nightly(case: Any) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.nightly)
