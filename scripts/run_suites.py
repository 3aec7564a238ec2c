#!/usr/bin/env python3
"""Runs all test suites, even if some fail, and sums them up.

    run_suites.py                 the suites of `make test`
    run_suites.py sanitize chaos  these alone, one after another

The unit tests run first and build everything. Then the other suites of `make test` run two at once, with the suite's
name in front of each line. Beside them the sanitizers' programs are built with the time that the processors have left;
what is not built when these suites end is built then. These come last, each alone.

Each suite has a time limit, after which its whole process group is killed and it counts as failed. A suite cannot pass
by not running: it fails if its directory is missing, if it has fewer tests than scripts/suites.toml says, if a test was
skipped for a reason that this machine does not have, or if a program of GoogleTest's ran none. Tests are counted one by
one inside such programs.

Logs and JUnit files are in build/test-results/. The last lines are each suite's own closing line, a line for each
failed test, and the sum: `N passed, N failed, N skipped`.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fnmatch
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "test-results"
JOBS = os.environ.get("JOBS", str(os.cpu_count() or 1))
SANITIZE_BUILD = "build-asan"
TSAN_BUILD = "build-tsan"
TSAN_ABSEIL = ROOT / TSAN_BUILD / "abseil"
NEWER_BUILD = "build-newer"
OLDER = "f7ec5603"  # the older build of the suite `upgrade`: a commit, because not every clone has tags
# The tests whose programs share memory between threads (tests/operate/test_run_suites.py finds those that are missing).
TSAN_TESTS = (
    *("core_background_thread_test", "core_pool_test", "core_dictionary_test", "core_fragment_queue_test"),
    *("core_memory_budget_test", "core_payload_pool_test", "core_shared_file_test", "core_session_memory_test"),
    *(
        "core_connection_test",
        "core_left_session_test",
        "core_outbox_test",
        "core_packer_test",
        "core_queue_drain_test",
    ),
    *("core_batch_upload_test", "core_payload_upload_test", "core_session_test", "core_session_payloads_test"),
    *("core_spool_test", "core_waiters_test"),
    *("stats_checksum_test", "stats_fleeting_memory_test", "stats_kernels_test", "stats_statistics_test"),
    *("stats_write_watch_test", "capture_ahead_reader_test", "capture_reading_threads_test"),
    *("capture_record_opener_test", "capture_recorder_test", "capture_served_batch_test", "capture_step_state_test"),
    *("segment_directory_test", "segments_test", "store_test", "task_threads_test", "keyed_workers_test"),
    *("metrics_test", "dump_room_test", "analysis_test", "notices_test"),
    "message_race_test",
)
# These hold most of the agent's locks, and are soon built: `make test` has them.
TSAN_SHORT = (
    *("core_background_thread_test", "core_pool_test", "core_fragment_queue_test", "core_memory_budget_test"),
    *("core_payload_pool_test", "core_connection_test", "core_outbox_test", "core_queue_drain_test"),
    *("core_session_test", "core_waiters_test", "message_race_test"),
)
# What handles raw memory in the training process, or reads bytes from outside. `make nightly` sanitizes all tests.
SANITIZE_SHORT = (
    *("core_weight_digest_test", "core_text_test", "core_config_test", "core_mapped_memory_test"),
    *("core_payload_pool_test", "core_session_memory_test", "core_shared_file_test", "core_dictionary_test"),
    *("core_fragment_queue_test", "core_held_payloads_test", "core_outbox_test", "core_spool_test"),
    *("core_block_writer_test", "core_definitions_test", "core_packer_test", "core_queue_drain_test"),
    *("core_batch_upload_test", "core_payload_upload_test", "core_session_test", "core_session_payloads_test"),
    *("core_connection_test", "core_left_session_test"),
    *("stats_checksum_test", "stats_decode_test", "stats_distribution_test", "stats_kernels_test", "stats_signs_test"),
    *("stats_statistics_test", "stats_write_watch_test"),
    *("capture_open_record_test", "capture_gradient_parts_test", "capture_producers_test"),
    *("capture_fragment_builder_test", "capture_ahead_reader_test", "capture_reading_threads_test"),
    *("capture_recorder_test", "capture_tensor_series_test", "capture_memory_reader_test"),
    *("json_test", "tensor_files_test", "checkpoint_test", "tensors_test", "value_test", "block_columns_test"),
    *("fuzz_wire_batch", "fuzz_storage_value", "fuzz_pt_file", "fuzz_npy_file", "fuzz_tensor_file"),
    *("fuzz_spool_segment", "fuzz_session_memory"),
)
# The tests that meet gRPC, protobuf, Abseil and RocksDB: the suite `newer` builds them with newer ones.
NEWER_TESTS = (
    *("core_definitions_test", "core_packer_test", "core_session_payloads_test", "core_batch_upload_test"),
    *("core_spool_test", "core_connection_test", "value_test", "store_test", "segments_test", "ingest_service_test"),
)
_ROCKSDB = "RocksDB is not instrumented and commits the batches of several threads in one, which is reported as a race"
NOT_UNDER_TSAN = {
    "ingest_service_test": _ROCKSDB,
    "retention_test": _ROCKSDB,
    "tiler_test": _ROCKSDB,
    "crash_disk_test": _ROCKSDB,
    "disk_full_test": _ROCKSDB,
    "web_test": _ROCKSDB,
    "job_queue_test": _ROCKSDB,
    "job_crash_test": _ROCKSDB,
    "capture_cuda_kernels_test": "CUDA's runtime is not instrumented",
    "core_session_fork_test": "GCC 12's sanitizers take no care of their own locks at a fork",
    "server_binary_test": "the threads are those of another process",
    "server_crash_test": "the threads are those of other processes",
}

CLOSING = re.compile(r"^=+ .*\b(passed|failed|skipped|error|no tests ran)\b.* =+$|^\d+% tests passed")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")

FAILURE_WIDTH = 1000  # characters of the summary's line
NEWS = 1.1  # times the recorded minimum, from which the summary says that it can be raised
# How a C++ test or a sanitizer begins the lines about a failure.
WRONG = re.compile(
    r": Failure$|: runtime error: |^==\d+==ERROR: |WARNING: ThreadSanitizer|Assertion .* failed|terminate called"
)
LINES_OF_WRONG = 8
ENDS_OF_MESSAGE = 4  # lines

SANITIZER_ENVIRONMENT = {
    "MSPROBE_FUZZ_SECONDS": "7",  # of each fuzz_*: a minute for all
    # libstdc++'s containers pass between our instrumented code and Debian's libraries, which are not.
    "ASAN_OPTIONS": "detect_container_overflow=0:strict_string_checks=1:abort_on_error=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "LSAN_OPTIONS": f"suppressions={ROOT / 'scripts' / 'leaks_not_ours.txt'}:print_suppressions=0",
}


ORACLE = Path(os.environ.get("MSPROBE_ORACLE", ROOT / ".oracle"))
RECORD = ROOT / "tests" / "interop" / "recordings" / "record.py"
# Suites that read recordings.
RECORDED = {"unit", "client", "integration", "undisturbed", "interop", "operate", "chaos", "sanitize", "sanitize-short"}


def reference() -> Path:
    """Recorded outputs of mindstudio-probe; those that it makes here, where none are given."""
    given = Path(os.environ.get("MSPROBE_REFERENCE", ROOT.parent / "shared" / "reference"))
    return given if (given / "dump" / "make.py").exists() else ORACLE / "reference"


def make_recordings() -> None:
    """Every suite reads them by MSPROBE_REFERENCE. Without mindstudio-probe none are made, and tests skip."""
    path = reference()
    python = Path(os.environ.get("MSPROBE_ORACLE_PYTHON", ORACLE / "bin" / "python"))
    if path == ORACLE / "reference" and python.exists():
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        subprocess.run([python, RECORD, path], check=True, env=clean)
    os.environ["MSPROBE_REFERENCE"] = str(path)


# Parts that a machine may lack, in the words of suites.toml.
LACKS: dict[str, Callable[[], bool]] = {
    "root": lambda: os.geteuid() != 0,
    "a CUDA device": lambda: not Path("/dev/nvidiactl").exists(),
    "an older build (MSPROBE_OLDER)": lambda: not os.environ.get("MSPROBE_OLDER"),
    "a recorded dump of MindSpore": lambda: not (reference() / "mindspore").is_dir(),
    "Linux 6.7": lambda: tuple(map(int, platform.release().split("-")[0].split(".")[:2])) < (6, 7),
}


@dataclasses.dataclass(frozen=True)
class Expected:
    """A suite's entry in suites.toml."""

    minimum: int = 1  # number of tests, passed, failed or skipped
    skips: dict[str, str] = dataclasses.field(default_factory=dict)  # glob of names: which of LACKS is the reason

    def skips_here(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, glob) and LACKS[lack]() for glob, lack in self.skips.items())


def expectations(path: Path = ROOT / "scripts" / "suites.toml") -> dict[str, Expected]:
    return {name: Expected(**each) for name, each in tomllib.loads(path.read_text(encoding="utf-8")).items()}


@dataclasses.dataclass(frozen=True)
class Suite:
    name: str
    commands: tuple[tuple[str, ...], ...]  # in order; the first that fails ends the suite
    seconds: int  # for all commands together
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    needs: str = ""  # a path from the root without which there is nothing to run

    @property
    def junit(self) -> Path:
        return RESULTS / f"{self.name}.xml"

    @property
    def programs(self) -> Path:
        """The folder of the reports of GoogleTest's programs."""
        return RESULTS / f"{self.name}.programs"


@dataclasses.dataclass
class Case:
    name: str
    state: str  # passed, failed or skipped
    said: str = ""


@dataclasses.dataclass
class Outcome:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    closing: str = ""
    seconds: float = 0.0
    failures: list[str] = dataclasses.field(default_factory=list)  # a line for each: the test, and what it said first


def pytest(
    name: str,
    path: str,
    seconds: int,
    *options: str,
    before: tuple[tuple[str, ...], ...] = (),
    environment: dict[str, str] | None = None,
) -> Suite:
    # --rootdir and -c come from the nearest pyproject.toml above `path`. A failure is shown when it happens: a suite
    # that is stopped does not sum up.
    command = (sys.executable, "-m", "pytest", path, "-q", "--instafail", f"--junitxml={RESULTS / name}.xml", *options)
    return Suite(name, (*before, command), seconds, environment or {}, needs=path)


def ctest(
    name: str,
    build: str,
    before: tuple[tuple[str, ...], ...],
    seconds: int,
    environment: dict[str, str],
    only: tuple[str, ...] = (),
) -> Suite:
    run = ("ctest", "--test-dir", build, "-j", JOBS, "--output-on-failure", "--no-tests=error", "--timeout", "300")
    chosen = ("--tests-regex", f"^({'|'.join(only)})$") if only else ()
    junit = ("--output-junit", str(RESULTS / f"{name}.xml"))
    # A program of GoogleTest's writes its report there, under its own name.
    programs = {"GTEST_OUTPUT": f"xml:{RESULTS / name}.programs/"}
    return Suite(name, (*before, (*run, *chosen, *junit)), seconds, {**environment, **programs})


def ninja(build: str, *targets: str) -> tuple[str, ...]:
    return ("ninja", "-C", build, "-j", JOBS, "--quiet", *targets)


def configure_for_threads() -> tuple[tuple[str, ...], ...]:
    configure = (
        *("cmake", "-S", ".", "-B", TSAN_BUILD, "-G", "Ninja", "-DMSPROBE_SANITIZE=thread"),
        "-DMSPROBE_BUILD_TORCH=ON",
        f"-DCMAKE_PREFIX_PATH={TSAN_ABSEIL}",
        "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1 -gz -Wno-tsan",
    )
    return ("scripts/build_sanitized_abseil.sh", str(TSAN_ABSEIL)), configure


def configure_sanitized() -> tuple[str, ...]:
    return (
        *("cmake", "-S", ".", "-B", SANITIZE_BUILD, "-G", "Ninja", "-DMSPROBE_SANITIZE=address,undefined"),
        *("-DMSPROBE_BUILD_TORCH=ON", "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1 -gz"),
    )


def build_newer(*targets: str) -> tuple[tuple[str, ...], ...]:
    inside = ("scripts/newer_debian.sh", NEWER_BUILD)
    loader = ROOT / NEWER_BUILD / "root/lib64/ld-linux-x86-64.so.2"
    libraries = ROOT / NEWER_BUILD / "root/usr/lib/x86_64-linux-gnu"
    configure = (
        *("cmake", "-S", ".", "-B", NEWER_BUILD, "-G", "Ninja", "-DMSPROBE_BUILD_AGENT=OFF"),
        "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O0",  # the interfaces are tried, not the speed
        # What is built runs outside, too.
        f"-DCMAKE_EXE_LINKER_FLAGS=-Wl,--dynamic-linker={loader},--disable-new-dtags,-rpath={libraries}",
    )
    return (*inside, *configure), (*inside, *ninja(NEWER_BUILD, *targets))


THREAD_ENVIRONMENT = {
    # The distribution's gRPC then uses the same Abseil.
    "LD_LIBRARY_PATH": str(TSAN_ABSEIL / "lib"),
    "TSAN_OPTIONS": f"suppressions={ROOT / 'scripts' / 'races_not_ours.txt'}:second_deadlock_stack=1",
}

NPU_BACKEND = ninja("build", "npu_backend")

SUITES = {
    suite.name: suite
    for suite in (
        ctest("unit", "build", (ninja("build"),), 1500, {}),
        pytest("client", "client_py/tests", 900),
        pytest("agent", "agent/python/tests", 900),
        pytest("integration", "tests/integration", 4200, "--ignore=tests/integration/test_undisturbed.py"),
        # A tenth of the integration tests, apart so that the two queues of suites end at the same time.
        pytest("undisturbed", "tests/integration/test_undisturbed.py", 1500),
        # test_pt_file.py is run by the unit suite, with the tool it needs.
        pytest("interop", "tests/interop", 2400, "--ignore=tests/interop/test_pt_file.py"),
        pytest("vllm", "tests/vllm", 1800),
        pytest("mindspore", "tests/mindspore", 1500),
        pytest("operate", "tests/operate", 1800),
        ctest("sanitize", SANITIZE_BUILD, (configure_sanitized(), ninja(SANITIZE_BUILD)), 5400, SANITIZER_ENVIRONMENT),
        ctest(
            "sanitize-short",
            SANITIZE_BUILD,
            (configure_sanitized(), ninja(SANITIZE_BUILD, *SANITIZE_SHORT)),
            3000,
            SANITIZER_ENVIRONMENT,
            SANITIZE_SHORT,
        ),
        *(
            ctest(
                name,
                TSAN_BUILD,
                (*configure_for_threads(), ninja(TSAN_BUILD, *tests)),
                seconds,
                THREAD_ENVIRONMENT,
                tests,
            )
            for name, tests, seconds in (("tsan", TSAN_TESTS, 5400), ("tsan-short", TSAN_SHORT, 2400))
        ),
        # The agent inside Python, built with either sanitizer.
        pytest(
            "capture-sanitize",
            "tests/sanitized",
            3600,
            before=(NPU_BACKEND, configure_sanitized(), ninja(SANITIZE_BUILD, "_agent")),
            environment={"MSPROBE_SANITIZED": SANITIZE_BUILD},
        ),
        pytest(
            "capture-tsan",
            "tests/sanitized",
            3600,
            # ThreadSanitizer ends a child in which a thread starts after the fork of a process with threads.
            *("-k", "not fork"),
            before=(NPU_BACKEND, *configure_for_threads(), ninja(TSAN_BUILD, "_agent")),
            environment={"MSPROBE_SANITIZED": TSAN_BUILD},
        ),
        # An older build's server and agent, with these.
        pytest(
            "upgrade",
            "tests/operate/test_upgrade.py",
            3600,
            before=((sys.executable, "scripts/build_older.py", OLDER),),
            environment={"MSPROBE_OLDER": f"build-older/{OLDER}/build"},
        ),
        # With the gRPC, protobuf, Abseil and RocksDB of Debian's unstable and experimental. Then that server takes the
        # place of this one: on its data directory, and with this agent.
        ctest("newer", NEWER_BUILD, build_newer("msprobe-server", *NEWER_TESTS), 9000, {}, NEWER_TESTS),
        pytest(
            "newer-server",
            "tests/operate/test_upgrade.py",
            600,
            before=build_newer("msprobe-server"),
            environment={
                "MSPROBE_OLDER": "build",
                "MSPROBE_SERVER_BINARY": str(ROOT / NEWER_BUILD / "server/msprobe-server"),
            },
        ),
        pytest("chaos", "tests/chaos", 9000),
    )
}
# The first builds what the others need; of these the longest begin. Each of the last fills every core.
FIRST = "unit"
BESIDE = ("integration", "interop", "operate", "client", "vllm", "undisturbed", "mindspore", "agent")
AT_ONCE = 2
LAST = ("sanitize-short", "tsan-short")


class IdleBuild:
    """Runs the commands before each suite's tests while nobody else wants the processors. Use as a context: at its end
    the command that runs is stopped, and what it has built stays.
    """

    def __init__(self, suites: Sequence[Suite], log: Path) -> None:
        self._suites, self._log = suites, log
        self._stopped = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._interrupt()
        self._thread.join()

    def _interrupt(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGINT)

    def _run(self) -> None:
        with self._log.open("wb") as log:
            for suite in self._suites:
                for command in suite.commands[:-1]:
                    if self._stopped.is_set():
                        return
                    if self._ended(command, suite.environment, log) != 0:
                        break  # the suite says why

    def _ended(self, command: Sequence[str], environment: dict[str, str], log: BinaryIO) -> int:
        self._process = subprocess.Popen(
            ("nice", "-n", "19", *command),
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        # Where the kernel groups processes by session, it is the group that has to be nice.
        with contextlib.suppress(OSError):
            Path(f"/proc/{self._process.pid}/autogroup").write_text("19", encoding="utf-8")
        if self._stopped.is_set():
            self._interrupt()
        return self._process.wait()


def stream(command: Sequence[str], seconds: float, environment: dict[str, str], line: Callable[[str], None]) -> int:
    """Runs one command in a process group of its own and passes its output on line by line; 124 when time ran out."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    expired = threading.Event()

    def kill() -> None:
        expired.set()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(max(seconds, 0.1), kill)
    timer.start()
    try:
        assert process.stdout is not None
        for text in process.stdout:
            line(text)
        code = process.wait()
    finally:
        timer.cancel()
    return 124 if expired.is_set() else code


def said_of(case: ElementTree.Element, part: ElementTree.Element) -> str:
    """The message, of a long one both ends, and the failure in the program's output if that is at hand."""
    said = (part.get("message") or part.text or "").strip().splitlines()  # GoogleTest's begins with the place
    if len(said) > 2 * ENDS_OF_MESSAGE:  # and ours with the output of a program may end with why it died
        said = [*said[:ENDS_OF_MESSAGE], "...", *said[-ENDS_OF_MESSAGE:]]
    output = (case.findtext("system-out") or "").splitlines()
    first = next((at for at, line in enumerate(output) if WRONG.search(line)), len(output))
    return " | ".join(line.strip() for line in (*said, *output[first : first + LINES_OF_WRONG]))


def cases_of(report: Path) -> list[Case]:
    """The tests in a report as JUnit, ctest or GoogleTest writes it."""
    cases = []
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        failure = case.find("failure")
        if failure is None:
            failure = case.find("error")
        skipped = case.find("skipped")
        if failure is not None:
            cases.append(Case(name, "failed", said_of(case, failure)))
        elif skipped is not None:
            cases.append(Case(name, "skipped", said_of(case, skipped)))
        elif case.get("status") == "notrun":  # GoogleTest's, of a test that is called DISABLED_
            cases.append(Case(name, "skipped", "disabled"))
        else:
            cases.append(Case(name, "passed"))
    return cases


def cases_in_programs(cases: Sequence[Case], programs: Path) -> list[Case]:
    """The tests inside programs, in place of the programs; a program that failed outside its tests stays."""
    found = []
    for case in cases:
        program = case.name.rpartition(".")[2]
        report = programs / f"{program}.xml"
        inside = cases_of(report) if report.is_file() else []
        found += [dataclasses.replace(each, name=f"{program}.{each.name}") for each in inside]
        if not report.is_file() or (case.state == "failed" and all(each.state != "failed" for each in inside)):
            found.append(case)
        elif all(each.said == "disabled" for each in inside):
            found.append(Case(case.name, "failed", "it ran no test"))
    return found


def count(suite: Suite, expected: Expected) -> Outcome:
    outcome = Outcome()
    cases = cases_of(suite.junit) if suite.junit.is_file() else []
    if suite.programs.is_dir():
        cases = cases_in_programs(cases, suite.programs)
    for case in cases:
        said = case.said
        if case.state == "skipped" and not expected.skips_here(case.name):
            case.state, said = "failed", f"skipped, which scripts/suites.toml does not expect here: {said}"
        if case.state == "failed":
            outcome.failures.append(f"FAILED {case.name}: {said}"[:FAILURE_WIDTH])
        setattr(outcome, case.state, getattr(outcome, case.state) + 1)
    return outcome


def run(suite: Suite, expected: Expected, prefix: str = "") -> Outcome:
    started = time.monotonic()
    if suite.needs and not (ROOT / suite.needs).exists():
        return Outcome(failed=1, failures=[f"FAILED {suite.name}: there is nothing at {suite.needs}"])
    suite.junit.unlink(missing_ok=True)
    shutil.rmtree(suite.programs, ignore_errors=True)
    code, closing = 0, ""
    with (RESULTS / f"{suite.name}.log").open("w", encoding="utf-8") as log:

        def line(text: str) -> None:
            nonlocal closing
            sys.stdout.write(prefix + text)
            sys.stdout.flush()
            log.write(text)
            plain = COLOUR.sub("", text).strip()
            if CLOSING.match(plain) or re.match(r"^\d+ (passed|failed|skipped)\b.* in [\d.]+s", plain):
                closing = plain

        for command in suite.commands:
            print(f"--- {suite.name}: {shlex.join(command)}", flush=True)
            left = suite.seconds - (time.monotonic() - started)
            code = stream(command, left, suite.environment, line)
            if code != 0:
                break

    outcome = count(suite, expected)
    outcome.seconds = time.monotonic() - started
    outcome.closing = closing
    tests = outcome.passed + outcome.failed + outcome.skipped
    if code == 124:
        outcome.failed += 1
        outcome.closing += f" [stopped after its limit of {suite.seconds} s]"
    elif code != 0 and outcome.failed == 0:
        outcome.failed += 1
        outcome.closing += f" [exit code {code}; see build/test-results/{suite.name}.log]"
    elif tests < expected.minimum and outcome.failed == 0:
        outcome.failed += 1
        said = f"{tests} tests, and scripts/suites.toml says {expected.minimum} or more"
        outcome.failures.append(f"FAILED {suite.name}: {said}")
    elif tests > expected.minimum * NEWS:
        outcome.closing += f" [{tests} tests: the minimum of {expected.minimum} in scripts/suites.toml can be raised]"
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"one of {', '.join(SUITES)}")
    names = parser.parse_args().suites
    for name in names:
        if name not in SUITES:
            parser.error(f"there is no suite {name!r}; there are {', '.join(SUITES)}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a thousand programs would compile what they import
    if not names or RECORDED & set(names):
        make_recordings()
    expected = expectations()
    # Tests interrupt programs. Those would inherit that a shell's background job ignores SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if names:
        outcomes = {name: run(SUITES[name], expected[name]) for name in names}
    else:
        outcomes = {FIRST: run(SUITES[FIRST], expected[FIRST])}
        idle = IdleBuild([SUITES[name] for name in LAST], RESULTS / "idle_build.log")
        with idle, ThreadPoolExecutor(AT_ONCE) as pool:
            width = max(map(len, BESIDE))
            beside = pool.map(lambda name: run(SUITES[name], expected[name], f"{name:<{width}} | "), BESIDE)
            outcomes |= dict(zip(BESIDE, beside, strict=True))
        outcomes |= {name: run(SUITES[name], expected[name]) for name in LAST}

    lines = []
    for name, outcome in outcomes.items():
        counts = f"{outcome.passed} passed, {outcome.failed} failed, {outcome.skipped} skipped"
        lines.append(f"{name:<12} {counts}, {outcome.seconds:.0f} s")
    lines += [outcome.closing for outcome in outcomes.values() if outcome.closing]
    lines += [failure for outcome in outcomes.values() for failure in outcome.failures]
    passed, failed, skipped = (
        sum(getattr(outcome, field) for outcome in outcomes.values()) for field in ("passed", "failed", "skipped")
    )
    lines.append(f"{passed} passed, {failed} failed, {skipped} skipped")
    summary = "\n".join(lines) + "\n"
    (RESULTS / "summary.txt").write_text(summary, encoding="utf-8")
    print("\n" + summary, end="", flush=True)
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
