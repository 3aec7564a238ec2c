"""Nothing that was captured dies with its process: tests/chaos/test_kills.py in short, and further cases."""

import contextlib
import dataclasses
import os
import random
import signal
import sys

import pytest
from harness import fire, kills
from harness.dumps import write_config
from harness.processes import Background, external_server, servers_of, wait_until


def show(tally):
    print(tally)
    assert tally.recovered > 0, "every server had everything when the program was killed: this tests nothing"


@pytest.mark.timeout(240)
@pytest.mark.parametrize("taken", ["idle", "busy"])
def test_young_programs_with_a_server_of_their_own(taken, scene):
    with kills.busy() if taken == "busy" else contextlib.nullcontext():
        show(scene.embedded(5))


@pytest.mark.timeout(240)
def test_old_programs(scene):
    scene.steps = kills.OLD_STEPS
    show(scene.embedded(2))


@pytest.mark.timeout(240)
def test_a_server_of_this_machine_adopts_what_was_for_it(scene, short_directory):
    show(scene.on_this_machine(short_directory / "s", 5))


@pytest.mark.timeout(240)
def test_a_server_that_comes_when_all_are_dead(scene, short_directory):
    show(scene.unreachable(short_directory / "s", 5))


@pytest.mark.timeout(240)
def test_a_server_of_another_machine(tmp_path, unkilled):
    with fire.network() as there, kills.Programs(tmp_path, prefix=there.within(there.near)) as programs:
        show(kills.Scene(tmp_path, unkilled, programs, random.Random(there.address)).remote(there, 4))


def in_container(program, *, last):
    """A command with processes, shared memory and mounts of its own, which end with its first process: a shell whose
    last command is given, with the program as its arguments."""
    script = f"mount -t tmpfs -o size=64m none /dev/shm && {last}"
    flags = ("--mount", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc")
    return ["unshare", *flags, "sh", "-c", script, "sh", sys.executable, kills.PROGRAM, *program]


def without_stack(step):
    """The program begins elsewhere than the one it is compared with."""
    return dataclasses.replace(step, stack={})


@pytest.mark.timeout(240)
def test_a_container_that_is_killed_whole(tmp_path, dump_path, unkilled):
    """Its /dev/shm goes with it; the volume with the dump_path stays, and the next container with it adopts."""
    if fire.as_root("unshare", "--mount", "--ipc", "--pid", "--fork", "--mount-proc", "true").returncode != 0:
        pytest.skip("namespaces are not allowed here")
    task, level = "tensor", "mix"
    expected = unkilled(task, level)
    config, oracle = write_config(tmp_path / "config.json", dump_path, task=task, level=level), tmp_path / "oracle"
    first = in_container(["--config", config, "--oracle", oracle], last='exec "$@"')
    with Background(first, tmp_path / "first.log") as container:
        container.wait_for(lambda: kills.passed_in(oracle) >= (5, 0), 120, "step 5 is begun")
        container.kill()
    wait_until(lambda: not servers_of(dump_path), 30, "its server is gone with it")
    (memory,) = kills.memories_of(dump_path)
    assert memory.is_file() and not memory.is_symlink(), "on the volume, not in a /dev/shm that is gone"
    # A process with another id, whose steps lie beside those of the first.
    second = in_container(["--config", config, "--oracle", tmp_path / "other", "--pause", 0.2], last='"$@"; exit $?')
    with Background(second, tmp_path / "second.log") as container:
        container.wait_for(lambda: not memory.exists(), 120, "the next container has adopted it")

        def look():
            found = {number: without_stack(step) for number, step in kills.steps_of(dump_path, 1).items()}
            return kills.check(found, kills.passed_in(oracle), level, [without_stack(step) for step in expected])

        print(kills.soon(look))


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("taken", "said"),
    [
        (600 << 10, "what is captured and not sent yet dies with this process if it is killed: "),
        (300 << 10, "has no room left that it may take; what had none there dies with this process if it is killed."),
    ],
    ids=["none", "little"],
)
def test_without_room_it_says_so_once_and_captures_all(taken, said, tmp_path, dump_path, killable, unkilled):
    """Half of the MiB stays free."""
    task, level = "statistics", "mix"
    expected = unkilled(task, level)
    with fire.small_disk(tmp_path / "small", 1) as small:
        (small / "taken").write_bytes(bytes(taken))
        config = write_config(tmp_path / "config.json", dump_path, task=task, level=level, session_memory=str(small))
        program = killable.start(f"small{taken}", config, steps=kills.OLD_STEPS)
        wait_until(lambda: not program.alive(), 120, "the program ends")
        assert program.said.count(said) == 1, program.said
        assert [path.name for path in small.iterdir()] == ["taken"]
    found = kills.steps_of(dump_path, program.pid)
    assert sorted(found) == list(range(kills.OLD_STEPS))
    for number, step in found.items():
        assert step == expected[number % len(expected)], f"step {number} has other values"


@pytest.mark.timeout(240)
def test_recover_says_what_became_of_each(tmp_path, dump_path, short_directory, killable, unkilled):
    """Files of living processes and of absent servers stay, and so do files that it does not understand."""
    task, level = "tensor", "L0"
    expected = unkilled(task, level)
    gone, there = f"unix:{short_directory / 'gone'}", f"unix:{short_directory / 'there'}"
    config = write_config(tmp_path / "config.json", dump_path, task=task, level=level, server=gone, run="left")
    program = killable.start("recovered", config)
    program.reaches(3)
    (living,) = kills.recover(dump_path)
    assert (living["state"], living["run"], living["process_id"]) == ("in use", "left", program.pid)
    program.kill()
    rows, code = kills.ask_recover(dump_path, "--seconds", 1)
    assert ([row["state"] for row in rows], code) == (["kept"], 3)
    assert "gone" in rows[0]["why"] or "gone" in rows[0]["server"], rows
    (memory,) = kills.memories_of(dump_path)
    strange = memory.with_name(f"msprobe-{'0' * 32}")
    strange.write_bytes(b"not ours")
    strange.chmod(0o600)
    with external_server(short_directory / "there", tmp_path / "data", tmp_path / "server.log"):
        rows, code = kills.ask_recover(dump_path, "--to", there)
        assert ({row["session"]: row["state"] for row in rows}, code) == (
            {"0" * 32: "kept", living["session"]: "sent"},
            3,
        )
        kills.client("--server", there, "export", "left", "--output", tmp_path / "out")
    assert kills.memories_of(dump_path) == [strange], "what it does not understand stays, and is said"
    print(kills.check(kills.steps_of(tmp_path / "out", program.pid), program.passed, level, expected))
    assert kills.ask_recover(tmp_path / "nowhere") == ([], 3)


@pytest.mark.timeout(240)
def test_a_server_that_was_killed_before_it_had_written_the_files(dump_path, tmp_path, killable, unkilled):
    """It had all records, so nothing of the program is left but the need for its files."""
    task, level = "statistics", "mix"
    expected = unkilled(task, level)
    in_the_way = dump_path / "step2"
    dump_path.mkdir(exist_ok=True)
    in_the_way.write_text("no directory")
    config = write_config(tmp_path / "config.json", dump_path, task=task, level=level)
    program = killable.start("waits", config, pause=0.5)
    program.reaches(4)
    wait_until(lambda: (dump_path / "step3" / f"proc{program.pid}" / "dump.json").exists(), 60, "step 3 is written")
    (server,) = servers_of(dump_path)
    os.kill(server, signal.SIGSTOP)  # it adopts nothing
    program.kill()
    os.kill(server, signal.SIGKILL)
    wait_until(lambda: not servers_of(dump_path), 30, "the server is killed")
    in_the_way.unlink()
    assert [row["process_id"] for row in kills.recover(dump_path)] == [program.pid]
    assert kills.read_step(dump_path / "step2" / f"proc{program.pid}") == expected[2], "without waiting"
    assert kills.memories_of(dump_path) == []
