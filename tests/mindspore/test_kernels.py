"""Level L2: what MindSpore is told to dump of its kernels, and what it dumped, in a store."""

import pytest
from msprobe_client.client import Client

CPU = list(range(8))


def common(**changed):
    return {
        **{"dump_mode": 0, "net_name": "Net", "iteration": "all", "saved_data": "statistic", "input_output": 0},
        **{"kernels": [], "support_device": CPU},
        **changed,
    }


def test_mindspore_dumps_its_kernels_and_they_are_asked_like_every_record(case, tmp_path):
    (told, outputs), dump, _ = case("kernels")
    assert told.pop("acl") == [
        "acl_dump_0.json",
        {
            "dump": {
                **{"dump_path": f"{dump}/acl", "dump_mode": "output", "dump_data": "stats", "dump_op_switch": "on"},
                **{"dump_list": [{"layer": ["name-regex(ReLU)"]}], "dump_step": "1|3|4"},
            }
        },
    ]
    for settings in told.values():
        if isinstance(settings, list):
            assert settings[1]["common_dump_settings"].pop("path").startswith(str(dump))
    all_four = ["max", "min", "avg", "l2norm"]
    assert told["plain"] == [
        "kernel_kbyk_dump.json",
        {
            "common_dump_settings": common(statistic_category=all_four),
            "e2e_dump_settings": {
                **{"enable": True, "trans_flag": True},
                **{"stat_calc_mode": "host", "device_stat_precision_mode": "high"},
            },
        },
    ]
    name, chosen = told["chosen"]
    assert chosen["common_dump_settings"] == common(
        **{"dump_mode": 1, "kernels": ["name-regex(ReLU)"], "support_device": [0, 1], "iteration": "1|3|4"},
        **{"input_output": 2, "statistic_category": ["avg", "hash:md5"]},
    )
    assert chosen["e2e_dump_settings"] == {
        **{"enable": False, "trans_flag": True, "stat_calc_mode": "device", "device_stat_precision_mode": "low"}
    }
    for task, file, mode in (("exception", "exception_check", 4), ("overflow", "overflow_check", 2)):
        name, settings = told[task]
        assert name == f"kernel_graph_{file}.json"
        assert settings == {
            "common_dump_settings": common(saved_data="tensor", op_debug_mode=mode, file_format="npy"),
            "e2e_dump_settings": {"enable": True, "trans_flag": True},
        }
    assert told["level"] == (
        "task is 'exception_dump', which makes MindSpore dump kernels, and level is 'L1'; set level to 'L2', or task "
        "to 'nan_check', which finds NaN and Inf at the other levels"
    )
    assert told["task"].startswith("task is 'structure'; at level L2 it should be one of")
    assert told["device"] == "device is 'npu'; it should be one of ['host', 'device']"
    assert told["schedule"] == (
        "schedule is {'wait': 1, 'active': 1}; at level L2 MindSpore chooses what it dumps, by step, a list of steps"
    )
    assert (
        told["select"] == "select is 'Linear'; at level L2 MindSpore chooses what it dumps, by list, names of kernels"
    )
    assert told["summary"].startswith("summary_mode is ['median']; at level L2 it should be")

    with Client(data_dir=tmp_path / "data", create=True) as client:
        report = client.import_dump(dump, "kernels")
        assert report.steps == 1 and report.warnings == ()
        records = list(client.records("kernels", step=1, rank=0))
        assert report.payloads > len(records) > 10
        tensors = dict(pair for record in records for pair in record.tensors())
        last = max(map(max, outputs[1]))
        assert any(stats.max == pytest.approx(last, rel=1e-6) for stats in tensors.values())
        (relu,) = (record for record in records if record.full_name.startswith("Kernel.ReLU."))
        name, stats = next(pair for pair in relu.tensors() if ".output." in pair[0])
        assert (stats.dtype, stats.shape, stats.min >= 0) == ("Float32", (3, 4), True)
        client.tensor("kernels", name, tmp_path / "relu.npy", step=1, rank=0)
        assert (tmp_path / "relu.npy").stat().st_size == 128 + 3 * 4 * 4
        assert not [row for row in client.compare("run:kernels", "run:kernels") if hasattr(row, "verdict")]
