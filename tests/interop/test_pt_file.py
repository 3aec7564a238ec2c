"""Tensor files both ways against the real torch and numpy, through the tool pt_file_tool.

The tool's path comes from MSPROBE_PT_FILE_TOOL (ctest sets it).
"""

import os
import subprocess
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

TOOL = os.environ.get("MSPROBE_PT_FILE_TOOL", "")
pytestmark = pytest.mark.skipif(not TOOL, reason="MSPROBE_PT_FILE_TOOL does not name the pt_file_tool binary")

PLAIN = [
    "float64", "float32", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
    "uint64", "bool", "complex32", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
    "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2",
]  # fmt: skip
QUANTIZED = ["qint8", "quint8", "qint32"]
FLOATS_NUMPY_LACKS = [
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
]


def run(*arguments: object) -> str:
    done = subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(path: Path, tmp_path: Path) -> str:
    done = subprocess.run([TOOL, "read", path, tmp_path / "raw"], capture_output=True, text=True, check=False)
    assert done.returncode == 1, f"{done.returncode} {done.stdout} {done.stderr}"
    return done.stderr


def raw(tensor: torch.Tensor) -> bytes:
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    if tensor.numel() == 0:
        return b""
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


def sample(dtype: str, shape: tuple[int, ...] = (3, 5)) -> torch.Tensor:
    generator = torch.Generator().manual_seed(7)
    real = getattr(torch, dtype)
    if dtype == "bool":
        return torch.randint(0, 2, shape, generator=generator).bool()
    if dtype in QUANTIZED:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.quantize_per_tensor(
                torch.randn(shape, generator=generator), 0.05, 3 if dtype != "qint32" else 0, real
            )
    size = torch.empty((), dtype=real).element_size()
    data = torch.randint(0, 100, (*shape, size), generator=generator, dtype=torch.uint8)
    return data.reshape(*shape, size).view(real).reshape(shape) if size > 1 else data.reshape(shape).view(real)


def read(tmp_path: Path, path: Path) -> tuple[list[str], bytes]:
    fields = run("read", path, tmp_path / "raw").split()
    return fields, (tmp_path / "raw").read_bytes()


@pytest.mark.parametrize("dtype", PLAIN + QUANTIZED)
@pytest.mark.parametrize("shape", [(3, 5), (), (2, 0, 3), (300, 1, 2, 3, 1)])
def test_torch_reads_what_we_write(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    tensor = sample(dtype, shape)
    (tmp_path / "in.raw").write_bytes(raw(tensor))
    scale, zero = (tensor.q_scale(), tensor.q_zero_point()) if tensor.is_quantized else (1, 0)
    run("write", tmp_path / "out.pt", tmp_path / "in.raw", dtype, "cpu", repr(scale), zero, *shape)
    back = torch.load(tmp_path / "out.pt", weights_only=True)
    assert back.dtype == tensor.dtype and back.shape == tensor.shape and not back.requires_grad
    assert back.is_contiguous() and raw(back) == raw(tensor)
    if tensor.is_quantized:
        assert (back.q_scale(), back.q_zero_point()) == (scale, zero)


@pytest.mark.parametrize("dtype", PLAIN + QUANTIZED)
@pytest.mark.parametrize("shape", [(3, 5), (), (2, 0, 3), (300, 1, 2, 3, 1)])
def test_we_read_what_torch_writes(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    tensor = sample(dtype, shape)
    torch.save(tensor, tmp_path / "in.pt")
    fields, content = read(tmp_path, tmp_path / "in.pt")
    assert fields[:3] == [f"torch.{dtype}", "cpu", "0"]
    assert [int(f) for f in fields[5:]] == list(shape)
    assert content == raw(tensor)
    if tensor.is_quantized:
        assert (float(fields[3]), int(fields[4])) == (tensor.q_scale(), tensor.q_zero_point())


def layouts() -> dict[str, torch.Tensor]:
    base = torch.arange(60, dtype=torch.float32).reshape(3, 4, 5)
    parameter = torch.nn.Parameter(base.clone())
    parameter.note = 3  # type: ignore[attr-defined]
    attributed = base.clone()
    attributed.note = "x"  # type: ignore[attr-defined]
    complex_ = torch.complex(base, base + 1)
    return {
        "view": base[1],
        "strided": base[1:, ::2, ::3],
        "transposed": base.transpose(0, 2),
        "expanded": torch.ones(1).expand(1000),
        "parameter": torch.nn.Parameter(base.clone()),
        "parameter_with_attribute": parameter,
        "tensor_with_attribute": attributed,
        "conjugate": complex_.conj(),
        "negative": complex_.conj().imag,
        "transposed_bfloat16": base.bfloat16().permute(2, 0, 1),
        "channels_last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    }


@pytest.mark.parametrize("name", list(layouts()))
def test_we_read_every_layout(tmp_path: Path, name: str) -> None:
    tensor = layouts()[name]
    torch.save(tensor, tmp_path / "in.pt")
    fields, content = read(tmp_path, tmp_path / "in.pt")
    assert fields[2] == str(int(tensor.requires_grad))
    assert [int(f) for f in fields[5:]] == list(tensor.shape)
    assert content == raw(tensor)


def test_file_is_laid_out_as_torch_lays_it_out(tmp_path: Path) -> None:
    tensor = sample("float32")
    (tmp_path / "in.raw").write_bytes(raw(tensor))
    run("write", tmp_path / "ours.pt", tmp_path / "in.raw", "float32", "cpu", 1, 0, 3, 5)
    torch.save(tensor, tmp_path / "tool.pt")
    ours, theirs = (zipfile.ZipFile(tmp_path / name) for name in ("ours.pt", "tool.pt"))
    with ours, theirs:
        assert ours.testzip() is None
        assert ours.namelist() == theirs.namelist()
        for name in ours.namelist():
            if not name.endswith("serialization_id"):
                assert ours.read(name) == theirs.read(name), name
        offsets = [(z.getinfo("tool/data/0").header_offset) for z in (ours, theirs)]
    assert offsets[0] == offsets[1]
    assert (tmp_path / "ours.pt").stat().st_size == (tmp_path / "tool.pt").stat().st_size


def test_device_is_kept(tmp_path: Path) -> None:
    (tmp_path / "in.raw").write_bytes(b"\0" * 8)
    run("write", tmp_path / "out.pt", tmp_path / "in.raw", "float32", "cuda:1", 1, 0, 2)
    seen = []
    torch.load(
        tmp_path / "out.pt", weights_only=True, map_location=lambda storage, where: seen.append(where) or storage
    )
    assert seen == ["cuda:1"]


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ({"a": torch.ones(2)}, "one tensor"),
        ([torch.ones(2)], "one tensor"),
        (torch.ones(2, device="meta"), "meta"),
        (torch.nn.Linear(2, 2), "Linear"),
        (torch.ones(2).to_sparse(), "sparse"),
    ],
)
def test_other_values_are_refused_by_name(tmp_path: Path, value: object, word: str) -> None:
    torch.save(value, tmp_path / "in.pt")
    assert word in refused(tmp_path / "in.pt", tmp_path)


def test_code_in_a_pickle_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "in.pt", "w") as archive:
        archive.writestr("x/data.pkl", b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00id\x85R.")
    assert "os system" in refused(tmp_path / "in.pt", tmp_path)


def test_deflated_archives_are_read(tmp_path: Path) -> None:
    tensor = sample("float32", (400, 400))
    torch.save(tensor, tmp_path / "plain.pt")
    with (
        zipfile.ZipFile(tmp_path / "plain.pt") as plain,
        zipfile.ZipFile(tmp_path / "in.pt", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))
    assert read(tmp_path, tmp_path / "in.pt")[1] == raw(tensor)


@pytest.mark.parametrize("suffix", ["pt", "npy"])
def test_damaged_files_never_crash(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"in.{suffix}"
    if suffix == "pt":
        torch.save(layouts()["strided"], path)
    else:
        np.save(path, np.arange(12, dtype=np.float32).reshape(3, 4))
    whole = path.read_bytes()
    generator = np.random.default_rng(3)
    for _ in range(150):
        damaged = bytearray(whole)
        for position in generator.integers(0, len(whole), size=generator.integers(1, 4)):
            damaged[position] = generator.integers(0, 256)
        path.write_bytes(damaged[: generator.integers(0, len(whole)) if generator.random() < 0.3 else len(whole)])
        done = subprocess.run([TOOL, "read", path, tmp_path / "raw"], capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1), done.stderr
        assert "anitizer" not in done.stderr and "runtime error" not in done.stderr, done.stderr


@pytest.mark.parametrize("dtype", PLAIN)
@pytest.mark.parametrize("shape", [(3, 5), (), (2, 0)])
def test_numpy_reads_what_we_write(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    tensor = sample(dtype, shape)
    (tmp_path / "in.raw").write_bytes(raw(tensor))
    run("write", tmp_path / "out.npy", tmp_path / "in.raw", dtype, "cpu", 1, 0, *shape)
    back = np.load(tmp_path / "out.npy")
    if dtype == "float4_e2m1fn_x2":
        values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=np.float32)
        packed = np.frombuffer(raw(tensor), dtype=np.uint8)
        expected = values[np.stack([packed & 15, packed >> 4], axis=-1)].reshape(-1)
        np.testing.assert_array_equal(back.reshape(-1), expected)
        return
    expected = (
        tensor.float().numpy() if dtype in FLOATS_NUMPY_LACKS
        else tensor.to(torch.complex64).numpy() if dtype == "complex32"
        else tensor.numpy()
    )  # fmt: skip
    assert back.dtype == expected.dtype and back.shape == expected.shape
    np.testing.assert_array_equal(back, expected)


@pytest.mark.parametrize("dtype", FLOATS_NUMPY_LACKS)
def test_every_code_of_a_small_float_widens_as_torch_does(tmp_path: Path, dtype: str) -> None:
    codes = (
        torch.arange(65536, dtype=torch.int32).to(torch.uint16)
        if dtype == "bfloat16"
        else torch.arange(256, dtype=torch.uint8)
    )
    tensor = codes.view(getattr(torch, dtype))
    (tmp_path / "in.raw").write_bytes(raw(tensor))
    run("write", tmp_path / "out.npy", tmp_path / "in.raw", dtype, "cpu", 1, 0, len(codes))
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), tensor.float().numpy())


@pytest.mark.parametrize("dtype", QUANTIZED)
def test_quantized_tensors_are_dequantised_for_numpy(tmp_path: Path, dtype: str) -> None:
    tensor = sample(dtype)
    (tmp_path / "in.raw").write_bytes(raw(tensor))
    run(
        "write",
        tmp_path / "out.npy",
        tmp_path / "in.raw",
        dtype,
        "cpu",
        repr(tensor.q_scale()),
        tensor.q_zero_point(),
        3,
        5,
    )
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), tensor.dequantize().numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    "code", ["<f8", ">f8", "<f4", ">f4", "<f2", "|i1", ">i2", "<i8", "|u1", "<u4", ">u8", "|b1", "<c8", ">c16"]
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_we_read_what_numpy_writes(tmp_path: Path, code: str, order: str) -> None:
    array = np.asarray(np.arange(24).reshape(2, 3, 4) % 7, dtype=code, order=order)  # type: ignore[call-overload]
    np.save(tmp_path / "in.npy", array)
    fields, content = read(tmp_path, tmp_path / "in.npy")
    assert fields[0] == f"torch.{array.dtype.newbyteorder('=').name}"
    assert [int(f) for f in fields[5:]] == [2, 3, 4]
    assert content == np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f4")])])
def test_arrays_that_are_no_numbers_are_refused(tmp_path: Path, array: np.ndarray) -> None:
    np.save(tmp_path / "in.npy", array)
    assert ".npy" in refused(tmp_path / "in.npy", tmp_path)
