"""Commands that last for some steps: what is captured meanwhile, and that everything is then as before."""

import json

import pytest
from msprobe._common.config_file import ConfigFile
from msprobe._common.followed_config import FollowedConfig
from msprobe._common.live_control import LiveControl


class Recorder:
    """Takes commands, and keeps what is said of them."""

    def __init__(self):
        self.commands, self.said = [], []

    def take_commands(self):
        taken, self.commands = self.commands, []
        return [(number, *command, "somebody") for number, command in enumerate(taken)]

    def answer_command(self, command, said, refused):
        self.said.append((said, refused))


class Agent:
    def __init__(self):
        self.recorder = Recorder()


class Program:
    """Steps as a debugger has them: the configuration is taken where no step has records."""

    def __init__(self, directory, **fields):
        self.path = directory / "config.json"
        self.path.write_text(json.dumps({"dump_path": str(directory / "dump"), "level": "L0", **fields}))
        self.followed = FollowedConfig(ConfigFile(self.path, None, None, None, None))
        self.control, self.agent = LiveControl(self.followed), Agent()

    def ask(self, action, settings="", steps=0):
        self.agent.recorder.commands.append((action, settings, steps, ""))

    def step(self, within=None):
        """The level that the step is captured with; None: it is not. within: asked while the step runs."""
        self.control.obey(self.agent)
        self.followed.take()
        captured = self.followed.config.level if self.followed.enabled else None
        if within is not None:
            self.ask(*within)
        self.control.obey(self.agent)  # by stop()
        if captured is not None:
            self.control.end_step()
        self.followed.take()
        return captured

    @property
    def said(self):
        return self.agent.recorder.said[-1]


DEEPER = ("deeper", '{"level": "mix"}', 2)


def test_the_next_steps_are_deeper_and_then_all_is_as_before(tmp_path):
    program = Program(tmp_path)
    assert program.step() == "L0"
    program.ask(*DEEPER)
    assert [program.step() for _ in range(4)] == ["mix", "mix", "L0", "L0"]
    assert program.said == ('captures the next 2 steps with level="mix", then goes on as before', False)
    assert (program.control.forced, program.control.steps_left) == (False, -1)


def test_a_step_under_way_does_not_count(tmp_path):
    program = Program(tmp_path)
    assert [program.step(DEEPER), *(program.step() for _ in range(3))] == ["L0", "mix", "mix", "L0"]


def test_a_job_that_captures_nothing_captures_nothing_again(tmp_path):
    program = Program(tmp_path, dump_enable=False)
    program.ask(*DEEPER)
    assert [program.step() for _ in range(3)] == ["mix", "mix", None]


def test_another_command_ends_it_and_a_second_one_is_refused(tmp_path):
    program = Program(tmp_path)
    program.ask(*DEEPER)
    assert program.step() == "mix"
    program.ask(*DEEPER)
    assert program.step() == "mix"
    assert program.said == ("it captures deeper already, 1 steps more", True)
    program.ask("deeper", '{"level": "mix"}', 9)
    assert program.step() == "mix"
    program.ask("set", '{"level": "L1"}')
    assert [program.step(), program.step()] == ["L1", "L1"]


@pytest.mark.parametrize(
    ("settings", "steps", "said"),
    [
        ('{"level": "L9"}', 2, "L9"),
        ('{"dump_path": "/x"}', 2, "dump_path cannot be changed"),
        ("[1]", 2, "[1]"),
        ("", 0, "0"),
    ],
)
def test_what_is_wrong_is_refused_and_changes_nothing(tmp_path, settings, steps, said):
    program = Program(tmp_path)
    program.ask("deeper", settings, steps)
    assert [program.step(), program.step()] == ["L0", "L0"]
    text, refused = program.said
    assert refused and said in text


def test_a_file_that_changes_meanwhile_stands(tmp_path):
    program = Program(tmp_path, dump_enable=True)
    program.ask("deeper", '{"level": "mix"}', 3)
    assert program.step() == "mix"
    changed = json.loads(program.path.read_text()) | {"level": "L1"}
    program.path.write_text(json.dumps(changed))
    program.followed._file._next_poll = 0
    program.followed.look()
    assert [program.step() for _ in range(4)] == ["L1", "L1", "L1", "L1"]
