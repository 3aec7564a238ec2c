"""Every operator of a block of a transformer as a script of its own, which needs torch alone and agrees with check.

Of make nightly: it is long.
"""

import subprocess
import sys

import pytest
from harness.processes import REPOSITORY, environment
from harness.repro import BARE, LINE, assert_same
from msprobe_client import Client
from msprobe_client.check.calls import Place

PROGRAM = REPOSITORY / "tests/integration/programs/repro_transformer.py"
NOT_SCRIPTS = ("it has no backward record", "returns memory that nobody has written", "float64: ", "returns no tensor")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["gpt2", "qwen2"])
def test_every_operator_of_a_block(kind, tmp_path):
    dump, folder = tmp_path / "dump", tmp_path / "scripts"
    subprocess.run([sys.executable, PROGRAM, dump, kind], check=True, timeout=300, env=environment())
    folder.mkdir()
    with Client(data_dir=tmp_path / "data", create=True) as client:
        client.import_dump(dump, kind, tensors=True)
        (step,) = client.steps(kind)
        rows, refused = assert_same(client, Place(kind, step.step, step.rank), "default", folder)
    assert {row.verdict for row in rows.values()} == {"pass"}
    assert len({row.operation for row in rows.values()}) >= 13
    unexpected = [reason for reason in refused.values() if not any(word in reason for word in NOT_SCRIPTS)]
    assert not unexpected, refused
    scripts = sorted(folder.glob("*.py"))
    done = subprocess.run(
        [sys.executable, "-I", "-c", BARE, *scripts], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(LINE.findall(done.stdout)) == len(rows)
