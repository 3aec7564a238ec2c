"""pip and the agent's wheel: it goes with its torch, and never replaces an installed one.

In an empty environment, by pip's own resolver, from a folder that has our wheels and others without content.
"""

import json
import shutil
import subprocess
import sys
import zipfile

import pytest
import torch
from harness.processes import REPOSITORY

DIST = REPOSITORY / "dist"
OURS = ".".join(torch.__version__.split(".")[:2])
MAJOR, MINOR = map(int, OURS.split("."))
EARLIER, LATER = f"{MAJOR}.{MINOR - 1}", f"{MAJOR}.{MINOR + 1}"


def write_wheel(folder, name, version, *requires):
    """A wheel of nothing but its metadata."""
    info = f"{name}-{version}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {each}" for each in requires]
    if any("extra ==" in each for each in requires):
        lines.append("Provides-Extra: torch")
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", "\n".join(lines) + "\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Our wheels, torch in three minor versions, and an agent that was built for the earlier one."""
    folder = tmp_path_factory.mktemp("wheels")
    ours = [path for name in ("agent", "server") for path in DIST.glob(f"msprobe_{name}-*.whl")]
    assert len(ours) == 2, f"{DIST} has {ours}: run `make wheels`"
    for path in ours:
        shutil.copy(path, folder)
    write_wheel(folder, "PyYAML", "6.0")
    for minor in (EARLIER, OURS, LATER):
        write_wheel(folder, "torch", f"{minor}.0")
    agent = ["msprobe-server==0.1.0", f'torch=={EARLIER}.*; extra == "torch"']
    write_wheel(folder, "msprobe_agent", f"0.1.0+torch{EARLIER}", *agent)
    return folder


@pytest.fixture(scope="module")
def install(tmp_path_factory, folder):
    """install(*asked, torch=None) -> (name -> version of what pip would install, its output), beside that torch."""
    made = {}

    def environment(version):
        if version not in made:
            made[version] = tmp_path_factory.mktemp("environment")
            subprocess.run([sys.executable, "-m", "venv", made[version]], check=True)
            if version is not None:
                pip(made[version], "install", f"torch=={version}.0", check=True)
        return made[version]

    def pip(where, *arguments, **options):
        command = [where / "bin" / "python", "-m", "pip", "--disable-pip-version-check", *arguments]
        command += ["--no-index", "--find-links", folder]
        return subprocess.run(command, capture_output=True, text=True, **options)

    def install(*asked, torch=None):
        report = folder / "report.json"
        report.unlink(missing_ok=True)
        done = pip(environment(torch), "install", "--dry-run", "--report", report, *asked)
        if done.returncode != 0:
            return None, done.stdout + done.stderr
        wanted = json.loads(report.read_text())["install"]
        return {
            item["metadata"]["name"].lower().replace("_", "-"): item["metadata"]["version"] for item in wanted
        }, done.stdout

    return install


@pytest.mark.nightly
@pytest.mark.parametrize("there", [None, EARLIER, OURS, LATER])
def test_plainly_installed_it_leaves_torch_as_it_is(install, there):
    wanted, output = install("msprobe-agent", torch=there)
    assert wanted is not None and "torch" not in wanted, output
    assert wanted["msprobe-server"] == "0.1.0"


def test_the_version_says_which_torch_it_is_built_for(install):
    wanted, output = install("msprobe-agent")
    assert wanted["msprobe-agent"] == f"0.1.0+torch{OURS}", output


def test_the_extra_asks_for_that_torch_though_a_later_one_is_there_to_be_had(install):
    wanted, output = install("msprobe-agent[torch]")
    assert wanted["torch"] == f"{OURS}.0", output


def test_with_torch_held_the_extra_finds_the_build_that_fits(install, tmp_path):
    held = tmp_path / "held.txt"
    held.write_text(f"torch=={EARLIER}.0\n")
    wanted, output = install("msprobe-agent[torch]", "--constraint", held, torch=EARLIER)
    assert wanted["msprobe-agent"] == f"0.1.0+torch{EARLIER}" and "torch" not in wanted, output


@pytest.mark.nightly
def test_with_torch_held_pip_refuses_where_no_build_fits(install, tmp_path):
    held = tmp_path / "held.txt"
    held.write_text(f"torch=={LATER}.0\n")
    wanted, output = install("msprobe-agent[torch]", "--constraint", held, torch=LATER)
    assert wanted is None
    assert f"torch=={OURS}.*" in output and f"=={LATER}.0" in output, output
