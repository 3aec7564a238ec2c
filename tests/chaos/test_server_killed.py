"""kill -9 of the server in mid-stream, and its return on the same data directory: nothing lost, nothing doubled."""

import json

import pytest
from harness.dumps import read_dump
from harness.processes import external_server, run

STEPS = 12


def exported(client, address, run_name, out):
    run([client, "--server", f"unix:{address}", "export", run_name, "--output", out])
    found = {}
    for step in sorted(out.iterdir(), key=lambda path: int(path.name[4:])):
        (rank,) = step.iterdir()
        dump = read_dump(rank)
        dump["dump_data_dir"] = None
        found[step.name] = {"dump": json.dumps(dump), "incomplete": [path.name for path in step.rglob("INCOMPLETE")]}
        for name in ("construct.json", "stack.json"):
            found[step.name][name] = (rank / name).read_text()
        tensors = rank / "dump_tensor_data"
        if tensors.is_dir():
            found[step.name]["tensors"] = {path.name: path.read_bytes() for path in tensors.iterdir()}
    return found


def reached_step(progress):
    return int(progress.read_text()) if progress.exists() else -1


@pytest.mark.timeout(300)
@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_a_server_killed_and_restarted_has_every_record_once(task, tmp_path, running, client, short_directory, ask):
    address = short_directory / "s.sock"
    configuration = {"task": task, "level": "mix" if task == "statistics" else "L1", "server": f"unix:{address}"}
    steps = STEPS if task == "statistics" else 4

    def undisturbed():
        with external_server(address, tmp_path / "quiet", tmp_path / "quiet.log"):
            with running("train_steps.py", "--steps", steps, run="quiet", **configuration) as program:
                program.finish()
            return exported(client, address, "quiet", tmp_path / "quiet_out")

    def disturbed():
        progress = tmp_path / "progress"
        data, log = tmp_path / "data", tmp_path / "server.log"
        with running(
            "train_steps.py", "--steps", steps, "--progress", progress, run="killed", **configuration
        ) as program:
            # Killed twice, whenever the program has got so far; it never waits for us.
            for reached in (steps // 4, steps // 2):
                with external_server(address, data, log) as server:
                    program.wait_for(lambda step=reached: reached_step(progress) >= step, 90, f"step {reached}")
                    server.kill()
            with external_server(address, data, log):
                program.finish()
                return exported(client, address, "killed", tmp_path / "killed_out")

    expected, found = undisturbed(), disturbed()
    assert list(found) == list(expected) == [f"step{step}" for step in range(steps)]
    for step in expected:
        assert found[step].keys() == expected[step].keys()
        for part in expected[step]:
            assert found[step][part] == expected[step][part], f"{step} {part}"


@pytest.mark.timeout(180)
def test_what_was_durable_survives_a_kill_and_is_served_again(tmp_path, running, short_directory, ask):
    address = short_directory / "s.sock"
    data, log = tmp_path / "data", tmp_path / "server.log"
    with external_server(address, data, log) as server:
        with running("train_steps.py", "--steps", 3, server=f"unix:{address}", run="kept") as program:
            program.finish()
        before = ask("steps", "kept", server=f"unix:{address}")
        server.kill()
    with external_server(address, data, log):
        assert ask("steps", "kept", server=f"unix:{address}") == before
        assert [row["step"] for row in before] == [0, 1, 2]
