"""gen_model_config beside that of mindstudio-probe: the same kinds of tokens, and files that serve."""

import json
import pathlib
import shutil
import sys

import msprobe.response_anomaly as package
import pytest
from harness.processes import run
from msprobe._common.errors import MsprobeError
from msprobe.response_anomaly import analyze_output_anomaly
from msprobe.response_anomaly.tools.gen_model_config import add_model, main
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

KINDS_SCRIPT = pathlib.Path(__file__).with_name("token_kinds.py")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    directory = tmp_path_factory.mktemp("models") / "Tiny_1.5B"
    directory.mkdir()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    text = ["The quick brown fox, 12 of them.", "敏捷的棕色狐狸 跳过", "быстрая лиса", "うさぎは"] * 9
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=["<end>"], show_progress=False)
    tokenizer.train_from_iterator(text, trainer)
    tokenizer.add_tokens(["<added>"])
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    (directory / "generation_config.json").write_text('{"bos_token_id": 1, "eos_token_id": [0, 2]}')
    return directory


@pytest.fixture(scope="module")
def real(model, tmp_path_factory, oracle_python):
    """What mindstudio-probe says of the kinds, and where it wrote the model's files."""
    root = tmp_path_factory.mktemp("real")
    for directory in ("tools", "configs", "token2category"):
        (root / directory).mkdir()
    done = run([oracle_python, KINDS_SCRIPT, "--model-path", model], cwd=root / "tools", PYTHONPATH=None)
    return json.loads(done.stdout.splitlines()[0]), root


def test_every_token_is_of_the_same_kind(real):
    ours = json.loads(run([sys.executable, KINDS_SCRIPT]).stdout)
    assert len(ours) > 20_000 and ours == real[0] and len(set(ours)) > 18


def test_files_are_the_same_and_another_model_stays(model, tmp_path, real):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "mtype_config.json").write_text('{"other": {"eos": 5}}')
    path = add_model(model, None, tmp_path)
    (theirs,) = (real[1] / "token2category").iterdir()
    assert path.name == theirs.name and json.loads(path.read_text()) == json.loads(theirs.read_text())
    known, real_known = (
        json.loads((root / "configs" / "mtype_config.json").read_text()) for root in (tmp_path, real[1])
    )
    assert known == {"other": {"eos": 5}, **real_known} and list(real_known) == ["tiny-1-5b"]


def test_a_model_that_was_added_is_judged_by_its_vocabulary(model, tmp_path, monkeypatch, capsys):
    shutil.copytree(package._PACKAGE / "configs", tmp_path / "configs")
    monkeypatch.setattr(package, "_PACKAGE", tmp_path)
    assert main(["--model-path", str(model), "--output", str(tmp_path)]) == 0
    kinds = json.loads(pathlib.Path(capsys.readouterr().out.strip()).read_text())
    of_kind = {kind: int(token) for token, kind in kinds.items()}
    ids = [of_kind[kind] for kind in ("english_latin", "chinese_cjk", "cyrillic")]
    reply = [dict.fromkeys(ids, -5.5), dict.fromkeys(ids, -1.0)]
    assert analyze_output_anomaly([reply], [[3, 0]], ["tiny-1.5b"]) == [[True, 1]]
    assert analyze_output_anomaly([reply], [[3, 0]], [None]) == [[False, 0]]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "tokenizer.json is not there; --model-path should be a directory with a tokenizer.json"),
        ({"tokenizer.json": "{"}, "tokenizer.json is no tokenizer: "),
        ({"generation_config.json": "{"}, "generation_config.json is no JSON: "),
    ],
)
def test_what_is_wrong_with_a_model_is_named(files, message, model, tmp_path, capsys):
    if "generation_config.json" in files:
        shutil.copy(model / "tokenizer.json", tmp_path)
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(MsprobeError, match=message) as raised:
        add_model(tmp_path, None, tmp_path / "out")
    assert main(["--model-path", str(tmp_path), "--output", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == f"{raised.value}\n"
    assert not (tmp_path / "out").exists()
