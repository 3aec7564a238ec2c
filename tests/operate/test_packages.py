"""What the first command installs: what builds and runs the project, and nothing that only tests or linters need."""

import re

import pytest
from harness.processes import REPOSITORY

SCRIPTS = REPOSITORY / "scripts"
# Parts, each with the pattern of its packages' names and the list that has them instead.
ELSEWHERE = {
    "NVIDIA's assembler": (r"nvidia-.*|.*nvcc.*", "requirements-test.txt"),
    "Ray": (r"ray", "requirements-test.txt"),
    "matplotlib": (r"matplotlib", "requirements-test.txt"),
    "safetensors": (r"safetensors", "requirements-test.txt"),
    "test runners of Python": (r"pytest.*|hypothesis", "requirements-test.txt"),
    "test runners of C++": (r"libgtest-dev|libgmock-dev|googletest|libbenchmark-dev", "debian_packages_test.txt"),
    "compilers for aarch64": (r".*aarch64.*|qemu-.*", "debian_packages_aarch64.txt"),
    "linters of Python": (r"ruff|mypy|mypy_extensions", "requirements-lint.txt"),
    "linters of C++": (r"clang-(format|tidy).*|libfuzzer.*", "debian_packages_lint.txt"),
    "linters of images": (r"hadolint.*", "requirements-operate.txt"),
    "what builds images": (r"buildah|mmdebstrap|prometheus|chromium", "debian_packages_operate.txt"),
}
FIRST = ("debian_packages.txt", "requirements.txt", "requirements-torch.txt")


def packages(name):
    lines = (line.strip() for line in (SCRIPTS / name).read_text().splitlines())
    return {re.split(r"[=\\[]", line)[0].lower() for line in lines if line and not line.startswith("#")}


@pytest.mark.parametrize("part", ELSEWHERE)
def test_the_first_command_does_not_install(part):
    pattern, home = ELSEWHERE[part]
    for name in FIRST:
        found = {package for package in packages(name) if re.fullmatch(pattern, package)}
        assert not found, f"{name} has {found}, which belong into {home}"
    assert any(re.fullmatch(pattern, package) for package in packages(home)), f"{home} has none: is the name right?"


def test_the_first_command_reads_only_those_lists():
    """`make build` is the targets build, cpp, venv and debian, and the rules of the two lists of Python packages."""
    makefile = (REPOSITORY / "Makefile").read_text()
    targets = {
        name: (needs.partition("##")[0].split(), recipe)
        for name, needs, recipe in re.findall(r"(?m)^([\w$()/.%-]+): ?([^=\n]*)\n((?:\t.*\n)*)", makefile)
    }
    todo, read = ["build"], set()
    while todo:
        needs, recipe = targets[todo.pop()]
        read |= {part.removeprefix("scripts/") for part in needs if part.endswith(".txt")}
        read |= set(re.findall(r"scripts/([\w-]+\.txt)", recipe))
        todo += [need for need in needs if need in targets]
    assert read == set(FIRST)
