#!/usr/bin/env python3
"""Builds the agent for every torch and Python in VERSIONS, and makes one wheel of them: dist/all/msprobe_agent-*.whl,
or for aarch64 dist/aarch64/msprobe_agent-*.whl.

    make_agents.py                                       all, with the interpreters that are found
    make_agents.py --tested                              those that `make nightly` tests
    make_agents.py --torch 2.10.0 --python python3.13    these alone, besides the environment's own
    make_agents.py --aarch64                             all, for Debian's Python on aarch64
    make wheels-test AGENTS='--torch 2.7.1 --torch 2.10.0'   builds these, and tests them

A build needs of torch the headers and four libraries to link, whichever Python that wheel is for: they are downloaded
once (`pip download`), and lie in build/torches. Of Python it needs the headers of an installed interpreter. build/
stays configured for them; `make build` builds the environment's own alone as before. For aarch64 everything lies in
build-aarch64, with the packages of Debian that debian_root.sh unpacks there.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from machines import AARCH64, HERE, Machine
from third_party import ROOT


@dataclasses.dataclass(frozen=True)
class Version:
    """A minor version of torch."""

    patch: str  # that is built with
    pythons: range  # minor versions of Python 3 for which it has a wheel
    tested: bool = False  # every night, with each Python of TESTED_PYTHONS


VERSIONS = (
    Version("2.6.0", range(9, 14), tested=True),
    Version("2.7.1", range(9, 14)),
    Version("2.8.0", range(9, 14), tested=True),
    Version("2.9.1", range(10, 14)),
    Version("2.10.0", range(10, 14), tested=True),
    Version("2.11.0", range(10, 14)),
    Version("2.12.1", range(10, 14)),
    Version("2.13.0", range(10, 14), tested=True),
)
PYTHONS = range(9, 14)
TESTED_PYTHONS = range(10, 14)
ANY_PYTHON = "3.11"  # whose wheel is downloaded
PLATFORMS = ("manylinux_2_17", "manylinux2014", "manylinux_2_28")  # of torch's wheels
LIBRARIES = ("libtorch.so", "libtorch_cpu.so", "libtorch_python.so", "libc10.so")
NEEDED = re.compile(rf"torch/(version\.py|include/.*|lib/({'|'.join(map(re.escape, LIBRARIES))}))")


def unpacked(torch: str, folder: Path, machine: Machine) -> Path:
    """The folder "torch" of this version, downloaded unless it is there."""
    whole = folder / torch
    if not whole.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as part:
            print(f"downloading torch {torch}", flush=True)
            asked = ["--no-deps", "--only-binary=:all:", f"--python-version={ANY_PYTHON}", f"torch=={torch}"]
            if machine != HERE:
                asked += [f"--platform={platform}_{machine.name}" for platform in PLATFORMS]
            subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--dest", part, *asked], check=True)
            (wheel,) = Path(part).glob("*.whl")
            with zipfile.ZipFile(wheel) as content:
                content.extractall(f"{part}/torch", [name for name in content.namelist() if NEEDED.fullmatch(name)])
            Path(part, "torch").rename(whole)
    return whole / "torch"


def patch_of(minor: str) -> str:
    """Of "2.10" the version that agents are built with."""
    (patch,) = [version.patch for version in VERSIONS if version.patch.startswith(f"{minor}.")]
    return patch


def interpreters() -> Iterator[str]:
    """The Pythons of this machine: those on the path, and pyenv's."""
    for minor in PYTHONS:
        found = shutil.which(f"python3.{minor}")
        installed = sorted(
            Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser().glob(f"versions/3.{minor}.*/bin/python")
        )
        if found and works(found):
            yield found
        elif installed:
            yield str(installed[-1])


def works(python: str) -> bool:
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def minor_of(python: str) -> int:
    said = subprocess.run(
        [python, "-c", "import sys; print(sys.version_info[1])"], capture_output=True, text=True, check=True
    )
    return int(said.stdout)


def configure(machine: Machine, agents: Sequence[str]) -> None:
    command = ["cmake", "-S", ROOT, "-B", machine.build]
    if machine != HERE:
        # There is no environment whose torch would be the first.
        torch, _, python = agents[-1].rpartition("@")
        command += ["-G", "Ninja", "--toolchain", ROOT / "cmake" / "Aarch64.cmake"]
        command += [f"-DMSPROBE_ROOT={machine.debian.root}", f"-DMSPROBE_TORCH={torch}", f"-DMSPROBE_PYTHON={python}"]
        command += ["-DMSPROBE_BUILD_SERVER=OFF", "-DMSPROBE_BUILD_TESTS=OFF"]
    command += [f"-DMSPROBE_MORE_AGENTS={';'.join(agents)}"]
    subprocess.run([*map(str, command)], check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tested", action="store_true", help="only the versions that are tested every night")
    parser.add_argument("--torch", action="append", help="a version of torch, as 2.10.0; may be given several times")
    parser.add_argument("--python", action="append", help="an interpreter; may be given several times")
    parser.add_argument("--aarch64", action="store_true", help="for aarch64, with Debian's Python for it")
    parser.add_argument("--torches", type=Path, help="where torch is unpacked; default: torches in the build folder")
    parser.add_argument("--no-wheel", action="store_true", help="build the extensions alone")
    options = parser.parse_args()
    machine = AARCH64 if options.aarch64 else HERE
    if machine.debian.root:
        subprocess.run([Path(__file__).with_name("debian_root.sh"), machine.debian.root], check=True)
        options.python = [str(machine.python)]
    torches = (options.torches or machine.build / "torches").absolute()
    pythons = {minor_of(python): python for python in options.python or interpreters()}
    versions = [version for version in VERSIONS if version.tested or not options.tested]
    if options.tested:
        pythons = {minor: python for minor, python in pythons.items() if minor in TESTED_PYTHONS}
    if options.torch:
        known = {version.patch: version for version in VERSIONS}
        versions = [known.get(patch, Version(patch, PYTHONS)) for patch in options.torch]
    agents = []
    for version in versions:
        serving = [python for minor, python in sorted(pythons.items()) if minor in version.pythons]
        agents += [f"{unpacked(version.patch, torches, machine)}@{python}" for python in serving]
    configure(machine, agents)
    jobs = os.environ.get("JOBS", str(os.cpu_count() or 1))
    subprocess.run(["ninja", "-C", machine.build, "-j", jobs, "--quiet", "agents"], check=True)
    if not options.no_wheel:
        which = "--all" if machine == HERE else "--aarch64"
        subprocess.run([sys.executable, Path(__file__).with_name("make_wheels.py"), which], check=True)


if __name__ == "__main__":
    main()
