"""Shared fixtures of the tests of deploy/."""

import importlib
import os
import pathlib
import re
import shutil
import sys

import pytest
from harness.processes import REPOSITORY, find_binary
from operate_checks import output_of
from web_pages import chromium, four, opened, place  # noqa: F401 - fixtures


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


@pytest.fixture(scope="session")
def alertmanager():
    return tool("prometheus-alertmanager", "Debian package prometheus-alertmanager")


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


def built(*command, timeout):
    """Runs a script that makes artefacts of the build in dist/; gives its output."""
    if not (REPOSITORY / "build" / "cmake_install.cmake").exists():
        pytest.skip("nothing is built: run `make build`")
    return output_of(sys.executable, *command, cwd=REPOSITORY, timeout=timeout)


def only(pattern):
    (path,) = (REPOSITORY / "dist").glob(pattern)
    return path


@pytest.fixture(scope="session")
def wheels():
    """The three wheels and the client's sdist, by kind."""
    built("scripts/make_wheels.py", timeout=900)
    found = {part: only(f"msprobe_{part}-*.whl") for part in ("agent", "server", "client")}
    return {**found, "sdist": only("msprobe_client-*.tar.gz")}


@pytest.fixture(scope="session")
def packages():
    built("scripts/make_package.py", timeout=600)
    return {"deb": only("msprobe-server_*.deb"), "tarball": only("msprobe-server-*.tar.gz")}


@pytest.fixture(scope="session")
def make_image():
    sys.path.append(str(REPOSITORY / "scripts"))
    return importlib.import_module("make_image")


@pytest.fixture(scope="session")
def image(make_image):
    """The name of the server's image; its archive is in dist/."""
    if os.geteuid() != 0 or not shutil.which("buildah"):
        pytest.skip("an image is built by root with buildah (Debian package)")
    said = built("scripts/make_image.py", timeout=900)
    assert re.search(r"serves [\d.]+ s after its start", said), said
    return f"{make_image.IMAGE}:{make_image.version()}"
