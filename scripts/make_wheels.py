#!/usr/bin/env python3
"""Makes the three wheels and the client's sdist in dist/ from the built tree; --install puts the wheels into the
environment it runs in. With --all it makes another one: dist/all/msprobe_agent-*.whl, with the agents for every torch
and Python that build/ was configured for (make_agents.py); with --aarch64 dist/aarch64/msprobe_agent-*.whl, with those
of build-aarch64/.

A wheel whose inputs did not change since it was made is left alone, so a second run takes well under a second. The
digest of the inputs lies beside the wheel, as NAME.inputs; the digest of what is installed, in the environment. Each
has LICENSE and NOTICE inside, and a bill of materials beside it (sbom.py).
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import notices
import sbom
from auditwheel.tools import dir2zip, zip2dir
from auditwheel.wheeltools import rewrite_record
from machines import AARCH64, HERE, Machine
from stage_server import BUILD, install, version
from third_party import ROOT, THIS, Debian, Library, elf_files, libraries

DIST = ROOT / "dist"
RAW = DIST / "raw"

COMMON_INPUTS = (
    *("LICENSE", "NOTICE", "scripts/licences.toml"),
    *(f"scripts/{name}.py" for name in ("machines", "make_wheels", "notices", "sbom", "stage_server", "third_party")),
)
GENERATED = re.compile(r"_pb2(_grpc)?\.pyi?$")  # into the client's sources, by its own build
# torch's own libraries: the process has loaded them before our extension is imported.
TORCH_LIBRARIES = ("libtorch*.so*", "libc10*.so*", "libgomp*.so*", "libshm*.so*")


@dataclasses.dataclass(frozen=True)
class Wheel:
    name: str
    project: str
    inputs: tuple[str, ...]  # globs from the root: the inputs of the wheel's content
    kind: str  # pure, executable, extension
    targets: tuple[str, ...] = ()  # ninja's targets of the programs in it

    def files(self) -> Iterator[Path]:
        """The inputs, and the shared objects that its program links: a change of one makes the wheel anew."""
        for pattern in (*COMMON_INPUTS, *self.inputs):
            for path in sorted(ROOT.glob(pattern)):
                if path.is_file() and "__pycache__" not in path.parts and not GENERATED.search(path.name):
                    yield path
                    if path.name.partition(".")[0] in self.targets and path.suffix in ("", ".so"):
                        yield from linked(path)

    def digest(self) -> str:
        digest = hashlib.blake2b(sys.version.encode(), digest_size=16)
        for path in self.files():
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "blake2b").hexdigest()
            digest.update(f"{path} {content}\n".encode())
        return digest.hexdigest()


def linked(program: Path) -> list[Path]:
    said = subprocess.run(["ldd", program], text=True, stdout=subprocess.PIPE, check=True).stdout
    return [Path(found) for found in sorted(re.findall(r"=> (/\S+)", said))]


WHEELS = (
    Wheel(
        "msprobe_client",
        "client_py",
        (
            "client_py/*.*",
            "client_py/msprobe_client/**/*.py",
            "client_py/msprobe_client/py.typed",
            "client_py/tests/**/*.py",
            "proto/**/*.proto",
        ),
        "pure",
    ),
    Wheel(
        "msprobe_server",
        "server",
        ("server/pyproject.toml", "cmake/*", "build/server/msprobe-server"),
        "executable",
        ("msprobe-server",),
    ),
    Wheel(
        "msprobe_agent",
        "agent",
        (
            "agent/pyproject.toml",
            "agent/wheel/*.py",
            "agent/python/msprobe/**/*",
            "agent/python/msprobe_vllm/*.py",
            "build/agents.txt",
            "build/python/msprobe/torch*/_agent*.so",
            "build/python/msprobe/_mindspore*.so",
        ),
        "extension",
        ("_agent", "_mindspore", "libmsprobe_messages"),
    ),
)


def run(*command: str | Path, cwd: Path = ROOT, **variables: str) -> None:
    """Runs a command quietly, with this environment's tools first; its output is shown when it fails."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        **variables,
    }
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{done.stdout}\nmake_wheels: {' '.join(map(str, command))} failed")


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
        for old in directory.glob(f"{wheel.name}-*"):
            old.unlink()
    target = RAW if wheel.kind == "extension" else DIST
    options: list[str | Path] = []
    if wheel.kind == "executable":
        stage = BUILD / "stage" / wheel.name
        install(stage)
        options = [f"--config-settings=wheel.tags=py3-none-{manylinux_tag(list(elf_files(stage)))}"]
    run(
        *(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", target, *options),
        ROOT / wheel.project,
    )
    if wheel.kind == "extension":
        repair(only_wheel(RAW, wheel.name), DIST, THIS)
    add_notices(wheel, only_wheel(DIST, wheel.name), wheel.targets, HERE)
    if wheel.kind == "pure":
        run(
            sys.executable,
            "-m",
            "hatchling",
            "build",
            "--target",
            "sdist",
            "--directory",
            DIST,
            cwd=ROOT / wheel.project,
        )
        (sdist,) = DIST.glob(f"{wheel.name}-*.tar.gz")
        write_bill(wheel, sdist, ROOT, [])


def repair(raw: Path, into: Path, debian: Debian) -> None:
    options = [f"--exclude={library}" for library in TORCH_LIBRARIES]
    if debian.root:
        options.append(f"--ldpaths={debian.place(f'/usr/lib/{AARCH64.name}-linux-gnu')}:{debian.place('/usr/lib')}")
    run("auditwheel", "repair", *options, "--wheel-dir", into, raw)


def build_all(wheel: Wheel, machine: Machine) -> Path:
    """The wheel of every torch and Python that there is an agent for."""
    shutil.rmtree(machine.wheels, ignore_errors=True)
    raw = machine.wheels / "raw"
    settings = {
        "build-dir": str(machine.build),
        "build.targets": "_agent;_mindspore;agents",
        "install.components": "agent;agents",
    }
    pythons = sorted({python for _, python in machine.agents()}, key=len_then_text)
    if machine != HERE:
        settings["wheel.tags"] = f"{pythons[0]}-{pythons[0]}-linux_{machine.name}"
    options: list[str | Path] = [f"--config-settings={key}={value}" for key, value in settings.items()]
    run(
        *(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", raw, *options),
        ROOT / wheel.project,
        MSPROBE_WHEEL=str(machine.build),
    )
    repair(only_wheel(raw, wheel.name), machine.wheels, machine.debian)
    shutil.rmtree(raw)
    made = for_pythons(only_wheel(machine.wheels, wheel.name), pythons)
    targets = [*wheel.targets]
    targets += [f"_agent_torch{torch}_{python}" for torch, python in machine.agents()[1:]]
    add_notices(wheel, made, targets, machine)
    return made


def len_then_text(tag: str) -> tuple[int, str]:
    return len(tag), tag  # cp39 before cp310


def for_pythons(made: Path, pythons: Sequence[str]) -> Path:
    """The wheel `made`, which says that it serves these."""
    name, version, *_, platforms = made.stem.split("-")
    joined = ".".join(pythons)
    other = made.with_name(f"{name}-{version}-{joined}-{joined}-{platforms}.whl")
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        zip2dir(made, tree)
        (marks,) = tree.glob("*.dist-info/WHEEL")
        lines = [line for line in marks.read_text(encoding="utf-8").splitlines() if line and line[:4] != "Tag:"]
        lines += [f"Tag: {each}-{each}-{platform}" for each in pythons for platform in platforms.split(".")]
        marks.write_text("\n".join(lines) + "\n", encoding="utf-8")
        rewrite_record(tree)
        made.unlink()
        dir2zip(tree, other, zlib.Z_DEFAULT_COMPRESSION, None)
    return other


def add_notices(wheel: Wheel, made: Path, targets: Sequence[str], machine: Machine) -> None:
    """Adds the licences of the libraries in a wheel; targets: ninja's, of its programs."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        zip2dir(made, tree)
        carried = libraries(tree, targets, machine.build, machine.debian) if wheel.targets else []
        (information,) = tree.glob("*.dist-info")
        notices.write(information / "licenses", wheel.name.replace("_", "-"), carried)
        metadata = information / "METADATA"
        ours = f"\nLicense-Expression: {notices.OURS}\n"
        text = metadata.read_text(encoding="utf-8")
        if ours not in text:
            raise SystemExit(f"make_wheels: {made.name} does not say that it is under {notices.OURS}")
        whole = f"\nLicense-Expression: {notices.expression(carried)}\n"
        metadata.write_text(text.replace(ours, whole, 1), encoding="utf-8")
        rewrite_record(tree)
        dir2zip(tree, made, zlib.Z_DEFAULT_COMPRESSION, None)
        write_bill(wheel, made, tree, carried)


def write_bill(wheel: Wheel, made: Path, tree: Path, carried: Sequence[Library]) -> None:
    name = wheel.name.replace("_", "-")
    purl = f"pkg:pypi/{name}@{version()}?file_name={made.name}"
    sbom.write(made, name=name, version=version(), kind="library", purl=purl, tree=tree, libraries=carried)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--install", action="store_true", help="also install them, without their dependencies")
    parser.add_argument(
        "--all", action="store_true", help="make the agent's wheel of every torch and Python, and no other"
    )
    parser.add_argument("--aarch64", action="store_true", help="make the same one for aarch64")
    options = parser.parse_args()
    if options.all or options.aarch64:
        (agent,) = [wheel for wheel in WHEELS if wheel.kind == "extension"]
        print(f"made {build_all(agent, AARCH64 if options.aarch64 else HERE).relative_to(ROOT)}")
        return
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
