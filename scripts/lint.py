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
import shlex
import subprocess
import sys
from collections.abc import Iterator
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
PLACES = re.compile(r" (-isystem \S+|-[DI]\S+)")  # of headers, and what is defined
MACHINE = re.compile(r" -m\S+")
REFUSED = re.compile(r"^([^:\n]+):.*\[clang-diagnostic-error", re.MULTILINE)
TOGETHER = 16  # sources that clang-tidy reads at a time
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


def tidy(together: dict[Path, str]) -> list[tuple[list[Path], str]]:
    """Reads sources in one go, given with their commands; gives them, and what was found (nothing: they are clean).
    Those that define a name of another one's are read apart from it."""
    first, *others = together
    places = dict.fromkeys(place for command in together.values() for place in PLACES.findall(command))
    command = (
        "clang-tidy",
        "-p",
        CLEAN,
        "--quiet",
        *(f"--extra-arg={word}" for word in shlex.split(" ".join(places))),
        *(f"--extra-arg=-include{other}" for other in others),
        "--checks=-bugprone-suspicious-include",  # the other sources
        "--extra-arg=-Wthread-safety",
        "--extra-arg=-Wold-style-cast",
        "--extra-arg=-Wno-unknown-warning-option",
        "--extra-arg=-Wno-ambiguous-reversed-operator",  # cmake/Msprobe.cmake says why
        first,
    )
    done = subprocess.run([*map(str, command)], cwd=ROOT, text=True, capture_output=True, check=False)
    if done.returncode == 0:
        return [(list(together), "")]
    refused = {Path(name) for name in REFUSED.findall(done.stdout)}
    if refused and others:
        apart = refused.intersection(together)
        if not 0 < len(apart) < len(together):
            apart = set(others[::2])
        parts = [{each: together[each] for each in together if (each in apart) == part} for part in (False, True)]
        return [result for part in parts for result in tidy(part)]
    return [(list(together), done.stdout or f"{first}: clang-tidy failed")]


def in_batches(waiting: dict[Path, str]) -> Iterator[dict[Path, str]]:
    """Sources of one room, for the same machine: most of a reading goes to headers of others."""
    rooms: dict[tuple[str, ...], list[Path]] = {}
    for source in sorted(waiting, key=lambda source: -len(waiting[source])):  # first those that name most places
        rooms.setdefault((*source.relative_to(ROOT).parts[:2], *MACHINE.findall(waiting[source])), []).append(source)
    for room in rooms.values():
        for start in range(0, len(room), TOGETHER):
            yield {source: waiting[source] for source in room[start : start + TOGETHER]}


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
    marks = {
        source: CLEAN / tidy_digest(source, commands[str(source)])
        for source in sources(".cc")
        if str(source) in commands
    }
    waiting = {source: commands[str(source)] for source, mark in marks.items() if not mark.exists()}
    print(f"clang-tidy: {len(waiting)} sources to read", flush=True)
    clean = True
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        for result in concurrent.futures.as_completed([pool.submit(tidy, batch) for batch in in_batches(waiting)]):
            for together, found in result.result():
                if found:
                    clean = False
                    print(found, flush=True)
                else:
                    for source in together:
                        marks[source].touch()
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
