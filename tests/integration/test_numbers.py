"""Numbers and checksums are those of the bytes at the call, whatever happens to them right after."""

import json

import pytest
from harness.dumps import entries


@pytest.mark.timeout(120)
def test_checksums_are_of_the_bytes_at_the_call(traced, dump_path):
    done = traced("changed_after.py", config_flag=None, section={"summary_mode": "md5"})
    true = json.loads(done.stdout.split("TRUE ", 1)[1].splitlines()[0])
    data = entries(dump_path)
    wrong = {}
    for row, checksum in true.items():
        entry, part, index = row.rsplit(".", 2)
        leaf = data[entry]["input_args" if part == "input" else "output"][int(index)]
        if leaf["md5"] != checksum:
            wrong[row] = (leaf["md5"], checksum)
    assert not wrong
    assert len(true) > 100


@pytest.mark.timeout(120)
def test_an_in_place_call_has_its_input_before_and_its_output_after(traced, dump_path):
    traced("changed_after.py", config_flag=None)
    data = entries(dump_path)
    for turn in range(50):
        call = data[f"Tensor.add_.{turn}.forward"]
        assert (call["input_args"][0]["Max"], call["output"][0]["Max"]) == (turn, turn + 1)
    maxima = [data[f"Torch.neg.{turn}.forward"]["input_args"][0]["Max"] for turn in range(4)]
    assert maxima == [3_999_999.0 + turn for turn in range(4)]
    weights = [data[f"Functional.linear.{turn}.forward"]["input_args"][1]["Max"] for turn in range(6)]
    assert weights == [1.0, 2.0, 4.0, 5.0, 10.0, 11.0]
