"""Finds the third-party libraries of an artefact: shared objects beside our programs, and headers compiled into them.

Shared objects are found in the artefact's tree and looked up in dpkg's database under the name that they had before
auditwheel gave them another. Of a build for another machine, the files of that machine's Debian lie below a folder,
with a database of their own (debian_root.sh). Headers and archives come from ninja's log, which names the inputs of
each object file. A library without a licence in licences.toml, or of unknown origin, ends the program with a message.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import os
import platform
import re
import subprocess
import sysconfig
import tomllib
import urllib.parse
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LICENCES = ROOT / "scripts" / "licences.toml"
# The part that auditwheel adds to the name of a library that it copies.
COPY_MARK = re.compile(r"-[0-9a-f]{8}(?=\.so)")
TORCH_OWN = ("ATen", "c10", "caffe2", "torch")
# Agents for other versions of Python and torch are built with headers from elsewhere (make_agents.py); Debian has
# pyconfig.h in a folder of its own.
PYTHON_HEADERS = re.compile(r"/include/([^/]+-linux-gnu/)?python3\.\d+/")
TORCH_HEADERS = re.compile(r"/torch/include/(?P<folder>[^/]+)")
AT_ONCE = 500  # names on one command line


@dataclasses.dataclass(frozen=True, order=True)
class Origin:
    """The origin of a third-party file."""

    name: str  # source package of Debian, or project whose headers torch carries
    version: str
    licence: str  # SPDX expression
    purl: str
    text: Path  # on this machine: licence and copyright notices


@dataclasses.dataclass
class Library:
    """The files of one source package or project in an artefact."""

    name: str
    version: str
    licence: str
    purl: str
    texts: set[Path]
    files: set[str]  # shared objects, as paths from the artefact's top
    compiled_in: bool  # its headers, or an archive of it, were compiled into our programs


@dataclasses.dataclass(frozen=True)
class Debian:
    """Where Debian's packages lie: on this machine, or unpacked below `root` by debian_root.sh. There are these two, so
    caches may hold them for good.
    """

    root: Path | None = None

    def holds(self, path: Path) -> bool:
        return self.root is None or path.is_relative_to(self.root)

    def place(self, name: str) -> Path:
        """Of "/usr/lib" the folder that has it."""
        return Path(name) if self.root is None else self.root / name.removeprefix("/")

    @functools.cache  # noqa: B019
    def files(self) -> dict[str, str]:
        """Every file of a package, and the package."""
        found = {}
        package = ""
        if self.root is None:
            shown = "${binary:Package}\\n${db-fsys:Files}"  # a line a file, behind a blank
            said = output_of("dpkg-query", "--show", f"--showformat={shown}")
        else:
            said = (self.root / "files").read_text(encoding="utf-8")
        for line in said.splitlines():
            if line.startswith(" "):
                found[line[1:]] = package
            else:
                package = line
        return found

    def package_of(self, path: Path) -> str | None:
        # dpkg knows a file by the name in its package, which may be from before /lib became a link to /usr/lib.
        name = str(path) if self.root is None else f"/{path.relative_to(self.root)}"
        return self.files().get(name) or self.files().get(name.removeprefix("/usr"))

    @functools.cache  # noqa: B019
    def source_of(self, package: str) -> tuple[str, str]:
        """Its source package and version."""
        if self.root is None:
            shown = "${source:Package} ${source:Version}"
            name, version = output_of("dpkg-query", "--show", f"--showformat={shown}", package).split()
            return name, version
        for line in (self.root / "packages").read_text(encoding="utf-8").splitlines():
            known, name, version = line.split()
            if known == package:
                return name, version
        raise KeyError(package)


THIS = Debian()


@functools.cache
def licences() -> dict[str, dict[str, str]]:
    return tomllib.loads(LICENCES.read_text(encoding="utf-8"))


def output_of(*command: str | Path) -> str:
    done = subprocess.run([*map(str, command)], cwd=ROOT, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{done.stdout}{done.stderr}\nthird_party: {' '.join(map(str, command))[:300]} failed")
    return done.stdout


def elf_files(tree: Path) -> Iterator[Path]:
    for path in sorted(tree.rglob("*")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


def debian_purl(name: str, version: str, architecture: str) -> str:
    return (
        f"pkg:deb/debian/{urllib.parse.quote(name)}@{urllib.parse.quote(version)}?arch={architecture}&distro=debian-12"
    )


def debian_origin(path: Path, package: str, debian: Debian) -> Origin | None:
    """None for a file of the toolchain."""
    name, version = debian.source_of(package)
    if name in licences()["toolchain"]:
        return None
    text = debian.place("/usr/share/doc") / package.partition(":")[0] / "copyright"
    if name not in licences()["debian"]:
        raise SystemExit(
            f"third_party: {path} is of Debian's {name} {version}, which has no line in scripts/{LICENCES.name}: read "
            f"{text}, and add its licence if it may be carried"
        )
    return Origin(name, version, licences()["debian"][name], debian_purl(name, version, "source"), text)


def python_origin() -> Origin:
    """The origin of the headers of this interpreter, for which the agent is built."""
    version = platform.python_version()
    return Origin(
        "cpython", version, "PSF-2.0", f"pkg:generic/cpython@{version}", Path(os.__file__).with_name("LICENSE.txt")
    )


@functools.cache
def torch_origin(folder: str) -> Origin:
    """The origin of the headers in a folder of torch's wheel, which also holds those of other projects."""
    torch = importlib.metadata.distribution("torch")
    release = torch.version.split("+")[0]
    name, version = ("torch", release) if folder in TORCH_OWN else (folder, f"of torch {release}")
    if name not in licences()["torch"]:
        raise SystemExit(f"third_party: torch/include/{folder} has no line below [torch] in scripts/{LICENCES.name}")
    end = "licenses/LICENSE" if name == "torch" else f"licenses/third_party/{name}/LICENSE"
    texts = [each for each in torch.files or [] if str(each).endswith(end)]
    if not texts:
        raise SystemExit(f"third_party: torch {torch.version} has no {end}, the licence of torch/include/{folder}")
    purl = f"pkg:pypi/torch@{release}" + ("" if name == "torch" else f"#torch/include/{folder}")
    return Origin(name, version, licences()["torch"][name], purl, Path(str(torch.locate_file(texts[0]))))


def origins_of(paths: Iterable[Path], debian: Debian) -> dict[Path, Origin]:
    """The origin of each file, under its real name; the toolchain's files are left out."""
    python = Path(sysconfig.get_path("include")).resolve()
    found = {}
    origin: Origin | None
    for path in paths:
        if path.is_relative_to(python) or PYTHON_HEADERS.search(str(path)):
            origin = python_origin()
        elif package := (owner := debian if debian.holds(path) else THIS).package_of(path):
            origin = debian_origin(path, package, owner)
        elif match := TORCH_HEADERS.search(str(path)):
            origin = torch_origin(match["folder"])
        else:
            raise SystemExit(
                f"third_party: {path} is of no Debian package, of torch or of Python: whose it is, is not known"
            )
        if origin is not None:
            found[path] = origin
    return found


def original(bundled: Path, debian: Debian) -> Path:
    """The original of the shared object `bundled` in an artefact."""
    name = COPY_MARK.sub("", bundled.name)
    triplet = "aarch64-linux-gnu" if debian.root else sysconfig.get_config_var("MULTIARCH") or ""
    for folder in map(debian.place, (f"/usr/lib/{triplet}", "/usr/lib", "/usr/local/lib")):
        if (folder / name).exists():
            return (folder / name).resolve()
    place = debian.root or "this machine"
    raise SystemExit(f"third_party: {bundled} was bundled, but {name} is in no library folder of {place}")


def compiled_from(build: Path, target: str, debian: Debian) -> set[Path]:
    """Headers and archives from outside the tree that `target` was built from."""
    inputs = output_of("ninja", "-C", build, "-t", "inputs", target).splitlines()
    objects = [each for each in inputs if each.endswith((".o", ".gch"))]  # .gch: headers that GCC has read already
    found = {build / each for each in inputs if each.endswith(".a")}
    for start in range(0, len(objects), AT_ONCE):
        said = output_of("ninja", "-C", build, "-t", "deps", *objects[start : start + AT_ONCE])
        found |= {build / line.strip() for line in said.splitlines() if line.startswith("    ")}
    if not found:
        raise SystemExit(f"third_party: ninja has no log of what {target} in {build} was compiled from")
    real = {path.resolve() for path in found}
    ours = (ROOT, build.resolve())
    theirs = {path for path in real if TORCH_HEADERS.search(str(path)) or (debian.root and debian.holds(path))}
    return theirs | {path for path in real if not any(map(path.is_relative_to, ours))}


def libraries(tree: Path, ours: Iterable[str], build: Path, debian: Debian = THIS) -> list[Library]:
    """The third-party libraries of the artefact in `tree`; `ours` are the targets of `build` of its own programs, which
    was made with the packages of `debian`.
    """
    targets = set(ours)
    bundled = [path for path in elf_files(tree) if path.name.partition(".")[0] not in targets]
    machine = {path: original(path, debian) for path in bundled}
    shared = origins_of(machine.values(), debian)
    compiled = set().union(*(compiled_from(build, target, debian) for target in targets))
    headers = set(origins_of(compiled, debian).values())
    found: dict[str, Library] = {}

    def library(origin: Origin) -> Library:
        made = Library(origin.name, origin.version, origin.licence, origin.purl, set(), set(), False)
        made = found.setdefault(origin.name, made)
        made.texts.add(origin.text)
        return made

    for path in bundled:
        if machine[path] not in shared:
            raise SystemExit(f"third_party: {path} is the toolchain's, and not to be carried along")
        library(shared[machine[path]]).files.add(str(path.relative_to(tree)))
    for origin in headers:
        library(origin).compiled_in = True
    return [found[name] for name in sorted(found)]
