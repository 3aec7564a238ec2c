"""make test cannot pass by not running: the suites' runner over suites that do not run, each in its own way."""

import importlib
import os
import re
import sys

import pytest
from harness.processes import REPOSITORY, run, wait_until

PASSES = "def test_one():\n    pass\n\ndef test_two():\n    pass\n"
SKIPS = "import pytest\n\ndef test_one():\n    pass\n\ndef test_two():\n    pytest.skip('no device')\n"
PROGRAM = """
#include <gtest/gtest.h>
TEST(Subject, Passes) {}
TEST(Subject, Needs) { if (getenv("HAS_IT") == nullptr) GTEST_SKIP() << "no device"; }
TEST(Subject, Fails) {
  if (getenv("DIE") != nullptr) abort();
  EXPECT_EQ(getenv("FAIL"), nullptr); }
"""


@pytest.fixture
def suites(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(REPOSITORY / "scripts"))
    runner = importlib.import_module("run_suites")
    monkeypatch.setattr(runner, "RESULTS", tmp_path / "results")
    runner.RESULTS.mkdir()
    return runner


@pytest.fixture
def of_pytest(suites, tmp_path):
    """A suite over one file of tests, and its result."""

    def made(text, **expected):
        folder = tmp_path / "made"
        folder.mkdir()
        (folder / "pytest.ini").write_text("[pytest]\n")
        if text is not None:
            (folder / "test_made.py").write_text(text)
        return suites.run(suites.pytest("made", str(folder), 60), suites.Expected(**expected))

    return made


def test_a_suite_that_runs_passes(of_pytest):
    outcome = of_pytest(PASSES, minimum=2)
    assert (outcome.passed, outcome.failed, outcome.skipped, outcome.failures) == (2, 0, 0, [])


def test_a_missing_directory_fails(suites):
    outcome = suites.run(suites.pytest("made", "tests/nowhere", 60), suites.Expected())
    assert outcome.failed == 1 and outcome.failures == ["FAILED made: there is nothing at tests/nowhere"]


def test_nothing_collected_fails(of_pytest):
    outcome = of_pytest(None, minimum=0)
    assert outcome.failed == 1 and "exit code 5" in outcome.closing


def test_a_long_message_is_told_from_both_ends(of_pytest):
    lines = [f"line {number}" for number in range(40)]
    outcome = of_pytest(
        f"def test_one():\n    raise AssertionError({chr(10).join(['ended with -6', *lines, 'why'])!r})\n"
    )
    (failure,) = outcome.failures
    assert "ended with -6 | line 0" in failure and failure.endswith("line 39 | why") and "line 20" not in failure


def test_fewer_tests_than_recorded_fail(of_pytest):
    outcome = of_pytest(PASSES, minimum=3)
    assert (outcome.passed, outcome.failed) == (2, 1)
    assert outcome.failures == ["FAILED made: 2 tests, and scripts/suites.toml says 3 or more"]


def test_a_minimum_that_is_behind_is_said(of_pytest):
    outcome = of_pytest(PASSES, minimum=1)
    assert outcome.failed == 0 and "the minimum of 1 in scripts/suites.toml can be raised" in outcome.closing


def test_an_unexpected_skip_fails_and_says_why(of_pytest):
    outcome = of_pytest(SKIPS)
    assert (outcome.passed, outcome.failed, outcome.skipped) == (1, 1, 0)
    (said,) = outcome.failures
    assert "test_made.test_two" in said and "does not expect here: no device" in said


def test_a_skip_is_expected_by_name_and_where_the_machine_lacks_it(of_pytest, suites, monkeypatch):
    monkeypatch.setitem(suites.LACKS, "a device", lambda: True)
    outcome = of_pytest(SKIPS, skips={"test_made.test_two": "a device"})
    assert (outcome.passed, outcome.failed, outcome.skipped) == (1, 0, 1)


def test_a_skip_on_a_machine_that_has_it_fails(of_pytest, suites, monkeypatch):
    monkeypatch.setitem(suites.LACKS, "a device", lambda: False)
    outcome = of_pytest(SKIPS, skips={"test_made.test_two": "a device"})
    assert outcome.failed == 1 and "no device" in outcome.failures[0]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("program")
    (folder / "subject_test.cc").write_text(PROGRAM)
    run(["g++", "-O0", "subject_test.cc", "-lgtest", "-lgtest_main", "-lpthread", "-o", "subject_test"], cwd=folder)
    return folder / "subject_test"


@pytest.fixture
def of_ctest(suites, program, tmp_path):
    """A suite over one program of GoogleTest's, and its result."""

    def made(*arguments, environment=None, **expected):
        command = " ".join(f'"{each}"' for each in (program, *arguments))
        (tmp_path / "CTestTestfile.cmake").write_text(f"add_test(subject_test {command})\n")
        suite = suites.ctest("made", str(tmp_path), (), 60, environment or {})
        return suites.run(suite, suites.Expected(**expected))

    return made


def test_tests_inside_a_program_count_one_by_one(of_ctest):
    outcome = of_ctest(environment={"HAS_IT": "1"}, minimum=3)
    assert (outcome.passed, outcome.failed, outcome.skipped) == (3, 0, 0)


def test_a_skip_inside_a_program_fails(of_ctest):
    outcome = of_ctest()
    assert (outcome.passed, outcome.failed) == (2, 1)
    (said,) = outcome.failures
    assert "subject_test.Subject.Needs" in said and "no device" in said


def test_a_skip_inside_a_program_is_expected_by_name(of_ctest, suites, monkeypatch):
    monkeypatch.setitem(suites.LACKS, "a device", lambda: True)
    outcome = of_ctest(skips={"subject_test.Subject.Ne*": "a device"})
    assert (outcome.passed, outcome.failed, outcome.skipped) == (2, 0, 1)


def test_a_test_that_fails_is_named(of_ctest):
    outcome = of_ctest(environment={"HAS_IT": "1", "FAIL": "1"})
    assert (outcome.passed, outcome.failed) == (2, 1)
    assert "subject_test.Subject.Fails" in outcome.failures[0] and "getenv" in outcome.failures[0]


def test_a_program_that_runs_none_of_its_tests_fails(of_ctest):
    outcome = of_ctest("--gtest_filter=Other.*", minimum=0)
    assert outcome.failed == 1 and "it ran no test" in outcome.failures[0]


def test_a_program_that_dies_is_one_failure(of_ctest):
    outcome = of_ctest(environment={"HAS_IT": "1", "DIE": "1"})
    assert outcome.failed == 1


def test_every_suite_has_its_minimum_and_each_skip_a_reason_that_is_known(suites):
    expected = suites.expectations()
    assert set(expected) == set(suites.SUITES)
    for name, each in expected.items():
        assert each.minimum > 1, name
        assert set(each.skips.values()) <= set(suites.LACKS), name


def test_every_test_that_starts_threads_runs_under_tsan_or_says_why_not(suites):
    starts = re.compile(r"std::j?thread|BackgroundThread|TaskThreads")
    programs = {
        found["program"]
        for found in re.finditer(
            r"^build (?P<room>\S+)/CMakeFiles/(?P<program>\w+)\.dir/(?P<source>\S+_test\.cc)\.o:",
            (REPOSITORY / "build" / "build.ninja").read_text(),
            re.MULTILINE,
        )
        if starts.search((REPOSITORY / found["room"] / found["source"]).read_text())
    }
    assert programs, "no program starts a thread: the build has no tests"
    assert programs <= {*suites.TSAN_TESTS, *suites.NOT_UNDER_TSAN}
    assert not {*suites.TSAN_TESTS} & {*suites.NOT_UNDER_TSAN}


def test_recordings_are_made_where_none_are_given(suites, monkeypatch, tmp_path):
    record = tmp_path / "record.py"
    record.write_text("import pathlib, sys\npathlib.Path(sys.argv[1]).mkdir()\n")
    monkeypatch.setattr(suites, "ORACLE", tmp_path)
    monkeypatch.setattr(suites, "RECORD", record)
    monkeypatch.setenv("MSPROBE_ORACLE_PYTHON", sys.executable)
    monkeypatch.setenv("MSPROBE_REFERENCE", str(tmp_path / "nowhere"))
    suites.make_recordings()
    assert os.environ["MSPROBE_REFERENCE"] == str(tmp_path / "reference")
    assert (tmp_path / "reference").is_dir()


def test_recordings_that_are_given_stay(suites, monkeypatch, tmp_path):
    (tmp_path / "given" / "dump").mkdir(parents=True)
    (tmp_path / "given" / "dump" / "make.py").touch()
    monkeypatch.setattr(suites, "RECORD", tmp_path / "not there")
    monkeypatch.setenv("MSPROBE_REFERENCE", str(tmp_path / "given"))
    suites.make_recordings()
    assert suites.reference() == tmp_path / "given"


def test_what_is_built_beside_the_others_is_cut_short_when_they_have_ended(suites, tmp_path):
    built, unbuilt = tmp_path / "built", tmp_path / "unbuilt"
    commands = (("touch", str(built)), ("sleep", "600"), ("touch", str(unbuilt)), ("the", "tests"))
    made = [suites.Suite("made", commands, 60), suites.Suite("next", (("touch", str(unbuilt)), ("the", "tests")), 60)]
    with suites.IdleBuild(made, tmp_path / "log"):
        wait_until(built.exists, 30, "the first command has run")
    assert not unbuilt.exists()


def test_one_suite_that_cannot_be_built_beside_the_others_keeps_none_from_it(suites, tmp_path):
    built, unbuilt = tmp_path / "built", tmp_path / "unbuilt"
    broken = suites.Suite("broken", (("false",), ("touch", str(unbuilt)), ("the", "tests")), 60)
    with suites.IdleBuild(
        [broken, suites.Suite("next", (("touch", str(built)), ("the", "tests")), 60)], tmp_path / "log"
    ):
        wait_until(built.exists, 30, "the next suite's command has run")
    assert not unbuilt.exists()
