#!/usr/bin/env python3
"""Runs every linter over our own files: clang-format, clang-tidy (with clang's thread-safety analysis), ruff, mypy.

A source that clang-tidy found clean is not read again until it, a header of ours that it includes, or .clang-tidy
changes; the notes of that are in build/lint/clean/. The first run takes a while, the next seconds.

    lint.py                    all
    lint.py clang-format ruff  these alone
"""

from __future__ import annotations

import argparse
import concurrent.futures
import functools
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
CONFIGURED = BUILD / "lint"  # configured without options that only GCC can read; never built
CLEAN = CONFIGURED / "clean"
ROOMS = ("agent", "server")
PYTHON = (
    "agent/python/msprobe",
    "agent/python/msprobe_vllm",
    "scripts",
    "demo",
    "tests/bench",
)  # the other tests are untyped
INCLUDE = re.compile(r'^\s*#\s*include\s+"((?:agent|server)/[^"]+)"', re.MULTILINE)
JOBS = int(os.environ.get("JOBS", os.cpu_count() or 1))


def sources(*suffixes: str) -> list[Path]:
    return sorted(path for room in ROOMS for suffix in suffixes for path in (ROOT / room).rglob(f"*{suffix}"))


def run(*command: str | Path, cwd: Path = ROOT) -> bool:
    return subprocess.run([str(part) for part in command], cwd=cwd, check=False).returncode == 0


def tool(name: str) -> Path:
    return Path(sys.executable).with_name(name)


def clang_format() -> bool:
    return run("clang-format", "--dry-run", "-Werror", *sources(".h", ".cc", ".cu"))


@functools.cache
def own_text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def with_headers(source: Path) -> list[Path]:
    """The source and every header of ours that it includes, directly or not."""
    seen, waiting = {source}, [source]
    while waiting:
        for name in INCLUDE.findall(own_text(waiting.pop())):
            header = ROOT / name
            if header not in seen:
                seen.add(header)
                waiting.append(header)
    return sorted(seen)


def tidy_digest(source: Path, command: str) -> str:
    digest = hashlib.blake2b(own_text(ROOT / ".clang-tidy").encode(), digest_size=16)
    digest.update(command.encode())
    for path in with_headers(source):
        digest.update(own_text(path).encode())
    return digest.hexdigest()


def tidy_one(source: Path) -> tuple[bool, str]:
    command = (
        "clang-tidy",
        "-p",
        CLEAN,
        "--quiet",
        "--extra-arg=-Wthread-safety",
        "--extra-arg=-Wno-unknown-warning-option",
        "--extra-arg=-Wno-ambiguous-reversed-operator",  # cmake/Msprobe.cmake says why
    )
    done = subprocess.run([*map(str, command), str(source)], cwd=ROOT, text=True, capture_output=True, check=False)
    return done.returncode == 0, done.stdout


def compile_database() -> Path:
    """A command a source, without GCC's precompiled headers; generated headers are those of build/."""
    configure = ("cmake", "-S", str(ROOT), "-B", str(CONFIGURED), "-G", "Ninja", "-DMSPROBE_FAST_BUILD=OFF")
    python = (f"-DMSPROBE_PYTHON={sys.executable}", "-DMSPROBE_BUILD_TESTS=ON")
    subprocess.run([*configure, *python], check=True, stdout=subprocess.DEVNULL)
    CLEAN.mkdir(parents=True, exist_ok=True)
    commands = (CONFIGURED / "compile_commands.json").read_text(encoding="utf-8")
    (CLEAN / "compile_commands.json").write_text(commands.replace(str(CONFIGURED), str(BUILD)), encoding="utf-8")
    return CLEAN / "compile_commands.json"


def clang_tidy() -> bool:
    if not (BUILD / "build.ninja").is_file():
        print("clang-tidy: nothing is configured; run make build first", file=sys.stderr)
        return False
    database = compile_database()
    commands = {entry["file"]: entry["command"] for entry in json.loads(database.read_text(encoding="utf-8"))}
    waiting = {}
    for source in sources(".cc"):
        if str(source) in commands:
            mark = CLEAN / tidy_digest(source, commands[str(source)])
            if not mark.exists():
                waiting[source] = mark
    print(f"clang-tidy: {len(waiting)} sources to read", flush=True)
    clean = True
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        results = {pool.submit(tidy_one, source): source for source in waiting}
        for result in concurrent.futures.as_completed(results):
            good, text = result.result()
            if good:
                waiting[results[result]].touch()
            else:
                clean = False
                print(text or f"{results[result]}: clang-tidy failed", flush=True)
    return clean


def ruff() -> bool:
    checks = [run(tool("ruff"), "check"), run(tool("ruff"), "format", "--check")]
    client = ROOT / "client_py"
    checks += [run(tool("ruff"), "check", cwd=client), run(tool("ruff"), "format", "--check", cwd=client)]
    return all(checks)


def mypy() -> bool:
    paths = [path for path in PYTHON if (ROOT / path).is_dir()]
    return all([run(tool("mypy"), *paths), run(tool("mypy"), cwd=ROOT / "client_py")])


LINTERS = {"clang-format": clang_format, "ruff": ruff, "mypy": mypy, "clang-tidy": clang_tidy}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("linters", nargs="*", metavar="LINTER", help=f"of {', '.join(LINTERS)}")
    chosen = parser.parse_args().linters or list(LINTERS)
    for name in chosen:
        if name not in LINTERS:
            parser.error(f"there is no linter {name!r}; there are {', '.join(LINTERS)}")
    failed = []
    for name in chosen:
        print(f"--- {name}", flush=True)
        if not LINTERS[name]():
            failed.append(name)
    print(f"failed: {', '.join(failed)}" if failed else "clean")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
