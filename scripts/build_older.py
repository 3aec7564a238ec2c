#!/usr/bin/env python3
"""Builds the server and the agent of an older tag or commit below build-older/, for tests/operate/test_upgrade.py.

    build_older.py f7ec5603       then MSPROBE_OLDER=build-older/f7ec5603/build .venv/bin/python -m pytest ...

Takes as long as a first build, less the parts that ccache has. Prints the folder at the end.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def run(*command: str | Path) -> None:
    if subprocess.run([*map(str, command)], cwd=ROOT, check=False).returncode != 0:
        sys.exit(f"build_older: {' '.join(map(str, command))} failed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", metavar="COMMIT", help="a commit, or a tag, of this repository")
    commit = parser.parse_args().commit
    tree = ROOT / "build-older" / commit.replace("/", "_")
    if not tree.exists():
        tree.mkdir(parents=True)
        archive = subprocess.Popen(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE)
        unpacked = subprocess.run(["tar", "--extract", "--directory", str(tree)], stdin=archive.stdout, check=False)
        if archive.wait() != 0 or unpacked.returncode != 0:
            tree.rmdir()
            sys.exit(f"build_older: there is no commit {commit}, or it cannot be unpacked into {tree}")
    jobs = os.environ.get("JOBS", str(os.cpu_count() or 1))
    build = tree / "build"
    options = (f"-DMSPROBE_PYTHON={ROOT / '.venv' / 'bin' / 'python'}", "-DMSPROBE_BUILD_TESTS=OFF")
    run("cmake", "-S", tree, "-B", build, "-G", "Ninja", *options)
    run("ninja", "-C", build, "-j", jobs, "msprobe-server", "_agent")
    print(f"MSPROBE_OLDER={build}")


if __name__ == "__main__":
    main()
