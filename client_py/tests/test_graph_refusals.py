"""What graph and msprobe graph_visualize refuse: one line that names the path and what would be right, and no file."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from test_compare import binary  # noqa: F401
from test_graph import FILES, write

# What the options of each command are called.
COMMANDS: dict[str, dict[str, list[str]]] = {
    "graph": {"target": [], "golden": [], "layers": ["--layer-mapping"]},
    "graph_visualize": {"target": ["-tp"], "golden": ["-gp"], "layers": ["-lm"]},
}
MAPPING = {"Top": {"a": "b"}}
Refused = Callable[..., str]


@pytest.fixture(params=COMMANDS)
def refused(
    request: pytest.FixtureRequest,
    binary: str,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Refused:
    """Runs a command, which must end with 3 and one line, and leave nothing. Gives the line.

    anyone: in a process for which modes of files count, also where root runs this.
    """
    monkeypatch.setenv("MSPROBE_SERVER_BINARY", binary)
    names = COMMANDS[request.param]

    def run(target: Path, golden: Path | None = None, *, anyone: bool = False, **others: Path) -> str:
        words = [request.param, *names["target"], str(target), "-o", str(others.get("out", tmp_path / "out"))]
        words += [] if golden is None else [*names["golden"], str(golden)]
        words += [*names["layers"], str(others["layers"])] if "layers" in others else []
        before = files(tmp_path)
        code, out, told = in_another_process(words) if anyone else in_this_process(words, capfd)
        assert code == 3, (out, told)
        assert told.count("\n") == 1 and not out, (out, told)
        assert files(tmp_path) == before
        return told

    return run


def in_this_process(words: list[str], capfd: pytest.CaptureFixture[str]) -> tuple[object, str, str]:
    from msprobe_client.commands import main as client
    from msprobe_client.compat import graph_command

    with pytest.raises(SystemExit) as ended:
        client(words) if words[0] == "graph" else graph_command.main(words[1:])
    return ended.value.code, *capfd.readouterr()


def in_another_process(words: list[str]) -> tuple[object, str, str]:
    program = "from msprobe_client.commands import main"
    if words[0] != "graph":
        program = "from msprobe_client.compat.legacy import main"
    command = [*as_anyone(), sys.executable, "-c", f"{program}; main()", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if not path.is_dir())


def as_anyone() -> list[str]:
    """For whom modes of files count: root without the right to pass them over."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("root needs setpriv, of util-linux, to be somebody to whom files can be forbidden")
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]


def half(name: str) -> str:
    return FILES[name][: len(FILES[name]) // 2]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("dump.json", None, "'step0/rank1' has neither dump.json nor debug.json"),
        ("dump.json", "", "/step0/rank1/dump.json: line 1, column 1"),
        ("dump.json", half("dump.json"), "/step0/rank1/dump.json: line 1, column"),
        ("dump.json", "{}", '/step0/rank1/dump.json: it has no "data"'),
        ("construct.json", None, "/step0/rank1/construct.json is missing: a graph needs to know which module"),
        ("construct.json", "", "/step0/rank1/construct.json: line 1, column 1"),
        ("construct.json", half("construct.json"), "/step0/rank1/construct.json: line 1, column"),
        ("construct.json", "{}", "/step0/rank1/construct.json names no module: a graph needs"),
        (
            "construct.json",
            '{"Torch.add.0.forward": 5}',
            "Torch.add.0.forward: the name of a module or null",
        ),
        ("stack.json", "", "/step0/rank1/stack.json: line 1, column 1"),
        ("stack.json", half("stack.json"), "/step0/rank1/stack.json: line 1, column"),
        ("stack.json", '{"0": 5}', "/step0/rank1/stack.json: 0: a list is expected, not the number 5"),
    ],
    ids=lambda value: None if value is None or len(value) > 20 else value or "empty",
)
def test_broken_dumps(name: str, text: str | None, problem: str, refused: Refused, tmp_path: Path) -> None:
    write(tmp_path / "dump" / "step0" / "rank0")
    write(tmp_path / "dump" / "step0" / "rank1", **{name.removesuffix(".json"): text})
    told = refused(tmp_path / "dump")
    assert problem in told and str(tmp_path / "dump") in told


TENSOR = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": 1.0, "Min": 0.0}
CALL = "Torch.add.0.forward"


def dump_of(**members: object) -> dict[str, str]:
    entry = {CALL: {"output": [{**TENSOR, **members}]}}
    return {"dump": json.dumps({"task": "statistics", "level": "mix", "framework": "pytorch", "data": entry})}


@pytest.mark.parametrize(
    ("changed", "rank", "problem"),
    [
        (dump_of(Max="big"), 0, 'Max: a number, a bool or null is expected, not the text "big"'),
        (dump_of(shape="abc"), 0, 'shape: a list of up to 64 sizes is expected, not the text "abc"'),
        (dump_of(shape=[2, -1]), 0, "shape: a size from 0 is expected, not the number -1"),
        ({"dump": f'{{"data": {{"{CALL}": {{}}, "{CALL}": {{}}}}}}'}, 0, f"data has the entry {CALL} twice"),
        ({"construct": f'{{"{CALL}": 3}}'}, 0, f"{CALL}: the name of a module or null is expected, not the number 3"),
        ({"construct": '{"a": "a"}'}, 0, "a: its parent a is itself; the module around it or null is expected"),
        ({"construct": '{"a": "b", "b": "a"}'}, 0, "a: its parent b is inside it; the module"),
        ({}, 4294967295, "rank4294967295: a number of up to 2147483647 is expected behind rank"),
    ],
    ids=["max", "shape", "size", "entries", "parent", "own parent", "circle", "rank"],
)
def test_graph_and_report_refuse_the_same_dumps(
    changed: dict[str, str],
    rank: int,
    problem: str,
    binary: str,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    from msprobe_client.commands import main

    monkeypatch.setenv("MSPROBE_SERVER_BINARY", binary)
    write(tmp_path / "dump" / "step0" / f"rank{rank}", **changed)
    for command, output in (("graph", "a.vis.db"), ("report", "a.html")):
        with pytest.raises(SystemExit) as ended:
            main([command, str(tmp_path / "dump"), "-o", str(tmp_path / output)])
        told = capfd.readouterr().err
        assert ended.value.code == 3 and problem in told and f"step0/rank{rank}/" in told, told
        assert not (tmp_path / output).exists()


@pytest.mark.parametrize("name", ["", "construct.json"])
def test_what_cannot_be_read(name: str, refused: Refused, tmp_path: Path) -> None:
    write(tmp_path / "dump" / "step0" / "rank0")
    hidden = write(tmp_path / "dump" / "step0" / "rank1") / name
    mode = hidden.stat().st_mode
    hidden.chmod(0)
    told = refused(tmp_path / "dump", anyone=True)
    hidden.chmod(mode)
    assert f"{hidden}: Permission denied" in told


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "cannot be read: No such file or directory"),
        ("", "it is not a mapping of names to names"),
        ("{}", "it names no module; write {class: {target's path: golden path}}"),
        ("a: [b", "is not YAML: "),
        ("[a]", "it is not a mapping of names to names"),
        ("Top: 5", "Top is not a mapping of names to names"),
        ("Top: {a: [1]}", "the partner of a is [1]; it must be a name"),
        ("NoSuchClass: {a: b}", "renames no module: inside modules of the classes that it has (NoSuchClass)"),
    ],
)
def test_layer_mappings(text: str | None, problem: str, refused: Refused, tmp_path: Path) -> None:
    dump = write(tmp_path / "dump")
    layers = tmp_path / "layers.yaml"
    if text is not None:
        layers.write_text(text)
    told = refused(dump, dump, layers=layers)
    assert problem in told and str(layers) in told


def test_a_layer_mapping_needs_two_sides(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "layers.yaml").write_text(json.dumps(MAPPING))
    assert "a layer mapping is for two sides" in refused(write(tmp_path / "dump"), layers=tmp_path / "layers.yaml")


def test_sides_that_are_not_there(refused: Refused, tmp_path: Path) -> None:
    dump = write(tmp_path / "dump")
    assert f"{tmp_path}/no does not exist" in refused(tmp_path / "no")
    assert f"{tmp_path}/no does not exist" in refused(dump, tmp_path / "no")
    (tmp_path / "empty").mkdir()
    assert f"{tmp_path}/empty: no dump.json and no debug.json" in refused(tmp_path / "empty")


@pytest.mark.parametrize(
    ("below", "problem"),
    [
        ("", "is a file; name a directory or NAME.vis.db"),
        ("a/b", "is a file, and a directory is needed there"),
        ("a.vis.db", "is a file, and a directory is needed there"),
    ],
)
def test_a_file_in_the_place_of_a_directory(below: str, problem: str, refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    told = refused(write(tmp_path / "dump"), out=tmp_path / "file" / below)
    assert f"{tmp_path}/file {problem}" in told
    assert (tmp_path / "file").read_text() == "kept"


def test_a_directory_that_takes_no_file(refused: Refused, tmp_path: Path) -> None:
    dump = write(tmp_path / "dump")
    closed = tmp_path / "closed"
    closed.mkdir()
    (closed / "old.vis.db").write_bytes(b"of another time")
    if os.geteuid() == 0:
        os.chown(closed, 65534, 65534)  # of another owner
    closed.chmod(0o555)
    told = refused(dump, out=closed / "old.vis.db", anyone=True)
    assert f"{closed}/old.vis.db cannot be written: Permission denied; name a directory in which you may write" in told
    assert "Permission denied; name a directory" in refused(dump, out=closed / "new", anyone=True)
    assert (closed / "old.vis.db").read_bytes() == b"of another time"


def test_a_full_disk(refused: Refused, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8k", "none", str(full)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount a small tmpfs")
    try:
        told = refused(write(tmp_path / "dump"), out=full / "a.vis.db")
    finally:
        subprocess.run(["umount", str(full)], check=True)
    assert f"{full}/a.vis.db cannot be written: No space left on device" in told
