#!/usr/bin/env python3
"""Makes dist/msprobe-server_VERSION_ARCH.deb and dist/msprobe-server-VERSION-ARCH.tar.gz from the built tree.

The package brings its libraries along (/usr/lib/msprobe-server), with their licences, and depends on libc, libgcc and
libstdc++ alone. The tarball holds the same files below one folder, for other systems. Each has a bill of
materials beside it.
"""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import sbom
import stage_server
from stage_server import version
from third_party import ROOT, Library

DEPLOY = ROOT / "deploy"
DIST = ROOT / "dist"
MAINTAINER_SCRIPTS = ("postinst", "prerm", "postrm")
SYSTEM_LIBRARIES = ("libc6", "libgcc-s1", "libstdc++6")  # the libraries that cmake/BundleLibraries.cmake leaves out
CONTROL = """\
Package: msprobe-server
Version: {version}
Architecture: {architecture}
Maintainer: msprobe <msprobe@localhost>
Installed-Size: {size}
Depends: {depends}, passwd
Section: science
Priority: optional
Description: stores what programs that run a model capture
 Programs stream the statistics of every tensor of a model to this server while
 they run; it answers which tensor, in which module, on which rank and at which
 step went wrong first.
"""


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    done = subprocess.run([*map(str, command)], cwd=cwd, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{done.stdout}{done.stderr}\nmake_package: {' '.join(map(str, command))} failed")
    return done.stdout.strip()


def stage(root: Path) -> list[Library]:
    """Writes every file of the package below root; gives the third-party libraries among them, by paths from there."""
    carried = stage_server.stage(root / "usr")
    for source, target in (
        (DEPLOY / "systemd" / "msprobe-server.service", "usr/lib/systemd/system/msprobe-server.service"),
        (DEPLOY / "systemd" / "server.conf", "etc/msprobe/server.conf"),
        (DEPLOY / "package" / "msprobe-server.bash", "usr/share/bash-completion/completions/msprobe-server"),
        (DEPLOY / "package" / "copyright", "usr/share/doc/msprobe-server/copyright"),
        (ROOT / "CHANGELOG.md", "usr/share/doc/msprobe-server/CHANGELOG.md"),
    ):
        (root / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, root / target)
    for path in root.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (root / "usr" / "bin" / "msprobe-server").chmod(0o755)
    return [dataclasses.replace(each, files={f"usr/{name}" for name in each.files}) for each in carried]


def depends(root: Path, folder: Path) -> str:
    """The packages that the files need, in versions with the symbols they use."""
    (folder / "debian").mkdir()
    (folder / "debian" / "control").write_text("Source: msprobe-server\n\nPackage: msprobe-server\nArchitecture: any\n")
    bundled = root / "usr" / "lib" / "msprobe-server"
    files = [root / "usr" / "bin" / "msprobe-server", *sorted(bundled.iterdir())]
    said = run("dpkg-shlibdeps", "-O", "--ignore-missing-info", f"-l{bundled}", *files, cwd=folder)
    found = said.removeprefix("shlibs:Depends=").split(", ")
    # It also names the packages of bundled libraries.
    return ", ".join(each for each in found if each.split()[0] in SYSTEM_LIBRARIES)


def main() -> None:
    architecture = run("dpkg", "--print-architecture")
    DIST.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        root = folder / "root"
        root.mkdir()
        root.chmod(0o755)
        carried = stage(root)
        tarball = DIST / f"msprobe-server-{version()}-{architecture}.tar.gz"
        with tarfile.open(tarball, "w:gz", compresslevel=6) as archive:
            archive.add(root, arcname=f"msprobe-server-{version()}")
        needed = depends(root, folder)
        control = root / "DEBIAN"
        control.mkdir(mode=0o755)
        size = sum(path.lstat().st_size for path in root.rglob("*") if path.is_file()) // 1024
        fields = {"version": version(), "architecture": architecture, "size": size, "depends": needed}
        (control / "control").write_text(CONTROL.format(**fields))
        (control / "conffiles").write_text("/etc/msprobe/server.conf\n")
        for script in MAINTAINER_SCRIPTS:
            shutil.copyfile(DEPLOY / "package" / script, control / script)
            (control / script).chmod(0o755)
        package = DIST / f"msprobe-server_{version()}_{architecture}.deb"
        run("dpkg-deb", "--root-owner-group", "--build", "-Zgzip", root, package)
        for path, purl in (
            (package, f"pkg:deb/msprobe-server@{version()}?arch={architecture}"),
            (tarball, f"pkg:generic/msprobe-server@{version()}?arch={architecture}"),
        ):
            sbom.write(
                path,
                name="msprobe-server",
                version=version(),
                kind="application",
                purl=purl,
                tree=root,
                libraries=carried,
            )
    for path in (package, tarball):
        print(f"made {path.relative_to(ROOT)} ({path.stat().st_size / (1 << 20):.1f} MiB)")


if __name__ == "__main__":
    main()
