#!/usr/bin/env python3
"""Runs libFuzzer on every decoder, one after another; ends with 1 when one found something.

run.py                     ten minutes each
run.py --seconds 30        half a minute each
run.py --only pt_file      one of them

Builds them first, in build-fuzz, with clang and its address and undefined-behaviour sanitizers. What a fuzzer adds
to its corpus lies in build-fuzz/corpus; what broke a decoder lies in build-fuzz/found, and belongs into
tests/fuzz/corpus once it is mended. undefined_not_ours.txt names what libraries do that is not defined.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build-fuzz"
CORPUS = ROOT / "tests" / "fuzz" / "corpus"
TARGETS = tuple(sorted(path.name for path in CORPUS.iterdir()))
# A decoder that asks for more for a small input is wrong.
MEMORY_MB = 1024
SLOWEST_S = 10


def build(names: list[str]) -> None:
    options = ["-DMSPROBE_FUZZ=ON", "-DMSPROBE_SANITIZE=address,undefined", "-DMSPROBE_BUILD_TORCH=OFF"]
    compilers = ["-DCMAKE_C_COMPILER=clang", "-DCMAKE_CXX_COMPILER=clang++", "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1"]
    subprocess.run(["cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja", *options, *compilers], check=True)
    jobs = os.environ.get("JOBS", str(os.cpu_count() or 1))
    subprocess.run(["ninja", "-C", BUILD, "-j", jobs, "--quiet", *(f"fuzz_{name}" for name in names)], check=True)


def fuzz(name: str, seconds: int) -> bool:
    own, found = BUILD / "corpus" / name, BUILD / "found"
    own.mkdir(parents=True, exist_ok=True)
    found.mkdir(exist_ok=True)
    flags = [
        f"-max_total_time={seconds}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-timeout={SLOWEST_S}",
        "-print_final_stats=1",
    ]
    command = [
        BUILD / "tests" / "fuzz" / f"fuzz_{name}",
        *flags,
        f"-artifact_prefix={found}/{name}-",
        own,
        CORPUS / name,
    ]
    environment = {**os.environ, "ASAN_OPTIONS": "detect_container_overflow=0:detect_leaks=0"}
    return subprocess.run(command, check=False, env=environment).returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--only", action="append", choices=TARGETS)
    options = parser.parse_args()
    if shutil.which("clang++") is None:
        raise SystemExit("fuzz: no clang++: make lint-tools installs it")
    names = options.only or list(TARGETS)
    build(names)
    broken = [name for name in names if not fuzz(name, options.seconds)]
    if broken:
        raise SystemExit(f"fuzz: {', '.join(broken)} broke; see {BUILD / 'found'}")
    print(f"fuzz: {len(names)} decoders, {options.seconds} s each, nothing found", file=sys.stderr)


if __name__ == "__main__":
    main()
