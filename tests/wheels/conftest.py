"""Fixtures of the agent's wheel for every torch and Python."""

import environments
import pytest


@pytest.fixture(scope="session")
def environment():
    """environment(torch, tag) -> its interpreter, with our wheels."""
    made = {}

    def get(*agent):
        if agent not in made:
            made[agent] = environments.make(*agent)
        return made[agent]

    return get
