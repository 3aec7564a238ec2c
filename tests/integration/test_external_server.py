"""A server of its own, named in the configuration."""

import json
import shutil
import signal
import sys

import pytest
from harness.dumps import entries, read_dump, write_config
from harness.processes import external_server, find_binary, run, servers_of, wait_until

RUN = "trial-7"


@pytest.fixture
def address(short_directory):
    return short_directory / "s.sock"


def completed(steps):
    return [row["step"] for row in steps if row["state"].lower() == "complete"]


def normalised(rank):
    dump = read_dump(rank)
    dump["dump_data_dir"] = None
    return json.dumps(dump)


@pytest.mark.timeout(180)
def test_records_go_to_the_named_run_and_come_out_by_export(tmp_path, dump_path, traced, ask, client, address):
    out = tmp_path / "exported"
    with external_server(address, tmp_path / "data", tmp_path / "server.log") as server:
        traced("train_steps.py", "--steps", 3, level="mix", server=f"unix:{address}", run=RUN)
        (summary,) = ask("runs", server=f"unix:{address}")
        assert (summary["run"], summary["steps"], summary["nan_tensors"]) == (RUN, 3, 0)
        steps = ask("steps", RUN, server=f"unix:{address}")
        assert [(row["step"], row["state"].lower()) for row in steps] == [
            (0, "complete"),
            (1, "complete"),
            (2, "complete"),
        ]
        run([client, "--server", f"unix:{address}", "export", RUN, "--output", out, "--step", "1"])
        assert [path.name for path in out.iterdir()] == ["step1"]
        run([client, "--server", f"unix:{address}", "export", RUN, "--output", out, "--force"])
        server.process.send_signal(signal.SIGTERM)
        server.finish(30)
    assert not servers_of(dump_path), "no embedded server beside the named one"
    assert sorted(path.name for path in out.iterdir()) == ["step0", "step1", "step2"]

    # The same program with the embedded server writes the same files.
    inside = tmp_path / "inside"
    traced("train_steps.py", "--steps", 3, level="mix", dump_path=str(inside))
    for step in range(3):
        (ours,) = (out / f"step{step}").iterdir()
        (theirs,) = (inside / f"step{step}").iterdir()
        assert normalised(ours) == normalised(theirs)
        for name in ("construct.json", "stack.json"):
            assert (ours / name).read_text() == (theirs / name).read_text()


@pytest.mark.timeout(180)
def test_a_server_that_comes_later_gets_the_records(tmp_path, running, ask, address):
    progress, go = tmp_path / "progress", tmp_path / "go"
    arguments = ("--steps", 4, "--progress", progress, "--hold-after", 1, "--go", go)
    with running("train_steps.py", *arguments, server=f"unix:{address}", run=RUN) as program:
        program.wait_for(lambda: progress.exists() and progress.read_text() == "1", 90, "two steps without a server")
        assert "nreachable" in program.output or "not there" in program.output or "warn" in program.output.lower()
        with external_server(address, tmp_path / "data", tmp_path / "server.log"):
            go.touch()
            program.finish()
            steps = ask("steps", RUN, server=f"unix:{address}")
            assert [row["step"] for row in steps] == [0, 1, 2, 3]
            assert {row["state"].lower() for row in steps} == {"complete"}
            assert len({row["records"] for row in steps}) == 1


@pytest.mark.timeout(240)
def test_a_server_whose_store_was_deleted_gets_all_of_what_follows(tmp_path, running, ask, address):
    progress, go, data = tmp_path / "progress", tmp_path / "go", tmp_path / "data"
    arguments = ("--steps", 5, "--progress", progress, "--hold-after", 2, "--go", go)
    server = f"unix:{address}"
    with running("train_steps.py", *arguments, server=server, run=RUN) as program:
        with external_server(address, data, tmp_path / "first.log"):
            program.wait_for(lambda: progress.exists() and progress.read_text() == "2", 90, "three steps")
            wait_until(lambda: completed(ask("steps", RUN, server=server)) == [0, 1, 2], 30, "the server has them")
            before = ask("steps", RUN, server=server)
        shutil.rmtree(data)
        with external_server(address, data, tmp_path / "second.log"):
            go.touch()
            program.finish()
            after = ask("steps", RUN, server=server)
    assert "the server no longer has records that it had acknowledged" in program.output
    assert completed(after) == [row["step"] for row in after] == [3, 4]
    assert {row["records"] for row in after} == {row["records"] for row in before}, "no batch was refused"
    assert [[gap["reason"] for gap in row["gaps"]] for row in after] == [["server_lost"], []]


@pytest.mark.timeout(240)
def test_what_a_killed_process_had_spooled_is_sent_by_the_next(tmp_path, dump_path, running, traced, ask, address):
    progress, spool = tmp_path / "progress", dump_path / ".msprobe" / "spool"
    config = {"task": "tensor", "server": f"unix:{address}", "memory_ceiling_mb": 1, "stall_bound_s": 60}
    config["session_memory"] = "off"  # the server would adopt it before the next program does
    arguments = ("--steps", 4, "--progress", progress, "--hold-after", 3, "--go", tmp_path / "never")
    with running("train_steps.py", *arguments, run=RUN, **config) as program:
        program.wait_for(lambda: progress.exists() and progress.read_text() == "3", 120, "four steps without a server")
        program.kill()
    assert list(spool.glob("*.spool"))
    with external_server(address, tmp_path / "data", tmp_path / "server.log"):
        done = traced("train_steps.py", "--steps", 1, run="next", **config)
        assert "sending what process" in done.stdout + done.stderr
        wait_until(lambda: not list(spool.glob("*.spool")), 60, "the spool is empty")
        found = {row["step"]: row for row in ask("steps", RUN, server=f"unix:{address}")}
        (whole,) = ask("steps", "next", server=f"unix:{address}")
        assert sorted(found) == list(range(len(found))) and len(found) > 1, "a prefix"
        for step in range(len(found) - 1):
            assert found[step]["state"].lower() == "complete"
            assert found[step]["records"] == whole["records"], "no hole, nothing twice"


@pytest.mark.timeout(120)
def test_environment_names_server_and_run(tmp_path, traced, ask, address):
    with external_server(address, tmp_path / "data", tmp_path / "server.log"):
        env = {"MSPROBE_SERVER": f"unix:{address}", "MSPROBE_RUN": "from-environment"}
        traced("train_steps.py", "--steps", 1, env=env)
        assert [row["run"] for row in ask("runs", server=f"unix:{address}")] == ["from-environment"]


@pytest.mark.timeout(120)
def test_waiting_at_will_means_the_files_are_there(dump_path, traced):
    done = traced("train_steps.py", "--steps", 2, "--wait")
    listed = json.loads(done.stdout.split("WAITED", 1)[1].splitlines()[0])
    assert len(listed) == 6 and all(name.endswith(".json") for name in listed)


@pytest.mark.timeout(120)
def test_rank_id_names_the_directory(dump_path, traced):
    traced("train_steps.py", "--steps", 1, "--rank-id", 3)
    assert [path.name for path in (dump_path / "step0").iterdir()] == ["rank3"]
    assert entries(dump_path)


@pytest.mark.timeout(120)
def test_strict_json_has_null_where_the_default_has_nan(tmp_path, dump_path, short_directory, client, address):
    source = tmp_path / "source" / "step0" / "rank0"
    source.mkdir(parents=True)
    leaf = {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": [3],
        "Max": float("inf"),
        "Min": -float("inf"),
        "Mean": float("nan"),
        "Norm": float("inf"),
        "requires_grad": False,
    }
    (source / "dump.json").write_text(
        json.dumps(
            {
                "task": "statistics",
                "level": "L1",
                "framework": "pytorch",
                "dump_data_dir": None,
                "data": {"Torch.add.0.forward": {"input_args": [leaf], "input_kwargs": {}, "output": [leaf]}},
            }
        )
    )
    (source / "stack.json").write_text("{}")
    (source / "construct.json").write_text("{}")
    with external_server(address, tmp_path / "data", tmp_path / "server.log"):
        server = ["--server", f"unix:{address}"]
        run([client, *server, "import", tmp_path / "source", "--run", "r"])
        run([client, *server, "export", "r", "--output", tmp_path / "plain"])
        run([client, *server, "export", "r", "--output", tmp_path / "strict", "--strict-json"])
    plain = (tmp_path / "plain" / "step0" / "rank0" / "dump.json").read_text()
    strict = (tmp_path / "strict" / "step0" / "rank0" / "dump.json").read_text()
    assert "Infinity" in plain and "NaN" in plain
    assert "Infinity" not in strict and "NaN" not in strict
    leaf = json.loads(strict)["data"]["Torch.add.0.forward"]["output"][0]
    assert (leaf["Max"], leaf["Min"], leaf["Norm"]) == (None, None, None)


def test_a_limit_on_the_size_of_files_is_an_error_that_is_told(tmp_path, address):
    server = [find_binary("msprobe-server"), f"--data_dir={tmp_path / 'data'}", f"--listen=unix:{address}"]
    done = run(["prlimit", "--fsize=0", *server], timeout=30, check=False)
    assert done.returncode == 1, "no signal ends it"
    assert "msprobe-server: cannot write" in done.stderr and "File too large" in done.stderr


def test_wait_until_is_bounded():
    with pytest.raises(AssertionError, match="the moon"):
        wait_until(lambda: False, 0.2, "the moon")


LOGS = """
import sys
from msprobe.pytorch import PrecisionDebugger

debugger = PrecisionDebugger(sys.argv[1])
for step in range(20):
    debugger.log({"loss": 1 / (step + 1)}, step)
"""


@pytest.mark.timeout(120)
def test_scalars_of_two_processes_stand_beside_each_other(tmp_path, ask, address):
    """Processes without a rank have their numbers, which differ from run to run."""
    server = f"unix:{address}"
    with external_server(address, tmp_path / "data", tmp_path / "server.log"):
        for name in ("one", "other"):
            config = write_config(tmp_path / f"{name}.json", tmp_path / name, server=server, run=name, step=[99])
            run([sys.executable, "-c", LOGS, config])
        (loss,) = ask("trend", "one", "loss", "--diff", "other", server=server)
        (other,) = ask("trend", "other", "loss", server=server)
    assert loss["rank"].startswith("proc") and loss["rank"] != other["rank"]
    assert loss["golden"] == other["value"] and len(loss["golden"]) == 20
