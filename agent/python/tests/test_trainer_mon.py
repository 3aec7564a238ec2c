"""TrainerMon beyond its csv files, which tests/interop/test_trainer_mon.py has: formats, its file, refusals."""

import csv
import json
import os
import shutil

import pytest
import torch
from msprobe._common.errors import MsprobeError
from msprobe.core import monitor_v2
from msprobe.pytorch import TrainerMon, TrainerMonitorV2
from msprobe.pytorch._training_watch import named_parameters, unwrapped

ALL = {"wg_distribution": True, "param_distribution": True, "xy_distribution": True, "ops": ["norm"]}


@pytest.fixture
def output(tmp_path, monkeypatch):
    monkeypatch.setenv("MONITOR_OUTPUT_DIR", str(tmp_path / "out"))
    return tmp_path / "out"


def write(path, **fields):
    path.write_text(json.dumps({"targets": {}, **fields}))
    return path


def train(net, optimizer, steps=1):
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.ones(2, 3)).sum().backward()
        optimizer.step()


def monitored(config, **options):
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    monitor = TrainerMon(config, params_have_main_grad=False)
    monitor.set_monitor(net, optimizer, **options)
    return monitor, net, optimizer


def rows(output):
    found = [row for path in sorted(output.glob("*/*.csv")) for row in csv.DictReader(path.open())]
    return [(row["name"], int(row["step"])) for row in found]


def test_the_interface_gives_numbers_and_writes_nothing(tmp_path, output):
    monitor, net, optimizer = monitored(write(tmp_path / "c.json", format="api", **ALL))
    seen = []
    optimizer.register_step_post_hook(lambda *_: None)
    optimizer.register_step_pre_hook(
        lambda *_: seen.append((monitor.generate_wgrad_metrics(), monitor.generate_xy_metrics()))
    )
    train(net, optimizer)
    (post, pre), (activations, gradients) = seen[0]
    assert post["0:weight/rank0/post_grad"]["norm"].item() == pytest.approx(24**0.5)
    assert pre["0:weight/rank0/acc_grad"]["norm"].item() == pytest.approx(24**0.5)
    assert activations["0:.input:0/rank0/actv"]["norm"].item() == pytest.approx(6**0.5)
    assert gradients["0:.output:0/rank0/actv_grad"]["norm"].item() == pytest.approx(2.0)
    assert post["0:weight/rank0/post_grad"]["shape"] == [2, 3]
    assert list(output.glob("*/*")) == []


def test_event_files_have_the_tags_of_the_tool(tmp_path, output):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monitor, net, optimizer = monitored(write(tmp_path / "c.json", format="tensorboard", **ALL))
    train(net, optimizer, 2)
    monitor._files.close()
    (directory,) = output.iterdir()
    events = EventAccumulator(str(directory))
    events.Reload()
    assert [event.step for event in events.Scalars("0:weight/rank0/param_updated_norm")] == [0, 1]


def test_the_file_switches_a_running_monitor(tmp_path, output, monkeypatch):
    monkeypatch.setenv("DYNAMIC_MONITOR", "True")
    config = write(tmp_path / "c.json", dynamic_on=False, param_distribution=True, ops=["max"], collect_times=2)
    _, net, optimizer = monitored(config)
    train(net, optimizer, 2)
    assert rows(output) == []
    write(config, dynamic_on=True, param_distribution=True, ops=["max"], collect_times=2)
    os.utime(config, (1, 1))
    train(net, optimizer, 4)
    names = {step for _, step in rows(output)}
    assert names == {3, 4}, "it begins with the step after the change, for collect_times steps"
    assert json.loads(config.read_text())["dynamic_on"] is False


def make_pipe(config, _output):
    config.unlink()
    os.mkfifo(config)


def nest_deeply(config, _output):
    config.write_text("[" * 100_000)
    os.utime(config, (1, 1))


def remove_output(_config, output):
    for directory in output.iterdir():
        shutil.rmtree(directory)


def put_file_there(config, output):
    remove_output(config, output)
    output.rmdir()
    output.write_text("")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("strike", [make_pipe, nest_deeply, remove_output, put_file_there])
def test_whatever_becomes_of_its_files_the_monitor_goes_on(tmp_path, output, monkeypatch, strike):
    monkeypatch.setenv("DYNAMIC_MONITOR", "True")
    config = write(tmp_path / "c.json", dynamic_on=True, param_distribution=True, ops=["max"])
    monitor, net, optimizer = monitored(config)
    train(net, optimizer, 2)
    strike(config, output)
    train(net, optimizer, 3)
    assert monitor.step == 5
    if strike is put_file_there:
        output.unlink()
        train(net, optimizer)
    assert max(step for _, step in rows(output)) == monitor.step - 1, "it writes again where it can"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"eps": "small"}, "eps is 'small'; it should be a float"),
        ({"step_interval": 0}, "step_interval is 0; it should be an int from 1"),
        ({"targets": []}, "targets is []; it should be a dict"),
        ({"alert": {"rules": [{"rule_name": "Other"}]}}, "rule_name should be AnomalyTurbulence or AnomalyNan"),
        ({"ndigits": 21}, "ndigits is 21; it should be an int from 1 to 20"),
        ({"alert": {"rules": 5}}, "alert.rules is 5; it should be a list"),
        ({"alert": {"rules": [{"rule_name": "AnomalyTurbulence", "args": [1]}]}}, "args is [1]; it should be a dict"),
        ({"append_output": ["x", "y"]}, "append_output is ['x', 'y']; it should be empty, or the first and last time"),
    ],
)
def test_a_wrong_field_is_refused_by_name(tmp_path, output, fields, text):
    with pytest.raises(MsprobeError, match="should be") as refused:
        TrainerMon(write(tmp_path / "c.json", **fields))
    assert text in str(refused.value)


def test_the_second_version_refuses_what_it_cannot_do(tmp_path):
    with pytest.raises(ValueError, match="should be 'csv'"):
        TrainerMonitorV2(write(tmp_path / "a.json", format="tensorboard"))
    with pytest.raises(MsprobeError, match=r"framework is 'ms', and this is the TrainerMonitorV2 of msprobe.pytorch"):
        TrainerMonitorV2(write(tmp_path / "b.json"), fr="ms")
    with pytest.raises(MsprobeError, match="framework is 'jax'; it should be one of pytorch, pt, torch, mindspore, ms"):
        monitor_v2.TrainerMonitorV2(write(tmp_path / "b.json", framework="jax"))
    monitor = monitor_v2.TrainerMonitorV2(write(tmp_path / "c.json", monitors={"param": {"enabled": True}}))
    assert isinstance(monitor, TrainerMonitorV2), "of PyTorch by default"
    with pytest.raises(ValueError, match="optimizer must be given"):
        monitor.start(torch.nn.Linear(1, 1))


def test_wrappers_are_looked_into():
    net = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    wrapper = type("Wrapper", (), {"optimizer": optimizer})()
    assert unwrapped(wrapper) is optimizer
    with pytest.raises(MsprobeError, match="optimizer is a int; it should be"):
        unwrapped(3)
    compiled = torch.compile(net)
    assert [name for name, _ in named_parameters(compiled)] == ["weight", "bias"]
