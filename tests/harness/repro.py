"""Scripts of recorded calls (msprobe-client repro), held against what check says of the same calls."""

import contextlib
import io
import re
import runpy
import sys

import pytest
from msprobe_client.check.arguments import Loader, NotReplayable
from msprobe_client.check.calls import calls_of
from msprobe_client.check.checker import Settings, checked
from msprobe_client.check.standards import Standards
from msprobe_client.repro.bundle import write_script
from msprobe_client.repro.script import script_of
from safetensors.torch import load_file

LINE = re.compile(r"(?P<place>[\w.]+): (?P<verdict>\w+) by (?P<rule>\w+): (?P<measured>.*), limit (?P<limit>.*)")
# Runs scripts with nothing but torch, what it requires, and the standard library.
BARE = """
import runpy, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("msprobe", "msprobe_client", "safetensors", "numpy", "grpc", "google"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refuse())
failed = 0
for script in sys.argv[1:]:
    sys.argv = [script]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as ended:
        failed += ended.code not in (0, None)
sys.exit(failed)
"""


def verdicts_of(script):
    """{place: (verdict, rule, measured)}, run in this process."""
    said = io.StringIO()
    arguments, sys.argv = sys.argv, [str(script)]
    try:
        with contextlib.redirect_stdout(said), pytest.raises(SystemExit) as ended:
            runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv = arguments
    found = {match["place"]: match.groupdict() for match in LINE.finditer(said.getvalue())}
    assert found, said.getvalue()
    assert bool(ended.value.code) == any(row["verdict"] == "fail" for row in found.values())
    return found


def of_scripts(client, place, policy, folder, names):
    """What each call's script says, by the name that check gives its row; and the reasons where there is none."""
    found, refused = {}, {}
    standards = Standards(client)
    for call in (call for name in names for call in calls_of(client, place, name)):
        base = call.forward.full_name.removesuffix(".forward")
        for direction in ("forward", "backward"):
            try:
                made = script_of(
                    call,
                    Loader(client, place.run, 1234),
                    place,
                    direction=direction,
                    policy=policy,
                    level=standards.of(base.split(".")[1], "float32").level,
                    seed=1234,
                    shown="x",
                )
            except NotReplayable as reason:
                refused[f"{base}.{direction}"] = str(reason)
                continue
            script, bundle = folder / f"{made.name}.py", folder / f"{made.name}.safetensors"
            write_script(script, bundle, made.text, made.contents)
            load_file(bundle)
            for output, row in verdicts_of(script).items():
                found[f"{base}.{direction}.{output}"] = row
    return found, refused


def assert_same(client, place, policy, folder, names=("*",)):
    settings = Settings(policy=policy)
    rows = {
        row.name: row for name in names for _, _, found in checked(client, [place], settings, name) for row in found
    }
    said, refused = of_scripts(client, place, policy, folder, names)
    expected = {name: row for name, row in rows.items() if row.verdict not in ("skip", "error")}
    assert set(said) == set(expected), (set(said) ^ set(expected), refused)
    for name, row in expected.items():
        assert (said[name]["verdict"], said[name]["rule"]) == (row.verdict, row.rule), (name, said[name], row)
        if row.measured is not None and row.rule not in ("shape", "no_elements", "equal_elements"):
            assert float(said[name]["measured"]) == pytest.approx(row.measured, rel=1e-6, abs=1e-12), name
            assert float(said[name]["limit"]) == pytest.approx(row.limit, rel=1e-6, abs=1e-12), name
    return expected, refused
