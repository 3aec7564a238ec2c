#!/usr/bin/env python3
"""Finds the error messages and warnings of the programs in their sources, and writes docs/troubleshooting.md's lists.

    find_messages.py            one message a line, with … for the parts put in, and its place in the sources
    find_messages.py --missing  messages that docs/troubleshooting.md lacks, and lines there without a source
    find_messages.py --write    writes the page's lists: old messages go, new ones come, each list is sorted

The page's prose, and the entry of each message, are the author's. --write puts a new message into the entry that has
most messages from its file, else from its folder; move it if its cause is another. It stays there.

In C++ a message is the text of an absl or gRPC status that is not OK, of LogError and LogWarning, of the agent's log,
of a record's fault, or on stderr; also when a function puts such a text together from its argument. In Python it is the
text of an exception, of a warning, of a refused option, or on stderr. A text without a word of its own was made
elsewhere and is found there. A message that a function returns as a plain text is not found.
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

# Not installed.
_TOOLS = re.compile(
    r"_(test|benchmark)\.|for_test|/tests/|_pb2|fake_|/bench_rank|pt_file_tool|(reference|layered)_store|/proto/"
)


@dataclass(frozen=True)
class Message:
    text: str  # GAP stands for a value
    place: str  # path from the root, and line


def shown(text: str) -> str:
    """A message on one line, as on the page; several gaps in a row become one."""
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


# Exceptions for people, also where they are made in one place and raised in another.
_RAISED = {
    *(
        "MsprobeError",
        "ClientClosed",
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
    """The nodes in it, but not those in a function inside it."""
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


_LIST = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _lists(page: str) -> list[list[str]]:
    return [[line.strip() for line in block.splitlines() if line.strip()] for block in _LIST.findall(page)]


def on_the_page(page: str) -> list[str]:
    """The lines of its ```text blocks."""
    return [line for lines in _lists(page) for line in lines]


def _nearest_list(message: Message, origins: list[list[str]]) -> int:
    """Which list has most messages from the same file, else from the same folder, and so on up."""
    near = message.place.rpartition(":")[0]
    while near:
        counts = [sum(f"{origin}/".startswith(f"{near}/") for origin in each) for each in origins]
        if max(counts) > 0:
            return counts.index(max(counts))
        near = near.rpartition("/")[0]
    raise SystemExit(f"find_messages: no entry is near {message.place}; add one for: {message.text}")


def written(page: str, found: list[Message]) -> str:
    """The page with lists of the messages that were found."""
    files = {message.text: message.place.rpartition(":")[0] for message in found}
    lists = [[line for line in lines if line in files] for lines in _lists(page)]
    origins = [[files[line] for line in lines] for lines in lists]
    listed = {line for lines in lists for line in lines}
    for message in found:
        if message.text not in listed:
            lists[_nearest_list(message, origins)].append(message.text)
    in_order = iter(
        "```text\n" + "".join(f"{line}\n" for line in sorted(lines, key=lambda line: (_words(line), line))) + "```"
        for lines in lists
    )
    return _LIST.sub(lambda _: next(in_order), page)


def _words(line: str) -> str:
    """Sorts a message by its first word."""
    return re.sub(r"^[^A-Za-z]+", "", line).casefold()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--missing", action="store_true", help="compare with docs/troubleshooting.md")
    parser.add_argument("--write", action="store_true", help="write the lists of docs/troubleshooting.md")
    options = parser.parse_args()
    found = messages()
    page = PAGE.read_text(encoding="utf-8")
    if options.write:
        PAGE.write_text(written(page, found), encoding="utf-8")
        return 0
    if not options.missing:
        for message in found:
            print(f"{message.place}\t{message.text}")
        return 0
    listed = on_the_page(page)
    missing = [message for message in found if message.text not in set(listed)]
    stale = [line for line in listed if line not in {message.text for message in found}]
    for message in missing:
        print(f"missing\t{message.place}\t{message.text}")
    for line in stale:
        print(f"without a source\t{line}")
    return 1 if missing or stale else 0


if __name__ == "__main__":
    sys.exit(main())
