"""What the tests of deploy/ share."""

import os
import pathlib
import shutil

import pytest
from harness.processes import REPOSITORY, find_binary
from operate_checks import output_of


@pytest.fixture(scope="session")
def deploy():
    return REPOSITORY / "deploy"


def tool(name, how):
    """The path of a program, or a skip that says how to get it."""
    own = REPOSITORY / ".operate" / "bin" / name
    beside = REPOSITORY / ".venv" / "bin" / name
    found = next((str(path) for path in (own, beside) if path.exists()), shutil.which(name))
    if not found:
        pytest.skip(f"{name} is not here: {how}")
    return found


@pytest.fixture(scope="session")
def kubectl():
    return tool("kubectl", "make test-operate downloads it")


@pytest.fixture(scope="session")
def helm():
    return tool("helm", "make test-operate downloads it")


@pytest.fixture(scope="session")
def promtool():
    return tool("promtool", "Debian package prometheus")


@pytest.fixture(scope="session")
def prometheus():
    return tool("prometheus", "Debian package prometheus")


@pytest.fixture
def programs():
    return pathlib.Path(__file__).parent / "programs"


@pytest.fixture(scope="session")
def server_binary():
    path = find_binary("msprobe-server")
    assert path, "msprobe-server is not built: run `make build`"
    return path


def debian_root(name, packages):
    """unpack(directory): a Debian 12 of essential packages and these alone. Made once, kept as .operate/{name}.tar."""
    if os.geteuid() != 0:
        pytest.skip("a root file system is made and entered by root alone")
    tarball = REPOSITORY / ".operate" / f"{name}.tar"
    if not tarball.exists():
        program = tool("mmdebstrap", "Debian package mmdebstrap")
        tarball.parent.mkdir(exist_ok=True)
        made = tarball.with_suffix(".part.tar")
        output_of(
            program, "--quiet", "--variant=minbase", f"--include={','.join(packages)}", "bookworm", made, timeout=300
        )
        made.replace(tarball)

    def unpack(directory):
        directory.mkdir(parents=True)
        output_of("tar", "--extract", "--file", tarball, "--directory", directory, "--exclude=./dev/*")
        return directory

    return unpack


@pytest.fixture(scope="session")
def bare_debian():
    return debian_root("debian", ["libstdc++6"])


@pytest.fixture(scope="session")
def bare_python():
    return debian_root("python", ["python3", "python3-venv", "libstdc++6"])
