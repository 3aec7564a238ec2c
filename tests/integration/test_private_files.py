"""Files of servers and clients are for their user alone; exports follow the user's umask."""

import os
import re
import subprocess
import sys

import pytest
from harness.dumps import write_config
from harness.processes import PROGRAMS, external_server, run, wait_for_servers_to_leave

PLAIN_UMASK = 0o022
pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def plain_umask():
    before = os.umask(PLAIN_UMASK)
    yield
    os.umask(before)


def open_to_others(directory):
    """Paths of a directory and below it that somebody else may read or enter."""
    found = [directory, *directory.rglob("*")]
    assert len(found) > 5, f"there is nothing in {directory}"
    return [str(path) for path in found if not path.is_symlink() and path.stat().st_mode & 0o077]


def test_a_data_directory_its_backup_and_what_is_restored_are_closed(tmp_path, short_directory, client):
    data, saved, restored = tmp_path / "data", tmp_path / "backup", tmp_path / "restored"
    with external_server(short_directory / "s", data, tmp_path / "server.log"):
        run([client, "--server", f"unix:{short_directory}/s", "server", "backup", saved])
        assert open_to_others(data) == []
    assert open_to_others(saved) == []
    run([client, "server", "restore", saved, restored])
    assert open_to_others(restored) == []


def test_a_data_directory_of_before_is_closed_at_the_start_and_said(tmp_path, short_directory):
    data = tmp_path / "data"
    with external_server(short_directory / "s", data, tmp_path / "server.log"):
        pass
    subprocess.run(["chmod", "-R", "go+rX", data], check=True)
    assert open_to_others(data)
    with external_server(short_directory / "s", data, tmp_path / "server.log") as server:
        said = f"the data directory {data} could be read by other users of this machine; it is this user's alone"
        server.wait_for(lambda: said in server.output, 30, "it is said")
        assert open_to_others(data) == []
    with external_server(short_directory / "s", data, tmp_path / "server.log") as server:
        server.wait_for(lambda: " data in " in server.output, 30, "it serves")
        assert said not in server.output, "once"


def test_an_export_is_as_the_users_umask_says_and_what_lies_beside_it_is_not(tmp_path, dump_path):
    for umask, files, directories in ((0o022, 0o644, 0o755), (0o077, 0o600, 0o700), (0o002, 0o664, 0o775)):
        path = dump_path / f"{umask:o}"
        os.umask(umask)
        config = write_config(tmp_path / "config.json", path, task="tensor", level="mix")
        run([sys.executable, PROGRAMS / "train_steps.py", "--config", config, "--steps", 1])
        wait_for_servers_to_leave(path)
        (dump_json,) = path.glob("step0/*/dump.json")
        exported = [*dump_json.parent.parent.rglob("*"), dump_json.parent.parent]
        assert len(exported) > 5
        for each in exported:
            assert each.stat().st_mode & 0o777 == (directories if each.is_dir() else files), each
        assert open_to_others(path / ".msprobe") == []


def test_a_clients_own_server_keeps_what_it_has_to_itself(tmp_path, client, reference):
    data = tmp_path / "data"
    dump = reference / "dump" / "train_statistics_mix"
    run([client, "--data_dir", data, "import", dump, "--run", "imported"])
    assert open_to_others(data) == []
    listed = run([client, "--data_dir", data, "runs"]).stdout
    assert re.search(r"^imported ", listed, re.MULTILINE)
