"""The agent's wheel in an image that has Python and torch, and none of the libraries that it was built with."""

import importlib.metadata
import json
import pathlib
import re
import sys

import pytest
from harness.dumps import read_dump, write_config
from harness.processes import run

# The imports of torch, from this environment: to install them anew would take minutes and show the same.
BORROWED = ("torch", "sympy", "networkx", "jinja2", "fsspec", "filelock", "setuptools", "numpy", "typing_extensions")
OURS = re.compile(r"lib(grpc|protobuf|absl|re2|cares|spdlog|fmt|upb|address_sorting|gpr)[^/]*\.so")
PROGRAM = """
import sys
import torch
from msprobe.pytorch import PrecisionDebugger
debugger = PrecisionDebugger(config_path=sys.argv[1])
model = torch.nn.Linear(4, 4)
debugger.start(model)
model(torch.ones(2, 4)).sum().backward()
debugger.stop()
debugger.step()
debugger.wait()
print(*sorted({line.split(maxsplit=5)[5].strip() for line in open("/proc/self/maps") if ".so" in line}), sep="\\n")
"""


def files_to_borrow():
    """Folders and modules at the top of site-packages that belong to these packages and their requirements."""
    found, todo, seen = set(), list(BORROWED), set()
    while todo:
        name = re.split(r"[ ;<>=!~\[(]", todo.pop())[0].lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            package = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # of another platform
        todo += [each for each in package.requires or [] if "extra ==" not in each]
        tops = {pathlib.Path(each).parts[0] for each in package.files or []}
        found |= {package.locate_file(top) for top in tops if not top.startswith((".", "__pycache__"))}
    return sorted(path for path in map(pathlib.Path, found) if path.exists())


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_the_wheel_runs_where_there_are_none_of_our_libraries(wheels, bare_python, short_directory):
    root = bare_python(short_directory / "root")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    if not (root / "usr" / "bin" / version).exists():
        pytest.skip(f"the wheel is of {version}, Debian has another one")
    assert not [path for path in root.rglob("*.so*") if OURS.search(path.name)], "nothing of ours is there before"

    (root / "wheels").mkdir()
    chosen = [wheels[part] for part in ("agent", "server")]
    for wheel in chosen:
        (root / "wheels" / wheel.name).write_bytes(wheel.read_bytes())
    (root / "work").mkdir()
    (root / "work" / "program.py").write_text(PROGRAM)
    write_config(root / "work" / "config.json", "/work/dump", level="mix")
    site = root / "venv" / "lib" / version / "site-packages"
    borrowed = root / "borrowed"
    borrowed.mkdir()
    mounts = []
    for source in files_to_borrow():
        target = borrowed / source.name
        if source.is_dir():
            target.mkdir()
            mounts.append(f"mount --bind -o ro '{source}' '{target}'")
        else:
            target.write_bytes(source.read_bytes())

    def inside(command):
        steps = ["set -e", *mounts, f"mount -t proc proc '{root}/proc'", f"mount --bind /dev '{root}/dev'"]
        steps += [f"exec chroot '{root}' env -i PATH=/venv/bin:/usr/bin:/bin HOME=/root {command}"]
        return run(["unshare", "--mount", "--propagation", "private", "sh", "-c", "\n".join(steps)], timeout=300).stdout

    inside("python3 -m venv /venv")
    (site / "borrowed.pth").write_text("/borrowed\n")
    inside("pip install --quiet --no-index --no-deps /wheels/" + " /wheels/".join(wheel.name for wheel in chosen))
    said = inside("python /work/program.py /work/config.json")

    loaded = [line for line in said.splitlines() if OURS.search(line)]
    assert loaded, f"the agent brings its libraries\n{said[-3000:]}"
    assert all("/msprobe_agent.libs/" in path for path in loaded), loaded
    (rank,) = (root / "work" / "dump" / "step0").iterdir()
    assert "Functional.linear.0.forward" in read_dump(rank)["data"]
    assert json.loads((rank / "construct.json").read_text())
