#!/usr/bin/env python3
"""Builds the server's image where no container engine runs, starts it as the manifests do, and measures both.

    make_image.py               dist/msprobe-server-VERSION.oci.tar and a line each of size and start time
    make_image.py --base REF    on another Debian 12 than the one that mmdebstrap makes here

mmdebstrap makes a Debian of its essential packages, and buildah (storage driver vfs, isolation chroot: as root, without
a daemon) runs deploy/docker/Dockerfile on it. The results stay in .operate/containers.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import notices
import sbom
import stage_server
from stage_server import version
from third_party import ROOT, Library, debian_purl

STATE = ROOT / ".operate"
DEBIAN = STATE / "debian.tar"
BASE = "localhost/debian:12"
IMAGE = "localhost/msprobe-server"
USER = 10001  # of the image and of the manifests
MEMORY = 2 << 30  # bytes: the limit of deploy/kubernetes/base/statefulset.yaml
START_SECONDS = 60.0


def run(*command: str | Path) -> str:
    done = subprocess.run([*map(str, command)], cwd=ROOT, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{done.stdout}{done.stderr}\nmake_image: {' '.join(map(str, command))} failed")
    return done.stdout.strip()


def buildah(*arguments: str | Path) -> str:
    root = ("--root", STATE / "containers", "--runroot", STATE / "containers-run", "--storage-driver", "vfs")
    return run("buildah", *root, *arguments)


def make_base() -> str:
    STATE.mkdir(exist_ok=True)
    if not DEBIAN.exists():
        part = DEBIAN.with_suffix(".part.tar")
        run("mmdebstrap", "--quiet", "--variant=minbase", "--include=libstdc++6", "bookworm", part)
        part.replace(DEBIAN)
    container = buildah("from", "scratch")
    buildah("add", "--quiet", container, DEBIAN, "/")
    buildah("commit", "--quiet", "--rm", container, BASE)
    return BASE


def build(base: str) -> tuple[str, list[Library]]:
    """The image's name, and the third-party libraries of the server in it, by paths in the image."""
    name = f"{IMAGE}:{version()}"
    with tempfile.TemporaryDirectory(dir=STATE) as folder:
        carried = stage_server.stage(Path(folder) / "stage")
        values = {"BASE": base, "VERSION": version(), "LICENCES": notices.expression(carried)}
        arguments = [part for key, value in values.items() for part in ("--build-arg", f"{key}={value}")]
        dockerfile = ROOT / "deploy" / "docker" / "Dockerfile"
        options = ("--isolation", "chroot", "--quiet", "--file", dockerfile, "--tag", name, "--target", "prebuilt")
        buildah("build", *options, *arguments, folder)
    return name, [dataclasses.replace(each, files={f"usr/local/{file}" for file in each.files}) for each in carried]


@contextlib.contextmanager
def mounted(name: str) -> Iterator[Path]:
    """The files of a container of the image; leaving the context removes it."""
    container = buildah("from", name)
    try:
        yield Path(buildah("mount", container))
    finally:
        buildah("umount", container)
        buildah("rm", container)


def packages_of(root: Path) -> list[sbom.Package]:
    """The Debian packages in the image."""
    shown = "${Package} ${Version} ${Architecture}\\n"
    found = []
    for line in run("dpkg-query", f"--admindir={root}/var/lib/dpkg", "--show", f"--showformat={shown}").splitlines():
        package, number, architecture = line.split()
        found.append(sbom.Package(package, number, debian_purl(package, number, architecture)))
    return found


@contextlib.contextmanager
def running(name: str, data: Path, sockets: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    """The image as a pod of the manifests runs it: its user, no capability, a read-only root, a limit of memory."""
    for folder in (data, sockets):
        os.chown(folder, USER, USER)
    limits = f"--reuid={USER} --regid={USER} --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all"
    flags = " ".join(("--listen=unix:/run/msprobe/server.sock", "--data_dir=/var/lib/msprobe/data", *more))
    with mounted(name) as root:
        inside = f"""
set -e
mount --bind '{root}' '{root}'
cd '{root}'
mount --bind '{data}' var/lib/msprobe
mount --bind '{sockets}' run/msprobe
mount -t proc proc proc
mount -o remount,ro,bind '{root}'
! touch '{root}/written' 2>/dev/null
exec prlimit --data={MEMORY} chroot '{root}' setpriv {limits} /usr/local/bin/msprobe-server {flags}
"""
        command = ("unshare", "--mount", "--propagation", "private", "bash", "-c", inside)
        process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(60)
            process.kill()


def serves(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", help="image reference of a Debian 12 (default: made by mmdebstrap)")
    base = parser.parse_args().base
    if os.geteuid() != 0:
        print("make_image: a root file system is made by root alone", file=sys.stderr)
        return 1
    name, carried = build(base or make_base())
    dist = ROOT / "dist"
    dist.mkdir(exist_ok=True)
    archive = dist / f"msprobe-server-{version()}.oci.tar"
    archive.unlink(missing_ok=True)
    buildah("push", "--quiet", name, f"oci-archive:{archive}:{name}")
    with mounted(name) as root:
        whole = {"name": "msprobe-server", "version": version(), "kind": "container"}
        purl = f"pkg:oci/msprobe-server@{version()}"
        sbom.write(archive, **whole, purl=purl, tree=root, libraries=carried, packages=packages_of(root))
    folder = Path(tempfile.mkdtemp(prefix="msi", dir="/tmp"))
    try:
        data, sockets = folder / "d", folder / "r"
        data.mkdir()
        sockets.mkdir()
        began = time.monotonic()
        with running(name, data, sockets) as server:
            while not serves(sockets / "server.sock"):
                if server.poll() is not None or time.monotonic() - began > START_SECONDS:
                    print(server.stdout.read() if server.stdout else "", file=sys.stderr)
                    print("make_image: the server in the image does not answer", file=sys.stderr)
                    return 1
                time.sleep(0.01)
            seconds = time.monotonic() - began
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{name}: {archive.stat().st_size / (1 << 20):.0f} MiB as OCI archive {archive.relative_to(ROOT)}")
    print(f"it serves {seconds:.2f} s after its start")
    return 0


if __name__ == "__main__":
    sys.exit(main())
