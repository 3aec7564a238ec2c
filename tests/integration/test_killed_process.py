"""kill -9 of the training process: finished steps are whole, and the captured part of the open step is there."""

import json

import pytest
from harness.dumps import embedded_data_directory, exported_steps, rank_directory, read_dump
from harness.processes import wait_for_servers_to_leave, wait_until


def passes(progress):
    """Number of forward passes in the step that hangs, 0 before it."""
    text = progress.read_text() if progress.exists() else ""
    return int(text.partition(":")[2] or 0)


@pytest.mark.timeout(240)
def test_kill_in_step_five_keeps_five_whole_steps_and_the_part_of_the_sixth(tmp_path, dump_path, running, ask):
    progress = tmp_path / "progress"
    with running("train_steps.py", "--steps", 9, "--hang-in", 5, "--progress", progress, level="mix") as program:
        # The stream is in order: once step 4 is in its directory, step 5 is on its way.
        program.wait_for(lambda: 4 in exported_steps(dump_path) and passes(progress), 90, "step 5 is under way")
        seen = passes(progress)
        program.wait_for(lambda: passes(progress) >= seen + 20, 60, "twenty passes more")
        program.kill()
    wait_until(lambda: exported_steps(dump_path) == [0, 1, 2, 3, 4, 5], 90, "steps 0 to 5 are exported")
    wait_for_servers_to_leave(dump_path)

    names = [list(read_dump(rank_directory(dump_path, step))["data"]) for step in range(5)]
    assert all(step_names == names[0] for step_names in names[1:]), "steps 0 to 4 have the same entries"
    for step in range(5):
        assert not list((dump_path / f"step{step}").rglob("INCOMPLETE")), f"step {step} is complete"
        rank = rank_directory(dump_path, step)
        construct = json.loads((rank / "construct.json").read_text())
        assert set(read_dump(rank)["data"]) <= set(construct) | {name for name in names[0] if "parameters_grad" in name}
        assert json.loads((rank / "stack.json").read_text())

    assert list((dump_path / "step5").rglob("INCOMPLETE")), "step 5 is marked"
    streamed = read_dump(rank_directory(dump_path, 5))["data"]
    forward = [name for name in names[0] if name.startswith("Functional.linear") and name.endswith("forward")]
    assert len([name for name in streamed if name.startswith("Functional.linear")]) >= 2 * len(forward)
    assert set(streamed["Functional.linear.0.forward"]) == {"input_args", "input_kwargs", "output"}

    (run,) = ask("runs", data_dir=embedded_data_directory(dump_path))
    states = {
        row["step"]: row["state"] for row in ask("steps", run["run"], data_dir=embedded_data_directory(dump_path))
    }
    assert [states[step].lower() for step in range(6)] == ["complete"] * 5 + ["incomplete"]


@pytest.mark.timeout(120)
def test_sigterm_loses_no_finished_step(tmp_path, dump_path, running):
    progress = tmp_path / "progress"
    with running("train_steps.py", "--steps", 9, "--hang-in", 2, "--progress", progress) as program:
        program.wait_for(lambda: passes(progress) and exported_steps(dump_path), 90, "step 2 is under way")
        program.process.terminate()
        program.process.wait(60)
    wait_until(lambda: {0, 1} <= set(exported_steps(dump_path)), 60, "steps 0 and 1 are exported")
    assert list(read_dump(rank_directory(dump_path, 0))["data"]) == list(
        read_dump(rank_directory(dump_path, 1))["data"]
    )
    wait_for_servers_to_leave(dump_path)


@pytest.mark.timeout(120)
def test_files_appear_whole(tmp_path, dump_path, running):
    """While dump_path is written, nobody sees half a file or an empty skeleton in it."""
    seen = set()

    def look():
        for path in dump_path.glob("step*/*/*.json"):
            if path.parent.name.startswith("."):
                continue  # being written
            data = json.loads(path.read_text())
            assert data, f"{path} is empty"
            if path.name == "dump.json":
                assert data["data"], f"{path} is a skeleton"
                assert (path.parent / "stack.json").exists() and (path.parent / "construct.json").exists()
            seen.add(path)

    with running("train_steps.py", "--steps", 8, level="mix") as program:

        def ended():
            look()
            return not program.alive()

        program.wait_for(ended, 90, "the program ends")
        program.finish()
    look()
    assert len(seen) == 24
