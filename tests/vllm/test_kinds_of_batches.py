"""Other kinds of batches in vLLM's own engine: drafts to verify, texts to pool, a stage of a pipeline."""

import itertools

import pytest
from harness.dumps import entries, exported_steps, write_config
from harness.processes import external_server

TOKENS = 12
SAMPLED = "Module.logits_processor.LogitsProcessor.forward.0"


@pytest.fixture
def served(tmp_path, short_directory, ask):
    """(the environment that captures into a server's run "served", a function that asks the server about it)"""
    socket = short_directory / "s.sock"
    config = write_config(tmp_path / "config.json", tmp_path / "dump", level="mix")
    with external_server(socket, tmp_path / "data", tmp_path / "server.log"):
        env = {"MSPROBE_CONFIG": str(config), "MSPROBE_SERVER": f"unix:{socket}", "MSPROBE_RUN": "served"}
        yield env, lambda command, *question: ask(command, "served", *question, server=f"unix:{socket}")


def spans(rows):
    return [tuple(map(int, row["positions"].split("-"))) for row in rows]


@pytest.mark.timeout(500)
@pytest.mark.parametrize("method", ["draft_model", "ngram"])
def test_drafts_are_verified_inside_the_step_that_has_them(method, served, generate_in_fork, model):
    drafting = {"method": method, "num_speculative_tokens": 2}
    # A model that drafts for itself is always right; a text that does not repeat is seldom guessed from itself.
    drafting |= {"model": str(model)} if method == "draft_model" else {"prompt_lookup_max": 2, "prompt_lookup_min": 1}
    expected = generate_in_fork("--tokens", TOKENS).tokens
    env, ask = served
    found = generate_in_fork("--watch", "--tokens", TOKENS, env=env, speculative_config=drafting)
    assert found.tokens == expected, "neither drafts nor capture change a token"
    steps = ask("steps")
    assert {row["state"] for row in steps} == {"complete"}
    assert [row["step"] for row in steps] == list(range(len(steps))) and len(steps) < TOKENS
    verified = 0
    for request in "012":
        computed = spans(ask("steps", "--request", request))
        assert computed[0][0] == 0
        for (_, last), (first, _) in itertools.pairwise(computed):
            assert first <= last + 1, "no position is left out; those of a refused draft are computed again"
            verified += 1
        prompt = computed[0][1] + 1
        assert max(last for _, last in computed) >= prompt + TOKENS - 2
        assert all(last - first <= 2 for first, last in computed[1:]), "a token and two drafts"
    assert verified
    names = [row["name"] for row in ask("records", "--step", "1")]
    after_sampling = names[names.index(SAMPLED) :]
    # The drafter's two layers for each draft, as operators: the drafter is not part of the captured model.
    layers = [name for name in after_sampling if name.startswith("Functional.silu.")]
    assert len(layers) == (4 if method == "draft_model" else 0), after_sampling


@pytest.mark.timeout(500)
def test_a_pooling_model_has_a_step_a_batch(tmp_path, generate_in_fork):
    dump = tmp_path / "dump"
    config = write_config(tmp_path / "config.json", dump, level="L0")
    plain = generate_in_fork("--embed", runner="pooling")
    found = generate_in_fork("--embed", "--watch", env={"MSPROBE_CONFIG": str(config)}, runner="pooling")
    assert found.said("EMBEDDINGS") == plain.said("EMBEDDINGS")
    steps = exported_steps(dump)
    assert steps == list(range(len(steps))) and 1 <= len(steps) <= 3
    for step in steps:
        assert "Module.model.layers.1.mlp.Qwen2MLP.forward.0" in entries(dump, step)


@pytest.mark.timeout(500)
def test_stages_of_a_pipeline_are_ranks_of_one_run(served, generate, plain):
    env, ask = served
    env |= {"VLLM_CPU_OMP_THREADS_BIND": "0|1", "VLLM_ALLOW_INSECURE_SERIALIZATION": "1"}
    # Warmed up: without that, vLLM for CPUs has no buffers for its second stage to receive into.
    found = generate("--dummy-runs", env=env, pipeline_parallel_size=2, distributed_executor_backend="mp")
    assert found.tokens == plain
    steps = ask("steps")
    assert {(row["step"], row["rank"], row["state"]) for row in steps} == {
        (step, rank, "complete") for step in range(len(plain[0])) for rank in ("rank0", "rank1")
    }, "and the dummy runs are none of them"
    names = [{row["name"] for row in ask("records", "--step", "1", "--rank", rank)} for rank in ("0", "1")]
    for stage in (0, 1):
        assert any(name.startswith(f"Module.model.layers.{stage}.") for name in names[stage])
        assert not any(name.startswith(f"Module.model.layers.{1 - stage}.mlp") for name in names[stage])
        assert (SAMPLED in names[stage]) == (stage == 1)
    held = ask("steps", "--request", "1")
    first, last = ([row["positions"] for row in held if row["rank"] == rank] for rank in ("rank0", "rank1"))
    assert first == last and len(first) == len(plain[0]), "a stage that samples nothing has its tokens, too"
