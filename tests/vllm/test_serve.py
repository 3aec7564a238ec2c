"""`vllm serve` as the guide of vllm-ascend's users has it (test_guide.py): --additional-config, and curl."""

import concurrent.futures
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess

import pytest
from harness.dumps import exported_steps, read_dump, write_config
from harness.processes import Background, external_server, free_port, wait_until
from harness.vllm import ENVIRONMENT

READY_S = 150
PROMPTS = ["Explain gravity in one sentence.", "The quick brown fox", "lazy dog", "river bank near the"]


class Service:
    def __init__(self, program, port):
        self._program, self._port = program, port

    def kill(self):
        """kill -9 of the server and of all its workers."""
        os.killpg(self._program.process.pid, signal.SIGKILL)
        self._program.process.wait()

    def complete(self, prompt, tokens, **headers):
        """The text of the completion, by curl as the guide has it."""
        content = {"model": "tiny", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        return self.post(content, **headers)

    def post(self, content, **headers):
        headers = {
            "Content-Type": "application/json",
            **{key.replace("_", "-"): value for key, value in headers.items()},
        }
        command = ["curl", "-sS", f"http://127.0.0.1:{self._port}/v1/completions", "-d", json.dumps(content)]
        for name, value in headers.items():
            command += ["-H", f"{name}: {value}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        answer = json.loads(done.stdout)
        assert "choices" in answer, f"{done.stdout}\n{self._program.output[-4000:]}"
        return answer["choices"][0]["text"]

    def ready(self):
        code = ["curl", "-so", "/dev/null", "-w", "%{http_code}", f"http://127.0.0.1:{self._port}/health"]
        return subprocess.run(code, capture_output=True, text=True, check=False).stdout == "200"


@pytest.fixture
def serve(vllm_environment, model, tmp_path):
    """serve(dump_config or None, *flags): a Service, ended as an operator ends it."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed: run `make debian`")

    @contextlib.contextmanager
    def call(dump_config, *flags):
        port = free_port()
        # What `vllm serve` runs: the command itself asks for the version of a package named vllm, and the build for
        # CPUs has another name.
        command = [
            *(vllm_environment / "bin" / "python", "-m", "vllm.entrypoints.openai.api_server", "--model", model),
            *("--served-model-name", "tiny", "--host", "127.0.0.1", "--port", port, "--dtype", "float32"),
            *("--max-model-len", 256, "--max-num-seqs", 4, "--gpu-memory-utilization", 0.2, "--enforce-eager", *flags),
        ]
        if dump_config is not None:
            command += ["--additional-config", json.dumps({"dump_config": dump_config})]
        environment = {**ENVIRONMENT, "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
        with Background(command, tmp_path / f"serve{port}.log", **environment) as program:
            service = Service(program, port)
            program.wait_for(service.ready, READY_S, "vllm serve answers /health")
            yield service
            if program.alive():
                program.process.send_signal(signal.SIGINT)
                program.process.wait(60)

    return call


def dumped(dump_path):
    return [read_dump(dump_path / f"step{step}" / "rank0")["data"] for step in exported_steps(dump_path)]


@pytest.mark.timeout(500)
def test_the_guide_as_written_and_concurrent_requests(tmp_path, serve):
    tokens = 5
    with serve(None) as service:
        expected = {prompt: service.complete(prompt, tokens) for prompt in PROMPTS}
    dump_path = tmp_path / "dump"
    config = {"task": "statistics", "level": "L1", "dump_path": str(dump_path), "statistics": {"list": []}}
    with serve(config) as service:
        with concurrent.futures.ThreadPoolExecutor(len(PROMPTS)) as pool:
            found = dict(zip(PROMPTS, pool.map(lambda prompt: service.complete(prompt, tokens), PROMPTS), strict=True))
        wait_until(lambda: len(exported_steps(dump_path)) >= tokens, 60, "steps are in dump_path")
        before = len(exported_steps(dump_path))
        # The guide's own request, which its service answers as any other.
        service.post({"model": "tiny", "prompt": PROMPTS[0], "max_completion_tokens": 32, "temperature": 0})
        wait_until(lambda: len(exported_steps(dump_path)) > before, 60, "a step of the guide's request")
    assert found == expected, "capture changed no token"
    steps = exported_steps(dump_path)
    assert tokens <= before <= tokens * len(PROMPTS) and steps == list(range(len(steps)))
    for data in dumped(dump_path):
        assert all(re.match(r"(Functional|Tensor|Torch|Distributed|Aten|NPU|VF|Jit)\.", name) for name in data)
        assert len(data) > 10
    assert not list(dump_path.rglob("INCOMPLETE"))


@pytest.mark.timeout(500)
def test_a_request_header_chooses_what_is_dumped(tmp_path, serve):
    dump_path = tmp_path / "dump"
    config = {"task": "statistics", "level": "L0", "dump_path": str(dump_path), "statistics": {"request_id": "bad-one"}}
    with serve(config) as service:
        service.complete(PROMPTS[0], 3)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            asked = pool.submit(service.complete, PROMPTS[1], 4, X_Request_Id="bad-one")
            other = pool.submit(service.complete, PROMPTS[2], 9, X_Request_Id="another")
            asked.result(), other.result()
        service.complete(PROMPTS[3], 3)
        # vLLM ends by killing its workers: records that they have not sent by then are lost.
        wait_until(lambda: len(exported_steps(dump_path)) >= 4, 60, "four steps are in dump_path")
    found = dumped(dump_path)
    assert len(found) == 4, "the passes of that request alone"
    shapes = [data["Module.model.norm.RMSNorm.forward.0"]["input_args"][0]["shape"] for data in found]
    assert shapes[0][0] > 1 and [shape[0] for shape in shapes[1:]] == [1] * 3, (
        "its rows alone: the prompt, then a token"
    )


@pytest.mark.timeout(400)
def test_a_service_is_asked_while_it_runs_and_killed(tmp_path, serve, short_directory, ask):
    """Its configuration is a file, in which capture is off: nothing is captured before somebody asks."""
    socket = short_directory / "s.sock"
    address = f"unix:{socket}"
    config = write_config(
        tmp_path / "config.json", tmp_path / "dump", level="L0", dump_enable=False, server=address, run="served"
    )

    def asked(*command):
        return ask(*command, server=address)

    def steps():
        return [row["step"] for row in asked("steps", "served") if row["state"] == "complete"]

    path = json.dumps({"dump_config_path": str(config)})
    with external_server(socket, tmp_path / "data", tmp_path / "server.log"):
        with serve(None, "--additional-config", path) as service:
            service.complete(PROMPTS[0], 2)
            assert steps() == []
            # Nobody is served now, so it waits for the next batch, which obeys.
            (answer,) = asked("control", "served", "request", "bad-one", "--steps", "3", "--wait", "1")
            assert answer["answer"] == "waits"
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                other = pool.submit(service.complete, PROMPTS[2], 9, X_Request_Id="another")
                meant = pool.submit(service.complete, PROMPTS[1], 6, X_Request_Id="bad-one")
                other.result(), meant.result()
            captured = wait_until(lambda: steps() if len(steps()) >= 3 else None, 30, "three steps that held it")
            (state,) = asked("control", "served", "status", "--wait", "1")
            assert len(captured) == 3 and not state["enabled"]
            held = asked("steps", "served", "--request", "bad-one")
            assert [row["step"] for row in held] == captured
            assert held[0]["positions"].startswith("0-"), "from its first token on"
            for row in held:
                (record,) = asked(
                    *("records", "served", "--step", str(row["step"])),
                    *("--name", "Module.model.norm.RMSNorm.forward.0"),
                )
                first, last = map(int, row["positions"].split("-"))
                shape = record["fields"]["output"][0]["shape"]
                assert shape[0] == last - first + 1, "its rows alone"

            asked("control", "served", "set", "request_id=", "--wait", "1")
            asked("control", "served", "start", "--wait", "1")
            expected = len(captured) + 5
            service.complete(PROMPTS[3], 5)
            # The end of a step is sent beside the answer: on a busy machine the answer may be there before it.
            wait_until(lambda: len(steps()) >= expected, 30, "all steps of an answer that lies some time back")
            service.kill()
        found = asked("steps", "served")
        assert len(found) == expected and {row["state"] for row in found} == {"complete"}
