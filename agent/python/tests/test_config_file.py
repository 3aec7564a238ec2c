"""A configuration file that others are writing while it is read: vllm-ascend's workers all write the same one."""

import json
import os
import threading

import pytest
import torch  # noqa: F401  (msprobe._agent needs its libraries in the process)
from msprobe._common.config_file import RETRY_SECONDS, WRITTEN_SECONDS, ConfigFile
from msprobe._common.errors import MsprobeError

CONTENT = {"task": "statistics", "level": "L0", "dump_path": "/tmp/of nobody", "statistics": {"list": ["mlp"] * 50}}


class Clock:
    """Goes on while somebody pauses."""

    def __init__(self, meanwhile=lambda: None):
        self.now, self.pauses, self._meanwhile = 0.0, 0, meanwhile

    def read(self):
        return self.now

    def pause(self, seconds):
        self.now += seconds
        self.pauses += 1
        self._meanwhile()


def read(path, clock):
    return ConfigFile(path, None, None, None, None, clock=clock.read, pause=clock.pause)


@pytest.mark.parametrize("first", ["", '{"task": "stat', json.dumps(CONTENT)[:-1]])
def test_half_a_file_is_read_again_until_it_is_whole(tmp_path, first):
    path = tmp_path / "config.json"
    path.write_text(first)
    clock = Clock()
    clock._meanwhile = lambda: path.write_text(json.dumps(CONTENT)) if clock.pauses == 3 else None
    file = read(path, clock)
    assert file.asked() == CONTENT and clock.pauses == 3
    assert file.parse().level == "L0"


def test_a_file_that_stays_wrong_is_refused_soon(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"task": ')
    clock = Clock()
    with pytest.raises(MsprobeError):
        read(path, clock).parse()
    assert clock.now <= WRITTEN_SECONDS + RETRY_SECONDS


def test_a_wrong_file_that_nobody_has_just_written_is_not_waited_for(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"task": ')
    os.utime(path, (1, 1))
    clock = Clock()
    read(path, clock)
    assert clock.pauses == 0


def test_writers_that_race_are_never_seen(tmp_path):
    path, ended = tmp_path / "config.json", threading.Event()
    path.write_text(json.dumps(CONTENT))

    def write():
        while not ended.is_set():
            with path.open("w") as stream:
                json.dump(CONTENT, stream, indent=2)
            ended.wait(RETRY_SECONDS / 10)  # most of the time the file is whole

    writers = [threading.Thread(target=write) for _ in range(3)]
    for writer in writers:
        writer.start()
    try:
        for _ in range(50):
            assert ConfigFile(path, None, None, None, None).asked() == CONTENT
    finally:
        ended.set()
        for writer in writers:
            writer.join()
