#!/usr/bin/env python3
"""Makes the three wheels in dist/ from the built tree, and with --install puts them into the environment it runs in.

A wheel whose inputs did not change since it was made is left alone, so a second run takes well under a second. The
digest of the inputs lies beside the wheel, as NAME.inputs; the digest of what is installed, in the environment.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
RAW = DIST / "raw"

# torch's own libraries: the process has loaded them before our extension is imported.
TORCH_LIBRARIES = ("libtorch*.so*", "libc10*.so*", "libgomp*.so*", "libshm*.so*")


@dataclasses.dataclass(frozen=True)
class Wheel:
    name: str
    project: str
    inputs: tuple[str, ...]  # globs from the root; what the wheel's content depends on
    kind: str  # pure, executable, extension

    def files(self) -> Iterator[Path]:
        for pattern in self.inputs:
            for path in sorted(ROOT.glob(pattern)):
                if path.is_file() and "__pycache__" not in path.parts:
                    yield path

    def digest(self) -> str:
        digest = hashlib.blake2b(sys.version.encode(), digest_size=16)
        for path in self.files():
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "blake2b").hexdigest()
            digest.update(f"{path.relative_to(ROOT)} {content}\n".encode())
        return digest.hexdigest()


WHEELS = (
    Wheel(
        "msprobe_client",
        "client_py",
        ("client_py/*.*", "client_py/msprobe_client/**/*.py", "client_py/msprobe_client/py.typed", "proto/**/*.proto"),
        "pure",
    ),
    Wheel("msprobe_server", "server", ("server/pyproject.toml", "cmake/*", "build/**/msprobe-server"), "executable"),
    Wheel(
        "msprobe_agent",
        "agent",
        (
            "agent/pyproject.toml",
            "agent/python/msprobe/**/*",
            "agent/python/msprobe_vllm/*.py",
            "build/python/msprobe/_agent*.so",
        ),
        "extension",
    ),
)


def run(*command: str | Path) -> None:
    """Runs a command quietly, with this environment's tools first; its output is shown when it fails."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [*map(str, command)],
        cwd=ROOT,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{done.stdout}\nmake_wheels: {' '.join(map(str, command))} failed")


def install(component: str, prefix: Path) -> None:
    """What a component of build/ installs, below `prefix`: a wheel that was built there left its own places behind."""
    run("cmake", "-S", ".", "-B", "build", "-U", "SKBUILD*")
    run("cmake", "--install", "build", "--component", component, "--prefix", prefix)


def only_wheel(directory: Path, name: str) -> Path:
    found = sorted(directory.glob(f"{name}-*.whl"))
    if len(found) != 1:
        raise SystemExit(
            f"make_wheels: expected one {name}-*.whl in {directory}, found {[path.name for path in found]}"
        )
    return found[0]


def manylinux_tag(files: list[Path]) -> str:
    """The oldest platform these ELF files run on, by the newest GLIBC and GLIBCXX symbols they ask for."""
    names = subprocess.run(
        ["objdump", "--private-headers", *map(str, files)], text=True, stdout=subprocess.PIPE, check=True
    ).stdout
    minor = max(int(found) for found in re.findall(r"\bGLIBC_2\.(\d+)", names))
    # GLIBCXX_3.4.30 came with GCC 12, which the policy counts to manylinux_2_35.
    if max(int(found) for found in re.findall(r"\bGLIBCXX_3\.4\.(\d+)", names)) >= 30:
        minor = max(minor, 35)
    machine = subprocess.run(["uname", "-m"], text=True, stdout=subprocess.PIPE, check=True).stdout.strip()
    return f"manylinux_2_{minor}_{machine}"


def build(wheel: Wheel) -> None:
    for directory in (RAW, DIST):
        directory.mkdir(exist_ok=True, parents=True)
        for old in directory.glob(f"{wheel.name}-*.whl"):
            old.unlink()
    target = RAW if wheel.kind == "extension" else DIST
    options: list[str | Path] = []
    if wheel.kind == "executable":
        stage = ROOT / "build" / "stage" / wheel.name
        install(wheel.project, stage)
        elf = [path for path in stage.rglob("*") if path.is_file()]
        options = [f"--config-settings=wheel.tags=py3-none-{manylinux_tag(elf)}"]
    run(
        *(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", target, *options),
        ROOT / wheel.project,
    )
    if wheel.kind == "extension":
        excludes = [f"--exclude={library}" for library in TORCH_LIBRARIES]
        run("auditwheel", "repair", *excludes, "--wheel-dir", DIST, only_wheel(RAW, wheel.name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--install", action="store_true", help="also install them, without their dependencies")
    options = parser.parse_args()
    stale = []
    for wheel in WHEELS:
        digest = wheel.digest()
        made = DIST / f"{wheel.name}.inputs"
        if not made.is_file() or made.read_text() != digest or not list(DIST.glob(f"{wheel.name}-*.whl")):
            build(wheel)
            made.write_text(digest)
            print(f"made {only_wheel(DIST, wheel.name).relative_to(ROOT)}")
        installed = Path(sys.prefix) / f".{wheel.name}.inputs"
        if not installed.is_file() or installed.read_text() != digest:
            stale.append((wheel, installed, digest))
    if not options.install or not stale:
        return
    wheels = [only_wheel(DIST, wheel.name) for wheel, _, _ in stale]
    run(sys.executable, "-m", "pip", "install", "--force-reinstall", "--no-deps", *wheels)
    for wheel, installed, digest in stale:
        installed.write_text(digest)
        print(f"installed {wheel.name}")


if __name__ == "__main__":
    main()
