"""Fixtures of the agent's wheel for every torch and Python."""

import json

import environments
import pytest


def pytest_generate_tests(metafunc):
    """Tests of one agent stand together, so one environment is on the disk at a time."""
    if "agent" in metafunc.fixturenames:
        metafunc.parametrize("agent", environments.agents(), indirect=True, scope="module", ids="-".join)


@pytest.fixture(scope="module")
def agent(request):
    """The interpreter of an environment that has a torch and our wheels alone; removed afterwards."""
    with environments.made(*request.param) as python:
        yield python


@pytest.fixture(scope="module")
def without(agent, tmp_path_factory):
    """The outcome where msprobe is not imported."""
    out = tmp_path_factory.mktemp("off") / "out.json"
    return json.loads(environments.outcome_of(agent, out, "--agent", "off").read_text())
