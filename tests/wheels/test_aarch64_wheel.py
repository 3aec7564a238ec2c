"""What is in the wheel that was built for aarch64 on another machine."""

import hashlib
import json
import re
import zipfile

import pytest
from environments import AARCH64, one

EM_AARCH64 = 183


@pytest.fixture(scope="module")
def wheel():
    return one("aarch64/msprobe_agent-*.whl")


@pytest.fixture(scope="module")
def shared_objects(wheel):
    with zipfile.ZipFile(wheel) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    return {name: content for name, content in contents.items() if content[:4] == b"\x7fELF"}


@pytest.fixture(scope="module")
def notice(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/licenses/NOTICE"))
        return archive.read(name).decode()


def test_every_program_in_it_is_for_aarch64(wheel, shared_objects):
    assert re.fullmatch(r"msprobe_agent-[\d.]+-cp311-cp311-manylinux_2_3[0-9]_aarch64\.whl", wheel.name)
    assert {int.from_bytes(content[18:20], "little") for content in shared_objects.values()} == {EM_AARCH64}
    for torch, python in AARCH64.agents():
        assert f"msprobe/torch{torch}/_agent.cpython-{python[2:]}-aarch64-linux-gnu.so" in shared_objects


def test_every_library_in_it_has_its_text_and_is_in_the_bill(wheel, shared_objects, notice):
    ours = re.compile(r"(_agent|_mindspore|libmsprobe_messages)\b")
    carried = {name: content for name, content in shared_objects.items() if not ours.match(name.rpartition("/")[2])}
    assert len(carried) > 20, "gRPC and what it needs is carried"
    texts = " ".join(re.findall(r"^Shared objects: (.*(?:\n  .*)*)", notice, re.MULTILINE))
    assert set(re.findall(r"[^\s,]+", texts)) == {name.rpartition("/")[2] for name in carried}
    for name in ("torch", "pybind11", "cpython", "rapidjson"):
        assert re.search(rf"^{name} \S.*\nLicence: .*\n(.*\n)?Compiled in: its headers$", notice, re.MULTILINE), name

    bill = json.loads(wheel.with_name(f"{wheel.name}.cdx.json").read_text())
    files = {
        file["name"]: file["hashes"][0]["content"] for each in bill["components"] for file in each.get("components", ())
    }
    assert files == {name: hashlib.sha256(content).hexdigest() for name, content in carried.items()}
    assert bill["metadata"]["component"]["hashes"][0]["content"] == hashlib.sha256(wheel.read_bytes()).hexdigest()
