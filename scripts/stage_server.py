#!/usr/bin/env python3
"""stage_server.py PREFIX: installs the built server below PREFIX, as in its packages and images.

bin/msprobe-server   lib/msprobe-server/*.so.*   share/doc/msprobe-server/{LICENSE,NOTICE}
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import notices
from third_party import ROOT, Library, elf_files, libraries, output_of

BUILD = ROOT / "build"


def version() -> str:
    match = re.search(r"project\(msprobe VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))
    assert match
    return match[1]


def install(prefix: Path) -> None:
    """Installs the component "server" of build/, with places of its own: a wheel that was built there left others
    behind.
    """
    output_of("cmake", "-S", ".", "-B", BUILD, "-U", "SKBUILD*")
    output_of("cmake", "--install", BUILD, "--component", "server", "--prefix", prefix)


def stage(prefix: Path) -> list[Library]:
    """The third-party libraries in it, by paths from `prefix`."""
    install(prefix)
    for path in elf_files(prefix):
        output_of("strip", "--strip-unneeded", path)
    carried = libraries(prefix, ["msprobe-server"], BUILD)
    notices.write(prefix / "share" / "doc" / "msprobe-server", "msprobe-server", carried)
    return carried


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    stage(Path(sys.argv[1]).resolve())
