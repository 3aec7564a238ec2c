"""Tensors reach a server of the same machine by a file in /dev/shm, with the same values as without it."""

import contextlib
import json
import os
import pathlib
import urllib.request

import pytest
from harness.dumps import exported_steps, read_dump
from harness.processes import external_server, free_port, run, servers_of, wait_until

SHARED = pathlib.Path("/dev/shm")
FREE = os.statvfs(SHARED) if SHARED.exists() else None

pytestmark = pytest.mark.skipif(
    FREE is None
    or FREE.f_blocks * FREE.f_frsize < 1 << 30
    or (FREE.f_blocks / 2 - FREE.f_bavail) * FREE.f_frsize > -(512 << 20),
    reason="/dev/shm has less than a GiB, or half of it is in use",
)

STEPS = 6


def shared_files(process):
    """Names of the files of this kind that a process has open."""
    names = set()
    for path in pathlib.Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(OSError):
            link = path.readlink()
            if link.parent == SHARED and link.name.startswith("msprobe-"):
                names.add(link.name)
    return names


@contextlib.contextmanager
def holding(tmp_path, running, *arguments, **configuration):
    """A program that waits after its first step, until tmp_path/go is there, and the name of its file."""
    progress = tmp_path / "progress"
    arguments = ("--hold-after", 0, "--go", tmp_path / "go", "--progress", progress, *arguments)
    with running("large_tensors.py", *arguments, task="tensor", **configuration) as program:
        program.wait_for(progress.exists, 60, "a step has passed")
        (name,) = shared_files(program.process.pid)
        yield program, name


def files_of(steps):
    """The content of a run's steps, without the place of their files."""
    found = {}
    for step in steps:
        (rank,) = step.iterdir()
        dump = read_dump(rank)
        dump["dump_data_dir"] = None
        tensors = {path.name: path.read_bytes() for path in (rank / "dump_tensor_data").iterdir()}
        assert any(len(content) > 1 << 20 for content in tensors.values())
        found[step.name] = (json.dumps(dump), tensors)
    return found


def embedded_files(dump_path):
    assert exported_steps(dump_path) == list(range(STEPS))
    return files_of(dump_path / f"step{step}" for step in range(STEPS))


def scraped(port, name):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


@pytest.fixture
def without(tmp_path, traced):
    """The files of the same program whose tensors come in messages."""
    dump_path = tmp_path / "without"
    traced("large_tensors.py", "--steps", STEPS, task="tensor", dump_path=str(dump_path), shared_memory=False)
    return embedded_files(dump_path)


@pytest.mark.timeout(180)
def test_the_embedded_server_reads_them_and_writes_the_same_files(tmp_path, dump_path, running, without):
    with holding(tmp_path, running, "--steps", STEPS) as (program, name):
        program.wait_for(lambda: exported_steps(dump_path) == [0], 60, "the step is exported")
        assert [shared_files(server) for server in servers_of(dump_path)] == [{name}]
        (tmp_path / "go").touch()
        program.finish()
    assert embedded_files(dump_path) == without
    assert not (SHARED / name).exists()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("switched_on", [True, False])
def test_a_server_counts_what_comes_so(tmp_path, running, short_directory, switched_on):
    address, port = short_directory / "s", free_port()
    with (
        external_server(address, tmp_path / "data", tmp_path / "log", "--metrics_listen", f"127.0.0.1:{port}"),
        running(
            "large_tensors.py", task="tensor", server=f"unix:{address}", run="r", shared_memory=switched_on
        ) as program,
    ):
        program.finish()
        stored = scraped(port, "msprobe_payload_stored_bytes_total")
        shared = scraped(port, "msprobe_payload_shared_bytes_total")
    assert stored > 10 << 20
    assert shared == (stored if switched_on else 0)


@pytest.mark.timeout(180)
def test_children_of_the_program_leave_it_alone(dump_path, traced, without):
    traced("large_tensors.py", "--steps", STEPS, "--fork", task="tensor")
    ours = embedded_files(dump_path)
    assert {step: tensors for step, (_, tensors) in ours.items()} == {
        step: tensors for step, (_, tensors) in without.items()
    }


@pytest.mark.timeout(240)
def test_servers_that_are_killed_and_come_back_have_every_byte(tmp_path, running, client, short_directory, without):
    progress, address = tmp_path / "progress", short_directory / "s"
    data, log, out = tmp_path / "data", tmp_path / "log", tmp_path / "out"
    arguments = ("--steps", STEPS, "--progress", progress)
    with running("large_tensors.py", *arguments, task="tensor", server=f"unix:{address}", run="killed") as program:
        for reached in (1, 3):
            with external_server(address, data, log) as server:
                program.wait_for(
                    lambda step=reached: progress.exists() and int(progress.read_text()) >= step, 60, f"step {reached}"
                )
                server.kill()
        with external_server(address, data, log):
            program.finish()
            run([client, "--server", f"unix:{address}", "export", "killed", "--output", out])
    found = files_of(out / f"step{step}" for step in range(STEPS))
    assert {step: tensors for step, (_, tensors) in found.items()} == {
        step: tensors for step, (_, tensors) in without.items()
    }


@pytest.mark.timeout(120)
def test_a_killed_programs_file_goes_when_its_server_notices(tmp_path, dump_path, running):
    with holding(tmp_path, running) as (program, name):
        program.wait_for(lambda: exported_steps(dump_path) == [0], 60, "the step is exported")
        program.kill()
        wait_until(lambda: not (SHARED / name).exists(), 60, "the file is gone")


@pytest.mark.timeout(120)
def test_a_file_that_nobody_noticed_goes_when_its_server_is_back(tmp_path, running, short_directory):
    address = short_directory / "s"
    with (
        external_server(address, tmp_path / "data", tmp_path / "log") as server,
        holding(tmp_path, running, server=f"unix:{address}", run="r") as (program, name),
    ):
        server.kill()
        program.kill()
    assert (SHARED / name).exists()
    with external_server(address, tmp_path / "data", tmp_path / "log"):
        wait_until(lambda: not (SHARED / name).exists(), 60, "the file is gone")
