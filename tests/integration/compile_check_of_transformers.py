"""bisect_compile and PrecisionChecker over a transformers model under inductor, forward and backward.

Of make nightly: it is long.
"""

import pytest
import torch
from msprobe.pytorch import bisect_compile
from msprobe.pytorch.compile_accuracy_checker.precision_checker import PrecisionChecker
from torch._inductor.lowering import lowerings
from transformers import LlamaConfig, LlamaForCausalLM

pytestmark = pytest.mark.timeout(1800)
RSQRT = torch.ops.aten.rsqrt.default
IDS = torch.arange(16).reshape(2, 8)


@pytest.fixture
def llama():
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "max_position_embeddings": 64}
    heads = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads))


@pytest.fixture
def wrong_rsqrt(monkeypatch):
    right = lowerings[RSQRT]
    times = lowerings[torch.ops.aten.mul.Tensor]
    monkeypatch.setitem(lowerings, RSQRT, lambda x: times(right(x), 1.001))


def step(model):
    loss = model(input_ids=IDS, labels=IDS).loss
    loss.backward()
    return loss


def checked(model, directory):
    checker = PrecisionChecker(backend="inductor", data_dir=directory)
    checker.wrap_all_children(model.model.layers, depth=0)
    return checker.compare(step, model)


def test_a_clean_model_passes(llama, tmp_path):
    result = checked(llama, tmp_path)
    assert result.all_pass and [diff.name for diff in result.diffs] == ["model.layers.0", "model.layers.1"]
    assert all(diff.grad_input for diff in result.diffs)
    assert bisect_compile(llama, IDS) is None


def test_a_wrong_lowering_is_found_in_the_first_norm(llama, tmp_path, wrong_rsqrt):
    with torch._inductor.config.patch(force_disable_caches=True):
        assert not checked(llama, tmp_path).all_pass
    fault = bisect_compile(lambda ids: llama(input_ids=ids).logits, IDS, model=llama)
    assert (fault.subsystem, fault.detail) == ("lowerings", "rsqrt")
    assert "rsqrt" in fault.kernel and fault.output == "rsqrt"
    assert "torch.rsqrt(variance + self.variance_epsilon)" in fault.operators[-1].source
