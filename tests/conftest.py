"""Fixtures of the suites that cross rooms."""
import os
import pathlib

import pytest
from harness.processes import REPOSITORY, find_binary, servers_of, wait_until

SERVER_LINGER_S = 60


@pytest.fixture(scope="session")
def reference():
    """Recorded dumps of the established tool and the scripts that make them."""
    path = pathlib.Path(os.environ.get("MSPROBE_REFERENCE", REPOSITORY.parent / "shared" / "reference"))
    if not (path / "dump" / "make.py").exists():
        pytest.skip(f"no reference programs in {path}: set MSPROBE_REFERENCE")
    os.environ["MSPROBE_REFERENCE"] = str(path)
    return path


@pytest.fixture(scope="session")
def oracle_python():
    """The Python of the environment that holds the established tool."""
    path = pathlib.Path(os.environ.get("MSPROBE_ORACLE_PYTHON", REPOSITORY / ".oracle" / "bin" / "python"))
    if not path.exists():
        pytest.skip(f"no established tool at {path}: run `make oracle` or set MSPROBE_ORACLE_PYTHON")
    return path


@pytest.fixture(scope="session")
def client():
    path = find_binary("msprobe-client")
    assert path, "msprobe-client is not installed: run `make build`"
    return path


@pytest.fixture
def dump_path(tmp_path):
    """A dump_path of this test alone; no server may outlive the test on it."""
    path = tmp_path / "dump"
    yield path
    if servers_of(path):
        wait_until(lambda: not servers_of(path), SERVER_LINGER_S, f"no server is left on {path}")
