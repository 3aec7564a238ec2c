#!/usr/bin/env python3
"""Finds the error messages and warnings that the programs can print, in their sources.

    find_messages.py            one message a line, with … for what is put in, and where it comes from
    find_messages.py --missing  those that docs/troubleshooting.md lacks, and what it has of no source

C++: the text of an absl or gRPC status that is not OK, of LogError and LogWarning, of the agent's log, of a record's
fault, of what goes to stderr, and what a function makes of the text it is given before it does one of these. Python:
the text of an exception, of a warning, of a refused option, of what goes to stderr. A text of which no word is written
there is not found: it was made elsewhere, and is found there. Nor is one that a function returns as a text.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from cpp_messages import messages_of_cpp

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "troubleshooting.md"
GAP = "…"

# Not part of what is installed.
_TOOLS = re.compile(
    r"_(test|benchmark)\.|for_test|/tests/|_pb2|fake_|/bench_rank|pt_file_tool|(golden|layered)_store|/proto/"
)


@dataclass(frozen=True)
class Message:
    text: str  # GAP where something is put in
    place: str  # path from the root, and line


def shown(text: str) -> str:
    """As the page has it: one line, gaps in a row being one."""
    joined = re.sub(rf"{GAP}(?:[\s.]*{GAP})+", GAP, " ".join(text.split()))
    return re.sub(rf"{GAP}\.(?=\w)", GAP, joined)


def says_something(text: str) -> bool:
    return re.search(r"[A-Za-z]{2,}", text.replace(GAP, "")) is not None


def messages() -> list[Message]:
    found: dict[str, Message] = {}
    cpp = [
        path
        for room in ("agent", "server")
        for path in sorted((ROOT / room).rglob("*"))
        if path.suffix in (".cc", ".h")
    ]
    python = [
        path for room in ("agent/python", "client_py/msprobe_client") for path in sorted((ROOT / room).rglob("*.py"))
    ]
    sources = [(path, messages_of_cpp) for path in cpp] + [(path, messages_of_python) for path in python]
    for path, read in sources:
        place = path.relative_to(ROOT).as_posix()
        if _TOOLS.search(place):
            continue
        for text, line in read(path.read_text(encoding="utf-8")):
            text = shown(text)
            if says_something(text):
                found.setdefault(text, Message(text, f"{place}:{line}"))
    return sorted(found.values(), key=lambda message: message.place)


# Exceptions for people, whether they are raised where they are made or not.
_RAISED = {
    *(
        "MsprobeError",
        "ServerUnavailable",
        "ServerError",
        "AccessDenied",
        "NotFound",
        "InvalidArgument",
        "NotInstalled",
    ),
    *("FailedPrecondition", "DataError", "ValueError", "TypeError", "ImportError", "RuntimeError", "BadParameter"),
}
_SPEAKING = {"warning": 0, "warn": 0, "error": 0, "fail": 1, "_fail": 1}  # the argument that is the text


def messages_of_python(source: str) -> Iterator[tuple[str, int]]:
    tree = ast.parse(source)
    for function in ast.walk(tree):
        if not isinstance(function, (ast.FunctionDef, ast.Module)):
            continue
        named = _named_texts(function)
        for node in _own(function):
            if not isinstance(node, ast.Call):
                continue
            name = _name(node.func)
            place = _place_of_text(name, node)
            if place is None or place >= len(node.args):
                continue
            for each in _branches(node.args[place], named):
                yield _text(each, named), node.lineno


def _place_of_text(name: str, call: ast.Call) -> int | None:
    """Which argument of the call is a message."""
    if name in _SPEAKING:
        return _SPEAKING[name]
    of = _name(call.func.value) if isinstance(call.func, ast.Attribute) else None
    speaks = (
        name in _RAISED
        or (name == "__init__" and of is not None)  # of an exception's base
        or (name == "append" and of == "warnings")
        or (name == "print" and any(word.arg == "file" and _name(word.value) == "stderr" for word in call.keywords))
    )
    return 0 if speaks else None


Named = dict[str, list[ast.expr]]


def _own(function: ast.AST) -> Iterator[ast.AST]:
    """What is in it and not in a function inside of it."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, ast.FunctionDef):
            yield child
            yield from _own(child)


def _named_texts(function: ast.AST) -> Named:
    named: Named = {}
    for node in _own(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            named.setdefault(node.targets[0].id, []).append(node.value)
    return named


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _branches(node: ast.expr, named: Named) -> Iterator[ast.expr]:
    if isinstance(node, ast.IfExp):
        yield from _branches(node.body, named)
        yield from _branches(node.orelse, named)
    elif isinstance(node, ast.Name) and node.id in named:
        for value in named[node.id]:
            yield from _branches(value, {})
    else:
        yield node


def _text(node: ast.expr, named: Named) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else GAP
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part, named) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left, named) + _text(node.right, named)
    if isinstance(node, ast.FormattedValue) and isinstance(node.value, ast.Name):
        values = named.get(node.value.id, [])
        if len(values) == 1 and isinstance(values[0], ast.Constant) and isinstance(values[0].value, str):
            return values[0].value
    return GAP


def on_the_page(page: str) -> list[str]:
    """The lines of its ```text blocks."""
    blocks = re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [line.strip() for block in blocks for line in block.splitlines() if line.strip()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--missing", action="store_true", help="compare with docs/troubleshooting.md")
    found = messages()
    if not parser.parse_args().missing:
        for message in found:
            print(f"{message.place}\t{message.text}")
        return 0
    listed = on_the_page(PAGE.read_text(encoding="utf-8"))
    missing = [message for message in found if message.text not in set(listed)]
    stale = [line for line in listed if line not in {message.text for message in found}]
    for message in missing:
        print(f"missing\t{message.place}\t{message.text}")
    for line in stale:
        print(f"of no source\t{line}")
    return 1 if missing or stale else 0


if __name__ == "__main__":
    sys.exit(main())
