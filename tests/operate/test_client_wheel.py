"""The client's wheel alone, in an environment that has nothing but what pip brings with it."""

import json
import sys

import pytest
from harness.processes import run
from operate_checks import output_of


@pytest.fixture(scope="module")
def environment(wheels, tmp_path_factory):
    directory = tmp_path_factory.mktemp("empty") / "venv"
    output_of(sys.executable, "-m", "venv", directory)
    install(directory, wheels["client"])
    return directory


def install(environment, wheel):
    output_of(environment / "bin" / "python", "-m", "pip", "install", "--quiet", wheel, timeout=300)


def asked(environment, *arguments, **options):
    """Runs the environment's client, which sees nothing of this one."""
    hidden = {"PYTHONPATH": None, "MSPROBE_SERVER_BINARY": None, "PATH": f"{environment / 'bin'}:/usr/bin:/bin"}
    return run([environment / "bin" / "msprobe-client", *arguments], check=False, **hidden, **options)


@pytest.mark.timeout(600)
def test_it_needs_neither_torch_nor_numpy(environment):
    said = output_of(environment / "bin" / "python", "-m", "pip", "list", "--format", "json")
    names = {each["name"].lower() for each in json.loads(said)}
    assert "msprobe-client" in names and not names & {"torch", "numpy", "msprobe-agent", "msprobe-server"}
    helped = asked(environment, "--help")
    assert helped.returncode == 0 and "compare" in helped.stdout, helped.stderr


@pytest.mark.timeout(600)
def test_with_the_servers_wheel_it_compares_dumps(environment, wheels, reference, tmp_path):
    install(environment, wheels["server"])
    golden, perturbed = (
        reference / "compare" / f"statistics_{side}" / "step0" / "proc1" for side in ("golden", "perturb")
    )
    same = asked(environment, "compare", golden, golden, cwd=tmp_path)
    assert same.returncode == 0, same.stderr
    other = asked(environment, "--format", "json", "compare", perturbed, golden, cwd=tmp_path)
    assert other.returncode == 1 and json.loads(other.stdout), other.stderr
