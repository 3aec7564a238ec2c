"""What mindstudio-probe offers works here, or docs/compatibility.md says why it does not ("What is not here").

tool_surface.py has the rule of what is offered. Version 26.2.0 is asked as it is installed; recordings/surface_*.json
are what the same program said of 1.0.4, the first, and 8.3.3, the last of the 1.0 line.
"""

import argparse
import importlib
import inspect
import json
import pathlib
import re

import pytest
import tool_surface
from harness.processes import REPOSITORY, run_with
from msprobe_client.compat import legacy, v1_compare_command

HERE = pathlib.Path(__file__).parent
OLDER = ("1_0_4", "8_3_3")
BY_FRAMEWORK = "msprobe.mindspore"  # parsed: MindSpore is in another environment


@pytest.fixture(scope="module")
def surfaces(oracle_python):
    found = {version: json.loads((HERE / "recordings" / f"surface_{version}.json").read_text()) for version in OLDER}
    return found | {"26_2_0": json.loads(run_with(oracle_python, HERE / "tool_surface.py").stdout)}


@pytest.fixture(scope="module")
def ours():
    return tool_surface.Source(pathlib.Path(importlib.util.find_spec("msprobe").origin).parent)


@pytest.fixture(scope="module")
def works(surfaces, ours):
    """What is offered, by the name that a row of the document would give it -> whether it works here."""
    found = {}
    for surface in surfaces.values():
        for command, options in surface["commands"].items():
            found |= dict(of_command(command, options))
        for name, methods in surface["names"].items():
            found |= dict(of_name(name, methods, ours))
        found |= {f"python -m {each}": each in ours.programs() for each in surface["programs"]}
        found |= dict.fromkeys(surface["plugins"], False)
    return found


@pytest.fixture(scope="module")
def missing(works):
    return [name for name, here in works.items() if not here]


def of_command(command, options):
    framework, name = re.fullmatch(r"(?:-f (\w+) )?([^ ]*)(?: \(\w+\))?", command).groups()
    if not name:  # msprobe --version, of our own root
        return
    spelt = f"msprobe {'-f ' + framework + ' ' if framework else ''}{name}"
    yield spelt, name in legacy._PRESENT
    if name not in legacy._PRESENT:
        return
    if framework and name == "compare":
        parser = v1_compare_command.parser(framework)
    else:
        parser = importlib.import_module(f"msprobe_client.compat.{legacy._PRESENT[name]}").parser()
    shown = [action for action in parser._actions if action.help != argparse.SUPPRESS]  # others are taken to be refused
    known = {spelling for action in shown for spelling in (*action.option_strings, action.dest)}
    for spellings in options:
        yield f"{spelt} {max(spellings, key=len)}", set(spellings) <= known


def of_name(name, methods, ours):
    module, _, last = name.rpartition(".")
    if name.startswith(BY_FRAMEWORK):
        definition = ours.definition(module, last)
        has = None if definition is None else ours.methods(*definition)
    else:
        has = imported(module, last)
    yield name, has is not None
    if has is None:
        return
    for method, wanted in methods.items():
        yield f"{name}.{method}", method in has
        if method in has and "**" not in has[method]:
            yield from ((f"{name}.{method}({each})", each in has[method]) for each in wanted if each != "**")


def imported(module, name):
    """Method -> parameters of what is there, {} of a function; None: it is not there."""
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        return None
    assert callable(found), f"{module}.{name} is {found!r}"
    if not inspect.isclass(found):
        return {}
    public = {each: getattr(found, each) for each in dir(found) if not each.startswith("_")}
    kept = {each: value for each, value in public.items() if callable(value) or isinstance(value, property)}
    return {each: parameters(value) if callable(value) else [] for each, value in kept.items()}


def parameters(function):
    given = inspect.signature(function).parameters.values()
    return ["**" if each.kind is each.VAR_KEYWORD else each.name for each in given]


def listed():
    """Patterns of the table of what is not here, each with its reason."""
    text = (REPOSITORY / "docs" / "compatibility.md").read_text()
    table = text.partition("\n## What is not here\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.+?`) \| (.+?) \|$", table, re.MULTILINE)
    return {pattern: why for cell, why in rows for pattern in re.findall(r"`([^`]+)`", cell)}


def test_the_tool_offers_what_everybody_knows(surfaces):
    """That the listing is one: a few names and options that any user of a version knows are in it."""
    now, first, last = surfaces["26_2_0"], surfaces["1_0_4"], surfaces["8_3_3"]
    assert {"compare", "overflow_check", "parse", "acc_check (mindspore)"} <= set(now["commands"])
    assert ["--target_path", "-tp"] in now["commands"]["compare"]
    assert {"-f pytorch run_ut", "-f mindspore compare"} <= set(first["commands"]) & set(last["commands"])
    assert {"start", "stop", "step", "save"} <= set(now["names"]["msprobe.pytorch.PrecisionDebugger"])
    assert "msprobe.pytorch.compile_accuracy_checker.precision_checker.PrecisionChecker" in now["names"]
    assert now["names"]["msprobe.core.SingleComparator"]["compare"][:2] == ["dir1", "dir2"]
    assert "msprobe.pytorch.compare_distributed" in first["names"]
    assert "msprobe.mindspore.save_grad" in last["names"]


def test_what_does_not_work_here_is_listed_with_its_reason(missing):
    assert sorted(each for each in missing if not any(tool_surface.fits(row, each) for row in listed())) == []


def test_the_list_has_nothing_that_works(works, missing):
    rows = listed()
    assert [row for row in rows if not any(tool_surface.fits(row, each) for each in missing)] == []
    here = [each for each, working in works.items() if working]
    assert [(row, each) for row in rows for each in here if tool_surface.fits(row, each)] == []
    assert all(len(why) > 10 for why in rows.values())


def test_a_command_that_is_not_here_says_what_to_use(missing, capsys):
    for name in sorted(each for each in missing if re.fullmatch(r"msprobe (-f \w+ )?\w+", each)):
        with pytest.raises(SystemExit) as ended:
            legacy.main(name.split()[1:])
        assert ended.value.code == 2
        said = capsys.readouterr().err
        assert f"{name.split()[-1]} is not part of this version; " in said and said.count("\n") == 1
