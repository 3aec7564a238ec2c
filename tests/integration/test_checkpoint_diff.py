"""checkpoint-diff on checkpoints that torch and safetensors write: every layout, planted faults, hostile files."""

import argparse
import json
import os
import pathlib
import pickle
import struct
import subprocess
import sys
import zipfile

import pytest
import torch
from harness.processes import REPOSITORY
from msprobe_client import Client
from msprobe_client.errors import MsprobeError
from safetensors.torch import save_file

HEADS, GROUPS, HEAD, HIDDEN, INNER, EXPERTS = 4, 2, 4, 16, 24, 2
LAYERS = 4


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with Client(data_dir=tmp_path_factory.mktemp("store"), create=True) as connected:
        yield connected


@pytest.fixture(scope="module")
def weights():
    """A model under the names of Llama, in bfloat16 and float32."""
    drawn = torch.Generator().manual_seed(1)

    def draw(*shape, dtype=torch.float32):
        return torch.randn(*shape, generator=drawn).to(dtype)

    made = {"model.embed_tokens.weight": draw(32, HIDDEN), "model.norm.weight": draw(HIDDEN)}
    made["lm_head.weight"] = draw(32, HIDDEN, dtype=torch.bfloat16)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        made[f"{at}self_attn.q_proj.weight"] = draw(HEADS * HEAD, HIDDEN)
        made[f"{at}self_attn.k_proj.weight"] = draw(GROUPS * HEAD, HIDDEN)
        made[f"{at}self_attn.v_proj.weight"] = draw(GROUPS * HEAD, HIDDEN)
        made[f"{at}self_attn.o_proj.weight"] = draw(HIDDEN, HEADS * HEAD)
        made[f"{at}mlp.gate_proj.weight"] = draw(INNER, HIDDEN)
        made[f"{at}mlp.up_proj.weight"] = draw(INNER, HIDDEN)
        made[f"{at}mlp.down_proj.weight"] = draw(HIDDEN, INNER)
    return made


@pytest.fixture(scope="module")
def published(weights, tmp_path_factory):
    """Sharded safetensors with an index, as Hugging Face publishes."""
    directory = tmp_path_factory.mktemp("published")
    shards = {"model-00001-of-00002.safetensors": {}, "model-00002-of-00002.safetensors": {}}
    for number, (name, tensor) in enumerate(weights.items()):
        list(shards.values())[number % 2][name] = tensor
    for file, tensors in shards.items():
        save_file(tensors, directory / file)
    index = {"weight_map": {name: file for file, tensors in shards.items() for name in tensors}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return directory


def kinds(client, target, golden, **options):
    """{name: kind} of what does not agree bit by bit, and how many do."""
    found = list(client.checkpoints.diff(target, golden, **options))
    return {item.name: item.kind for item in found if item.kind != "equal"}, sum(i.kind == "equal" for i in found)


def fused(weights, layer):
    """query, key and value as Megatron keeps them: a block for each group."""
    at = f"model.layers.{layer}.self_attn."
    query = weights[f"{at}q_proj.weight"].reshape(GROUPS, -1, HIDDEN)
    key = weights[f"{at}k_proj.weight"].reshape(GROUPS, -1, HIDDEN)
    value = weights[f"{at}v_proj.weight"].reshape(GROUPS, -1, HIDDEN)
    return torch.cat([query, key, value], 1).reshape(-1, HIDDEN)


def write_megatron(weights, directory, *, tensor=1, pipeline=1, virtual=1):
    """Rank files as Megatron-LM's format `torch` has them."""
    args = argparse.Namespace(
        num_attention_heads=HEADS,
        group_query_attention=True,
        num_query_groups=GROUPS,
        kv_channels=HEAD,
        hidden_size=HIDDEN,
        swiglu=True,
        pipeline_model_parallel_size=pipeline,
        params_dtype=torch.float32,
        where=pathlib.PurePosixPath("/data"),
    )
    per_chunk = LAYERS // (pipeline * virtual)
    for stage in range(pipeline):
        for rank in range(tensor):
            chunks = []
            for chunk in range(virtual):
                first = (chunk * pipeline + stage) * per_chunk
                chunks.append(_chunk(weights, range(first, first + per_chunk), rank, tensor))
            if stage == 0:
                part = weights["model.embed_tokens.weight"].chunk(tensor)[rank].clone()
                chunks[0]["embedding.word_embeddings.weight"] = part
            if stage == pipeline - 1:
                chunks[-1]["decoder.final_layernorm.weight"] = weights["model.norm.weight"]
                chunks[-1]["output_layer.weight"] = weights["lm_head.weight"].chunk(tensor)[rank].clone()
            models = {"model": chunks[0]} if virtual == 1 else {f"model{i}": each for i, each in enumerate(chunks)}
            name = f"mp_rank_{rank:02d}" + (f"_{stage:03d}" if pipeline > 1 else "")
            path = directory / "iter_0000010" / name
            path.mkdir(parents=True)
            torch.save(
                {"args": args, "checkpoint_version": 3.0, "iteration": 10, **models}, path / "model_optim_rng.pt"
            )
    (directory / "latest_checkpointed_iteration.txt").write_text("10")
    return directory


def _chunk(weights, layers, rank, tensor):
    made = {}
    for local, layer in enumerate(layers):
        at, to = f"model.layers.{layer}.", f"decoder.layers.{local}."
        gate, up = (weights[f"{at}mlp.{name}_proj.weight"].chunk(tensor)[rank] for name in ("gate", "up"))
        made[f"{to}self_attention.linear_qkv.weight"] = fused(weights, layer).chunk(tensor)[rank].clone()
        made[f"{to}self_attention.linear_proj.weight"] = (
            weights[f"{at}self_attn.o_proj.weight"].chunk(tensor, 1)[rank].clone()
        )
        made[f"{to}mlp.linear_fc1.weight"] = torch.cat([gate, up])
        made[f"{to}mlp.linear_fc2.weight"] = weights[f"{at}mlp.down_proj.weight"].chunk(tensor, 1)[rank].clone()
    return made


@pytest.mark.parametrize("split", [{}, {"tensor": 2}, {"tensor": 2, "pipeline": 2}, {"pipeline": 2, "virtual": 2}])
def test_megatron_is_the_model_it_was_split_from(client, weights, published, tmp_path, split):
    megatron = write_megatron(weights, tmp_path / "megatron", **split)
    assert kinds(client, megatron, published) == ({}, len(weights))
    assert kinds(client, published, megatron) == ({}, len(weights))


def test_other_splits_are_the_same_model_and_a_fault_is_named(client, weights, tmp_path):
    whole = write_megatron(weights, tmp_path / "whole")
    wrong = dict(weights)
    name = "model.layers.3.self_attn.v_proj.weight"
    wrong[name] = wrong[name].clone()
    wrong[name][0, 0] += 1
    split = write_megatron(wrong, tmp_path / "split", tensor=2, pipeline=2)
    found, equal = kinds(client, split, whole)
    assert found == {"decoder.layers.3.self_attention.linear_qkv.weight": "differs"}
    assert equal == 3 + 4 * LAYERS - 1


def test_torch_files_and_prefixes(client, weights, published, tmp_path):
    path = tmp_path / "trained.pt"
    wrapped = {f"module.{name}": torch.nn.Parameter(tensor) for name, tensor in weights.items()}
    torch.save({"model": wrapped, "optimizer": {"state": {0: {"exp_avg": torch.zeros(3)}}}, "epoch": 3}, path)
    assert kinds(client, path, published) == ({}, len(weights))
    found, _ = kinds(client, path, path, optimizer=True)
    assert found == {}
    names = {item.name for item in client.checkpoints.diff(path, path, optimizer=True)}
    assert "optimizer.state.0.exp_avg" in names


_SAVE = """
import sys, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
rank, where, source, store = int(sys.argv[1]), *sys.argv[2:5]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))
weights = torch.load(source)
state = {n: distribute_tensor(t, mesh, [Shard(t.ndim - 1 if "o_proj" in n else 0)]) for n, t in weights.items()}
dcp.save({"model": state, "optimizer": {"m": torch.ones(2)}, "step": 3}, checkpoint_id=where)
dist.destroy_process_group()
"""


def test_two_ranks_of_fsdp_are_one_model(client, weights, published, tmp_path):
    torch.save(weights, tmp_path / "weights.pt")
    arguments = [str(tmp_path / name) for name in ("dcp", "weights.pt", "rendezvous")]
    ranks = [subprocess.Popen([sys.executable, "-c", _SAVE, str(rank), *arguments]) for rank in range(2)]
    assert [rank.wait(60) for rank in ranks] == [0, 0]
    notes = []
    assert kinds(client, tmp_path / "dcp", published, note=notes.append) == ({}, len(weights))
    assert "target: optimizer state is left out; --optimizer takes it in" in notes
    pieces = {i.target.name: i.target.pieces for i in client.checkpoints.diff(tmp_path / "dcp", published)}
    assert pieces["model.model.layers.0.self_attn.o_proj.weight"] == 2


def test_numbers_are_those_of_torch(client, tmp_path):
    drawn = torch.Generator().manual_seed(2)
    golden = torch.randn(300, 1000, generator=drawn)
    target = golden.clone()
    target[200:] += torch.randn(100, 1000, generator=drawn)
    save_file({"w": target}, tmp_path / "a.safetensors")
    save_file({"w": golden}, tmp_path / "b.safetensors")
    (item,) = client.checkpoints.diff(tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    a, b = target.double(), golden.double()
    assert item.kind == "differs"
    assert item.different == int((a != b).sum())
    assert item.l2 == pytest.approx(float((a - b).norm()), rel=1e-9)
    assert item.max_abs == float((a - b).abs().max())
    assert item.cosine == pytest.approx(float(torch.nn.functional.cosine_similarity(a.ravel(), b.ravel(), 0)), rel=1e-9)
    assert item.target.hash != item.golden.hash


def test_each_verdict(client, tmp_path):
    one = torch.linspace(1, 2, 64)
    target = {
        "bf16": one.bfloat16(),
        "bits": one,
        "close": one * (1 + 2**-23),
        "fp8": one.to(torch.float8_e4m3fn),
        "ints": torch.arange(5),
        "lost": one,
        "nan": one.clone(),
        "shape": one,
        "zero": torch.zeros(0, 4),
    }
    golden = {**target, "bf16": one, "close": one, "ints": torch.tensor([0, 1, 2, 3, 5]), "shape": one.reshape(8, 8)}
    golden["fp8"] = (one * 2).to(torch.float8_e4m3fn)
    del golden["lost"]
    golden["more"] = one
    target["nan"][3] = torch.nan
    golden["nan"] = one
    save_file({n: t.clone() for n, t in target.items()}, tmp_path / "a.safetensors")
    save_file({n: t.clone() for n, t in golden.items()}, tmp_path / "b.safetensors")
    found, equal = kinds(client, tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    assert found == {
        "bf16": "close",
        "close": "close",
        "fp8": "differs",
        "ints": "differs",
        "lost": "only-target",
        "more": "only-golden",
        "nan": "nan",
        "shape": "shape",
    }
    assert equal == 2
    assert kinds(client, tmp_path / "b.safetensors", tmp_path / "a.safetensors", name="bf16") == ({"bf16": "close"}, 0)


def test_tied_and_transposed_tensors(client, tmp_path):
    table = torch.arange(12.0).reshape(3, 4)
    torch.save({"embed_tokens.weight": table, "lm_head.weight": table, "t": table.t()}, tmp_path / "tied.pt")
    save_file({"embed_tokens.weight": table, "t": table.t().contiguous()}, tmp_path / "b.safetensors")
    found = {
        i.name: (i.kind, i.note) for i in client.checkpoints.diff(tmp_path / "tied.pt", tmp_path / "b.safetensors")
    }
    assert found["lm_head.weight"] == ("equal", "tied to embed_tokens.weight")
    assert found["t"] == ("equal", "")


class _Calls:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return (pathlib.Path.touch, (self.marker,))


def test_nothing_in_a_pickle_is_called(client, tmp_path):
    marker = tmp_path / "called"
    torch.save({"w": torch.ones(2), "x": _Calls(marker)}, tmp_path / "evil.pt")
    notes = []
    assert kinds(client, tmp_path / "evil.pt", tmp_path / "evil.pt", note=notes.append) == ({}, 1)
    assert not marker.exists()
    assert any("which is not called" in note for note in notes)


def _safetensors(header, content=b"\0" * 16):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content


_DOUBLED = (
    b"\x80\x04\x8c\x08"
    + b"a" * 8
    + b"\x94"
    + b"h\x00h\x00\x93\x94"
    + b"".join(b"h" + bytes([i]) + b"h" + bytes([i]) + b"\x93\x94" for i in range(1, 40))
)


def _zip(pickled, *, compression=zipfile.ZIP_STORED):
    def write(path):
        with zipfile.ZipFile(path, "w", compression) as made:
            made.writestr("a/data.pkl", pickled)
            made.writestr("a/data/0", b"\0" * 4096)

    return write


_F32 = {"dtype": "F32", "shape": [2]}
HOSTILE = {
    "short.safetensors": (b"abc", "it has 3 bytes"),
    "header.safetensors": (struct.pack("<Q", 1 << 60) + b"{}", "its header should have 1152921504606846976 bytes"),
    "json.safetensors": (struct.pack("<Q", 3) + b"{]}", "its header is no JSON object"),
    "overlap.safetensors": (
        _safetensors({"a": {**_F32, "data_offsets": [0, 8]}, "b": {**_F32, "data_offsets": [4, 12]}}),
        "two tensors overlap at byte 4",
    ),
    "beyond.safetensors": (_safetensors({"a": {**_F32, "data_offsets": [12, 20]}}), "do not hold 8 bytes within 16"),
    "size.safetensors": (_safetensors({"a": {**_F32, "data_offsets": [0, 4]}}), "do not hold 8 bytes"),
    "huge.safetensors": (
        _safetensors({"a": {"dtype": "F32", "shape": [1 << 62, 9], "data_offsets": [0, 8]}}),
        "more elements than any memory",
    ),
    "text.pt": (b"PK\x03\x04 nothing", "zip"),
    "opcode.pt": (_zip(b"\x80\x02(S'a'\n."), "the opcode STRING, which is not read"),
    "doubled.pt": (_zip(_DOUBLED + b"."), "names a global of too many bytes"),
    "cut.pt": (_zip(pickle.dumps({"a": "b"}, 2)[:-3]), "is cut off"),
    "bomb.pt": (_zip(b"\x80\x02}.", compression=zipfile.ZIP_DEFLATED), "is compressed; torch.save writes none"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_by_name(client, tmp_path, name):
    content, said = HOSTILE[name]
    path = tmp_path / name
    content(path) if callable(content) else path.write_bytes(content)
    with pytest.raises(MsprobeError) as refused:
        list(client.checkpoints.diff(path, path))
    assert said in str(refused.value)
    assert name in str(refused.value)


@pytest.mark.parametrize("outside", ["../secret.safetensors", "/etc/passwd", ".."])
def test_an_index_leads_nowhere_else(client, tmp_path, outside):
    (tmp_path / "c").mkdir()
    save_file({"w": torch.ones(1)}, tmp_path / "secret.safetensors")
    (tmp_path / "c" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": outside}}))
    with pytest.raises(MsprobeError, match="should be a plain name in that directory"):
        list(client.checkpoints.diff(tmp_path / "c", tmp_path / "c"))


def test_a_missing_rank_is_named(client, weights, tmp_path):
    megatron = write_megatron(weights, tmp_path / "m", tensor=2, pipeline=2)
    (megatron / "iter_0000010" / "mp_rank_01_001" / "model_optim_rng.pt").unlink()
    with pytest.raises(MsprobeError, match=r"mp_rank_01_001 has no model_optim_rng\.pt"):
        list(client.checkpoints.diff(megatron, megatron))


def _rank_file(tmp_path, tensors):
    """One rank of a gated model, as Megatron-LM writes it."""
    args = argparse.Namespace(num_attention_heads=HEADS, hidden_size=HIDDEN, kv_channels=HEAD, swiglu=1)
    path = tmp_path / "iter_0000001" / "mp_rank_00" / "model_optim_rng.pt"
    path.parent.mkdir(parents=True)
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("1")
    torch.save({"args": args, "model": tensors}, path)
    return tmp_path


def test_a_number_among_gated_projections_is_compared(client, tmp_path):
    name = "decoder.layers.0.mlp.linear_fc1"
    tensors = {f"{name}.scale": torch.tensor(2.0), f"{name}.weight": torch.ones(4, 2), f"{name}.bias": torch.ones(5)}
    target = _rank_file(tmp_path / "a", tensors)
    golden = _rank_file(tmp_path / "b", tensors | {f"{name}.scale": torch.tensor(3.0)})
    assert kinds(client, target, golden) == ({f"{name}.scale": "differs"}, 2)


def test_keys_that_are_no_names_are_said(client, tmp_path):
    torch.save({(0, 1): torch.zeros(2), 1.5: torch.zeros(2), "x": torch.ones(2)}, tmp_path / "a.pt")
    notes = []
    found = list(client.checkpoints.diff(tmp_path / "a.pt", tmp_path / "a.pt", note=notes.append))
    assert [item.name for item in found] == ["x"]
    assert "target: the file has keys that are neither texts nor integers: left out" in notes
    torch.save({1: torch.zeros(2), "1": torch.ones(2)}, tmp_path / "twice.pt")
    with pytest.raises(MsprobeError, match="1 is there twice"):
        list(client.checkpoints.diff(tmp_path / "twice.pt", tmp_path / "a.pt"))


def test_many_names_of_which_none_fits_are_soon_paired(client, tmp_path):
    for side in ("a", "b"):
        save_file({f"{side}.{number}": torch.zeros(1) for number in range(20_000)}, tmp_path / f"{side}.safetensors")
    found, equal = kinds(client, tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    assert len(found) == 40_000 and equal == 0


def test_a_name_that_nothing_has_is_an_error(client, published):
    with pytest.raises(MsprobeError, match=r"no tensor of either side is called nothing\*"):
        list(client.checkpoints.diff(published, published, name="nothing*"))


def test_a_pipe_is_no_checkpoint(client, published, tmp_path):
    os.mkfifo(tmp_path / "x.safetensors")
    with pytest.raises(MsprobeError, match="is not a regular file"):
        list(client.checkpoints.diff(tmp_path / "x.safetensors", published))


def test_the_example_of_the_document(tmp_path):
    """docs/checkpoints.md's program and what it prints."""
    text = (REPOSITORY / "docs" / "checkpoints.md").read_text()
    program = text.partition("```python\n")[2].partition("```")[0]
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    command = [
        sys.executable,
        "-m",
        "msprobe_client",
        "checkpoint-diff",
        "trained.safetensors",
        "published.safetensors",
    ]
    done = subprocess.run([*command, "--format", "json"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    answer = json.loads(done.stdout)
    assert [(row["verdict"], row["name"]) for row in answer["rows"]] == [("differs", "layers.1.weight")]
    assert answer["counts"] == {"equal": 2, "differs": 1}
    for line in ("differs", "layers.1.weight", "1 differs, 2 equal"):
        assert line in text


def test_where_nothing_is_compared_nothing_is_equal(tmp_path):
    """A module that was pickled whole: its tensors have no names without calling what the file names."""
    for name, size in (("a.pt", 2), ("b.pt", 3)):
        torch.save(torch.nn.Linear(size, size), tmp_path / name)
    command = [sys.executable, "-m", "msprobe_client", "checkpoint-diff", tmp_path / "a.pt", tmp_path / "b.pt"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stdout
    assert "no tensors are compared" in done.stdout + done.stderr
