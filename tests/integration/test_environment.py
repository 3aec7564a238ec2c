"""What real processes say of where they run, asked from the store: of one run, and of two that differ."""

import json
import sys

import pytest
from harness.processes import external_server, run

PROGRAM = """
import torch
from msprobe.pytorch import PrecisionDebugger

debugger = PrecisionDebugger("config.json")
debugger.start()
torch.add(torch.ones(2), 1)
debugger.stop()
debugger.step()
debugger.wait()
"""
# It captures no step.
LOGGING = """
from msprobe.pytorch import PrecisionDebugger

debugger = PrecisionDebugger("config.json")
debugger.log({"loss": 1.0})
debugger.wait()
"""
RUNS = {  # variables, and step of the configuration
    "tuesday": ({"NCCL_ALGO": "Ring", "OMP_NUM_THREADS": "1", "MY_SECRET_KEY": "hush", "VLLM_X": "--token hush"}, [0]),
    "monday": ({"NCCL_ALGO": "Tree", "OMP_NUM_THREADS": "1"}, [0, 1]),
}


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    root = tmp_path_factory.mktemp("environment")
    (root / "train.py").write_text(PROGRAM)
    author = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    run(["git", "init", "--quiet", "--initial-branch=fix", root], timeout=30)
    run(["git", "-C", root, *author, "commit", "--quiet", "--allow-empty", "--message=First"], timeout=30)
    (root / "log.py").write_text(LOGGING)
    with external_server(root / "s", root / "store", root / "server.log"):
        server = f"unix:{root / 's'}"
        for name, (variables, step) in RUNS.items():
            directory = root / name
            directory.mkdir()
            config = {"task": "statistics", "level": "L1", "dump_path": str(directory / "dump"), "step": step}
            (directory / "config.json").write_text(json.dumps(config))
            run(
                [sys.executable, root / "train.py"],
                cwd=directory, timeout=120, MSPROBE_SERVER=server, MSPROBE_RUN=name, **variables,
            )  # fmt: skip

        run(
            [sys.executable, root / "log.py"],
            cwd=root / "monday", timeout=120, MSPROBE_SERVER=server, MSPROBE_RUN="logged", NCCL_ALGO="Ring",
        )  # fmt: skip

        def asked(*arguments, returns=0):
            command = [sys.executable, "-m", "msprobe_client", "--server", server, "environment", *arguments]
            done = run([*command, "--format", "json"], check=False)
            assert done.returncode == returns, done.stderr
            return done

        asked.commit = run(["git", "-C", root, "rev-parse", "HEAD"]).stdout.strip()
        yield asked


def test_a_run_shows_what_it_ran_in(ask):
    facts = {row["name"]: row["value"] for row in json.loads(ask("tuesday").stdout)["rows"]}
    assert facts["framework"].startswith("pytorch 2.")
    assert (facts["env.NCCL_ALGO"], facts["config.step"], facts["config.level"]) == ("Ring", "[0]", "L1")
    assert facts["program"].endswith("train.py")
    assert facts["devices"]
    assert (facts["git.commit"], facts["git.branch"]) == (ask.commit, "fix")
    assert "hush" not in str(facts)


def test_two_runs_differ_where_they_were_started_otherwise(ask):
    rows = json.loads(ask("tuesday", "monday", returns=1).stdout)["rows"]
    assert {row["name"]: (row["value"], row["golden"]) for row in rows} == {
        "env.NCCL_ALGO": ("Ring", "Tree"),
        "config.step": ("[0]", "[0, 1]"),
    }
    ask("tuesday", "tuesday")


def test_a_run_without_a_step_has_an_environment_too(ask):
    rows = json.loads(ask("logged", "monday", returns=1).stdout)["rows"]
    assert ("env.NCCL_ALGO", "Ring", "Tree") in {(row["name"], row["value"], row["golden"]) for row in rows}


def test_a_run_that_nobody_has_is_named(ask):
    assert "nobody" in ask("tuesday", "nobody", returns=3).stderr
