"""msprobe -f pytorch op_generate: the script of one recorded call, a device beside the CPU."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from msprobe_client.compat.compare_command import guarded
from msprobe_client.errors import InvalidArgument
from msprobe_client.examples import plain
from msprobe_client.scratch import scratch_directory

if TYPE_CHECKING:
    from msprobe_client.check.calls import Call
    from msprobe_client.client import Client
    from msprobe_client.compat.operator_config import OperatorConfig
    from msprobe_client.repro.script import Script

_COMMAND = "msprobe op_generate"
# Names of the 1.0 line.
_NEW_NAMES = {"grad_input": "input", "grad_output": "output"}

EXAMPLES = ("msprobe -f pytorch op_generate -i config_op.json -o scripts",)


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog=_COMMAND,
        description="Write one recorded call as a script that compares a device with the CPU.",
        epilog=plain(EXAMPLES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    found.add_argument("-i", "--config_input", required=True, metavar="JSON", help="config_op.json")
    found.add_argument("-o", "--api_output_path", required=True, metavar="DIR", help="where the script goes")
    return found


def main(arguments: list[str]) -> NoReturn:
    given = parser().parse_args(arguments)
    guarded(_COMMAND, lambda: _generate(given))


def _generate(given: argparse.Namespace) -> None:
    from importlib.util import find_spec

    from msprobe_client.compat.operator_config import OperatorConfig, extract

    config = OperatorConfig.read(given.config_input)
    output = Path(given.api_output_path)
    if output.exists() and not output.is_dir():
        raise InvalidArgument(f"-o {output} is not a directory")
    if find_spec("torch") is None:
        raise InvalidArgument("op_generate computes in torch, and this environment has none; install it here")
    records = extract(config)
    if config.dump is not None:
        print(f"The call is in: {config.extract}.")
    print(f"The script is: {_write(_script(config, records), output, bundled=config.real)}.")


def _write(made: Script, output: Path, *, bundled: bool) -> Path:
    from msprobe_client.output.whole_file import whole_file
    from msprobe_client.repro.bundle import write_script

    script = output / f"{made.name}.py"
    if bundled:
        write_script(script, output / f"{made.name}.safetensors", made.text, made.contents)
    else:
        with whole_file(script) as scratch:
            scratch.write_text(made.text, encoding="ascii")
    return script


def _script(config: OperatorConfig, records: dict[str, dict[str, Any]]) -> Script:
    from msprobe_client.check.arguments import Loader, NotReplayable
    from msprobe_client.check.standards import Standards
    from msprobe_client.compat.operator_script import operator_script
    from msprobe_client.repro.scripted_call import ScriptedCall

    name = next(iter(records)).removesuffix("forward") + config.direction
    if config.real:
        _refuse_missing(records, name)
    with _imported(records, real=config.real, shown=config.extract) as (client, run, call):
        try:
            scripted = ScriptedCall(call, Loader(client, run, config.seed), config.direction, config.seed)
            standard = Standards(client).of(scripted.name.operation, "float32")
            return operator_script(scripted, standard.name, real=config.real, seed=config.seed, times=config.times)
        except NotReplayable as reason:
            raise InvalidArgument(f"{name} cannot be a script: {reason}") from None


def _refuse_missing(records: dict[str, dict[str, Any]], name: str) -> None:
    """The script needs what the call was given."""
    from msprobe_client.compat.operator_config import tensors_of

    for title, record in records.items():
        given = ("input", "grad_input") if title.endswith(".backward") else ("input_args", "input_kwargs")
        for tensor in tensors_of([record.get(key) for key in given] if title in (name, next(iter(records))) else []):
            file = tensor.get("data_name")
            if 0 in tensor["shape"]:
                continue
            if not isinstance(file, str):
                raise InvalidArgument(
                    f"data_mode is real_data, and {title} was captured without its tensors (task statistics); "
                    "write random_data"
                )
            if not Path(file).is_file():
                raise InvalidArgument(f"{title}: {file} does not exist; real_data needs the tensors of the dump")


@contextmanager
def _imported(records: dict[str, dict[str, Any]], *, real: bool, shown: Path) -> Iterator[tuple[Client, str, Call]]:
    """A server of our own that holds the call, and the run's name there."""
    from msprobe_client.analysis_client import uploaded
    from msprobe_client.check.calls import Place, calls_of
    from msprobe_client.client import Client

    with scratch_directory() as scratch:
        directory = Path(scratch) / "rank0"
        _lay_out(records, directory, real=real)
        with Client(data_dir=Path(scratch) / "data", create=True) as client, uploaded(client, directory) as run:
            places = [Place(run, summary.step, summary.rank) for summary in client.steps(run)]
            found = [call for place in places for call in calls_of(client, place)]
            if len(found) != 1:
                raise InvalidArgument(f"extract_api_path {shown} holds no call of an operator")
            yield client, run, found[0]


def _lay_out(records: dict[str, dict[str, Any]], directory: Path, *, real: bool) -> None:
    """A dump of these records alone. real: with their tensors."""
    from msprobe_client.compat.operator_config import tensors_of

    contents = directory / "dump_tensor_data"
    contents.mkdir(parents=True)
    data = json.loads(json.dumps(records))
    for name in data:
        data[name] = {_NEW_NAMES.get(key, key): value for key, value in data[name].items()}
        for tensor in tensors_of(data[name]):
            file = tensor.pop("data_name", None)
            if real and isinstance(file, str) and Path(file).is_file():
                tensor["data_name"] = Path(file).name
                shutil.copyfile(file, contents / Path(file).name)
    framework = "mindspore" if '"type": "mindspore' in json.dumps(data) else "pytorch"
    head = {"task": "tensor" if real else "statistics", "level": "L1", "framework": framework, "dump_data_dir": None}
    (directory / "dump.json").write_text(json.dumps({**head, "data": data}))
