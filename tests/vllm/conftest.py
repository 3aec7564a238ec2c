"""The real vLLM, in an environment of its own (`make vllm`), and a small model for it."""

import itertools
import json
import os
import pathlib

import pytest
from harness.fork_server import ForkServer
from harness.processes import REPOSITORY, run
from harness.vllm import ENVIRONMENT

PROGRAMS = pathlib.Path(__file__).with_name("programs")


@pytest.fixture(scope="session")
def vllm_environment():
    """Where vLLM, our wheels and (in the folder mindstudio) mindstudio-probe are installed."""
    path = pathlib.Path(os.environ.get("MSPROBE_VLLM", REPOSITORY / ".venv-vllm"))
    if not (path / "bin" / "python").exists():
        pytest.skip(f"no vLLM in {path}: run `make vllm` or set MSPROBE_VLLM")
    return path


@pytest.fixture(scope="session")
def model(vllm_environment, tmp_path_factory):
    directory = tmp_path_factory.mktemp("model")
    run([vllm_environment / "bin" / "python", PROGRAMS / "tiny_model.py", directory])
    return directory


class Generated:
    def __init__(self, output):
        self.output = output

    def said(self, word):
        """The program's output after `word`, or None."""
        lines = [line for line in self.output.splitlines() if line.startswith(f"{word} ")]
        return json.loads(lines[-1].removeprefix(f"{word} ")) if lines else None

    @property
    def tokens(self):
        return self.said("TOKENS")


@pytest.fixture(scope="session")
def command(vllm_environment, model):
    """command(*arguments, **llm): the command line of generate.py; llm: more arguments of vLLM's LLM."""

    def make(*arguments, **llm):
        given = ["--llm", json.dumps(llm)] if llm else []
        return [vllm_environment / "bin" / "python", PROGRAMS / "generate.py", model, *arguments, *given]

    return make


@pytest.fixture(scope="session")
def generate_in_fork(command, vllm_environment, tmp_path_factory):
    """As generate, in a fork of an engine that is made once for each `llm`: it takes much longer than three prompts.

    The plugin sees no engine begin there; --watch shows it the existing one.
    """
    root, numbers, engines = tmp_path_factory.mktemp("engines"), itertools.count(), {}

    def engine(mindstudio, llm):
        key = (mindstudio, json.dumps(llm, sort_keys=True))
        if key not in engines:
            changes = {**ENVIRONMENT, "VLLM_PLUGINS": "", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
            if mindstudio:
                changes["PYTHONPATH"] = vllm_environment / "mindstudio"
            engines[key] = ForkServer(command("--serve", **llm), root / f"engine{next(numbers)}.log", **changes)
        return engines[key]

    def call(*arguments, mindstudio=False, check=True, env=None, **llm):
        log = root / f"log{next(numbers)}.txt"
        request = {"arguments": [str(each) for each in arguments], "env": env or {}, "log": str(log)}
        answer = engine(mindstudio, llm).ask(request, seconds=180)
        output = log.read_text(errors="replace")
        assert not check or answer == {"code": 0}, output[-8000:]
        return Generated(output)

    yield call
    for each in engines.values():
        each.close()


@pytest.fixture(scope="session")
def generate(command, vllm_environment):
    """Runs generate.py to its end. mindstudio: `msprobe` is mindstudio-probe."""

    def call(*arguments, mindstudio=False, check=True, env=None, **llm):
        changes = {**ENVIRONMENT, **(env or {})}
        if mindstudio:
            changes |= {"PYTHONPATH": vllm_environment / "mindstudio", "VLLM_PLUGINS": ""}
        done = run(command(*arguments, **llm), check=check, timeout=400, **changes)
        return Generated(done.stdout + done.stderr)

    return call


@pytest.fixture(scope="session")
def plain(generate_in_fork):
    """The tokens of the three prompts with nothing captured."""
    return generate_in_fork().tokens
