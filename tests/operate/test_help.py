"""--help has examples, each of which runs as it stands; shells complete what can be completed."""

import importlib
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile

import onnx
import pytest
from harness import spread
from harness.processes import REPOSITORY, environment, external_server, free_port, run
from msprobe_client import Client
from msprobe_client.commands import COMMANDS, application
from typer.testing import CliRunner

# Exit codes of examples, where not 0: they find a difference (1), or a thing that they need is not here (3).
ENDS = {
    "msprobe-client bisect": 1,
    "msprobe-client checkpoint-diff": 1,
    "msprobe-client tensor diff": 1,
    "msprobe-client compare tuesday monday": 1,
    "msprobe-client compare dump_a dump_b": 1,
    "msprobe-client first-divergence": 1,
    "msprobe-client overflow": 1,
    "msprobe-client check tuesday --device recorded": 1,
    "msprobe-client local-error": 1,  # outputs that no operator gave
    "msprobe-client sensitivity": 1,
    "msprobe-client sensitivity tuesday --mode no_change": 0,
    "msprobe-client onnx model.onnx --input x=x.npy --run compared": 1,
    "msprobe-client control tuesday": 3,  # no process of the run is connected
    "msprobe-client weights": 3,  # neither run has any
    "msprobe-client steps tuesday --request": 0,
    "msprobe-client compare tuesday monday --compatible": 0,
}
# Processor time of --help in times of a bare Python's start: 9 is usual. A subcommand's takes 18, since typer loads
# pydantic to read its options.
MAX_TIMES = 15
MAX_TIMES_OF_SUBCOMMAND = 30
PAIRS = 10
GROUPS = {
    "server": ("info", "pin", "unpin", "backup", "restore"),
    "jobs": ("list", "results", "cancel", "delete"),
    "tensor": ("show", "stats", "diff", "convert"),
}
SUBCOMMANDS = [name for _, name in COMMANDS if name not in GROUPS]


def examples_in(said):
    """The lines under Examples: of a --help."""
    assert "xamples:" in said, f"no examples\n{said}"
    block = re.split(r"\n\S", said.partition("xamples:")[2].split("Every flag")[0])[0]
    return [line.strip() for line in block.splitlines() if line.strip()]


def examples_of_client(*words):
    done = CliRunner().invoke(application(), [*words, "--help"], terminal_width=100)
    assert done.exit_code == 0, done.output
    return examples_in(done.output)


def npy(shape, numbers):
    """A .npy file of version 1.0."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (63 - (len(header) + 10) % 64) + "\n"
    content = struct.pack(f"<{len(numbers)}f", *numbers)
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + content


def described(name, shape, numbers):
    finite = [each for each in numbers if each == each]
    nan = len(finite) != len(numbers)
    return {
        **{"type": "torch.Tensor", "dtype": "torch.float32", "shape": list(shape)},
        "Max": float("nan") if nan else max(finite),
        "Min": float("nan") if nan else min(finite),
        "Mean": float("nan") if nan else sum(finite) / len(finite),
        "Norm": float("nan") if nan else sum(each * each for each in finite) ** 0.5,
        **{"requires_grad": False, "data_name": f"{name}.npy"},
    }


def write_checkpoint(path, number):
    """A safetensors file of one float32 tensor."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<2f", 1.0, number))


# What `bisect` asks of a program, without a model: layers.1 is at fault.
FORWARD = """
import json, os, pathlib
exchange = pathlib.Path(os.environ["MSPROBE_GRAFT"])
names = [f"Module.layers.{layer}.Linear" for layer in range(4)]
(exchange / "modules.json").write_text(json.dumps(names))
print(0.0 if names[1] in json.loads((exchange / "graft.json").read_text())["names"] else 0.5)
"""


def write_dump(path, scale):
    """Steps 0, 3 and 4 of two ranks: a linear layer whose output depends on scale, and a NaN out of finite numbers."""
    weight = [0.01 * i for i in range(32)]
    values = {
        "Functional.linear.0.forward.input.0": ((2, 8), [float(i) for i in range(16)]),
        "Functional.linear.0.forward.input.1": ((4, 8), weight),
        "Functional.linear.0.forward.output.0": ((2, 4), [scale * i for i in range(8)]),
        "Module.layers.0.q_proj.Linear.forward.0.input.0": ((2, 8), [float(i) for i in range(16)]),
        "Module.layers.0.q_proj.Linear.forward.0.output.0": ((2, 4), [scale * i * 1e5 for i in range(8)]),
        "Torch.log.0.forward.input.0": ((2, 4), [1.0 + i for i in range(8)]),
        "Torch.log.0.forward.output.0": ((2, 4), [float("nan")] * 8),
    }
    for step, rank in ((0, 0), (0, 1), (3, 0), (3, 1), (4, 0), (4, 1)):
        folder = path / f"step{step}" / f"rank{rank}"
        (folder / "dump_tensor_data").mkdir(parents=True)
        data = {}
        for name, (shape, numbers) in values.items():
            (folder / "dump_tensor_data" / f"{name}.npy").write_bytes(npy(shape, numbers))
            api, part = re.match(r"(.*\.forward(?:\.0)?)\.(input|output)", name).groups()
            entry = data.setdefault(api, {"input_args": [], "input_kwargs": {}, "output": []})
            entry["input_args" if part == "input" else "output"].append(described(name, shape, numbers))
        top = {"task": "tensor", "level": "mix", "framework": "pytorch", "dump_data_dir": None, "data": data}
        (folder / "dump.json").write_text(json.dumps(top))
        (folder / "stack.json").write_text("{}")
        module = "Module.layers.0.q_proj.Linear.forward.0"
        parents = {module: None, "Functional.linear.0.forward": module, "Torch.log.0.forward": None}
        (folder / "construct.json").write_text(json.dumps(parents))


def write_onnx(path):
    """The linear layer of the dumps, without what scale does to its output."""
    helper = onnx.helper
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "node_linear")
    for key, names in (
        ("name_scopes", ["", "layers.0.q_proj", "linear"]),
        ("class_hierarchy", ["Net", "torch.nn.modules.linear.Linear", "aten.linear.default"]),
    ):
        node.metadata_props.add(key=f"pkg.torch.onnx.{key}", value=str(names))
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", [2, 8]), ("y", [2, 4]))
    ]
    weight = helper.make_tensor("w", onnx.TensorProto.FLOAT, [8, 4], [0.01 * i for i in range(32)])
    graph = helper.make_graph([node], "net", ends[:1], ends[1:], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)


@pytest.fixture(scope="module")
def world(tmp_path_factory, client):
    """A directory with what examples name, and a server with the runs: (directory, address)."""
    folder = tmp_path_factory.mktemp("examples")
    write_dump(folder / "dump_a", 1.0)
    write_dump(folder / "dump_b", 1.5)
    (folder / "tolerances.yaml").write_text("tolerances:\n  - {name: '*', dtype: float32, rtol: 0.01, atol: 0.001}\n")
    (folder / "apis.yaml").write_text("api: [Functional.linear.0.forward]\n")
    (folder / "monitor_output" / "rank_0").mkdir(parents=True)
    watched = "vpp_stage,step,module_name,scope,norm\n-1,0,layers.0.q_proj.output.0,forward,1.5\n"
    (folder / "monitor_output" / "rank_0" / "module_step0-0.csv").write_text(watched)
    for device, number in (("gpu", 1), ("npu", 2)):
        (folder / f"train_{device}.sh").write_text(f"torchrun train.py --lr {number}e-4\n")
    for log in ("npu.log", "bench.log"):
        (folder / log).write_text("{'actor_rollout_ref': {'lr': 1e-06}}\n")
    write_checkpoint(folder / "trained.safetensors", 2.0)
    write_checkpoint(folder / "published.safetensors", 3.0)
    write_onnx(folder / "model.onnx")
    (folder / "x.npy").write_bytes(npy((2, 8), [float(i) for i in range(16)]))
    (folder / "kernel_dumps").mkdir()
    for path in (folder / "0_intensor0.bin", folder / "kernel_dumps" / "0_outtensor0.bin"):
        path.write_bytes(b"$Version=1.0\nformat=2\ndtype=0\ndims=2\n$End=1\n" + struct.pack("<2f", 1.0, 2.0))
    (folder / "forward.py").write_text(FORWARD)
    (folder / "backups").mkdir()
    (folder / "other").mkdir()
    socket = pathlib.Path(tempfile.mkdtemp(prefix="msprobe-", dir="/tmp")) / "s"
    address = f"unix:{socket}"
    with external_server(socket, folder / "data", folder / "server.log"):
        for dump, name in (("dump_a", "tuesday"), ("dump_b", "monday")):
            run([client, "--server", address, "import", folder / dump, "--run", name])
        with Client(address) as connection:
            connection.jobs.add(connection.jobs.create("tuesday", "export"), [])
        yield folder, address


def run_line(line, world, client, cwd=None):
    """In a shell of its own, as a user would, with our hosts and places in place of the example's."""
    folder, address = world
    for theirs, ours in (
        ("gpu-host:50051", address),
        ("127.0.0.1:50051", address),
        ("/var/lib/msprobe", str(folder / "other")),
        ("/srv/msprobe", str(folder / "restored")),
    ):
        line = line.replace(theirs, ours)
    path = f"{pathlib.Path(client).parent}:/usr/bin:/bin"
    return subprocess.run(
        ["bash", "-c", line],
        **{"cwd": cwd or folder, "capture_output": True, "text": True, "timeout": 120, "check": False},
        env=environment(PATH=path, MSPROBE_SERVER=address, COLUMNS="150"),
        stdin=subprocess.DEVNULL,
    )


def expected(line):
    ends = [(words, code) for words, code in ENDS.items() if line.startswith(words)]
    return max(ends, key=lambda each: len(each[0]))[1] if ends else 0


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_examples_of_the_client_run_as_they_stand(world, client):
    """In the order of --help: what one writes, a later one reads."""
    lines = [line for line in examples_of_client() if not line.startswith("export ")]
    for group, names in GROUPS.items():
        for name in names:
            lines += examples_of_client(group, name)
    for name in SUBCOMMANDS:
        lines += examples_of_client(name)
    assert len(lines) > 30
    failures = []
    for line in lines:
        done = run_line(line, world, client)
        if done.returncode != expected(line):
            failures.append(f"{line}\n  ended with {done.returncode}: {done.stderr.strip()[-300:]}")
        if done.returncode == 3:
            wanting = (
                "has no weights" if " weights " in line else "is connected; only processes that run now can be asked"
            )
            assert wanting in done.stderr, line
    assert not failures, "\n".join(failures)
    folder, _ = world
    assert (folder / "dump/step3/rank1/dump.json").exists() and (folder / "row.npy").stat().st_size > 32
    assert (folder / "restored").is_dir() and "nan" in (folder / "nan.csv").read_text().lower()


@pytest.mark.timeout(200)
def test_commands_of_the_readme_run_as_they_stand(world, client, tmp_path):
    text = (REPOSITORY / "README.md").read_text()
    lines = re.findall(r"^    (msprobe-client --server .*)$", text, re.MULTILINE)
    lines += [line for line in re.findall(r"`(msprobe-client [^`]*)`", text) if "RUN" not in line]
    assert len(lines) >= 10
    for name in ("dump_a", "dump_b"):
        (tmp_path / name).symlink_to(world[0] / name)
    for line in lines:
        done = run_line(line, world, client, tmp_path)
        asks = any(word in line for word in (" compare ", "first-divergence", "overflow ", " sensitivity "))
        assert done.returncode == (1 if asks else 0), f"{line}\n{done.stderr}"
        assert done.stdout.strip(), f"{line}: nothing was found"
    assert (tmp_path / "dump/step3/rank0/dump.json").exists()


@pytest.mark.timeout(120)
def test_examples_of_the_old_commands_run_as_they_stand(world, client):
    msprobe = pathlib.Path(client).with_name("msprobe")
    checks = ("acc_check", "multi_acc_check", "api_precision_compare", "config_check")
    for name in ("compare", "overflow_check", "merge_result", "parse", *checks):
        if name == "api_precision_compare":
            for table in ("npu_details.csv", "gpu_details.csv"):
                shutil.copy(next((world[0] / "checked").glob("*_details_*.csv")), world[0] / table)
        for line in examples_in(run([msprobe, name, "--help"], COLUMNS="200").stdout):
            done = run_line(line, world, client)
            assert done.returncode == 0, f"{line}\n{done.stderr}"
    assert list((world[0] / "merged").glob("multi_ranks_compare_merge_*.xlsx"))
    assert {path.name for path in (world[0] / "parsed").iterdir()} == {"0_intensor0.npy", "0_outtensor0.pt"}
    assert "Examples:" in run([msprobe, "--help"]).stdout


def test_examples_of_the_server_are_taken(tmp_path, server_binary):
    """Each as --check_config sees it, with files of ours where it names some; those that end by themselves, whole."""
    lines = examples_in(run([server_binary, "--help"], check=False).stdout)
    assert len(lines) >= 5
    openssl = shutil.which("openssl")
    assert openssl, "openssl comes with what the server is built with"
    request = "req -x509 -newkey rsa:2048 -nodes -keyout server.key -out server.pem -days 2 -subj /CN=localhost"
    run([openssl, *request.split()], cwd=tmp_path)
    (tmp_path / "server.conf").write_text(f"data_dir = {tmp_path}/data\n")
    (tmp_path / "data").mkdir()
    for line in lines:
        words = line.replace("/var/lib/msprobe", f"{tmp_path}/data").replace("/etc/msprobe", str(tmp_path))
        words = words.replace("127.0.0.1:50051", f"127.0.0.1:{free_port()}").split()[1:]
        ends = "--check" in words or any(word.startswith("--probe") for word in words)
        done = run([server_binary, *words, *([] if ends else ["--check_config"])], cwd=tmp_path, check=False)
        if any(word.startswith("--probe") for word in words):
            assert done.returncode == 1 and "no" in done.stderr + "no", line  # nothing serves there
        else:
            assert done.returncode == 0, f"{line}\n{done.stderr}"


def test_the_servers_help_has_every_flag(server_binary):
    said = run([server_binary, "--help"], check=False).stdout
    flags = re.findall(r"^ABSL_FLAG\(\s*[\w:]+, (\w+)", (REPOSITORY / "server/app/main.cc").read_text(), re.MULTILINE)
    assert len(flags) > 30
    for flag in flags:
        assert f"    --{flag} (" in said, flag


def completed(words, source, program):
    """What bash would offer for the last word, after `source`."""
    function = f"""
        {source}
        spec=$(complete -p {program.name}); f=${{spec#*-F }}; f=${{f%% *}}
        COMP_WORDS=({" ".join(f"'{word}'" for word in words)}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        "$f" "$(command -v {program.name})" "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD-1]}}"
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "--norc", "-c", function],
        **{"capture_output": True, "text": True, "timeout": 60, "check": False},
        env=environment(PATH=f"{program.parent}:/usr/bin:/bin"),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("name", "words", "offered"),
    [
        ("msprobe-client", ["msprobe-client", "fi"], ["find", "first-divergence"]),
        ("msprobe-client", ["msprobe-client", "trend", "--pl"], ["--plot"]),
        ("msprobe-client", ["msprobe-client", "server", "ba"], ["backup"]),
        ("msprobe", ["msprobe", "ove"], ["overflow"]),
    ],
)
def test_bash_completes_the_clients(client, name, words, offered):
    program = pathlib.Path(client).with_name(name)
    script = run([program, "--show-completion", "bash"]).stdout
    assert set(offered) <= set(completed(words, script, program))


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["msprobe-server", "--retain_"], ["--retain_days", "--retain_mib", "--retain_runs"]),
        (["msprobe-server", "--durability", "=", "in"], ["interval"]),
        (["msprobe-server", "--log_level", "="], ["debug", "info", "warning", "error", "off"]),
    ],
)
def test_bash_completes_the_server(server_binary, words, offered):
    source = (REPOSITORY / "deploy/package/msprobe-server.bash").read_text()
    assert completed(words, source, pathlib.Path(server_binary)) == offered


def test_every_subcommand_has_examples():
    for module, name in COMMANDS:
        loaded = importlib.import_module(f"msprobe_client.commands.{module}")
        assert name in GROUPS or all(line.startswith(f"msprobe-client {name} ") for line in loaded.EXAMPLES), name


def processor_seconds(*arguments):
    """Processor time of one start of Python."""
    child = os.posix_spawn(
        sys.executable,
        [sys.executable, *arguments],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
    )
    _, status, usage = os.wait4(child, 0)
    assert status == 0, arguments
    return usage.ru_utime + usage.ru_stime


@pytest.mark.parametrize(
    ("arguments", "most"),
    [
        (["-m", "msprobe_client", "--help"], MAX_TIMES),
        (["-m", "msprobe_client", "compare", "--help"], MAX_TIMES_OF_SUBCOMMAND),
        (["-c", "from msprobe_client.compat.legacy import main; main(['compare', '-h'])"], MAX_TIMES),
    ],
)
def test_help_costs_little_beside_pythons_own_start(arguments, most):
    ratios = [processor_seconds(*arguments) / processor_seconds("-c", "pass") for _ in range(PAIRS)]
    print(f"{' '.join(arguments)}: {spread.described(ratios)} times a bare start")
    assert not spread.surely_above(ratios, most)
