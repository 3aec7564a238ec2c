"""Weights of running programs: recorded by digests, and compared with another run's, a checkpoint's, each other's."""

import json
import os
import re
import subprocess
import sys

import pytest
import torch
from harness.processes import PROGRAMS, REPOSITORY, external_server, free_port, run, wait_until
from msprobe_client import Client
from msprobe_client.errors import MsprobeError
from msprobe_client.model import Rank
from msprobe_client.weight_differences import WeightsPlace
from safetensors.torch import load_file, save_file

PROGRAM = PROGRAMS / "weights.py"
LAST = 2
FIRST_LAYER, SECOND_LAYER = "model.layers.0.", "model.layers.1."


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The store of the three roles' runs, the directory of their files, and the address of nobody any more."""
    files = tmp_path_factory.mktemp("weights")
    store = files / "store"
    address = files / "s"
    with external_server(address, store, files / "server.log"):
        shared = {"MSPROBE_SERVER": f"unix:{address}"}
        for role in ("trainer", "rollout"):
            run([sys.executable, PROGRAM, role, "--files", files], timeout=120, MSPROBE_RUN=role, **shared)
        group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", "MSPROBE_RUN": "ranks"}
        command = [sys.executable, PROGRAM, "ranks", "--files", files]
        both = [
            subprocess.Popen([str(part) for part in command], env={**os.environ, **shared, **group, "RANK": str(rank)})
            for rank in range(2)
        ]
        assert [each.wait(120) for each in both] == [0, 0]
    return store, files


@pytest.fixture(scope="module")
def client(recorded):
    with Client(data_dir=recorded[0]) as connected:
        yield connected


def found(client, target, golden, **options):
    """{name: difference} of what does not agree, and the kinds of what does."""
    items = list(client.checkpoints.weights(target, golden, **options))
    agreeing = {item.kind for item in items if item.kind in ("equal", "cast")}
    return {item.name: item for item in items if item.kind not in ("equal", "cast")}, agreeing


def at(run, step=None, rank=None):
    return WeightsPlace(run, None, step, None if rank is None else Rank("rank", rank))


def test_each_planted_fault_of_a_weight_synchronisation_is_named(client):
    wrong, agreeing = found(client, at("rollout", LAST), at("trainer"))
    assert agreeing == {"cast"}  # the trainer's are float32, recorded with cast=bfloat16
    kinds = {name: item.kind for name, item in wrong.items()}
    first, second = FIRST_LAYER, SECOND_LAYER
    assert kinds == {
        "model.norm.weight": "missing",
        "sampler.scale": "extra",
        f"{first}mlp.up_proj.weight": "stale",
        f"{second}self_attn.k_proj.weight": "swapped",
        f"{second}self_attn.v_proj.weight": "swapped",
        "model.embed_tokens.weight": "partial",
        f"{second}self_attn.o_proj.weight": "partial",
        f"{second}mlp.down_proj.weight": "partial",
        f"{first}input_layernorm.weight": "differs",
    }
    assert wrong[f"{first}mlp.up_proj.weight"].step == LAST - 1
    assert wrong[f"{second}self_attn.k_proj.weight"].other == f"{second}self_attn.v_proj.weight"
    assert wrong[f"{second}self_attn.v_proj.weight"].other == f"{second}self_attn.k_proj.weight"
    embedding = wrong["model.embed_tokens.weight"]  # blocks of four rows
    assert (embedding.rows, embedding.step) == (((100, 120),), LAST - 1)
    assert wrong[f"{second}self_attn.o_proj.weight"].rows == ((16, 32),)
    assert wrong[f"{second}self_attn.o_proj.weight"].note == "these rows are zeros in the target"
    assert wrong[f"{second}mlp.down_proj.weight"].rows == ((3, 4),)
    assert wrong[f"{first}input_layernorm.weight"].note == "the target is all zeros"


def test_once_all_have_come_nothing_differs(client):
    wrong, agreeing = found(client, at("rollout"), at("trainer", LAST))
    assert (wrong, agreeing) == ({}, {"cast"})


@pytest.mark.parametrize(("directory", "agreeing"), [("published", {"equal"}), ("published-bf16", {"cast"})])
def test_a_transformers_model_agrees_with_its_checkpoint(client, recorded, directory, agreeing):
    """The checkpoint lacks the tied head."""
    wrong, kinds = found(client, at("trainer"), WeightsPlace(path=recorded[1] / directory))
    assert (wrong, kinds) == ({}, agreeing)


def test_before_a_step_the_model_is_not_the_checkpoint(client, recorded):
    wrong, _ = found(client, at("trainer", 0), WeightsPlace(path=recorded[1] / "published"))
    assert {item.kind for item in wrong.values()} <= {"differs", "partial"}
    assert len(wrong) >= 20


def test_a_rounded_model_agrees_with_the_checkpoint_in_float32(client, recorded):
    wrong, kinds = found(client, at("rollout"), WeightsPlace(path=recorded[1] / "published"))
    assert (wrong, kinds) == ({}, {"cast"})


def test_what_the_target_kept_while_the_rest_became_the_checkpoint_is_stale(client, recorded):
    """No earlier version of the checkpoint is there: the target's own tells."""
    wrong, agreeing = found(client, at("rollout", LAST), WeightsPlace(path=recorded[1] / "published"))
    assert agreeing == {"cast"}
    stale = {name: (item.step, item.note) for name, item in wrong.items() if item.kind == "stale"}
    assert stale == {f"{FIRST_LAYER}mlp.up_proj.weight": (LAST - 1, "of the target itself")}
    head = wrong["lm_head.weight"]  # no longer tied to the embedding, which is wrong
    assert (head.kind, head.other) == ("extra", "model.embed_tokens.weight")


def test_shards_are_put_together(client):
    wrong, agreeing = found(client, at("ranks"), at("trainer"))
    assert agreeing == {"equal"}
    half = f"{SECOND_LAYER}mlp.up_proj.weight"
    assert {name: item.kind for name, item in wrong.items()} == {"model.norm.weight": "partial", half: "partial"}
    assert wrong[half].note == f"no rank of the target tells {24 * 32} elements"
    assert [str(rank) for rank in wrong["model.norm.weight"].target.ranks] == ["rank1"]
    assert wrong["model.norm.weight"].rows == ((7, 8),)


def test_ranks_of_a_run_are_compared_with_each_other(client):
    wrong, _ = found(client, at("ranks", rank=1), at("ranks", rank=0), name="*norm.weight")
    assert {name: (item.kind, item.rows) for name, item in wrong.items()} == {
        "model.norm.weight": ("partial", ((7, 8),))
    }


def test_the_step_that_was_captured_meanwhile_has_no_calls_of_ours(client):
    (rank,) = {summary.rank for summary in client.steps("trainer")}
    names = [[record.full_name for record in client.records("trainer", step=step, rank=rank)] for step in (0, 1)]
    calls = [[name for name in of_step if not name.startswith("weights.")] for of_step in names]
    assert calls[0] == calls[1]
    assert len(names[1]) > len(calls[1])


def test_the_digest_by_operators_is_the_kernels():
    """Devices take the operators; on the CPU both can be had. Shards add up, in either way."""
    from msprobe.pytorch._weight_digest import Part, block_digests

    torch.manual_seed(0)
    drawn = torch.randn(70, 6, 10, dtype=torch.float64)
    for dtype in (
        torch.float64, torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.int8, torch.bool,
        torch.complex64,
    ):  # fmt: skip
        tensor = drawn.to(dtype)
        whole = Part(tensor, tensor.shape, (0, 0, 0))
        expected = block_digests(whole)
        assert torch.equal(block_digests(whole, by_operators=True), expected), dtype
        for dimension in range(3):
            begins = [0] * 3
            total = torch.zeros_like(expected)
            for piece in tensor.split(4, dimension):
                total += block_digests(Part(piece, tensor.shape, tuple(begins)), by_operators=bool(begins[dimension]))
                begins[dimension] += piece.shape[dimension]
            assert torch.equal(total, expected), (dtype, dimension)
    for plain in (torch.tensor(3.5), torch.arange(1000.0), torch.zeros(0, 4)):
        whole = Part(plain, plain.shape, (0,) * plain.dim())
        assert torch.equal(block_digests(whole), block_digests(whole, by_operators=True))


def test_a_module_gives_what_its_checkpoint_has():
    from msprobe.pytorch._weights import digests_of, tensors_of

    model = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    model.register_buffer("kept", torch.arange(3))
    model.register_buffer("scratch", torch.arange(3), persistent=False)
    named = tensors_of(model)
    assert [name for name, _ in named] == list(model.state_dict())
    told = digests_of(named, torch.bfloat16)
    first, second, kept = (told[[name for name, _ in named].index(name)] for name in ("0.weight", "1.weight", "kept"))
    assert first == second
    assert list(first["cast"]) == ["torch.bfloat16"]
    assert (kept["dtype"], kept["shape"], kept["cast"]) == ("torch.int64", [3], {})


def test_what_cannot_be_recorded_is_refused_or_left_out(capfd):
    from msprobe.pytorch import MsprobeError as Refused
    from msprobe.pytorch import Part
    from msprobe.pytorch._weights import checked_cast, tensors_of

    whole = torch.ones(4, 4)
    for weights, said in (
        ([whole], "they are a list; they should be a torch.nn.Module, or a mapping"),
        ({"a": [1.0]}, "'a' is a list; it should be a tensor or a Part"),
        ({3: whole}, "3 is no name"),
        ({"a": Part(whole, (6, 4), (3, 0))}, "the Part 'a' has sizes [4, 4] at offset [3, 0]; that should lie within"),
        ({"a": Part(whole, (4,), (0,))}, "that should lie within shape [4]"),
    ):
        with pytest.raises(Refused, match=re.escape(said)):
            tensors_of(weights)
    with pytest.raises(Refused, match=r"cast is torch\.int8; it should be a floating dtype"):
        checked_cast(torch.int8)
    assert tensors_of({"sparse": whole.to_sparse(), "there": torch.ones(1, device="meta")}) == []
    said = capfd.readouterr().out
    assert "'sparse' is left out: its layout is torch.sparse_coo" in said
    assert "'there' is left out: it is on the device meta" in said


def test_what_is_wrong_is_said_in_one_line(client, recorded):
    files = recorded[1]
    with pytest.raises(
        MsprobeError, match="run trainer has no weights at step 7; the last before it are those of step 2"
    ):
        found(client, at("trainer", 7), at("rollout"))
    with pytest.raises(MsprobeError, match="run ranks of rank9 has no weights"):
        found(client, at("ranks", rank=9), at("trainer"))
    with pytest.raises(MsprobeError, match="nobody"):
        found(client, at("trainer"), at("nobody"))
    with pytest.raises(MsprobeError, match=re.escape(str(files / "server.log"))):
        found(client, at("trainer"), WeightsPlace(path=files / "server.log"))
    with pytest.raises(MsprobeError, match="no tensor of either side is called nothing"):
        found(client, at("trainer"), at("rollout"), name="nothing")


def test_one_rank_is_not_compared_with_itself(client):
    command = [sys.executable, "-m", "msprobe_client", "--server", client.address, "weights", "trainer"]
    done = run(command, check=False)
    assert done.returncode == 3 and "run trainer has weights of one rank, proc" in done.stderr


def test_the_checkpoint_that_lost_a_tensor(client, recorded, tmp_path):
    tensors = load_file(recorded[1] / "2.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, tmp_path / "lost.safetensors")
    wrong, _ = found(client, at("trainer"), WeightsPlace(path=tmp_path / "lost.safetensors"))
    assert {name: item.kind for name, item in wrong.items()} == {"model.norm.weight": "extra"}


def test_the_example_of_the_document(tmp_path):
    """docs/checkpoints.md's program and what it prints."""
    text = (REPOSITORY / "docs" / "checkpoints.md").read_text().partition("## Weights of a running program")[2]
    program = text.partition("```python\n")[2].partition("```")[0]
    run([sys.executable, "-c", program], cwd=tmp_path, timeout=60, MSPROBE_RUN="rollout")
    (data_dir,) = (tmp_path / "dump" / ".msprobe").iterdir()
    wait_until(lambda: not (data_dir / "server.json").exists(), 60, "the program's own server ends")
    command = [sys.executable, "-m", "msprobe_client", "weights", "rollout", "published.safetensors"]
    done = run([*command, "--data_dir", "dump", "--format", "json"], cwd=tmp_path, check=False)
    assert done.returncode == 1, done.stderr
    answer = json.loads(done.stdout)
    said = [(row["verdict"], row["name"], row["said"]) for row in answer["rows"]]
    assert said == [
        ("swapped", "k.weight", "holds v.weight"),
        ("partial", "q.weight", "rows 32-63"),
        ("swapped", "v.weight", "holds k.weight"),
    ]
    for row in said:
        assert all(word in text for word in row), row
