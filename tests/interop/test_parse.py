"""msprobe parse and layouts beside mindstudio-probe, and its old shell as version 8.3.3 answered."""

import csv
import io
import json
import os
import pathlib
import struct
import subprocess
import sys

import numpy as np
import pytest
import torch
from harness.processes import run
from msprobe_client import Client
from msprobe_client.tensor_files import TensorPlace

MSPROBE = pathlib.Path(sys.executable).with_name("msprobe")
# dtype of ATB: what it is.
ATB = {0: np.float32, 1: np.float16, 2: np.int8, 3: np.int32, 9: np.int64, 12: np.bool_, 27: None}

# Its converters of layouts, each in the folder of its arguments.
ORACLE = """
import importlib, json, os, sys
import msprobe
sys.path.insert(0, os.path.join(os.path.dirname(msprobe.__file__), "msaccucmp"))
sys.path.insert(0, os.path.join(sys.path[0], "format_manager", "builtin_format_convert"))
import numpy as np
for number, (source, target, stored, wanted) in enumerate(json.load(open(sys.argv[1]))):
    convert = importlib.import_module(f"convert_{source}_to_{target}").convert
    np.save(f"theirs_{number}.npy", convert(stored, wanted, np.load(f"stored_{number}.npy").reshape(-1)))
from msprobe.core.parse.parse_cli import parse_cli
import argparse
for kind in ("npy", "pt"):
    parse_cli(argparse.Namespace(dump_path="dumps", parse_type=kind, output_path="theirs"))
"""
# Source, target, stored shape, wanted shape.
LAYOUTS = [
    ("FRACTAL_NZ", "ND", [4, 3, 16, 16], [40, 60]),
    ("FRACTAL_NZ", "ND", [2, 3, 1, 16, 16], [2, 9, 40]),
    ("FRACTAL_NZ", "NCHW", [2, 3, 2, 1, 16, 16], [2, 3, 9, 20]),
    ("NC1HWC0", "NCHW", [2, 3, 4, 5, 16], [2, 48, 4, 5]),
    ("NC1HWC0", "NHWC", [2, 3, 4, 5, 16], [2, 4, 5, 48]),
    ("NC1HWC0", "HWCN", [2, 3, 4, 5, 16], [4, 5, 48, 2]),
    ("NDC1HWC0", "NCDHW", [2, 3, 2, 4, 5, 16], [2, 20, 3, 4, 5]),
    ("FRACTAL_Z", "NCHW", [12, 2, 16, 16], [20, 30, 2, 3]),
    ("FRACTAL_Z", "HWCN", [12, 2, 16, 16], [2, 3, 30, 20]),
    ("NCHW", "FRACTAL_Z", [20, 30, 2, 3], []),
    ("NHWC", "FRACTAL_Z", [20, 2, 3, 30], []),
    ("HWCN", "FRACTAL_Z", [2, 3, 30, 20], []),
    ("NCHW", "NHWC", [2, 3, 4, 5], [2, 4, 5, 3]),
    ("HWCN", "NCHW", [2, 3, 4, 5], [5, 4, 2, 3]),
]


def atb(dtype, array):
    dims = ",".join(map(str, array.shape))
    header = f"$Version=1.0\n$Object.Count=1\nformat=2\ndtype={dtype}\ndims={dims}\n$End=1\n"
    return header.encode() + array.tobytes()


@pytest.fixture(scope="module")
def theirs(tmp_path_factory, oracle_python):
    """A folder with their results, and what they were made of."""
    folder = tmp_path_factory.mktemp("parse")
    (folder / "dumps").mkdir()
    drawn = np.random.default_rng(1)
    for dtype, numpy_type in ATB.items():
        array = drawn.integers(-9, 9, (3, 5)).astype(numpy_type or np.float32)
        if numpy_type is None:
            array = torch.from_numpy(array).bfloat16().view(torch.int16).numpy()
        (folder / "dumps" / f"{dtype}_intensor0.bin").write_bytes(atb(dtype, array))
    for number, (_, _, stored, _) in enumerate(LAYOUTS):
        np.save(folder / f"stored_{number}.npy", drawn.integers(1, 999, stored).astype(np.float16))
    (folder / "asked.json").write_text(json.dumps(LAYOUTS))
    run([oracle_python, "-c", ORACLE, "asked.json"], cwd=folder, PYTHONPATH=None)
    return folder


def test_atb_files_become_the_same_files(theirs):
    for kind in ("npy", "pt"):
        run([MSPROBE, "parse", "-d", theirs / "dumps", "-t", kind, "-o", theirs / "ours"])
    names = sorted(path.name for path in (theirs / "theirs").iterdir())
    assert names == sorted(path.name for path in (theirs / "ours").iterdir()) and len(names) == 2 * len(ATB)
    for name in names:
        if name.endswith(".npy"):
            ours, real = (np.load(theirs / side / name) for side in ("ours", "theirs"))
            assert ours.dtype == real.dtype and np.array_equal(ours, real), name
        else:
            ours, real = (torch.load(theirs / side / name) for side in ("ours", "theirs"))
            assert ours.dtype == real.dtype and torch.equal(ours, real), name


def test_layouts_are_those_of_its_converters(theirs, tmp_path):
    with Client(data_dir=tmp_path / "data", create=True) as client:
        for number, (source, target, _, wanted) in enumerate(LAYOUTS):
            real = np.load(theirs / f"theirs_{number}.npy")
            sizes = tuple(wanted) if source.startswith(("FRACTAL", "ND")) else ()
            place = TensorPlace(theirs / f"stored_{number}.npy", stored=source, layout=target, sizes=sizes)
            ours = np.load(client.tensor_files.convert(place, tmp_path / "ours.npy"))
            if source == "FRACTAL_NZ":  # theirs join what stands in front
                real = real.reshape(ours.shape)
            assert np.array_equal(ours, real), LAYOUTS[number]


def in_shell(folder, *lines):
    done = subprocess.run(
        [MSPROBE, "-f", "pytorch", "parse"],
        input="\n".join(lines) + "\n",
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=dict(os.environ, COLUMNS="150"),
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    return done.stdout


@pytest.fixture
def folder(tmp_path):
    """What the answers of 8.3.3 below were made of."""
    left = np.linspace(-2, 3, 24, dtype=np.float32).reshape(4, 6)
    right = left.copy()
    right[1, 2] += 0.5
    right[3, 5] -= 0.01
    np.save(tmp_path / "a.npy", left)
    np.save(tmp_path / "b.npy", right)
    return tmp_path


def test_the_shell_shows_a_tensor(folder):
    said = in_shell(folder, "pt -n a.npy")
    for line in (
        "│ 0     │ -2.0 -1.7826087 -1.5652174 -1.3478261 -1.1304348 -0.9130435 -0.6956522 -0.47826087     │",
        "│ 16    │ 1.4782609 1.6956521 1.9130435 2.1304348 2.347826 2.5652175 2.7826087 3.0               │",
        "[Shape: (4, 6)] [Dtype: float32] [Max: 3.0] [Min: -2.0] [Mean: 0.5",
        "TextFile: a.npy.txt",
    ):
        assert line in said, said
    assert (folder / "a.npy.txt").read_text().splitlines()[:2] == [
        "-2 -1.78261 -1.56522 -1.34783 -1.13043 -0.913043",
        "-0.695652 -0.478261 -0.26087 -0.0434783 0.173913 0.391304",
    ]


def test_the_shell_compares_two_tensors(folder):
    said = in_shell(folder, "cn -m a.npy -g b.npy -p 3 -s")
    for line in (
        "│ 8     │ -0.26086956 │ 0.23913044 │ 0.5        │ │ 0     │ -2.0       │ -2.0       │ 0.0  │",
        "│ 23    │ 3.0         │ 2.99       │ 0.00999999 │ │ 1     │ -1.7826087 │ -1.7826087 │ 0.0  │",
        "NumCnt:   24 ",
        "AllClose: False",
        "CosSim:   0.9979268",
        "ErrorPer: 0.08333333333333333  (rl= 0.001, al= 0.001)",
    ):
        assert line in said, said
    assert (folder / "b.npy.txt").exists()
    np.save(folder / "c.npy", np.load(folder / "a.npy").reshape(-1))
    said = in_shell(folder, "cn -m a.npy -g c.npy", "cn -m a.npy -g a.npy -al 0")
    assert "Data shape not equal: (4, 6) vs (24,)" in said and "AllClose: True" in said


def test_the_shell_compares_directories(folder):
    for side, times, names in (("A", (111, 222), "aa"), ("B", (333, 444), "ba")):
        for operator, (at, name) in enumerate(zip(times, names, strict=True)):
            path = folder / side / f"op{operator}" / str(at)
            path.mkdir(parents=True)
            (path / "x.npy").write_bytes((folder / f"{name}.npy").read_bytes())
    said = in_shell(folder, "vc -m A -g B -out out", "vc -m A -g A", "vc -m . -g B")
    assert said.count("[ERROR]") == 2
    (path,) = (folder / "out").glob("batch_compare_*.csv")
    rows = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig"))))
    assert rows[0][:5] == ["NPU File Name", "Bench File Name", "Mean", "Bench Mean", "Md5 Consistency"]
    assert [row[4] for row in rows[1:]] == ["False", "True"]
    assert [float(cell) for cell in (*rows[1][2:4], *rows[1][5:])] == pytest.approx([0.5, 0.5204167, 0.5, 2.090909])


def test_relative_errors_of_directories_leave_zeros_out(folder):
    for side, values in (("A", [1.0, 2.5]), ("B", [0.0, 2.0])):
        path = folder / side / "op" / "111"
        path.mkdir(parents=True)
        np.save(path / "x.npy", np.array(values, dtype=np.float32))
    in_shell(folder, "vc -m A -g B -out out")
    (path,) = (folder / "out").glob("batch_compare_*.csv")
    assert list(csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig"))))[1][5:] == ["1.0", "0.25"]


def test_the_shell_shows_an_operation(folder):
    lines = [
        ["Functional_conv2d_0_forward_input.0", 1, [], "torch.float32", [2, 1], [1.5, -0.9, 0.4]],
        ["Functional_conv2d_0_forward_stack_info", [[f"{name}.py", 3, "f", "x = 1"] for name in "abcde"]],
        ["Functional_relu_0_forward_input.0", 1, [], "torch.float32", [2, 1], [1.5, -0.9, 0.4]],
    ]
    (folder / "old.pkl").write_text("\n".join(map(json.dumps, lines)))
    said = in_shell(folder, "pk -f old.pkl -n Functional_conv2d_0")
    statistics = "[dtype: torch.float32][shape: [2, 1]][max: 1.5][min: -0.9][mean: 0.4]"
    assert f"  [Functional_conv2d_0_forward_input.0]{statistics}\n" in said and "relu" not in said
    assert said.index('File "e.py", line 3, in f\n    x = 1\n') < said.index('File "a.py", line 3, in f')


def test_the_shell_waits_for_no_pipe_and_takes_any_file(folder):
    for name in ("pipe.pkl", "pipe.npy"):
        os.mkfifo(folder / name)
    (folder / "deep.pkl").write_text("[" * 200_000)
    dumps = []
    for number, stack in enumerate((None, "[]", '{"0": [["Torch.add.0.forward"], 7]}', "[" * 200_000)):
        dumps.append(folder / f"dump{number}" / "step0" / "rank0" / "dump.json")
        dumps[-1].parent.mkdir(parents=True)
        numbers = dict.fromkeys(("Max", "Min", "Mean", "Norm"), 1)
        leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [1], **numbers}
        record = {"input_args": [leaf], "input_kwargs": {}, "output": [leaf]}
        data = {"task": "statistics", "level": "L1", "dump_data_dir": None, "data": {"Torch.add.0.forward": record}}
        dumps[-1].write_text(json.dumps(data))
        if stack is None:
            os.mkfifo(dumps[-1].with_name("stack.json"))
        else:
            dumps[-1].with_name("stack.json").write_text(stack)
    asked = [f"pk -f {path.relative_to(folder)} -n Torch.add" for path in dumps]
    said = in_shell(folder, "pk -f pipe.pkl -n x", "pt -n pipe.npy", "pk -f deep.pkl -n x", *asked, "pt -n a.npy")
    errors = [line for line in said.splitlines() if "[ERROR]" in line]
    wanted = (
        *("pipe.pkl is a named pipe; name a regular file", "pipe.npy", "deep.pkl, line 1 is no JSON"),
        *("stack.json", "stack.json", "stack.json", "stack.json"),
    )
    assert len(errors) == len(wanted) and "[Max: 3.0]" in said, said
    for word, line in zip(wanted, errors, strict=True):
        assert word in line, line


def test_the_shell_reads_kernel_dumps_without_cann(folder):
    """The dump of one operator: an int32 input, and an output in NC1HWC0."""
    shape = b"".join(bytes([8, size]) for size in (1, 1, 2, 2, 16))
    original = b"".join(bytes([8, size]) for size in (1, 3, 2, 2))

    def message(number, content):
        return bytes([number << 3 | 2, len(content)]) + content

    out = bytes([8, 2, 16, 3]) + message(3, shape) + bytes([48, 128, 1]) + message(7, original)
    taken = bytes([8, 7, 16, 2]) + message(3, bytes([8, 2])) + bytes([40, 8])
    header = message(3, out) + message(4, taken)
    blocks = np.arange(64, dtype=np.float16).reshape(1, 1, 2, 2, 16)
    dump = folder / "dump" / "0" / "Conv2D.conv_1.2.3.1700000000000000"
    dump.parent.mkdir(parents=True)
    content = struct.pack("<Q", len(header)) + header + np.array([5, 6], dtype=np.int32).tobytes() + blocks.tobytes()
    dump.write_bytes(content)
    (dump.parent / "notes.txt").write_text("no dump")
    in_shell(folder, "cad -m dump -out all", f"dc -n {dump} -f NCHW -out out")
    below = folder / "all" / "conv_1" / "1700000000000000"
    assert np.load(below / f"{dump.name}.input.0.npy").tolist() == [5, 6]
    assert np.array_equal(np.load(below / f"{dump.name}.output.0.npy"), blocks)
    ours = np.load(folder / "out" / f"{dump.name}.output.0.1x3x2x2.npy")
    assert np.array_equal(ours, blocks[:, 0, :, :, :3].transpose(0, 3, 1, 2))
    run([MSPROBE, "parse", "-d", dump, "-t", "npy", "-o", folder / "parsed"])
    assert np.array_equal(np.load(folder / "parsed" / f"{dump.name}.output.0.npy"), blocks)


def test_what_is_wrong_is_one_line_and_the_shell_goes_on(folder):
    (folder / "raw").mkdir()
    (folder / "raw" / "Add.a.1.2.3").write_bytes(b"raw")
    (folder / "cut.npy").write_bytes((folder / "a.npy").read_bytes()[:150])
    (folder / "bad.pkl").write_bytes(b"\x80\x04no json")
    said = in_shell(
        *(folder, "foo", "pt -n none.npy", "pt -n cut.npy", "pk -f bad.pkl -n x", "vc -m raw -g raw2"),
        *("vc -m raw -g dump -cmp_path x", "dc -n raw", "cn -m a.npy", "", "pt -n a.npy"),
    )
    assert "Command invalid, Only support command start with cad/vc/dc/pk/cn/pt" in said
    errors = [line for line in said.splitlines() if "[ERROR]" in line]
    assert len(errors) == 6, said
    for word, line in zip(
        ("none.npy", "cut.npy", "bad.pkl", "msaccucmp.py", "msaccucmp.py", "raw"), errors, strict=True
    ):
        assert word in line, line
    assert "[Max: 3.0]" in said
    done = run([MSPROBE, "parse", "-d", folder / "raw"], check=False)
    assert done.returncode == 3 and "Add.a.1.2.3" in done.stderr
