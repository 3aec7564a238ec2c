"""vLLM's own compiled mode: with no flag but the configuration, AclGraphDumper captures the traced model."""

import math

import pytest
from harness.dumps import embedded_data_directory, exported_steps, leaves, read_dump, write_config

TOKENS = 4  # a request, so as many steps
CLOSE = 1e-4
# The graph runs as traced: inductor would take minutes to compile it, and is tested without vLLM.
ENVIRONMENT = {"VLLM_CPU_CI_ENV": "1"}


@pytest.mark.timeout(500)
def test_a_compiled_model_has_the_records_and_numbers_of_the_eager_one(
    tmp_path, generate, generate_in_fork, plain, ask
):
    eager = write_config(tmp_path / "eager.json", tmp_path / "eager", level="L0")
    graph = write_config(tmp_path / "graph.json", tmp_path / "graph", level="mix")
    assert generate_in_fork("--watch", env={"MSPROBE_CONFIG": str(eager)}).tokens == plain
    done = generate(env={**ENVIRONMENT, "MSPROBE_CONFIG": str(graph)}, enforce_eager=False)
    assert done.tokens == plain, done.output[-4000:]
    # Neither profiling nor warm-up is a step.
    assert exported_steps(tmp_path / "graph") == exported_steps(tmp_path / "eager") == list(range(TOKENS))
    for step in range(TOKENS):
        ours, theirs = (read_dump(tmp_path / side / f"step{step}" / "rank0")["data"] for side in ("graph", "eager"))
        assert {record["runs"] for record in ours.values()} == {1}
        assert set(theirs) <= set(ours)
        assert any(name.startswith("Functional.") for name in ours)
        for name in theirs:
            numbers, expected = dict(leaves(ours[name])), dict(leaves(theirs[name]))
            assert numbers, name
            for place in numbers.keys() & expected.keys():
                for key in ("Max", "Min", "Mean", "Norm"):
                    one, other = numbers[place][key], expected[place][key]
                    assert (one is None) == (other is None), (name, place, key)
                    if one is not None:
                        assert math.isclose(one, other, rel_tol=CLOSE, abs_tol=CLOSE), (name, place, key)

    tables = []
    for side in ("eager", "graph"):
        directory = embedded_data_directory(tmp_path / side)
        (run,) = ask("runs", data_dir=directory)
        rows = [ask("steps", run["run"], "--request", request, data_dir=directory) for request in "012"]
        tables.append([[(row["step"], row["positions"], row["rows"], row["counted"]) for row in each] for each in rows])
        assert ask("records", run["run"], "--request", "1", "--token", "0", data_dir=directory)
    assert tables[1] == tables[0], "which token of which request stood where is known of graphs, too"
    assert all(len(table) == TOKENS and not any(row[-1] for row in table) for table in tables[1])
