"""Capture inside vLLM's own engine: the dumps are right, nothing changes, and each token of a request is known."""

import concurrent.futures
import itertools
import json

import numpy
import parity
import pytest
from harness.dumps import exported_steps, read_dump, write_config
from harness.processes import Background, external_server, run
from harness.vllm import ENVIRONMENT

TOKENS = 4  # a request, so as many steps


def configured(tmp_path, name, **config):
    return write_config(tmp_path / f"{name}.json", tmp_path / name, **config)


@pytest.mark.timeout(500)
@pytest.mark.parametrize(("task", "level"), list(itertools.product(["statistics", "tensor"], ["L0", "L1", "mix"])))
def test_same_dump_as_mindstudio(task, level, tmp_path, generate_in_fork, plain):
    """Both are called where vllm-ascend's runner calls them."""
    configs = {side: configured(tmp_path, side, task=task, level=level) for side in ("ours", "real")}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(generate_in_fork, "--call-sites", config, mindstudio=side == "real")
            for side, config in configs.items()
        ]
        ours, real = (each.result() for each in runs)
    assert ours.tokens == real.tokens == plain
    assert exported_steps(tmp_path / "ours") == exported_steps(tmp_path / "real") == list(range(TOKENS))
    for step in range(TOKENS):
        places = [tmp_path / side / f"step{step}" / "rank0" for side in ("ours", "real")]
        found = parity.compare_rank_directories(*places)
        assert not found, parity.summary(found)
        assert len(read_dump(places[0])["data"]) > 5


@pytest.mark.timeout(500)
@pytest.mark.parametrize("way", ["MSPROBE_CONFIG", "additional_config", "worker extension"])
def test_upstream_vllm_needs_one_flag(way, tmp_path, generate, plain):
    config = configured(tmp_path, "dump", level="mix")
    env, llm = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}, {}  # as vLLM comes: the engine in a process of its own
    if way == "additional_config":
        dump_config = {"task": "statistics", "level": "mix", "dump_path": str(tmp_path / "dump")}
        llm["additional_config"] = {"dump_config": dump_config}
    else:
        env["MSPROBE_CONFIG"] = str(config)
    if way == "worker extension":
        env["VLLM_PLUGINS"] = ""  # none
        llm["worker_extension_cls"] = "msprobe_vllm.WorkerExtension"
    done = generate(env=env, **llm)
    assert done.tokens == plain
    steps = exported_steps(tmp_path / "dump")
    # A request may come to the engine's process after its first batch.
    assert TOKENS <= len(steps) <= TOKENS + 2 and steps == list(range(len(steps))), done.output[-4000:]
    assert not list((tmp_path / "dump").rglob("INCOMPLETE"))
    for step in steps:
        data = read_dump(tmp_path / "dump" / f"step{step}" / "rank0")["data"]
        assert "Module.model.layers.1.mlp.down_proj.RowParallelLinear.forward.0" in data
        assert "Module.logits_processor.LogitsProcessor.forward.0" in data, "sampling belongs to the step"
    if way == "worker extension":
        assert done.said("STATUS") == [
            {"capturing": True, "dump_path": str(tmp_path / "dump"), "next_step": len(steps)},
        ]


@pytest.mark.timeout(200)
def test_a_wrong_configuration_is_refused_by_name(tmp_path, generate):
    config = configured(tmp_path, "dump", level="L7")
    done = generate(check=False, env={"MSPROBE_CONFIG": str(config)})
    assert done.tokens is None and "level" in done.output and "L7" in done.output


class Store:
    """A server of the test's own, and runs of five requests into it."""

    def __init__(self, tmp_path, generate, address, ask, client):
        self._tmp_path, self._generate, self._address = tmp_path, generate, address
        self._client = client
        self.ask = lambda *question: ask(*question, server=address)

    def serve(self, run_name, **llm):
        config = configured(
            self._tmp_path, run_name, task="tensor", level="L0", section={"list": ["layers.1.", "norm"]}
        )
        env = {"MSPROBE_CONFIG": str(config), "MSPROBE_SERVER": self._address, "MSPROBE_RUN": run_name}
        return self._generate("--requests", 5, "--tokens", TOKENS, env=env, **llm)

    def tensor(self, run_name, name, step):
        out = self._tmp_path / "tensor.npy"
        out.unlink(missing_ok=True)
        run([self._client, "--server", self._address, "tensor", run_name, name, "--step", step, "--output", out])
        return numpy.load(out)

    def token(self, run_name, request, position):
        """The last layer's output at one position of one request."""
        (place,) = self.ask("steps", run_name, "--request", request, "--token", position)
        first = int(place["positions"].split("-")[0])
        row = int(place["rows"].split("-")[0]) + position - first
        hidden = self.tensor(run_name, "Module.model.layers.1.mlp.Qwen2MLP.forward.0.output.0", place["step"])
        return hidden[row]


@pytest.mark.timeout(400)
def test_a_token_of_a_request_is_found_however_it_was_batched(tmp_path, generate, short_directory, ask, client):
    address = f"unix:{short_directory / 's.sock'}"
    with external_server(short_directory / "s.sock", tmp_path / "data", tmp_path / "server.log"):
        store = Store(tmp_path, generate, address, ask, client)
        together, alone = store.serve("together", max_num_seqs=4), store.serve("alone", max_num_seqs=1)
        assert together.tokens == alone.tokens
        for request in "01234":
            lines = {name: store.ask("steps", name, "--request", request) for name in ("together", "alone")}
            for found in lines.values():
                spans = [tuple(map(int, line["positions"].split("-"))) for line in found]
                assert spans[0][0] == 0 and all(not line["counted"] for line in found)
                assert [span[0] for span in spans[1:]] == [span[1] + 1 for span in spans[:-1]], "no hole"
                assert len(spans) == TOKENS
            assert all(line["rows"].startswith("0-") for line in lines["alone"])
            last = int(lines["alone"][-1]["positions"].split("-")[1])
            for position in (0, 1, last):
                pair = [store.token(name, request, position) for name in ("together", "alone")]
                numpy.testing.assert_allclose(*pair, rtol=1e-4, atol=1e-5)
        assert any(not line["rows"].startswith("0-") for line in store.ask("steps", "together", "--request", "1"))

        records = store.ask("records", "together", "--request", "1", "--token", 0)
        assert {record["step"] for record in records} == {0}
        done = run([client, "--server", address, "records", "together", "--request", "9"], check=False)
        assert done.returncode == 3 and "'9'" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.timeout(500)
def test_the_server_may_be_killed_meanwhile(tmp_path, command, plain, short_directory, ask):
    """The engine goes on, the tokens are the same, and each step is whole once the server is back."""
    steps = 40
    config = configured(tmp_path, "dump", level="mix")
    socket = short_directory / "s.sock"
    env = {"MSPROBE_CONFIG": config, "MSPROBE_SERVER": f"unix:{socket}", "MSPROBE_RUN": "served", **ENVIRONMENT}
    data, log = tmp_path / "data", tmp_path / "server.log"

    def stored():
        runs = [row["run"] for row in ask("runs", server=f"unix:{socket}")]
        return len(ask("steps", "served", server=f"unix:{socket}")) if "served" in runs else 0

    with Background(command("--tokens", steps), tmp_path / "program.log", **env) as program:
        with external_server(socket, data, log) as server:
            program.wait_for(lambda: stored() >= 3, 120, "three steps are at the server")
            server.kill()
        with external_server(socket, data, log):
            program.finish(120)
            shown = ask("steps", "served", server=f"unix:{socket}")
    assert [(row["step"], row["state"], row["gap_fragments"]) for row in shown] == [
        (step, "complete", 0) for step in range(steps)
    ]
    (line,) = [line for line in program.output.splitlines() if line.startswith("TOKENS ")]
    assert [each[:TOKENS] for each in json.loads(line.removeprefix("TOKENS "))] == plain


@pytest.mark.timeout(500)
def test_two_tensor_parallel_ranks_are_one_run(tmp_path, generate, short_directory, ask):
    address = f"unix:{short_directory / 's.sock'}"
    config = configured(tmp_path, "dump", level="L0")
    with external_server(short_directory / "s.sock", tmp_path / "data", tmp_path / "server.log"):
        env = {"MSPROBE_CONFIG": str(config), "MSPROBE_SERVER": address, "MSPROBE_RUN": "parallel"}
        env["VLLM_CPU_OMP_THREADS_BIND"] = "0|1"  # of the two ranks; by itself vLLM wants a NUMA node for each
        generate(env=env, tensor_parallel_size=2, distributed_executor_backend="mp")
        shown = ask("steps", "parallel", server=address)
        assert {(row["step"], row["rank"], row["state"]) for row in shown} == {
            (step, rank, "complete") for step in range(TOKENS) for rank in ("rank0", "rank1")
        }
        found = ask("find", "run:parallel", "--name", "*down_proj*input.0", "--step", "0", server=address)
        assert {row["rank"] for row in found} == {"rank0", "rank1"}
