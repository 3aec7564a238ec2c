"""The real vLLM, in an environment of its own (`make vllm`), and a small model for it."""

import json
import os
import pathlib

import pytest
from harness.processes import REPOSITORY, run
from harness.vllm import ENVIRONMENT

PROGRAMS = pathlib.Path(__file__).with_name("programs")


@pytest.fixture(scope="session")
def vllm_environment():
    """Where vLLM, our wheels and (in the folder established) the established tool are installed."""
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
        """What the program said after `word`, or None."""
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
def generate(command, vllm_environment):
    """Runs generate.py to its end. established: `msprobe` is the established tool."""

    def call(*arguments, established=False, check=True, env=None, **llm):
        changes = {**ENVIRONMENT, **(env or {})}
        if established:
            changes |= {"PYTHONPATH": vllm_environment / "established", "VLLM_PLUGINS": ""}
        done = run(command(*arguments, **llm), check=check, timeout=240, **changes)
        return Generated(done.stdout + done.stderr)

    return call


@pytest.fixture(scope="session")
def plain(generate):
    """The tokens of the three prompts with nothing captured."""
    return generate().tokens
