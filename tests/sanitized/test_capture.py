"""Capture inside Python under sanitizers: programs of tests/integration with an agent that was built with them.

MSPROBE_SANITIZED is the build's folder, as scripts/run_suites.py capture-sanitize or capture-tsan makes it. A first
report ends a program. The server is the ordinary one.
"""

import dataclasses
import os
import pathlib
import re
import subprocess
import sys

import pytest
from harness.dumps import write_config
from harness.processes import PROGRAMS, REPOSITORY, external_server, run

RUN = "sanitized"
# Without leaks: Python and torch keep until the end much that they allocated, and say so of every extension that asked.
# Python's own allocator would hide where an object ends.
ADDRESS = {
    "ASAN_OPTIONS": "detect_leaks=0:detect_container_overflow=0:strict_string_checks=1:abort_on_error=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "PYTHONMALLOC": "malloc",
}
# Python and torch are not instrumented. What they copy, allocate and free is not looked at, but what orders their
# threads is.
THREADS = (
    f"suppressions={REPOSITORY / 'scripts' / 'races_not_ours.txt'}:ignore_interceptors_accesses=1"
    ":second_deadlock_stack=1:die_after_fork=0"
)


@dataclasses.dataclass(frozen=True)
class Case:
    program: tuple[str, ...]  # with {config}, {other} (a second configuration) and {out} to be filled in
    steps: int  # that the server has at the end
    configuration: dict[str, object]


TRANSFORMER = ("on_device.py", "--device=cpu", "--net=qwen2", "--config={config}", "--out={out}")
CASES = {
    "statistics": Case(TRANSFORMER, 2, {"level": "mix"}),
    "tensors": Case(TRANSFORMER, 2, {"level": "mix", "task": "tensor"}),
    "two-streams-of-a-device": Case(
        ("on_device.py", "--threads=2", "--config={config}", "--out={out}"), 2, {"level": "mix"}
    ),
    "threads": Case(("threading_calls.py", "{config}"), 1, {}),
    "fork": Case(("forking.py", "{config}"), 1, {}),
    "start-and-stop": Case(("second_construction.py", "{config}", "{other}"), 3, {}),
    "operators-and-recomputation": Case(
        ("all_that_runs.py", "--config={config}"), 5, {"level": "mix", "capture": "all"}
    ),
    "exception-in-forward": Case(("served.py", "--config={config}", "raising"), 4, {"level": "mix", "task": "tensor"}),
    "odd-values": Case(("sturdy.py", "--config={config}", "--out={out}"), 2, {"risk_level": "ALL"}),
}


def runtime(name):
    """The library that GCC links, which must be in the process before anything else."""
    found = subprocess.run(["gcc", f"-print-file-name={name}"], check=True, capture_output=True, text=True)
    return found.stdout.strip()


@pytest.fixture(scope="session")
def sanitized():
    """Environment variables with which Python takes the extension of the build, and its sanitizer."""
    if not os.environ.get("MSPROBE_SANITIZED"):
        pytest.skip("MSPROBE_SANITIZED names no build: scripts/run_suites.py capture-sanitize makes one")
    build = REPOSITORY / os.environ["MSPROBE_SANITIZED"]
    kind = re.search(r"^MSPROBE_SANITIZE:STRING=(.*)$", (build / "CMakeCache.txt").read_text(), re.MULTILINE)[1]
    settings = {"PYTHONPATH": str(build / "python"), "OMP_NUM_THREADS": "1"}
    if kind != "thread":
        # An exception of C++ is thrown by a library that Python itself does not load.
        return settings | ADDRESS | {"LD_PRELOAD": f"{runtime('libasan.so')} {runtime('libstdc++.so')}"}
    return settings | {
        "TSAN_OPTIONS": THREADS,
        "LD_LIBRARY_PATH": str(build / "abseil" / "lib"),
        "LD_PRELOAD": runtime("libtsan.so"),
    }


def test_the_extension_is_the_sanitized_one(sanitized):
    """Else every other test here would pass for nothing."""
    loaded = run([sys.executable, "-c", "import torch, msprobe._agent as agent; print(agent.__file__)"], **sanitized)
    path = pathlib.Path(loaded.stdout.strip())
    assert path.is_relative_to(sanitized["PYTHONPATH"])
    symbols = subprocess.run(["nm", "-D", path], check=True, capture_output=True, text=True).stdout
    assert re.search(r" U __(asan|tsan)_init", symbols)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CASES)
def test_capture_is_reported_by_no_sanitizer(name, sanitized, tmp_path, short_directory, ask):
    case = CASES[name]
    server = f"unix:{short_directory / 's'}"
    paths = {"out": tmp_path / "out.json"}
    for config in ("config", "other"):
        paths[config] = write_config(
            tmp_path / f"{config}.json", tmp_path / "dump", server=server, run=RUN, **case.configuration
        )
    program, *arguments = (part.format(**paths) for part in case.program)
    with external_server(short_directory / "s", tmp_path / "data", tmp_path / "server.log"):
        done = run([sys.executable, PROGRAMS / program, *arguments], timeout=500, **sanitized)
        rows = ask("steps", RUN, server=server)
    said = done.stdout + done.stderr
    assert "Sanitizer" not in said and "runtime error:" not in said, said[-8000:]
    assert len(rows) == case.steps and not any(row["gap_fragments"] for row in rows), rows
