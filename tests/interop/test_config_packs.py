"""`msprobe config_check` without mindstudio-probe: secrets, logs it does not read, and what is refused."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pprint
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
from msprobe_client.compat.config_check_command import main

VERL: dict[str, Any] = {
    "actor_rollout_ref": {
        "actor": {"optim": {"lr": 1e-06, "betas": [0.9, 0.999]}, "clip": float("inf")},
        "rollout": {"prompt": "it's 'quoted', {with} [brackets]", "long": "many words " * 20, "seed": -1, "stop": None},
    },
    "data": {"empty": {}, "files": ["a.parquet", "b.parquet"], "none": []},
}
STATISTICS = {"max": 2.0, "min": -1.0, "mean": 0.25, "norm": 3.0}


def config_check(*arguments: object) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    return int(end.value.code or 0), out.getvalue(), err.getvalue()


def pack(path: Path, members: dict[str, Any]) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name, document in members.items():
            file.writestr(name, document if isinstance(document, str) else json.dumps(document))
    return path


def sheet(path: Path, name: str) -> list[list[Any]]:
    import openpyxl

    rows: list[list[Any]] = [[cell.value for cell in row] for row in openpyxl.load_workbook(path)[name].iter_rows()]
    return rows[1:]


def summary(tmp_path: Path, bench: dict[str, Any], cmp: dict[str, Any]) -> dict[str, str]:
    a, b = pack(tmp_path / "a.zip", bench), pack(tmp_path / "b.zip", cmp)
    assert config_check("-c", a, b, "-o", tmp_path / "out")[0] == 0
    return {str(name): str(verdict) for name, verdict in sheet(tmp_path / "out" / "result.xlsx", "summary")}


def test_no_secret_is_in_a_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {
        "AWS_SECRET_ACCESS_KEY": "planted-1", "HF_TOKEN": "planted-2", "NCCL_AUTH": "planted-3",
        "MY_SETTING": "planted-4", "MSPROBE_PROXY": "http://user:planted-5@proxy", "DATABASE_DSN": "host=db planted-6",
        "VLLM_API_KEY": "planted-7",
    }  # fmt: skip
    for name, value in {**secrets, "NCCL_ALGO": "Ring", "MASTER_ADDR": "node0"}.items():
        monkeypatch.setenv(name, value)
    script = tmp_path / "train.sh"
    script.write_text(
        "torchrun train.py --wandb-api-key planted-8 --hf_token planted-9 --tokenizer-model a.model "
        "--max-tokens 8 --url http://planted-10@host/x --lr=1e-4 --bf16 --seed 1\n"
    )
    code, out, _ = config_check("-d", script, "-o", tmp_path / "pack.zip")
    assert code == 0 and "pack.zip" in out
    with zipfile.ZipFile(tmp_path / "pack.zip") as file:
        text = {name: file.read(name).decode() for name in file.namelist()}
    assert "planted" not in "".join(text.values())
    environment = json.loads(text["env"])
    assert {name: environment[name] for name in secrets} == dict.fromkeys(secrets, "hidden")
    assert (environment["NCCL_ALGO"], environment["MASTER_ADDR"]) == ("Ring", "node0")
    assert json.loads(text["hyperparameters/hyperparameters_static.json"]) == {
        "wandb-api-key": "hidden", "hf_token": "hidden", "tokenizer-model": "a.model", "max-tokens": "8",
        "url": "hidden", "lr": "1e-4", "bf16": True, "seed": "1",
    }  # fmt: skip


def test_secrets_stay_out_whatever_they_are_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_LAUNCH", "train.py --token planted-1 --password=planted-2")
    monkeypatch.setenv("NCCL_PLUGIN_URL", "https://host/plugin?sig=planted-3")
    script, options = tmp_path / "train.sh", tmp_path / "model.yaml"
    script.write_text(
        "torchrun train.py --token planted-4 --password=planted-5 --auth planted-6 --eos-token end "
        "--data https://h/d?a=1&token=planted-7\n"
    )
    options.write_text(
        "service: {auth: {user: planted-8, code: 7}}\nhub: {token: planted-9, reward_fn_key: shown}\n"
        "command: python train.py --api-key planted-10\narguments: [--lr, '1', --token, planted-11]\n"
        "header: 'Authorization: Bearer planted-12'\nper_token: true\n"
    )
    assert config_check("-d", script, options, "-o", tmp_path / "pack.zip")[0] == 0
    with zipfile.ZipFile(tmp_path / "pack.zip") as file:
        assert "planted" not in "".join(file.read(name).decode() for name in file.namelist())
        static = json.loads(file.read("hyperparameters/hyperparameters_static.json"))
    assert {static[name] for name in ("token", "password", "auth", "data", "command", "header")} == {"hidden"}
    assert (static["eos-token"], static["hub.reward_fn_key"], static["per_token"]) == ("end", "shown", True)
    # The packs of mindstudio-probe hold them.
    member = "hyperparameters/hyperparameters_static.json"
    summary(
        tmp_path, {member: {"a.token": "planted-13", "lr": "1"}}, {member: {"url": "http://u:planted@h", "lr": "2"}}
    )
    rows = sheet(tmp_path / "out" / "result.xlsx", "hyperparameters")
    assert "planted" not in str(rows) and ["lr", "lr", "1", "2"] in [row[1:5] for row in rows]
    log = tmp_path / "train.log"
    log.write_text(str({"actor_rollout_ref": {"hf_token": "planted-14", "lr": 1, "of": [{"password": "planted-15"}]}}))
    assert config_check("-vc", log, log, "-o", tmp_path / "verl")[0] == 0
    written = "".join(path.read_text() for path in (tmp_path / "verl").iterdir())
    assert "planted" not in written and "actor_rollout_ref/lr,1,1" in written


def test_a_launch_script_is_read_as_the_shell_reads_it(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(
        "MIN_LR=9\nLR=1e-4\n"
        'INNER_ARGS="--bf16\n--depth 3"\nA_NAME_OF_MORE_THAN_TWENTY_ARGS="\n  --flag\n  --lr $LR\n"\n'
        "MIN_LR=8\ntorchrun train.py ${INNER_ARGS} $A_NAME_OF_MORE_THAN_TWENTY_ARGS --last\necho done\n"
    )
    config_check("-d", script, "-o", tmp_path / "pack.zip")
    found = json.loads(zipfile.ZipFile(tmp_path / "pack.zip").read("hyperparameters/hyperparameters_static.json"))
    assert found == {"bf16": True, "depth": "3", "flag": True, "lr": "1e-4", "last": True}


def test_a_pack_replaces_another(tmp_path: Path) -> None:
    files = [tmp_path / f"{value}.yaml" for value in (1, 2, 3)]
    for value, path in enumerate(files, 1):
        path.write_text(f"lr: {value}\n")
    config_check("-d", *files, "-o", tmp_path / "pack.zip")
    found = json.loads(zipfile.ZipFile(tmp_path / "pack.zip").read("hyperparameters/hyperparameters_static.json"))
    assert found == {"lr": {"description": "duplicate_value", "values": [1, 2, 3]}}
    code, _, err = config_check("-d", tmp_path / "missing.yaml", "-o", tmp_path / "pack.zip")
    assert code == 0 and "missing.yaml was passed over: No such file" in err and err.count("\n") == 1
    assert zipfile.ZipFile(tmp_path / "pack.zip").namelist() == ["env", "pip"]


@pytest.mark.parametrize("prefix", ["", "(TaskRunner pid=1) ", "\x1b[36m(TaskRunner pid=1)\x1b[0m "])
@pytest.mark.parametrize("form", ["pprint", "json", "json-lines"])
def test_the_configuration_of_verl_is_found_among_other_lines(tmp_path: Path, prefix: str, form: str) -> None:
    forms = {"pprint": pprint.pformat(VERL), "json": json.dumps(VERL), "json-lines": json.dumps(VERL, indent=1)}
    text = forms[form].replace('{\n "actor_rollout_ref":', '{"actor_rollout_ref":')
    lines = [prefix + line for line in text.splitlines()]
    if len(lines) > 1:
        lines.insert(1, f"{prefix}2026-01-01 12:00:00 WARNING: 'a': 1")
        lines.insert(3, "(WorkerDict pid=2) {'a': 1,")
        lines.insert(4, f"{prefix}Loading checkpoint shards: 100%|####| 4/4")
    earlier = f"{prefix}{{'actor_rollout_ref': {{'old': 1}}}}"
    log = tmp_path / "train.log"
    log.write_text("\n".join(("start", earlier, *lines, f"{prefix}step 1", "")))
    assert config_check("-vc", log, log, "-o", tmp_path)[0] == 0
    assert json.loads((tmp_path / "NPU_config.json").read_text()) == VERL


def test_arguments_of_slime_behind_a_prefix(tmp_path: Path) -> None:
    block = "------------------------ arguments ------------------------\n"
    block += "  lr ....... 0.5\n  name ..... a b\n  none .....\n"
    text = f"{block}-------------------- end of arguments ---------------------"
    log = tmp_path / "train.txt"
    log.write_text("start\n" + "\n".join(f"(Actor pid=3) {line}" for line in text.splitlines()) + "\n")
    assert config_check("-sc", log, log, "-o", tmp_path / "out")[0] == 0
    assert json.loads((tmp_path / "out" / "NPU_config.json").read_text()) == {"lr": 0.5, "name": "a b"}


def test_parameters_whose_names_end_alike_keep_their_own_partners(tmp_path: Path) -> None:
    static = "hyperparameters/hyperparameters_static.json"
    bench = {static: {"actor.lr": 1, "critic.lr": 2, "learningrate": 3}}
    cmp = {static: {"actor.lr": 1, "critic.lr": 5, "lr": 3}}
    assert summary(tmp_path, bench, cmp) == {"hyperparameters": "error"}
    assert sheet(tmp_path / "out" / "result.xlsx", "hyperparameters") == [
        [static.rpartition("/")[2], "critic.lr", "critic.lr", "2", "5", "pure name", "error"]
    ]


def test_the_same_numbers_in_another_order_are_not_equal(tmp_path: Path) -> None:
    def side(checksum: str) -> dict[str, Any]:
        return {
            "dataset/step0/rank0/dataset.json": {"args": {"0": STATISTICS}, "kwargs": {}},
            "checksums/dataset/step0/rank0/dataset.json": {"args.0": checksum},
        }

    assert summary(tmp_path, side("00000001"), side("00000001")) == {"dataset": "pass"}
    assert summary(tmp_path, side("00000001"), side("00000002")) == {"dataset": "error"}


def test_a_weight_that_one_side_lacks_is_no_pass(tmp_path: Path) -> None:
    member = "weights/step0/rank0/weight.json"
    bench, cmp = {member: {"a": STATISTICS, "b": STATISTICS}}, {member: {"a": STATISTICS}}
    assert summary(tmp_path, bench, cmp) == {"weights": "error"}
    negative = {**STATISTICS, "mean": -0.5}
    assert summary(tmp_path, {member: {"a": negative}}, {member: {"a": {**negative, "mean": -0.25}}}) == {
        "weights": "error"
    }
    assert sheet(tmp_path / "out" / "result.xlsx", "weights") == [[0, 0, "a", False, 0, 0, 0.5, 0]]


def test_packs_are_compared_from_python_as_by_the_command(tmp_path: Path) -> None:
    from msprobe._common.errors import MsprobeError
    from msprobe.core.config_check import ConfigChecker

    bench, cmp = (pack(tmp_path / f"{name}.zip", {"pip": f"torch={name}\n"}) for name in ("2.1", "2.2"))
    ConfigChecker.compare(str(bench), str(cmp), str(tmp_path / "out"))
    assert config_check("-c", bench, cmp, "-o", tmp_path / "command")[0] == 0
    for name in ("summary", "pip"):
        assert sheet(tmp_path / "out" / "result.xlsx", name) == sheet(tmp_path / "command" / "result.xlsx", name)
    with pytest.raises(MsprobeError, match=r"train.log.*\.zip"):
        ConfigChecker.compare(str(tmp_path / "train.log"), str(cmp), str(tmp_path / "out"))


def test_what_is_refused(tmp_path: Path) -> None:
    good = pack(tmp_path / "good.zip", {"env": {}, "pip": ""})
    (tmp_path / "junk.zip").write_bytes(b"junk")
    (tmp_path / "a.log").write_text("{'actor_rollout_ref': {'a': 1,\n")
    (tmp_path / "b.log").write_text("nothing\n")
    (tmp_path / "train.py").write_text("")
    os.mkfifo(tmp_path / "pipe.zip")
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "deep.log").write_text("{'actor_rollout_ref': " + "[" * 3000 + "]" * 3000 + "}")
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("env", bytes(20 << 20))
    (tmp_path / "there.json").write_text("{}")
    cases: list[tuple[list[object], str]] = [
        (["-d", "-o", tmp_path / "pack.tar"], "pack.tar is no name of a pack; it has to end with .zip"),
        (["-d", tmp_path / "train.py", "-o", tmp_path / "p.zip"], "train.py is no launch script"),
        (["-c", good, tmp_path / "none.zip"], "none.zip does not exist"),
        (["-c", good, tmp_path / "junk.zip"], "junk.zip is not a zip file"),
        (["-c", good, tmp_path], "is no name of a pack"),
        (["-c", good, tmp_path / "bomb.zip"], "env would unfold from 20"),
        (["-c", good, tmp_path / "pipe.zip"], "pipe.zip is a named pipe; name a regular file"),
        (["-vc", tmp_path / "pipe.log", tmp_path / "a.log"], "pipe.log is a named pipe; name a regular file"),
        (["-vc", tmp_path / "deep.log", tmp_path / "a.log"], "mappings within mappings, deeper than any program's"),
        (["-vv", tmp_path / os.fsdecode(b"\xff.log")], "\\udcff.log does not exist"),
        (["-c", good, pack(tmp_path / "e.zip", {"env": "[]"})], "the member env is no JSON object"),
        (["-c", good, pack(tmp_path / "j.zip", {"env": "{"})], "the member env is not JSON"),
        (["-c", good, pack(tmp_path / "x.zip", {"other": "{"})], "share no part"),
        (["-c", pack(tmp_path / "w.zip", {"weights/../x": {}}), tmp_path / "w.zip"], "weights/../x is not weights/"),
        (["-c", pack(tmp_path / "r.zip", {"random/rank0.json": {"a": [1]}}), tmp_path / "r.zip"], "has an operation"),
        (["-c", tmp_path / "nowhere", tmp_path], "nowhere does not exist; name two packs"),
        (["-c", tmp_path, tmp_path, "-o", tmp_path / "there.json"], "there.json exists; name another file"),
        (["-vc", tmp_path / "a.log", tmp_path / "b.log"], "a.log ends within the configuration of verl"),
        (["-vc", tmp_path / "b.log", tmp_path / "b.log"], "b.log has no configuration of verl"),
        (["-vc", tmp_path / "train.py", tmp_path / "b.log"], "it has to end with .log or .txt"),
        (["-vv", tmp_path / "b.log", tmp_path / "b.log"], "the first of two files has to be a .yaml"),
        (["-vv", "1", "2", "3"], "takes [BENCH_YAML] LOG, not 3 files"),
        (["-sc", tmp_path / "b.log", tmp_path / "b.log"], "b.log has no arguments of slime"),
    ]  # fmt: skip
    for words, problem in cases:
        output = [] if "-o" in words else ["-o", tmp_path / "refused"]
        code, _, err = config_check(*words, *output)
        assert code == 3 and problem in err and err.count("\n") == 1, (words, err)
        assert not (tmp_path / "refused" / "result.xlsx").exists()


def test_the_example_of_the_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = (Path(__file__).parents[2] / "docs" / "configurations.md").read_text()
    blocks = re.findall(r"```(\w+)\n(.*?)```", document, re.DOTALL)
    bench, cmp = (text for kind, text in blocks if kind == "yaml")
    (commands,) = (text for kind, text in blocks if kind == "sh")
    (said,) = (text for kind, text in blocks if kind == "text")
    monkeypatch.chdir(tmp_path)
    Path("bench.yaml").write_text(bench)
    Path("cmp.yaml").write_text(cmp)
    for line in commands.splitlines():
        words = line.removeprefix("msprobe config_check ").split()
        code, out, err = config_check(*words)
        assert (code, err) == (0, "")
    assert out.startswith(said)
    assert sheet(Path("result/result.xlsx"), "hyperparameters") == [
        [
            *("hyperparameters_static.json", "optimizer.lr", "optimizer.learning_rate"),
            *("0.001", "0.002", "mapping", "error"),
        ]
    ]


def test_nothing_of_a_file_that_is_no_yaml_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("lr: 1\npassword: hunter2: [\n")
    aliases = tmp_path / "aliases.yaml"
    aliases.write_text("a0: &a0 [1, 2]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40)))
    code, out, err = config_check("-d", aliases, "-o", tmp_path / "pack.zip")
    assert code == 0 and "aliases.yaml was passed over: it unfolds to over 1000000 values" in err
    code, out, err = config_check("-d", path, "-o", tmp_path / "pack.zip")
    assert code == 0 and "bad.yaml was passed over: " in err and "in line 2" in err
    assert "hunter2" not in out + err
