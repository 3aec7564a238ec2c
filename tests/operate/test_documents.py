"""Follows the documents as a user would."""

import re
import shlex
import subprocess
import sys

import pytest
from harness.processes import REPOSITORY, environment, find_binary, run


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.timeout(240)
def test_the_tutorial_finds_its_bug(tmp_path, client):
    text = (REPOSITORY / "docs" / "tutorial.md").read_text()
    (program,), (config,) = blocks(text, "python"), blocks(text, "json")
    (tmp_path / "train.py").write_text(program)
    (tmp_path / "config.json").write_text(config)
    first, ask, trend = (shlex.split(block) for block in blocks(text, "sh"))
    said = run([sys.executable, *first[1:]], cwd=tmp_path).stdout
    losses = dict(re.findall(r"^(\d+) (\S+)$", said, re.MULTILINE))  # the agent speaks there, too
    assert re.search(r"From step (\d+) on it prints `nan`", text)[1] == min(
        s for s, loss in losses.items() if loss == "nan"
    )
    found = run([client, *ask[1:]], cwd=tmp_path, check=False)
    assert found.returncode == 1, found.stderr
    (operation,) = blocks(text, "text")
    assert operation.strip() in found.stdout.splitlines()[1] and "gate" in found.stdout.splitlines()[1]
    series = run([client, *trend[1:], "--format", "json"], cwd=tmp_path).stdout
    assert "6" in series and "-1" in series


@pytest.mark.parametrize("page", [*sorted(path.name for path in (REPOSITORY / "docs").glob("*.md")), "../README.md"])
def test_links_lead_somewhere(page):
    path = REPOSITORY / "docs" / page
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text()):
        assert "://" in target or (path.parent / target).exists(), target


def test_files_that_documents_name_are_there():
    for page in ("CONTRIBUTING.md", "docs/operating.md"):
        text = (REPOSITORY / page).read_text()
        for name in re.findall(
            r"`((?:server|client_py|deploy|docs|proto|tests|scripts)/[\w./-]+\.(?:cc|h|py|md|proto|yaml|conf))`", text
        ):
            assert (REPOSITORY / name).exists(), f"{page} names {name}"


def test_the_readme_opens_with_the_measured_costs():
    measured = (REPOSITORY / "docs" / "overhead.md").read_text().partition("<!-- end of answer -->")[0]
    costs = re.findall(r"^\| [^|]+ \| [\d.]+ \| [\d.]+ \|$", measured, re.MULTILINE)
    assert len(costs) == 3
    readme = (REPOSITORY / "README.md").read_text()
    assert "\n".join(costs) in readme, "put the answer of docs/overhead.md into README.md"


def test_every_alert_is_in_the_guide():
    guide = (REPOSITORY / "docs" / "operating.md").read_text()
    rules = (REPOSITORY / "deploy" / "prometheus" / "rules.yaml").read_text()
    for name in re.findall(r"- alert: (\w+)", rules):
        assert f"| {name} " in guide, name


def test_every_reloadable_setting_is_in_the_guide():
    source = (REPOSITORY / "server" / "app" / "settings.cc").read_text()
    listed = re.search(r"kReloadable = \{(.*?)\}", source, re.DOTALL)[1]
    guide = (REPOSITORY / "docs" / "operating.md").read_text()
    for name in re.findall(r'"(\w+)"', listed):
        assert f"`{name}`" in guide, name


def test_make_lists_its_targets():
    said = subprocess.run(
        ["make", "help"], cwd=REPOSITORY, capture_output=True, text=True, check=True, env=environment()
    )
    for target in ("test-operate", "package", "image", "dashboards"):
        assert re.search(rf"make {target}\b", said.stdout), target
    assert find_binary("msprobe-client")
