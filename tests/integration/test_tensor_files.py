"""Tensors in files of every form: what is read, compared and converted, layouts of devices, hostile files, memory."""

import json
import os
import pathlib
import pickle
import re
import struct
import subprocess
import sys

import numpy as np
import pytest
import torch
from harness.processes import REPOSITORY
from msprobe_client import Client
from msprobe_client.embedded import EmbeddedServer
from msprobe_client.errors import MsprobeError
from msprobe_client.tensor_files import TensorPlace
from safetensors.torch import load_file, save_file

FORMATS = {"NCHW": 0, "NHWC": 1, "ND": 2, "NC1HWC0": 3, "FRACTAL_Z": 4, "FRACTAL_NZ": 29}
MATRIX = np.random.default_rng(1).standard_normal((5, 7)).astype(np.float32)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def client(store):
    with Client(data_dir=store, create=True) as connected:
        yield connected


@pytest.fixture(scope="module")
def files(client):
    return client.tensor_files


def atb(array, dtype, layout="ND"):
    """A TensorBin of ATB."""
    dims = ",".join(map(str, array.shape))
    header = f"$Version=1.0\n$Object.Count=1\n$Object.Length={array.nbytes}\n"
    header += f"format={FORMATS[layout]}\ndtype={dtype}\ndims={dims}\n$Object.data=0,{array.nbytes}\n$End=1\n"
    return header.encode() + array.tobytes()


def field(number, value):
    """One field of a protobuf message."""

    def varint(rest):
        out = b""
        while rest >= 128:
            out += bytes([rest & 127 | 128])
            rest >>= 7
        return out + bytes([rest])

    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def described(array, dtype, layout, original, *, is_input, size=None):
    def shape(sizes):
        return b"".join(field(1, each) for each in sizes)

    numbers = (5, 6) if is_input else (6, 7)
    message = field(1, dtype) + field(2, FORMATS[layout]) + field(3, shape(array.shape))
    return message + field(numbers[0], array.nbytes if size is None else size) + field(numbers[1], shape(original))


def kernel_dump(inputs, outputs, operator=b"Add"):
    """A dump of Ascend's runtime; each tensor is (array, dtype, layout, original shape)."""
    header = field(1, b"2.0") + field(2, 1_700_000_000) + field(6, operator)
    header += b"".join(field(3, described(*each, is_input=False)) for each in outputs)
    header += b"".join(field(4, described(*each, is_input=True)) for each in inputs)
    content = b"".join(each[0].tobytes() for each in (*inputs, *outputs))
    return struct.pack("<Q", len(header)) + header + content


def nz(array, rows=16, columns=16):
    """(..., R, K) as (..., K1, R1, R0, K0)."""
    *batch, height, width = array.shape
    padded = np.pad(array, [(0, 0)] * len(batch) + [(0, -height % rows), (0, -width % columns)])
    blocks = padded.reshape(*batch, -(-height // rows), rows, -(-width // columns), columns)
    order = [*range(len(batch)), *(len(batch) + each for each in (2, 0, 1, 3))]
    return np.ascontiguousarray(blocks.transpose(order))


def nc1hwc0(array, block=16):
    number, channels, height, width = array.shape
    padded = np.pad(array, [(0, 0), (0, -channels % block), (0, 0), (0, 0)])
    blocks = padded.reshape(number, -1, block, height, width)
    return np.ascontiguousarray(blocks.transpose(0, 1, 3, 4, 2))


def fractal_z(array, block=16):
    number, channels, height, width = array.shape
    padded = np.pad(array, [(0, -number % 16), (0, -channels % block), (0, 0), (0, 0)])
    blocks = padded.reshape(-(-number // 16), 16, -(-channels // block), block, height, width)
    return np.ascontiguousarray(blocks.transpose(2, 4, 5, 0, 1, 3)).reshape(-1, -(-number // 16), 16, block)


def write_forms(folder):
    """The matrix in each form of file: {file: name of the tensor in it}."""
    np.save(folder / "c.npy", MATRIX)
    np.save(folder / "fortran.npy", np.asfortranarray(MATRIX))
    np.save(folder / "big.npy", MATRIX.astype(">f4"))
    tensor = torch.from_numpy(MATRIX)
    torch.save(tensor, folder / "plain.pt")
    torch.save(tensor.t().contiguous().t(), folder / "transposed.pt")
    torch.save({"other": torch.zeros(2), "layer": [tensor]}, folder / "several.pt")
    save_file({"w": tensor, "v": torch.ones(3, dtype=torch.bfloat16)}, folder / "two.safetensors")
    (folder / "atb.bin").write_bytes(atb(MATRIX, 0))
    dump = kernel_dump([(np.arange(3, dtype=np.int64), 8, "ND", [3])], [(MATRIX, 1, "ND", [5, 7])])
    (folder / "Add.add_1.2.3.1700000000000000").write_bytes(dump)
    names = {"several.pt": "layer.0", "two.safetensors": "w", "Add.add_1.2.3.1700000000000000": "output.0"}
    return {path: names.get(path.name, "") for path in folder.iterdir()}


def test_every_form_says_the_same(files, tmp_path):
    forms = write_forms(tmp_path)
    assert len(forms) == 9
    for path, name in forms.items():
        place = TensorPlace(path, name)
        seen = files.preview(place, top=1)
        assert (seen.dtype, seen.shape, seen.elements) == ("torch.float32", (5, 7), 35), path
        assert (seen.max, seen.min) == (MATRIX.max(), MATRIX.min()), path
        assert seen.norm == pytest.approx(np.linalg.norm(MATRIX.astype(np.float64))), path
        assert seen.largest[0].index == np.unravel_index(MATRIX.argmax(), MATRIX.shape), path
        assert files.diff(place, TensorPlace(tmp_path / "c.npy")).kind == "equal", path
        written = files.convert(place, tmp_path / "out" / f"{path.name}.npy")
        assert np.array_equal(np.load(written), MATRIX), path
        written = files.convert(place, tmp_path / "out" / f"{path.name}.pt")
        assert torch.equal(torch.load(written), torch.from_numpy(MATRIX)), path
        written = files.convert(place, tmp_path / "out" / f"{path.name}.safetensors")
        assert torch.equal(load_file(written)[name or "tensor"], torch.from_numpy(MATRIX)), path
        lines = files.convert(place, tmp_path / "out" / f"{path.name}.txt").read_text().splitlines()
        assert lines == [" ".join(f"{value:g}" for value in row) for row in MATRIX.astype(float)], path


def test_dtypes_and_sizes_at_the_edge(files, tmp_path):
    tensors = {
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 3),
        "bf16": torch.arange(6, dtype=torch.bfloat16).reshape(2, 3),
        "bool": torch.tensor([True, False]),
        "wide": torch.tensor([2**62 + 1, -1]),
    }
    save_file(tensors, tmp_path / "all.safetensors")
    written = files.convert(TensorPlace(tmp_path / "all.safetensors"), tmp_path / "again.safetensors")
    assert all(torch.equal(tensors[name], tensor) for name, tensor in load_file(written).items())
    for name, tensor in tensors.items():
        path = files.convert(TensorPlace(tmp_path / "all.safetensors", name), tmp_path / f"{name}.pt")
        assert torch.equal(torch.load(path), tensor) and torch.load(path).dtype == tensor.dtype
    quantized = torch.quantize_per_tensor(torch.tensor([1.0, -2.0]), 0.5, 3, torch.qint8)
    for name, tensor in (("quantized", quantized), ("negated", torch.tensor([1j, 2 + 1j]).conj().imag)):
        torch.save(tensor, tmp_path / f"{name}.pt")
        seen = files.preview(TensorPlace(tmp_path / f"{name}.pt"))
        plain = tensor.dequantize() if tensor.is_quantized else tensor.resolve_neg()
        assert (seen.max, seen.min) == (float(plain.max()), float(plain.min())), name
    nan = np.array([1.0, np.nan, np.inf, -np.inf])
    np.save(tmp_path / "nan.npy", nan)
    seen = files.preview(TensorPlace(tmp_path / "nan.npy"))
    assert (seen.finite, seen.nan_count, seen.positive_inf_count, seen.negative_inf_count) == (1, 1, 1, 1)


def test_a_difference_is_named_by_its_index(files, tmp_path):
    golden = np.zeros((4, 300_000), dtype=np.float32) + 1
    target = golden.copy()
    target[2, 7], target[3, 299_999], target[1, 5] = 3, 2, 1 + 1e-6
    for name, array in (("a", target), ("b", golden)):
        np.save(tmp_path / f"{name}.npy", array)
    places = TensorPlace(tmp_path / "a.npy"), TensorPlace(tmp_path / "b.npy")
    found = files.diff(*places, top=2)
    assert found.kind == "differs" and found.metrics.different == 3 and found.metrics.over_tolerance == 2
    assert [(each.index, each.target, each.golden) for each in found.worst] == [
        ((2, 7), 3.0, 1.0),
        ((3, 299_999), 2.0, 1.0),
    ]
    assert [each.index for each in found.over] == [(2, 7), (3, 299_999)]
    assert files.diff(*places, atol=10).kind == "close"
    target[0, 0] = np.nan
    np.save(tmp_path / "a.npy", target)
    found = files.diff(*places, top=1)
    assert found.kind == "nan" and found.worst[0].index == (0, 0)
    np.save(tmp_path / "c.npy", golden.reshape(2, -1))
    assert files.diff(places[0], TensorPlace(tmp_path / "c.npy")).kind == "shape"
    same = files.diff(places[1], TensorPlace(tmp_path / "c.npy", sizes=golden.shape))
    assert same.kind == "equal"


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8])
def test_layouts_are_those_of_numpy_formulas(files, tmp_path, dtype):
    drawn = np.random.default_rng(2)
    block = 32 if dtype == np.int8 else 16

    def draw(*shape):
        return drawn.integers(-100, 100, shape).astype(dtype)

    cases = []
    for shape in ((40, 50), (3, 2, 17, 65), (1, 9)):
        matrix = draw(*shape)
        cases.append(("ND", "FRACTAL_NZ", matrix, nz(matrix, columns=block)))
    image = draw(2, 35, 5, 6)
    cases.append(("NCHW", "NC1HWC0", image, nc1hwc0(image, block)))
    cases.append(("NHWC", "NC1HWC0", np.ascontiguousarray(image.transpose(0, 2, 3, 1)), nc1hwc0(image, block)))
    weights = draw(18, 35, 3, 2)
    cases.append(("NCHW", "FRACTAL_Z", weights, fractal_z(weights, block)))
    cases.append(("HWCN", "FRACTAL_Z", np.ascontiguousarray(weights.transpose(2, 3, 1, 0)), fractal_z(weights, block)))
    for host, device, plain, blocks in cases:
        np.save(tmp_path / "plain.npy", plain)
        np.save(tmp_path / "blocks.npy", blocks)
        there = files.convert(TensorPlace(tmp_path / "plain.npy", stored=host, layout=device), tmp_path / "there.npy")
        assert np.array_equal(np.load(there), blocks), (host, device)
        place = TensorPlace(tmp_path / "blocks.npy", stored=device, layout=host, sizes=plain.shape)
        assert np.array_equal(np.load(files.convert(place, tmp_path / "back.npy")), plain), (device, host)
        assert files.diff(place, TensorPlace(tmp_path / "plain.npy")).kind == "equal"


def test_a_kernel_dump_is_known_whatever_its_header_s_length(files, tmp_path):
    """The length's first byte is that of a pickle, of an ATB file, or any other."""
    first_bytes = set()
    for length in range(260):
        content = kernel_dump([], [(MATRIX, 1, "ND", [5, 7])], b"x" * length)
        first_bytes.add(content[0])
        if content[0] in (0x80, ord("$"), 0):
            (tmp_path / "dump").write_bytes(content)
            assert files.listed(tmp_path / "dump").kind == "adump", length
    assert {0x80, ord("$"), 0} <= first_bytes


def test_a_file_that_knows_its_layout_is_compared_without_being_told(files, tmp_path):
    image = np.random.default_rng(3).standard_normal((1, 3, 4, 4)).astype(np.float16)
    dump = kernel_dump([], [(nc1hwc0(image), 2, "NC1HWC0", [1, 3, 4, 4])])
    (tmp_path / "Conv2D.conv.1.2.1700000000000000").write_bytes(dump)
    (tmp_path / "nz.bin").write_bytes(atb(nz(image[0, 0]), 1, "FRACTAL_NZ"))
    np.save(tmp_path / "golden.npy", image)
    listed = files.listed(tmp_path / "Conv2D.conv.1.2.1700000000000000").tensors
    assert [(each.name, each.layout, each.sizes) for each in listed] == [("output.0", "NC1HWC0", (1, 3, 4, 4))]
    place = TensorPlace(tmp_path / "Conv2D.conv.1.2.1700000000000000", layout="NCHW")
    assert files.diff(place, TensorPlace(tmp_path / "golden.npy")).kind == "equal"
    part = TensorPlace(tmp_path / "nz.bin", layout="ND", sizes=(4, 4))
    assert np.array_equal(np.load(files.convert(part, tmp_path / "part.npy")), image[0, 0])


HOSTILE = {
    "empty": b"",
    "text": b"hello, this is no tensor",
    "pickle": pickle.dumps({"a": 1}),
    "an npy of objects": b"\x93NUMPY\x01\x00\x46\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"
    + b" " * 17,
    "an npy beyond memory": b"\x93NUMPY\x01\x00\x56\x00"
    + b"{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387904, 4), }".ljust(86),
    "an npy that is cut": b"\x93NUMPY\x01\x00\x46\x00{'descr': '<f4', 'fortran_order': False, 'shape': (9,), }".ljust(
        84
    ),
    "a header beyond the file": struct.pack("<Q", 1 << 40) + b"{}",
    "an ATB with a dtype of none": b"$Version=1\ndtype=99\ndims=1\n$End=1\n\0\0\0\0",
    "an ATB without an end": b"$Version=1\n" + b"a=b\n" * 30_000,
    "an ATB of other sizes": b"$Version=1\ndtype=0\ndims=2,2\n$End=1\n\0\0\0\0",
    "an ATB with negative dims": b"$Version=1\ndtype=0\ndims=-1,4\n$End=1\n\0\0\0\0",
    "an ATB that leads elsewhere": b"$Version=1\ndtype=0\ndims=1\ndata=/etc/passwd\n$End=1\n\0\0\0\0",
    "a kernel dump with elements beyond it": struct.pack("<Q", 0)[:0]
    + (lambda header: struct.pack("<Q", len(header)) + header)(
        field(3, described(np.zeros(2, np.float32), 1, "ND", [], is_input=False, size=1 << 50))
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_file_ends_with_one_line(files, tmp_path, what):
    path = tmp_path / "file.bin"
    path.write_bytes(HOSTILE[what])
    with pytest.raises(MsprobeError) as caught:
        files.preview(TensorPlace(path))
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_files_that_are_cut_or_changed_are_read_or_refused(files, tmp_path):
    """Every form, cut at many places and with bytes changed: an answer or an error, and the server lives."""
    (tmp_path / "forms").mkdir()
    drawn = np.random.default_rng(4)
    refused = 0
    for path, name in write_forms(tmp_path / "forms").items():
        content = path.read_bytes()
        cuts = [content[: int(at)] for at in drawn.integers(0, len(content), 12)]
        for _ in range(12):
            changed = bytearray(content)
            for at in drawn.integers(0, min(len(content), 400), 3):
                changed[at] = drawn.integers(0, 256)
            cuts.append(bytes(changed))
        for each in cuts:
            broken = tmp_path / "broken.bin"
            broken.write_bytes(each)
            try:
                files.diff(TensorPlace(broken, name), TensorPlace(broken, name))
            except MsprobeError as error:
                refused += 1
                assert "\n" not in str(error) and "went away" not in str(error)
    assert refused > 100
    files.preview(TensorPlace(tmp_path / "forms" / "c.npy"))


def test_memory_does_not_grow_with_a_file(tmp_path):
    """Peak memory of the server over four questions, of files of 40 MiB and of 160 MiB."""
    peaks = {}
    for rows in (2560, 4 * 2560):
        small = tmp_path / f"{rows}.npy"
        header = np.lib.format.header_data_from_array_1_0(np.zeros((1, 1))) | {"shape": (rows, 2048)}
        with small.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            file.truncate(file.tell() + rows * 2048 * 8)
        fortran = tmp_path / f"fortran_{rows}.npy"
        with fortran.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, header | {"fortran_order": True})
            file.truncate(file.tell() + rows * 2048 * 8)
        with EmbeddedServer(tmp_path / f"data_{rows}", create=True) as server, Client(server.address) as client:
            files = client.tensor_files
            assert files.diff(TensorPlace(small), TensorPlace(small)).kind == "equal"
            files.convert(TensorPlace(small, layout="NZ"), tmp_path / "nz.npy")
            files.convert(TensorPlace(fortran), tmp_path / "c.npy")
            files.preview(TensorPlace(small), bins=1)
            status = pathlib.Path(f"/proc/{server.process_id}/status").read_text()
        peaks[rows] = int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024
    assert peaks[4 * 2560] < 1.15 * peaks[2560], peaks


def tool(*words, data_dir, code=0):
    done = subprocess.run(
        [pathlib.Path(sys.executable).with_name("msprobe-client"), *map(str, words), "--data_dir", data_dir],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=dict(os.environ, COLUMNS="160"),
    )
    assert done.returncode == code, done.stderr
    return done


def write_dump(path, array, dtype="torch.float32", extremes=(1.0, 0.0)):
    data = path / "step0" / "rank0" / "dump_tensor_data"
    data.mkdir(parents=True)
    np.save(data / "Torch.add.0.forward.output.0.npy", array)
    leaf = {"type": "torch.Tensor", "dtype": dtype, "shape": list(array.shape), "Max": extremes[0], "Min": extremes[1]}
    leaf |= {"Mean": 0.5, "Norm": 1.0, "requires_grad": False, "data_name": "Torch.add.0.forward.output.0.npy"}
    call = {"input_args": [], "input_kwargs": {}, "output": [leaf]}
    top = {"task": "tensor", "level": "L1", "framework": "pytorch", "dump_data_dir": str(data)}
    (data.parent / "dump.json").write_text(json.dumps({**top, "data": {"Torch.add.0.forward": call}}))
    (data.parent / "stack.json").write_text("{}")
    (data.parent / "construct.json").write_text("{}")


def test_the_command_takes_files_and_the_store_alike(tmp_path):
    """Step by step as docs/tensors.md has it."""
    write_dump(tmp_path / "dump", MATRIX)
    store = tmp_path / "store"
    store.mkdir()
    tool("import", tmp_path / "dump", "--run", "tuesday", data_dir=store)
    stored = "tuesday/step0/rank0/Torch.add.0.forward.output.0"
    changed = MATRIX.copy()
    changed[3, 4] += 1
    np.save(tmp_path / "mine.npy", changed)
    shown = tool("tensor", "show", stored, data_dir=store).stdout
    assert shown.startswith("torch.float32 [5, 7]: 35 elements, 35 finite")
    assert tool("tensor", "tuesday", "Torch.add.0.forward.output.0", data_dir=store).stdout == shown
    told = tool("tensor", "diff", tmp_path / "mine.npy", stored, data_dir=store, code=1).stdout
    assert told.startswith("differs\n") and "at [3, 4]" in told and "over_tolerance 1" in told
    tool("tensor", "convert", stored, "-o", tmp_path / "nz.npy", "--to", "NZ", data_dir=store)
    assert np.array_equal(np.load(tmp_path / "nz.npy"), nz(MATRIX))
    back = ("--from", "NZ", "--to", "ND", "--shape", "5,7")
    told = tool("tensor", "diff", tmp_path / "nz.npy", stored, *back, data_dir=store).stdout
    assert told.startswith("equal\n")
    rows = tool("tensor", "stats", tmp_path / "mine.npy", stored, "--format", "json", data_dir=store).stdout
    assert [row["max"] for row in json.loads(rows)["rows"]] == [changed.max(), MATRIX.max()]
    save_file({"a": torch.zeros(2), "b": torch.ones(3)}, tmp_path / "two.safetensors")
    listed = tool("tensor", "show", tmp_path / "two.safetensors", "--format", "json", data_dir=store).stdout
    assert [row["name"] for row in json.loads(listed)["rows"]] == ["a", "b"]
    said = tool(
        "tensor", "convert", tmp_path / "two.safetensors", "-o", tmp_path / "x.npy", data_dir=store, code=3
    ).stderr
    assert "has 2 tensors; name one of: a, b" in said and said.count("\n") == 1
    assert not (tmp_path / "x.npy").exists()


def test_integers_that_no_double_holds_keep_their_digits(tmp_path):
    Client(data_dir=tmp_path, create=True).close()
    most, least = 2**64 - 1, -(2**63)
    np.save(tmp_path / "a.npy", np.array([most - 1, most, 0], np.uint64))
    np.save(tmp_path / "b.npy", np.array([most - 1, most - 1, 0], np.uint64))
    torch.save(torch.tensor([least, least + 1]), tmp_path / "c.pt")
    shown = tool("tensor", "show", tmp_path / "a.npy", "--top", "2", data_dir=tmp_path).stdout
    assert f"max {most}  min 0 " in shown and f"largest: {most} at [1], {most - 1} at [0]" in shown
    words = ("tensor", "stats", tmp_path / "a.npy", tmp_path / "c.pt", "--format")
    rows = json.loads(tool(*words, "json", data_dir=tmp_path).stdout)["rows"]
    assert [(row["max"], row["min"]) for row in rows] == [(most, 0), (least + 1, least)]
    assert f",{most},0," in tool(*words, "csv", data_dir=tmp_path).stdout
    told = tool("tensor", "diff", tmp_path / "a.npy", tmp_path / "b.npy", data_dir=tmp_path, code=1).stdout
    assert "max_abs 1 " in told and f"at [1]: {most}, golden {most - 1}" in told
    for name, array in (("target", "a.npy"), ("golden", "b.npy")):
        write_dump(
            tmp_path / name, np.load(tmp_path / array), dtype="torch.uint64", extremes=(most - (name != "target"), 0)
        )
    for mode in ("content", "statistics"):
        words = ("compare", tmp_path / "target", tmp_path / "golden", "--mode", mode, "--format", "json")
        (row,) = json.loads(tool(*words, data_dir=tmp_path, code=1).stdout)["rows"]
        assert (row["verdict"], row["target_value"], row["golden_value"]) == ("differs", most, most - 1), mode
    (row,) = json.loads(tool("find", tmp_path / "target", "--format", "json", data_dir=tmp_path).stdout)["rows"]
    assert (row["max"], row["min"]) == (most, 0)


def test_the_example_of_the_document_runs(tmp_path):
    text = (REPOSITORY / "docs" / "tensors.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=60)
    block = re.search(r"```\n(msprobe-client tensor .*?)```", text, re.DOTALL)[1]
    lines = block.splitlines()
    path = f"{pathlib.Path(sys.executable).parent}:/usr/bin:/bin"
    for line in lines:
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=tmp_path,
            env=dict(os.environ, PATH=path),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode in (0, 1), f"{line}\n{done.stderr}"
    assert np.array_equal(np.load(tmp_path / "plain.npy"), np.load(tmp_path / "golden.npy"))
