"""Adds a model to those that analyze_output_anomaly judges by their vocabulary:

python -m msprobe.response_anomaly.tools.gen_model_config --model-path DIR [--model-name NAME] [--output DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from msprobe._common.errors import MsprobeError
from msprobe.response_anomaly.tools._kinds import kind_of

_PACKAGE = Path(__file__).parent.parent


def add_model(model: Path, name: str | None, output: Path) -> Path:
    """Writes token2category/{name}_{size}.json, whose path it returns, and adds the name to configs/mtype_config.json.

    model: a directory with tokenizer.json, and generation_config.json, config.json or tokenizer_config.json for the
    tokens that begin and end a reply. name: None, that of the directory. Errors: MsprobeError names the file.
    """
    name = re.sub(r"[._]", "-", (name or model.resolve().name).lower())
    if not name:
        raise MsprobeError("--model-name is empty; it should be the name of the model")
    tokenizer = _tokenizer(model / "tokenizer.json")
    decoder = tokenizer.decoder
    vocabulary = {token: text for text, token in tokenizer.get_vocab(with_added_tokens=True).items()}
    texts = (vocabulary.get(token, "") for token in range(max(vocabulary, default=-1) + 1))
    kinds = {token: kind_of(decoder.decode([text]) if decoder else text) for token, text in enumerate(texts)}
    models = output / "configs" / "mtype_config.json"
    known = _content(models)
    known[name] = _ends(model, tokenizer)
    path = output / "token2category" / f"{name}_{tokenizer.get_vocab_size(with_added_tokens=False)}.json"
    _write(path, kinds)
    _write(models, known)
    return path


def _tokenizer(path: Path) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise MsprobeError("a vocabulary needs the package tokenizers: pip install tokenizers") from None
    if not path.is_file():
        raise MsprobeError(f"{path} is not there; --model-path should be a directory with a tokenizer.json")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:
        raise MsprobeError(f"{path} is no tokenizer: {str(error).splitlines()[0]}") from None


def _ends(model: Path, tokenizer: Any) -> dict[str, Any]:
    for file in ("generation_config.json", "config.json"):
        content = _content(model / file)
        if content.get("eos_token_id") is not None:
            return {"bos": content.get("bos_token_id"), "eos": content["eos_token_id"]}
    end = _content(model / "tokenizer_config.json").get("eos_token")
    text = end.get("content") if isinstance(end, dict) else end
    return {"bos": content.get("bos_token_id"), "eos": tokenizer.token_to_id(text) if isinstance(text, str) else None}


def _content(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise MsprobeError(f"{path} is no JSON: {error}") from None
    return content if isinstance(content, dict) else {}


def _write(path: Path, content: Any) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_suffix(f".{os.getpid()}")
        half.write_text(json.dumps(content), encoding="utf-8")
        half.replace(path)
    except OSError as error:
        raise MsprobeError(f"{path} cannot be written: {error.strerror}") from None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="gen_model_config", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument(
        "--model-path", required=True, type=Path, metavar="DIR", help="of the model, with tokenizer.json"
    )
    parser.add_argument("--model-name", metavar="NAME", help="default: that of the directory")
    parser.add_argument("--output", type=Path, default=_PACKAGE, metavar="DIR", help="default: this package")
    options = parser.parse_args(arguments)
    try:
        sys.stdout.write(f"{add_model(options.model_path, options.model_name, options.output)}\n")
    except MsprobeError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
