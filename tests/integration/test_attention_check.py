"""flash_attention_score of MindSpore: the golden value of check beside attention written down element by element."""

import json
import math

import numpy as np
import pytest
from harness.processes import find_binary, run

torch = pytest.importorskip("torch")

from msprobe_client.check import attention  # noqa: E402

ALL = attention.ALL
TRIANGLE = np.triu(np.ones((2048, 2048), dtype=bool), 1)


def one_head(query, key, value, scale, shift, keeps):
    """Rows of queries; keeps(i, j): query i has key j. In float64, by loops."""
    out = np.zeros((len(query), value.shape[1]))
    for i, row in enumerate(query):
        held = [j for j in range(len(key)) if keeps(i, j)]
        scores = [scale * math.fsum(row * key[j]) + (0.0 if shift is None else shift[i, j]) for j in held]
        weights = [math.exp(score - max(scores)) for score in scores]
        for weight, j in zip(weights, held, strict=True):
            out[i] += weight / math.fsum(weights) * value[j]
    return out


def heads_of(x, layout, heads):
    """x[batch][head]: length by size."""
    if layout == "SBH":
        x = np.swapaxes(x, 0, 1)
    if layout in ("BSH", "SBH"):
        x = x.reshape(*x.shape[:2], heads, -1)
    if layout != "BNSD":
        x = np.swapaxes(x, 1, 2)
    return x


def expected(layout, query, key, value, heads, kv_heads, scale, keeps, shift=None):
    q, k, v = heads_of(query, layout, heads), heads_of(key, layout, kv_heads), heads_of(value, layout, kv_heads)
    out = np.zeros_like(q, dtype=np.float64)
    for b in range(q.shape[0]):
        for n in range(heads):
            m = n // (heads // kv_heads)
            of_head = None if shift is None else shift[b % shift.shape[0], n]
            out[b, n] = one_head(q[b, n], k[b, m], v[b, m], scale, of_head, lambda i, j, b=b, n=n: keeps(b, n, i, j))
    if layout != "BNSD":
        out = np.swapaxes(out, 1, 2)
    if layout in ("BSH", "SBH"):
        out = out.reshape(*out.shape[:2], -1)
    return np.swapaxes(out, 0, 1) if layout == "SBH" else out


def shaped(layout, batch, length, heads, size):
    return {
        "BSH": (batch, length, heads * size),
        "SBH": (length, batch, heads * size),
        "BNSD": (batch, heads, length, size),
        "BSND": (batch, length, heads, size),
    }[layout]


B, N, KV, S1, S2, D = 2, 4, 2, 5, 7, 8


def drawn(layout, seed=1):
    random = np.random.RandomState(seed)
    shapes = (
        shaped(layout, B, S1, N, D),
        shaped(layout, B, S2, KV, D),
        shaped(layout, B, S2, KV, D),
    )
    return [random.randn(*shape) for shape in shapes]


def golden(*args, **kwargs):
    """What check takes as right of these arguments, which it must not skip."""
    given = [torch.from_numpy(each) if isinstance(each, np.ndarray) else each for each in args]
    named = {name: torch.from_numpy(each) if isinstance(each, np.ndarray) else each for name, each in kwargs.items()}
    assert attention.reason_to_skip(given, named) is None
    return attention.flash_attention_score(*given, **named).numpy()


def skipped(*args, **kwargs):
    named = {name: torch.from_numpy(each) if isinstance(each, np.ndarray) else each for name, each in kwargs.items()}
    return attention.reason_to_skip([torch.from_numpy(each) for each in args] + [N], named)


@pytest.mark.parametrize("layout", ["BSH", "BNSD", "SBH", "BSND"])
def test_each_layout_without_and_with_a_mask(layout):
    query, key, value = drawn(layout)
    found = golden(query, key, value, N, scalar_value=0.3, input_layout=layout)
    every = expected(layout, query, key, value, N, KV, 0.3, lambda *_: True)
    np.testing.assert_allclose(found, every, rtol=0, atol=1e-13)
    random = np.random.RandomState(2)
    for shape in ((S1, S2), (B, 1, S1, S2), (B, N, S1, S2)):
        mask = random.rand(*shape) < 0.4
        mask[..., 0] = False
        full = np.broadcast_to(mask, (B, N, S1, S2))
        keeps = lambda b, n, i, j, full=full: not full[b, n, i, j]  # noqa: E731
        right = expected(layout, query, key, value, N, KV, 0.3, keeps)
        for mode in (0, 1):
            kwargs = {"scalar_value": 0.3, "input_layout": layout, "sparse_mode": mode}
            found = golden(query, key, value, N, attn_mask=mask.astype(np.uint8), **kwargs)
            np.testing.assert_allclose(found, right, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("mode", "pre", "following", "keeps"),
    [
        (2, ALL, ALL, lambda i, j: j <= i),
        (3, ALL, ALL, lambda i, j: j <= i + S2 - S1),
        (4, 2, 1, lambda i, j: -2 <= j - (i + S2 - S1) <= 1),
        (4, ALL, 0, lambda i, j: j <= i + S2 - S1),
    ],
)
def test_each_compressed_mode(mode, pre, following, keeps):
    query, key, value = drawn("BNSD")
    args = (None, None, None, TRIANGLE, None, None, None, 1.0, 0.5, pre, following, 0, "BNSD", mode)
    found = golden(query, key, value, N, *args)
    right = expected("BNSD", query, key, value, N, KV, 0.5, lambda b, n, i, j: keeps(i, j))
    np.testing.assert_allclose(found, right, rtol=0, atol=1e-13)


def test_a_prefix_of_each_element_of_the_batch_and_a_band_of_the_default_mode():
    query, key, value = drawn("BSH")
    prefix = [3, 6]
    mask = np.array([[[[j > i + S2 - S1 and j >= n for j in range(S2)] for i in range(S1)]] for n in prefix])
    found = golden(query, key, value, N, attn_mask=mask, prefix=prefix, sparse_mode=5)
    right = expected("BSH", query, key, value, N, KV, 1.0, lambda b, n, i, j: not mask[b, 0, i, j])
    np.testing.assert_allclose(found, right, rtol=0, atol=1e-13)
    band = np.array([[not -1 <= j - i <= 2 for j in range(S2)] for i in range(S1)])
    found = golden(query, key, value, N, attn_mask=band, pre_tokens=1, next_tokens=2)
    right = expected("BSH", query, key, value, N, KV, 1.0, lambda b, n, i, j: not band[i, j])
    np.testing.assert_allclose(found, right, rtol=0, atol=1e-13)


def test_a_shift_is_added_to_the_scores_of_its_own_element():
    query, key, value = drawn("BNSD")
    for batch in (1, B):
        shift = np.random.RandomState(3).randn(batch, N, S1, S2)
        found = golden(query, key, value, N, real_shift=shift, input_layout="BNSD")
        right = expected("BNSD", query, key, value, N, KV, 1.0, lambda *_: True, shift)
        np.testing.assert_allclose(found, right, rtol=0, atol=1e-13)


@pytest.mark.parametrize("mode", [2, 3])
def test_sequences_one_after_another(mode):
    random = np.random.RandomState(4)
    q_lengths, k_lengths = (3, 1, 5), (4, 2, 5)
    query = random.randn(sum(q_lengths), N, D)
    key, value = random.randn(2, sum(k_lengths), KV, D)
    ends = [np.cumsum(each).tolist() for each in (q_lengths, k_lengths)]
    kwargs = {"attn_mask": TRIANGLE, "input_layout": "TND", "sparse_mode": mode, "next_tokens": 0}
    found = golden(query, key, value, N, actual_seq_qlen=ends[0], actual_seq_kvlen=np.array(ends[1]), **kwargs)
    q_at = k_at = 0
    for q_length, k_length in zip(q_lengths, k_lengths, strict=True):
        ahead = k_length - q_length if mode == 3 else 0
        parts = [each[None, k_at : k_at + k_length] for each in (key, value)]
        right = expected(
            "BSND", query[None, q_at : q_at + q_length], *parts, N, KV, 1.0, lambda b, n, i, j, a=ahead: j <= i + a
        )
        np.testing.assert_allclose(found[q_at : q_at + q_length], right[0], rtol=0, atol=1e-13)
        q_at, k_at = q_at + q_length, k_at + k_length


def test_what_is_not_documented_is_skipped_with_its_reason():
    given = drawn("BSH")
    mask = np.zeros((S1, S2), dtype=bool)
    without = mask.copy()
    without[1] = True
    shift = np.zeros((B, N, S1, S2))
    assert "keep_prob is 0.9" in skipped(*given, keep_prob=0.9)
    assert "padding_mask" in skipped(*given, padding_mask=mask)
    assert "sparse_mode 7" in skipped(*given, sparse_mode=7)
    assert "input_layout is 'BDS'" in skipped(*given, input_layout="BDS")
    assert "2048 x 2048" in skipped(*given, sparse_mode=3, attn_mask=mask)
    assert "upper triangle" in skipped(*given, sparse_mode=2, attn_mask=~TRIANGLE)
    assert "no key left" in skipped(*given, attn_mask=without)
    assert "no key left" in skipped(*given, attn_mask=TRIANGLE, sparse_mode=4, pre_tokens=-9, next_tokens=9)
    assert "keeps what pre_tokens" in skipped(*given, attn_mask=mask, next_tokens=1)
    assert "real_shift" in skipped(*given, real_shift=shift, scalar_value=0.5)
    assert "row for each query" in skipped(*given, real_shift=shift[:, :, :3])
    assert "needs actual_seq_qlen" in skipped(*drawn("BSND"), input_layout="TND")
    ends = {"actual_seq_qlen": [2, 5], "actual_seq_kvlen": [3, 6]}
    rows = [np.zeros((length, heads, D)) for length, heads in ((S1, N), (S2, KV), (S2, KV))]
    assert "do not end where" in skipped(*rows, input_layout="TND", **ends)
    assert "do not fit" in skipped(given[0][:, :, :-1], *given[1:])


def test_a_wrong_attention_of_a_recorded_call_fails_and_a_right_one_passes(tmp_path):
    """A dump as MindSpore's is on an NPU, where the function has a kernel: the saved outputs are checked."""
    layout, scale = "BSH", 0.35
    query, key, value = (each.astype(np.float16) for each in drawn(layout))
    wide = [each.astype(np.float64) for each in (query, key, value)]
    right = expected(layout, *wide, N, KV, scale, lambda b, n, i, j: j <= i + S2 - S1)
    wrong = expected(layout, *wide, N, KV, scale, lambda b, n, i, j: j <= i)  # by the other corner
    tensors = tmp_path / "step0" / "rank0" / "dump_tensor_data"
    tensors.mkdir(parents=True)

    def saved(name, array):
        np.save(tensors / f"{name}.npy", array)
        return {
            "type": "mindspore.Tensor",
            "dtype": {"float16": "Float16", "bool": "Bool"}[array.dtype.name],
            "shape": list(array.shape),
            "Max": float(array.max()),
            "Min": float(array.min()),
            "Mean": None if array.dtype == bool else float(array.mean(dtype=np.float64)),
            "Norm": None if array.dtype == bool else float(np.linalg.norm(array.astype(np.float64))),
            "data_name": f"{name}.npy",
        }

    data = {}
    for number, out in enumerate((right, wrong)):
        name = f"Functional.flash_attention_score.{number}.forward"
        given = [saved(f"{name}.input.{i}", each) for i, each in enumerate((query, key, value))]
        data[name] = {
            "input_args": [*given, {"type": "int", "value": N}],
            "input_kwargs": {
                "attn_mask": saved(f"{name}.input.attn_mask", TRIANGLE),
                "scalar_value": {"type": "float", "value": scale},
                "sparse_mode": {"type": "int", "value": 3},
            },
            "output": [saved(f"{name}.output.0", out.astype(np.float16))],
        }
    document = {"task": "tensor", "level": "L1", "framework": "mindspore", "dump_data_dir": str(tensors), "data": data}
    (tensors.parent / "dump.json").write_text(json.dumps(document))
    words = [find_binary("msprobe-client"), "check", tmp_path, "--device", "recorded", "--format", "json"]
    done = run(words, check=False)
    assert done.returncode == 1, done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)["rows"]}
    verdicts = [rows[f"Functional.flash_attention_score.{number}.forward.output.0"]["verdict"] for number in (0, 1)]
    assert verdicts == ["pass", "fail"], rows
