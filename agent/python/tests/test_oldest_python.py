"""The package runs in Python 3.9, which no other test here has: what only later versions run is not in it."""

import ast
import pathlib

import pytest

PACKAGES = pathlib.Path(__file__).parents[1]
FILES = sorted([*PACKAGES.glob("msprobe/**/*.py"), *PACKAGES.glob("msprobe_vllm/**/*.py")])
TYPES = {"str", "int", "float", "bool", "list", "tuple", "dict", "set", "type", "Path", "PathLike", "Tensor", "None"}
LATER_ARGUMENTS = {"zip": "strict", "dataclass": "slots"}


def annotations(tree):
    """Nodes that are never run, since each file that has unions imports annotations (ruff's FA102)."""
    for node in ast.walk(tree):
        for field in ("annotation", "returns"):
            if isinstance(getattr(node, field, None), ast.AST):
                yield from map(id, ast.walk(getattr(node, field)))


def is_type(node):
    return isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node).rpartition(".")[2] in TYPES


def later(source):
    tree = ast.parse(source)
    skipped = set(annotations(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Match):
            yield f"{node.lineno}: match"
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and id(node) not in skipped:
            if is_type(node.left) or is_type(node.right) or ast.unparse(node.left)[:1].isupper():
                yield f"{node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Call):
            argument = LATER_ARGUMENTS.get(ast.unparse(node.func).rpartition(".")[2], "")
            if argument in {keyword.arg for keyword in node.keywords}:
                yield f"{node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("source", ["isinstance(x, list | tuple)", "A = CodeSwap | Other", "zip(a, b, strict=True)"])
def test_what_python_3_9_cannot_run_is_found(source):
    assert list(later(source))


def test_nothing_needs_a_later_python():
    assert FILES
    found = {str(path.relative_to(PACKAGES)): list(later(path.read_text(encoding="utf-8"))) for path in FILES}
    assert not {path: lines for path, lines in found.items() if lines}
