"""The comparer itself: planted differences are reported, and nothing else is."""

import copy
import json
import zlib

import parity
import pytest
import torch

NAN = float("nan")
INF = float("inf")


def leaf(**changes):
    record = {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": [4, 4],
        "Max": 1.5,
        "Min": -1.0,
        "Mean": 0.25,
        "Norm": 4.0,
        "requires_grad": False,
    }
    record.update(changes)
    return record


def dump(**data):
    return {
        "task": "statistics",
        "level": "L1",
        "framework": "pytorch",
        "dump_data_dir": None,
        "data": data
        or {
            "Torch.add.0.forward": {
                "input_args": [leaf(), {"type": "int", "value": 2}, None],
                "input_kwargs": {"out": leaf()},
                "output": [leaf(Max=NAN, Min=NAN, Mean=NAN, Norm=NAN)],
            },
            "Torch.add.0.backward": {"input": [leaf()], "output": [leaf(), None]},
            "Torch.mul.0.forward": {"input_args": [], "input_kwargs": {}, "output": [leaf(Max=INF, Mean=INF)]},
        },
    }


def differences(change, rules=parity.STRICT):
    """The differences after change(ours) on a copy."""
    real, ours = dump(), copy.deepcopy(dump())
    change(ours)
    return parity.compare_data(ours, real, rules)


def one(found):
    assert len(found) == 1, [str(difference) for difference in found]
    return found[0]


def add(ours):
    return ours["data"]["Torch.add.0.forward"]


def test_equal_dumps_have_no_differences():
    assert differences(lambda ours: None) == []


@pytest.mark.parametrize(
    ("key", "value", "path"),
    [
        ("type", "torch.nn.Parameter", "input_args.0.type"),
        ("dtype", "torch.float64", "input_args.0.dtype"),
        ("shape", [4, 5], "input_args.0.shape"),
        ("Max", 1.5000001, "input_args.0.Max"),
        ("Min", -1, "input_args.0.Min"),  # an integer where a float was
        ("Mean", None, "input_args.0.Mean"),
        ("Norm", 4.0001, "input_args.0.Norm"),
        ("Mean", 0.26, "input_args.0.Mean"),
        ("requires_grad", True, "input_args.0.requires_grad"),
    ],
)
def test_a_changed_value_of_a_tensor_is_reported(key, value, path):
    found = one(differences(lambda ours: add(ours)["input_args"][0].update({key: value})))
    assert (found.entry, found.key) == ("Torch.add.0.forward", path)


def test_a_missing_entry():
    found = one(differences(lambda ours: ours["data"].pop("Torch.add.0.backward")))
    assert (found.entry, found.ours, found.rule) == ("Torch.add.0.backward", parity.ABSENT, "missing entry")


def test_an_extra_entry():
    found = one(differences(lambda ours: ours["data"].update({"Torch.sub.0.forward": {}})))
    assert (found.entry, found.rule) == ("Torch.sub.0.forward", "extra entry")


def test_entries_in_another_order():
    def move_first_to_end(ours):
        ours["data"]["Torch.add.0.forward"] = ours["data"].pop("Torch.add.0.forward")

    found = one(differences(move_first_to_end))
    assert found.rule == "the same order of each entry"
    assert (found.ours, found.real) == ("Torch.add.0.backward", "Torch.add.0.forward")


def test_keys_in_another_order():
    def swap(ours):
        record = add(ours)["input_args"][0]
        record["Max"] = record.pop("Max")

    found = one(differences(swap))
    assert found.key == "input_args.0.key order"


def test_a_missing_and_an_extra_key():
    def rename(ours):
        record = add(ours)["input_args"][0]
        record["md5"] = "00000000"
        del record["requires_grad"]

    assert sorted(found.rule for found in differences(rename)) == ["extra key", "missing key"]


def test_a_null_that_became_a_list():
    assert one(differences(lambda ours: add(ours).update(output=None))).key == "output"


def test_a_list_that_lost_an_item():
    assert one(differences(lambda ours: add(ours)["input_args"].pop())).key == "input_args.length"


def test_a_number_where_the_real_tool_has_nan():
    assert one(differences(lambda ours: add(ours)["output"][0].update(Norm=1.0))).key == "output.0.Norm"


def test_infinity_is_equal_to_itself_only():
    def flip(ours):
        ours["data"]["Torch.mul.0.forward"]["output"][0]["Max"] = -INF

    assert one(differences(flip)).key == "output.0.Max"


def test_header():
    assert one(differences(lambda ours: ours.update(level="mix"))).key == "level"
    assert one(differences(lambda ours: ours.update(dump_data_dir="/x"))).key == "dump_data_dir"


def test_negative_zero_is_not_zero():
    assert not parity.same(-0.0, 0.0)
    assert not parity.same(1, True)
    assert not parity.same(7, 7.0)
    assert parity.same(NAN, NAN)


def test_norm_and_mean_have_the_tolerance_of_float32_sums():
    def nudge(ours):
        add(ours)["input_args"][0].update(Norm=4.0 * (1 + 0.9e-5), Mean=0.25 + 0.9 * (1e-5 * 0.25 + 1e-6 * 4 / 4))

    assert differences(nudge) == []


def test_rounded_rules_forgive_the_last_bits_only():
    rules = parity.Rules(rounded=True)

    def nudge(ours):
        add(ours)["input_args"][0].update(Max=1.50001, Norm=4.0001, Mean=0.25001)

    assert differences(nudge, rules) == []
    assert len(differences(nudge)) == 3
    assert one(differences(lambda ours: add(ours)["input_args"][0].update(Max=1.6), rules)).key == "input_args.0.Max"
    assert one(differences(lambda ours: add(ours)["input_args"][0].update(Max=None), rules)).key == "input_args.0.Max"
    assert one(differences(lambda ours: add(ours)["output"][0].update(Max=1.0), rules)).key == "output.0.Max"
    assert one(differences(lambda ours: ours["data"].pop("Torch.add.0.backward"), rules)).rule == "missing entry"


def test_a_scalar_tensor_shows_its_value_exactly():
    real = dump(x={"output": [leaf(shape=[], Max=-1.5, Min=-1.5, Mean=-1.5, Norm=-1.5)]})
    ours = copy.deepcopy(real)
    ours["data"]["x"]["output"][0]["Norm"] = 1.5
    assert one(parity.compare_data(ours, real)).key == "output.0.Norm"


class FixedTruth(parity.Truth):
    def __init__(self, **rows):
        self.rows = rows

    def of(self, row):
        return self.rows.get(row.replace(".", "_"))


def half(**changes):
    return dump(**{"Torch.add.0.forward": {"output": [leaf(dtype="torch.float16", **changes)]}})


TRUE = parity.Rules(
    FixedTruth(Torch_add_0_forward_output_0=parity.TensorTruth(mean=0.2501, norm=4.001, crc32="0badf00d"))
)


def test_half_precision_may_be_nearer_to_the_truth():
    assert parity.compare_data(half(Mean=0.2501, Norm=4.0009), half(), TRUE) == []


def test_half_precision_may_not_be_farther_from_the_truth():
    assert one(parity.compare_data(half(Norm=4.003), half(), TRUE)).key == "output.0.Norm"


def test_half_precision_overflow_is_put_right():
    assert parity.compare_data(half(Norm=4.002), half(Norm=INF), TRUE) == []
    assert one(parity.compare_data(half(Norm=INF), half(Norm=INF), TRUE)).key == "output.0.Norm"


def test_half_precision_without_a_truth_is_not_judged_silently():
    assert len(parity.compare_data(half(), half())) == 2  # Mean and Norm


def checksum(value):
    return dump(**{"Torch.add.0.forward": {"output": [leaf(md5=value)]}})


def test_a_checksum_is_held_against_the_true_one():
    assert parity.compare_data(checksum("0badf00d"), checksum("ffffffff"), TRUE) == []
    assert one(parity.compare_data(checksum("ffffffff"), checksum("ffffffff"), TRUE)).real == "0badf00d"


def test_a_checksum_without_truth_is_held_against_the_real_one():
    assert parity.compare_data(checksum("11111111"), checksum("11111111")) == []
    assert one(parity.compare_data(checksum("11111111"), checksum("22222222"))).key == "output.0.md5"


@pytest.mark.parametrize(
    ("path", "row"),
    [
        (("input_args", 0, 1), "F.forward.input.0.1"),
        (("input_kwargs", "out"), "F.forward.kwargs.out"),
        (("output", 0, "x"), "F.forward.output.0.x"),
        (("parameters", "weight"), "F.forward.parameters.weight"),
        (("weight", 0), "F.forward.weight"),
    ],
)
def test_row_names_are_those_of_tensor_files(path, row):
    assert parity.row_name("F.forward", path) == row


def test_construct():
    real = {"a": None, "b": "a", "c": "b"}
    assert parity.compare_construct(dict(real), real) == []
    assert one(parity.compare_construct({**real, "c": "a"}, real)).key == "c"
    assert one(parity.compare_construct({"a": None, "b": "a"}, real)).entry == "c"


def frames(*functions, last=3):
    inner = ["File /env/lib/python3.11/site-packages/torch/nn/modules/module.py, line 9, in inner, \n x"]
    return inner + [f"File /work/net.py, line {last}, in {name}, \n {name}()" for name in functions]


def test_stack_groups():
    real = {"0": [["A.0.forward", "A.1.forward"], frames("f", "g")], "1": [["B.0.forward"], frames("g")]}
    assert parity.compare_stack(copy.deepcopy(real), real) == []
    split = {"0": [["A.0.forward"], frames("f", "g")], "1": [["A.1.forward"], frames("f", "g")], "2": real["1"]}
    assert one(parity.compare_stack(split, real)).rule == "the same group of names"
    other_line = {**real, "1": [["B.0.forward"], frames("g", last=4)]}
    assert one(parity.compare_stack(other_line, real)).rule == "the same frames of the program"
    own_frames_do_not_count = {**real, "1": [["B.0.forward"], frames("g")[1:]]}
    assert parity.compare_stack(own_frames_do_not_count, real) == []
    swapped = {"0": real["1"], "1": real["0"]}
    assert one(parity.compare_stack(swapped, real)).rule == "groups in the same order"
    extra = {**real, "2": [["C.0.backward"], frames("g")]}
    assert one(parity.compare_stack(extra, real)).ours == ["C.0.backward"]


def test_saved_tensors(tmp_path):
    for side in ("ours", "real"):
        (tmp_path / side).mkdir()
        torch.save(torch.tensor([1.0, NAN]), tmp_path / side / "a.pt")
        torch.save(torch.arange(4, dtype=torch.bfloat16), tmp_path / side / "b.pt")
    assert parity.compare_tensors(tmp_path / "ours", tmp_path / "real") == []
    torch.save(torch.arange(4, dtype=torch.float16), tmp_path / "ours" / "b.pt")
    assert one(parity.compare_tensors(tmp_path / "ours", tmp_path / "real")).key == "b.pt.dtype"
    torch.save(torch.tensor([0.0, 1, 2, 4], dtype=torch.bfloat16), tmp_path / "ours" / "b.pt")
    assert one(parity.compare_tensors(tmp_path / "ours", tmp_path / "real")).key == "b.pt.content"
    (tmp_path / "ours" / "b.pt").unlink()
    assert one(parity.compare_tensors(tmp_path / "ours", tmp_path / "real")).rule == "missing file"


def test_rank_directories(tmp_path):
    for side in ("ours", "real"):
        (tmp_path / side).mkdir()
        (tmp_path / side / "dump.json").write_text(json.dumps(dump()))
        (tmp_path / side / "construct.json").write_text("{}")
    (tmp_path / "ours" / "dump_error_info.log").write_text("")
    assert parity.compare_rank_directories(tmp_path / "ours", tmp_path / "real") == []
    (tmp_path / "ours" / "construct.json").unlink()
    assert one(parity.compare_rank_directories(tmp_path / "ours", tmp_path / "real")).entry == "construct.json"


def test_file_truth(tmp_path):
    torch.save(torch.full((4096,), 3000.0, dtype=torch.float16), tmp_path / "F.0.forward.input.0.pt")
    truth = parity.FileTruth(tmp_path).of("F.0.forward.input.0")
    assert (truth.mean, truth.norm) == (3000.0, 192000.0)
    assert truth.crc32 == f"{zlib.crc32(torch.full((4096,), 3000.0, dtype=torch.float16).numpy().tobytes()):08x}"
    assert parity.FileTruth(tmp_path).of("nothing") is None


def test_allowed_differences_cover_only_what_they_name():
    found = differences(lambda ours: add(ours)["input_args"][0].update(Norm=5.0, Max=9.0))
    rule = parity.Allowed("Torch.add.*", "*.Norm", "row")
    left, unused = parity.judge(found, [rule, parity.Allowed("Torch.sub.*", "*", "row")])
    assert [difference.key for difference in left] == ["input_args.0.Max"]
    assert [rule.entry for rule in unused] == ["Torch.sub.*"]
    wrong_value = parity.Allowed("Torch.add.*", "*.Norm", "row", ours=6.0)
    assert len(parity.judge(found, [wrong_value])[0]) == 2
